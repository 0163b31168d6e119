"""Unit: what says that sinks have been given everything comes back, and damage is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from thalweg.errors import StateError
from thalweg.model.manifest import Prepared
from thalweg.state.delivered import Delivered, find_delivered, save_delivered, still_waiting
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
    save_delivered(storage, Delivered(4, {"q": "no"}, {"a": 4}, {"b": "why"}))
    path = tmp_path / "delivered"
    good = path.read_bytes()
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]):
            path.write_bytes(bad)
            with pytest.raises(StateError) as raised:
                find_delivered(storage)
            assert str(path) in str(raised.value)


def test_what_is_still_to_be_given() -> None:
    """As this release says it, by query; and as earlier ones did: all but what sinks refused."""
    held = [Prepared(query, batch, 1) for batch in (3, 4, 5) for query in ("a", "b", "c")]
    assert still_waiting(held, None) == held
    left = still_waiting(held, Delivered(5, given={"a": 5, "b": 3}))
    assert [(p.query, p.batch) for p in left] == [("c", 3), ("b", 4), ("c", 4), ("b", 5), ("c", 5)]
    assert still_waiting(held, Delivered(5)) == []
    assert {p.query for p in still_waiting(held, Delivered(5, {"b": "no"}))} == {"b"}
