"""Unit: what the fast lane measures, and when it fails a run."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import numba
import pytest
from hypothesis import settings
from tests.support.lanes import PROPERTY, FastLane
from tests.support.profiles import FULL, examples


def report(name: str, seconds: float, when: str = "call") -> Any:
    return SimpleNamespace(nodeid=name, when=when, user_properties=[(PROPERTY, seconds)])


def finished(lane: FastLane, status: int = 0) -> int:
    session: Any = SimpleNamespace(exitstatus=status)
    lane.pytest_sessionfinish(session)
    return int(session.exitstatus)


def test_a_test_above_a_second_fails_the_run() -> None:
    lane = FastLane()
    lane.pytest_runtest_logreport(report("quick", 0.9))
    lane.pytest_runtest_logreport(report("fixture", 5.0, when="setup"))
    assert finished(lane) == pytest.ExitCode.OK
    lane.pytest_runtest_logreport(report("long", 1.1))
    assert lane.slow == {"long": 1.1}
    assert finished(lane) == pytest.ExitCode.TESTS_FAILED
    assert finished(lane, pytest.ExitCode.INTERRUPTED) == pytest.ExitCode.INTERRUPTED


def measured(lane: FastLane, call: Any) -> float:
    item: Any = SimpleNamespace(user_properties=[])
    hook = lane.pytest_runtest_call(item)
    next(hook)
    call()
    with pytest.raises(StopIteration):
        hook.send(None)
    return float(dict(item.user_properties)[PROPERTY])


def work(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_work_counts_and_sleep_and_compilation_do_not() -> None:
    lane = FastLane()
    assert measured(lane, lambda: work(0.05)) >= 0.05
    assert measured(lane, lambda: time.sleep(0.05)) < 0.04
    compiled = numba.njit(lambda x: x + 1)
    assert measured(lane, lambda: compiled(1)) < lane.compiling.seconds


def test_examples_follow_the_profile() -> None:
    before = settings.get_current_profile_name()
    try:
        for profile, expected in (("fast", 40), ("full", 200), ("nightly", 4000)):
            settings.load_profile(profile)
            assert examples(200) == expected
        settings.load_profile("fast")
        assert examples(1) == 1
        assert settings().max_examples == 10 < FULL
    finally:
        settings.load_profile(before)
