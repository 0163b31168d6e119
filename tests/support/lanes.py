"""Which tests run where, and what the fast lane asks of its own: no more than a second of the processor each.

Seconds of the processor and not of the clock, so that a busy machine fails nothing. What Numba compiles does not
count: it is on the disk afterwards, and whichever test comes first has to wait for it.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator
from importlib import import_module

import pytest
from numba.core import event

from thalweg.optimize import slot_assignment
from thalweg.optimize.probe_orders import warm as joins

MOST_SECONDS = 1.0
PROPERTY = "cpu_seconds"


class Compiling(event.Listener):
    """How long Numba has compiled so far."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth, self._since = 0, 0.0

    def on_start(self, event: event.Event) -> None:
        if self._depth == 0:
            self._since = time.process_time()
        self._depth += 1

    def on_end(self, event: event.Event) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.process_time() - self._since


class FastLane:
    """A plugin: measures the call of each test, not its fixtures, and fails the run for those that take too long."""

    def __init__(self) -> None:
        self.compiling = Compiling()
        self.slow: dict[str, float] = {}
        event.register("numba:compile", self.compiling)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """What the first test of a process would wait for: a large library, and kernels from the disk."""
        if session.config.getoption("numprocesses", None):
            return  # the tests run in other processes, each of which comes here itself
        import_module("pandas")
        slot_assignment.warm_kernels()
        joins.warm_kernels()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        began, compiled = time.process_time(), self.compiling.seconds
        try:
            return (yield)
        finally:
            spent = time.process_time() - began - (self.compiling.seconds - compiled)
            item.user_properties.append((PROPERTY, spent))  # travels from the process that runs it

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent = float(dict(report.user_properties).get(PROPERTY, 0.0))
        if report.when == "call" and spent > MOST_SECONDS:
            self.slow[report.nodeid] = spent

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.slow and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.slow:
            terminalreporter.section(f"above {MOST_SECONDS:g} s of the processor: make it smaller or mark it slow")
            for test, spent in sorted(self.slow.items(), key=lambda found: -found[1]):
                terminalreporter.write_line(f"{spent:6.2f} s  {test}")


SAMPLE = 16
"""One of this many tests with recorded answers asks Spark again in a full run."""


def sort_into_lanes(item: pytest.Item, rotation: int | None) -> None:
    """Marks what needs Spark: one process runs all of it, since a Spark for each would be slower.

    `rotation` chooses the tests that ask Spark again; None: none does.
    """
    fixtures = getattr(item, "fixturenames", ())
    is_recorded = "side" in fixtures and item.get_closest_marker("on_spark") is None
    if is_recorded and rotation is not None and zlib.crc32(f"{rotation} {item.nodeid}".encode()) % SAMPLE == 0:
        item.add_marker(pytest.mark.rotating)
    marks = ("spark", "on_spark", "rotating")
    if "spark" in fixtures or any(item.get_closest_marker(mark) for mark in marks):
        item.add_marker(pytest.mark.spark)
