"""Unit: budgets, counted in work or in looks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # inputs lie beside the tests

from joins_inputs import drawn
from tests.support.clocks import CountingClock

from thalweg.optimize import probe_orders, slot_assignment
from thalweg.optimize.deadline import MARGIN, WALL, Deadline


class Times:
    """Processor and wall time, as a test sets them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.worked, self.wall = 100.0, 5000.0
        patch.setattr(time, "thread_time", lambda: self.worked)
        patch.setattr(time, "monotonic", lambda: self.wall)

    def go(self, worked: float, wall: float) -> None:
        self.worked += worked
        self.wall += wall


def test_a_budget_counts_work_and_waiting_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times(monkeypatch)
    deadline = Deadline.after(1.0)
    times.go(worked=0.5, wall=4.0)
    assert deadline.left == pytest.approx(0.5)
    times.go(worked=0.6, wall=0.6)
    assert deadline.over


def test_a_budget_ends_after_ten_times_its_length_on_the_wall(monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times(monkeypatch)
    deadline = Deadline.after(1.0)
    times.go(worked=0.0, wall=WALL - 0.1)
    assert not deadline.over
    times.go(worked=0.0, wall=0.2)
    assert deadline.over


def test_a_thread_counts_its_own_work_from_the_moment_of_the_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    times = Times(monkeypatch)
    deadline = Deadline.after(1.0)
    times.go(worked=0.3, wall=0.3)
    fork = deadline.fork()
    times.worked = 7.0  # another thread, with a processor time of its own
    assert fork.left == pytest.approx(0.7)
    times.go(worked=0.2, wall=0.2)
    assert fork.left == pytest.approx(0.5)


class Solver:
    """Keeps what a clock tells HiGHS."""

    def __init__(self) -> None:
        self.options: dict[str, float] = {}
        self.cbMipInterrupt: list[Callable[[Any], None]] = Callbacks()
        self.cbSimplexInterrupt: list[Callable[[Any], None]] = Callbacks()

    def setOptionValue(self, name: str, value: float) -> None:  # noqa: N802 - as HiGHS has it
        self.options[name] = value

    def asks(self) -> bool:
        """Whether it is stopped when it asks."""
        stopped: list[bool] = []
        event = SimpleNamespace(interrupt=lambda: stopped.append(True))
        for look in (*self.cbMipInterrupt, *self.cbSimplexInterrupt):
            look(event)
        return bool(stopped)


class Callbacks(list[Callable[[Any], None]]):
    def __iadd__(self, look: Any) -> Callbacks:  # type: ignore[misc]
        self.append(look)
        return self


def test_a_solver_is_stopped_by_work_and_by_the_wall_only_far_behind_its_pace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = Times(monkeypatch)
    deadline = Deadline.after(1.0)
    fresh, later = Solver(), Solver()
    deadline.limit(fresh)  # type: ignore[arg-type]
    assert fresh.options["time_limit"] == pytest.approx(WALL), "no pace is known yet"
    times.go(worked=0.2, wall=0.6)
    deadline.limit(later)  # type: ignore[arg-type]
    assert later.options["time_limit"] == pytest.approx(0.8 * 3.0 * MARGIN)
    assert not later.asks()
    times.go(worked=0.9, wall=0.9)
    assert later.asks()


def spin(stop: Any) -> None:
    while not stop.is_set():
        sum(range(1000))


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """A machine with this many processes that do nothing but work."""
    context = get_context("spawn")
    stop = context.Event()
    spinning = [context.Process(target=spin, args=(stop,), daemon=True) for _ in range(processes)]
    for process in spinning:
        process.start()
    try:
        yield
    finally:
        stop.set()
        for process in spinning:
            process.join(timeout=30)


@pytest.mark.slow
def test_a_busy_machine_gets_the_same_answers() -> None:
    """Slots and probe orders cost the same beside twenty busy processes."""
    rng = np.random.default_rng(3)
    joint = rng.integers(0, 8, (16, 16)).astype(float)
    counts = {("s", "a"): joint.sum(axis=1), ("s", "b"): joint.sum(axis=0)}
    problem = slot_assignment.Problem(4, counts, {(("s", "a"), ("s", "b")): joint})
    drawn_joins = drawn(3, queries=12, sizes=(4,), relations=6)

    def answers() -> tuple[float, float, float]:
        began = time.monotonic()
        assigned = slot_assignment.optimize(problem, budget_seconds=0.5).cost
        planned = probe_orders.optimize(drawn_joins.join_queries, drawn_joins.statistics, budget_seconds=0.5).cost
        return assigned, planned, time.monotonic() - began

    answers()  # what loads with the first call is not part of it
    alone = answers()
    with busy(2 * 10):
        beside = answers()
    assert beside[:2] == pytest.approx(alone[:2], rel=1e-3)
    assert beside[2] < 2 * 0.5 * WALL + 10.0, "the wall ends it"


def test_looks_pass_by_looking() -> None:
    deadline = Deadline.after(0.01, CountingClock(pace=1000))
    assert [deadline.over for _ in range(12)] == [False] * 9 + [True] * 3


def test_a_share_is_of_what_is_left_and_on_the_same_clock() -> None:
    clock = CountingClock(pace=100)
    deadline = Deadline.after(1.0, clock)
    half = deadline.share(0.5)
    assert half.clock is clock
    assert half.end == pytest.approx(0.02 + 0.99 / 2)
    assert Deadline(0.0, clock).share(0.5).over, "what is over has no parts"


def test_threads_count_looks_for_themselves() -> None:
    deadline = Deadline.after(1.0, CountingClock(pace=100))
    one, other = deadline.fork(), deadline.fork()
    assert [one.left for _ in range(5)] == [other.left for _ in range(5)] == [deadline.left for _ in range(5)]
