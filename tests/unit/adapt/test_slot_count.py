"""Unit: how many slots there are, by how much there is to do."""

from __future__ import annotations

from thalweg.adapt.slot_count import BUSY, EPOCH, IDLE, Slots, after_batch, next_slots


def test_more_work_more_slots_and_back() -> None:
    assert next_slots(2, 2 * BUSY + 0.1, 8) == 4
    assert next_slots(4, 100.0, 6) == 6
    assert next_slots(6, 100.0, 6) == 6
    assert next_slots(4, 4 * IDLE - 0.01, 8) == 2
    assert next_slots(1, 0.0, 8) == 1
    assert next_slots(4, 4 * (IDLE + BUSY) / 2, 8) == 4


def test_what_was_doubled_is_not_halved_at_once() -> None:
    assert BUSY / 2 > IDLE
    assert 2 * IDLE < BUSY


def test_an_epoch_decides_not_a_batch() -> None:
    known = Slots(2)

    def after(busy_seconds: float) -> int:
        nonlocal known
        known = after_batch(known, known.slots, busy_seconds, 8)
        return known.slots

    busy = [after(10.0 if i == 0 else 0.2) for i in range(EPOCH)]
    assert busy == [2] * (EPOCH - 1) + [4]
    assert [after(0.0) for _ in range(EPOCH)] == [4] * (EPOCH - 1) + [2]
