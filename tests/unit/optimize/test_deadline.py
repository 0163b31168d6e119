"""Unit: budgets, counted in seconds or in looks."""

from __future__ import annotations

import time

import pytest
from tests.support.clocks import CountingClock

from thalweg.optimize.deadline import Clock, Deadline


def test_seconds_pass_by_themselves() -> None:
    deadline = Deadline.after(0.01)
    assert 0.0 < deadline.left <= 0.01
    time.sleep(0.011)
    assert deadline.over


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


def test_threads_count_for_themselves_and_seconds_are_the_same_for_all() -> None:
    deadline = Deadline.after(1.0, CountingClock(pace=100))
    one, other = deadline.fork(), deadline.fork()
    assert [one.left for _ in range(5)] == [other.left for _ in range(5)] == [deadline.left for _ in range(5)]
    clock = Clock()
    assert clock.fork() is clock
