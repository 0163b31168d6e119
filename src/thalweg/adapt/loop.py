"""The one loop around all adaptations: it has their memories, their only thread and lock, and logs what fails.

Before a batch it says what the batch runs with (`decide`). When its tasks have run, it says what the manifest keeps
(`observe`). Once the manifest is created, the memories are what was learned (`commit`), and what is slow is asked for
beside the next batches. A batch that does not come to its manifest leaves everything as it was.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from msgspec import Struct, structs

from thalweg.adapt.adaptations import ADAPTATIONS
from thalweg.adapt.contract import Adaptation, Decided, SeenBatch, SolverCall
from thalweg.adapt.reports import ordering_report, partitioning_report
from thalweg.adapt.settings import AdaptSettings
from thalweg.foreign import said_by
from thalweg.model.explanation import AdaptationReport
from thalweg.model.measurements import Measurements
from thalweg.model.partitioning import PartitioningReport
from thalweg.model.probe_order import OrderingReport
from thalweg.observe import log
from thalweg.optimize.deadline import SECONDS, Clock, StoppableClock

Memories = Mapping[str, object]
"""By the names of the adaptations."""


@dataclass(frozen=True)
class LearnedFromBatch:
    """What is remembered once the batch has happened."""

    batch: int
    measured: Measurements
    """What its manifest keeps."""
    memories: Memories
    answers: int
    """How many of the answers are in it."""


@dataclass(frozen=True)
class SolverAnswer:
    name: str
    asked: SolverCall
    answer: Any


class AdaptLoop:
    def __init__(
        self,
        settings: AdaptSettings,
        clock: Clock = SECONDS,
        adaptations: Sequence[Callable[[AdaptSettings], Adaptation[Any, Any]]] = ADAPTATIONS,
    ) -> None:
        self.clock = clock
        self.asks = True
        """Whether what is slow is asked for. What was decided stays in force in any case."""
        self._adaptations = [make(settings) for make in adaptations]
        self._memories: Memories = {one.name: one.empty for one in self._adaptations}
        self._answers: list[SolverAnswer] = []
        """What came since, in this order."""
        self._begun: tuple[Memories, int] | None = None
        """What the batch that is under way was decided by, and how many answers were in it."""
        self._failed: dict[str, str] = {}
        """Adaptations that could not observe the last batch."""
        self._thread: threading.Thread | None = None
        self._running: tuple[Adaptation[Any, Any], SolverCall] | None = None
        """What is being solved."""
        self._stale: SolverCall | None = None
        """A question that need not be answered any more."""
        self._lock = threading.Lock()

    # -- before a batch

    def decide(self, measured: Measurements, batch: int) -> Decided:
        """What the batch runs with, which begins now. `measured`: what the manifest before it keeps."""
        self._begun = self._recall(measured)
        return self._propose(self._begun[0], batch)

    def decided(self, measured: Measurements, batch: int) -> Decided:
        """The same, without beginning one."""
        return self._propose(self._recall(measured)[0], batch)

    def _propose(self, memories: Memories, batch: int) -> Decided:
        decided = Decided(batch, 1)
        for one in self._adaptations:
            with self._logged("deciding_failed", one.name, batch):
                decided = one.propose(memories[one.name], decided)
        return decided

    # -- after it

    def observe(self, seen: SeenBatch) -> LearnedFromBatch:
        """What the batch has taught, if it comes to its manifest."""
        memories, answers = self._begun or self._recall(seen.measured)
        self._begun, after, before = None, dict(memories), seen.measured
        for one in self._adaptations:
            self._failed.pop(one.name, None)
            with self._logged("measuring_failed", one.name, seen.batch) as errors:
                # What went before the batch, such as a stream that was dropped, may have changed what was kept.
                memory = one.observe(one.restore(memories[one.name], before), seen)
                seen, after[one.name] = replace(seen, measured=one.keep(memory, seen)), memory
            for error in errors:
                self._failed[one.name] = f"measuring failed: {said_by(error)}"
        return LearnedFromBatch(seen.batch, seen.measured, after, answers)

    def commit(self, learned: LearnedFromBatch) -> None:
        """The batch has happened. Asks for what is slow, where that is due."""
        with self._lock:
            self._memories = learned.memories
            del self._answers[: learned.answers]
            running = self._running
        if running is not None:
            one, asked = running
            with self._logged("measuring_failed", one.name, learned.batch):
                if one.is_stale(learned.memories[one.name], asked):
                    self._stale = asked
        if self.asks and not self._is_busy:
            self._ask(learned.batch)

    def explain(self, measured: Measurements) -> dict[str, AdaptationReport]:
        """By the names of the adaptations."""
        memories, found = self._recall(measured)[0], {}
        for one in self._adaptations:
            found[one.name] = AdaptationReport()
            with self._logged("explaining_failed", one.name):
                found[one.name] = one.explain(memories[one.name])
            if one.name in self._failed:
                found[one.name] = _with_answer(found[one.name], self._failed[one.name])
        return found

    def partitioning_report(self, measured: Measurements) -> PartitioningReport:
        return partitioning_report(self.explain(measured))

    def ordering_report(self, measured: Measurements) -> OrderingReport:
        return ordering_report(self.explain(measured))

    def _recall(self, measured: Measurements) -> tuple[Memories, int]:
        """The memories as they are now: with what the manifest keeps of them, and what was answered since."""
        with self._lock:
            memories, answers = dict(self._memories), list(self._answers)
        adaptations = {one.name: one for one in self._adaptations}
        for name, one in adaptations.items():
            with self._logged("measuring_failed", name):
                memories[name] = one.restore(memories[name], measured)
        for given in answers:
            with self._logged("optimiser_failed", given.name):
                memories[given.name] = adaptations[given.name].adopt(memories[given.name], given.asked, given.answer)
        return memories, len(answers)

    # -- beside the batches

    @property
    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _ask(self, batch: int) -> None:
        """What has answered since the last batch is not asked again before its answer is in force."""
        with self._lock:
            memories, answered = self._memories, {given.name for given in self._answers}
        waiting: list[tuple[Adaptation[Any, Any], Any, SolverCall]] = []
        for one in self._adaptations:
            if one.name not in answered:
                with self._logged("measuring_failed", one.name, batch):
                    now = self.clock.now()
                    if why := one.due(memories[one.name], now):
                        asked = SolverCall(batch, why, now, is_urgent=one.is_urgent(memories[one.name]))
                        waiting.append((one, memories[one.name], asked))
        if waiting:
            # Not a daemon: a process that ends waits a moment for it, instead of tearing a solver down in mid-run.
            self._thread = threading.Thread(target=self._solve, args=(waiting,), name="thalweg-adapt")
            self._thread.start()

    def _solve(self, waiting: Sequence[tuple[Adaptation[Any, Any], Any, SolverCall]]) -> None:
        for one, memory, asked in sorted(waiting, key=lambda question: not question[2].is_urgent):
            if not asked.is_urgent:
                yield_to_batches()
            answer = None
            self._running = one, asked
            clock = StoppableClock(self.clock.fork(), partial(self._is_stale, asked))
            with self._logged("optimiser_failed", one.name) as errors:
                answer = one.solve(memory, asked, clock)
            for error in errors:
                asked = replace(asked, failed=said_by(error))
            with self._lock:
                self._running = None
                self._answers.append(SolverAnswer(one.name, asked, answer))

    def _is_stale(self, asked: SolverCall) -> bool:
        return self._stale is asked

    def wait(self, seconds: float | None = None) -> None:
        """Until what was asked for is answered."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    # -- for those who decide otherwise, and look inside

    def memories(self, measured: Measurements) -> Memories:
        return self._recall(measured)[0]

    def change(self, name: str, **changes: object) -> None:
        """Puts something else into a memory, as if the adaptation had come to it by itself."""
        with self._lock:
            memory = self._memories[name]
            assert isinstance(memory, Struct)
            self._memories = {**self._memories, name: structs.replace(memory, **changes)}

    @contextlib.contextmanager
    def _logged(self, event: str, name: str, batch: int | None = None) -> Iterator[list[Exception]]:
        """What goes wrong in an adaptation costs what it would have decided, never the pipeline."""
        errors: list[Exception] = []
        try:
            yield errors
        except Exception as error:
            errors.append(error)
            log.warning("adapt", event, of=name, batch=batch, error=error)


def _with_answer(explanation: AdaptationReport, answer: str) -> AdaptationReport:
    report = explanation.report
    if isinstance(report, PartitioningReport | OrderingReport):
        report = replace(report, answer=answer)
    return replace(explanation, answer=answer, report=report)


def yield_to_batches() -> None:
    """On Linux a thread has a priority of its own: batches go first."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
