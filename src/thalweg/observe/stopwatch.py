"""Where the time of a batch goes: a stopwatch for tasks, and how their times make up the time of the batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

READ = "read"
PREDICATES = "predicates"
PRE_AGGREGATE = "pre-aggregate"
ROUTE = "route"
SHUFFLE = "shuffle"
DECODE = "decode"
OPERATE = "operate"
STATE_WRITE = "state write"
SINK = "sink"
DRIVER = "driver"
IDLE = "idle"

PHASES: Mapping[str, str] = {
    READ: "splits become Arrow tables",
    PREDICATES: "computed columns, predicates, plain queries, late rows",
    PRE_AGGREGATE: "partials of groupings, made where rows were read or joined",
    ROUTE: "keys are hashed, rows dealt out to slots, cells packed",
    SHUFFLE: "Spark starts tasks, carries cells from task to task, and collects what they report",
    DECODE: "cells become Arrow tables again",
    OPERATE: "slots finish windows, probe, materialise, merge what is small",
    STATE_WRITE: "buckets are written and synced",
    SINK: "results are packed, ordered, typed and given to their sinks",
    DRIVER: "requests, plan, reports, manifest, clean-up",
    IDLE: "cores without a task, while the longest task of a stage runs",
}
"""The parts of a batch, in the order in which data meet them."""


class Stopwatch:
    """Measures one task. Some phase is on at every moment, so the phases add up to the task, whatever is left out.

    It starts with SHUFFLE: what a task does not do itself, it waits for Spark to do.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        """`clock`: nanoseconds since some moment."""
        self._clock = clock
        self._phase = SHUFFLE
        self._since = clock()
        self._spent: dict[str, int] = {}

    def read(self) -> float:
        """Seconds since the clock's own moment."""
        return self._clock() / 1e9

    def switch(self, phase: str) -> str:
        """From now on it is this phase; the one that it was until now."""
        now, before = self._clock(), self._phase
        self._spent[before] = self._spent.get(before, 0) + now - self._since
        self._phase, self._since = phase, now
        return before

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """A phase inside another one, which goes on afterwards."""
        before = self.switch(phase)
        try:
            yield
        finally:
            self.switch(before)

    def take(self) -> dict[str, float]:
        """Phase -> seconds, since the start or since they were last taken."""
        self.switch(self._phase)
        spent, self._spent = self._spent, {}
        return {phase: nanoseconds / 1e9 for phase, nanoseconds in spent.items()}


Stage = Sequence[Mapping[str, float]]
"""What the stopwatch of each of its tasks says."""


def break_down(stages: Iterable[Stage], cores: int, job: float, sink: float, driver: float) -> dict[str, float]:
    """Phase -> seconds of a batch. They add up to `job` + `sink` + `driver`, which is all of it.

    While `job`, the one Spark job of a batch, runs, `cores` can work side by side: a second of one of them is 1/cores
    of a second of the batch. A stage has no more tasks than there are cores and lasts as long as its longest task;
    the cores that wait for it are idle. What no stage explains, Spark has spent, and that is shuffle too.
    """
    parts = dict.fromkeys(PHASES, 0.0)
    for tasks in stages:
        longest = max(sum(spent.values()) for spent in tasks)
        parts[IDLE] += longest
        job -= longest
        for spent in tasks:
            for phase, seconds in spent.items():
                parts[phase] += seconds / cores
                parts[IDLE] -= seconds / cores
    parts[SHUFFLE] += job
    parts[SINK] += sink
    parts[DRIVER] += driver
    return parts


def mean(breakdowns: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Phase -> seconds, of some batches on average."""
    return {phase: sum(parts[phase] for parts in breakdowns) / max(1, len(breakdowns)) for phase in PHASES}


def shares(parts: Mapping[str, float]) -> dict[str, float]:
    """Phase -> its share of the batch."""
    whole = sum(parts.values())
    return {phase: seconds / whole if whole else 0.0 for phase, seconds in parts.items()}
