"""Unit: intervals of fixed length in microseconds."""

from __future__ import annotations

import pytest

from thalweg.errors import SqlError
from thalweg.frontend.intervals import parse_interval


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("10 seconds", 10_000_000),
        ("1 second", 1_000_000),
        ("1 minute 30 seconds", 90_000_000),
        ("INTERVAL 5 MINUTES", 300_000_000),
        ("interval '5' minute", 300_000_000),
        ("1.5 seconds", 1_500_000),
        ("500 milliseconds", 500_000),
        ("7 microseconds", 7),
        ("2 days", 172_800_000_000),
        ("1 week", 604_800_000_000),
        (" 1 hour ", 3_600_000_000),
        ("-1 second", -1_000_000),
        ("10seconds", 10_000_000),
    ],
)
def test_lengths(text: str, us: int) -> None:
    assert parse_interval(text) == us


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1 month", "no fixed length"),
        ("2 years", "no fixed length"),
        ("soon", "cannot read 'soon'"),
        ("10", "cannot read '10'"),
        ("10 parsecs", "no unit of time"),
        ("", "empty"),
        ("interval", "empty"),
        ("0.1 microseconds", "finer than a microsecond"),
        ("1 second and", "cannot read 'and'"),
        ("200000000 days", "longer than 73,000 years"),
        ("-200000000 days", "longer than 73,000 years"),
        ("9" * 5000 + " seconds", "longer than 73,000 years"),
        ("20000000 days 20000000 days", "longer than 73,000 years"),
    ],
)
def test_anything_else_is_refused(text: str, reason: str) -> None:
    with pytest.raises(SqlError, match="not an interval") as caught:
        parse_interval(text)
    assert reason in (caught.value.detail or "")
