"""Unit: amounts of memory as people write them."""

from __future__ import annotations

import pytest

from thalweg.errors import UsageError
from thalweg.model.budget import parse_bytes


@pytest.mark.parametrize(
    ("given", "bytes_"),
    [
        (100_000_000, 100_000_000),
        ("100000000", 100_000_000),
        ("512 MB", 512_000_000),
        ("2g", 2_000_000_000),
        ("1.5 GiB", 3 << 29),
        ("64 mb", 64_000_000),
    ],
)
def test_amounts(given: int | str, bytes_: int) -> None:
    assert parse_bytes(given) == bytes_


@pytest.mark.parametrize("given", ["much", "", "-1 GB", 1000, "10 MB", True, "1 GB!"])
def test_what_is_no_amount_or_too_little_is_refused(given: int | str) -> None:
    with pytest.raises(UsageError, match="worker_memory="):
        parse_bytes(given)
