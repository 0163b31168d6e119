"""Unit: a stopwatch's phases add up to its task, and those of tasks to their batch; it costs next to nothing."""

from __future__ import annotations

import time

import pytest

from thalweg.observe.stopwatch import (
    DRIVER,
    IDLE,
    OPERATE,
    PHASES,
    READ,
    ROUTE,
    SHUFFLE,
    SINK,
    Stopwatch,
    break_down,
    mean,
    shares,
)


@pytest.fixture
def clock() -> list[int]:
    """A clock that a test sets, in nanoseconds."""
    return [0]


def test_an_inner_phase_interrupts_the_outer_one_and_all_add_up(clock: list[int]) -> None:
    watch = Stopwatch(lambda: clock[0])
    clock[0] = 1_000_000_000
    with watch.during(READ):
        clock[0] += 2_000_000_000
        with watch.during(ROUTE):
            clock[0] += 3_000_000_000
        clock[0] += 4_000_000_000
    clock[0] += 5_000_000_000
    assert watch.take() == {SHUFFLE: 6.0, READ: 6.0, ROUTE: 3.0}
    clock[0] += 7_000_000_000
    assert watch.take() == {SHUFFLE: 7.0}


def test_the_outer_phase_goes_on_after_an_error(clock: list[int]) -> None:
    watch = Stopwatch(lambda: clock[0])
    with pytest.raises(ValueError, match="broken"), watch.during(READ):
        raise ValueError("broken")
    clock[0] += 1_000_000_000
    assert watch.take() == {SHUFFLE: 1.0, READ: 0.0}


def test_parts_of_a_batch_add_up_to_it_and_every_phase_is_there() -> None:
    ingest = [{READ: 2.0, ROUTE: 1.0, SHUFFLE: 0.5}, {READ: 1.0}]
    slot = [{OPERATE: 4.0}]
    parts = break_down([ingest, slot], cores=2, job=9.0, sink=0.25, driver=0.75)
    assert list(parts) == list(PHASES)
    assert sum(parts.values()) == pytest.approx(10.0)
    assert parts[READ] == 1.5
    assert parts[OPERATE] == 2.0
    # The second task of INGEST ends 2.5 s before the first; SLOT has one task for two cores.
    assert parts[IDLE] == pytest.approx(2.5 / 2 + 4.0 / 2)
    assert parts[SHUFFLE] == pytest.approx(0.5 / 2 + 9.0 - 3.5 - 4.0)
    assert (parts[SINK], parts[DRIVER]) == (0.25, 0.75)
    assert sum(shares(parts).values()) == pytest.approx(1.0)


def test_mean_and_shares_of_nothing_are_nothing() -> None:
    assert mean([]) == dict.fromkeys(PHASES, 0.0)
    assert shares(mean([])) == dict.fromkeys(PHASES, 0.0)
    some = [break_down([], cores=1, job=0.0, sink=s, driver=0.0) for s in (1.0, 3.0)]
    assert mean(some)[SINK] == 2.0


def test_a_phase_costs_microseconds() -> None:
    """A batch has some hundred of them: at 20 us each, far more than it takes, that is 2 ms."""
    watch = Stopwatch()
    rounds = 2_000
    best = float("inf")
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(rounds):
            with watch.during(READ):
                pass
        best = min(best, (time.perf_counter() - began) / rounds)
    assert best < 20e-6
