"""Unit: what says that sinks have been given everything comes back, and damage is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from thalweg.errors import StateError
from thalweg.state.delivered import Delivered, find_delivered, save_delivered
from thalweg.state.local_storage import LocalStorage


def test_it_comes_back_and_the_last_one_counts(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    assert find_delivered(storage) is None
    save_delivered(storage, Delivered(3))
    assert find_delivered(storage) == Delivered(3, {})
    save_delivered(storage, Delivered(4, {"q": "no\nwäy"}))
    assert find_delivered(storage) == Delivered(4, {"q": "no\nwäy"})
    assert storage.names("") == ["delivered"]


def test_damage_at_any_byte_is_named(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    save_delivered(storage, Delivered(4, {"q": "no"}))
    path = tmp_path / "delivered"
    good = path.read_bytes()
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]):
            path.write_bytes(bad)
            with pytest.raises(StateError) as raised:
                find_delivered(storage)
            assert str(path) in str(raised.value)
