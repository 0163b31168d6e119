"""Chaos: who gives results to sinks, and when. The seed decides, and no time passes but by a clock of its own.

Workers are threads of which one runs at a time: it runs until it is done, waits for its next turn, or is in a call
that does not return for now. Then whoever let it go on goes on. So a call can be in progress over many batches, and
a seed has the same order of events every time.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable

from thalweg.testing.faults import Death

_POINTS = ("batch.start", "batch.tasks", "batch.prepared", "batch.manifest", "batch.sinks", "batch.end")
"""Where a batch may be overtaken by deliveries."""
_PACES = (1.0, 0.5, 0.0)
"""How often work begins when it is offered. Else it does later, at the latest when somebody waits for it."""


class Drawn:
    """`Hands` of one life."""

    linger = 0.0

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._pace = rng.choice(_PACES)
        self._time = 0.0
        self._workers: list[_Worker] = []
        self._is_over = False

    def now(self) -> float:
        return self._time

    def start(self, work: Callable[[], None]) -> None:
        if any(not worker.has_begun for worker in self._workers):
            return  # it takes up this, too
        self._workers.append(_Worker(work))
        if self._rng.random() < self._pace:
            self._go_on(self._workers[-1])

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        condition.release()
        try:
            worker = self._worker_here()
            if worker is not None:
                worker.leave(self._time + seconds)
            else:
                self._let_all_go_on(seconds)
        finally:
            condition.acquire()

    def pass_point(self, name: str) -> None:
        """A batch has come here: some time may pass, and some of the work be done."""
        if name in _POINTS and self._worker_here() is None:
            self._time += self._rng.choice((0.0, 0.001, 0.2, 30.0))
            for worker in list(self._workers):
                if worker.until <= self._time and self._rng.random() < 0.4:
                    self._go_on(worker)

    def rest(self, seconds: float) -> None:
        """A call takes this long; for ever, unless it is killed with its process."""
        worker = self._worker_here()
        assert worker is not None
        end = self._time + seconds
        while self._time < end and not self._is_over:
            worker.leave(end)
        if self._is_over:
            raise Death("in a call of a sink")

    def end(self) -> None:
        """The process is gone, and all that was in progress. No queue begins anything any more."""
        self._is_over = True
        while self._workers:
            worker = self._workers.pop()
            while worker.has_begun and not worker.is_done:
                worker.go_on()

    def _worker_here(self) -> _Worker | None:
        return next((worker for worker in self._workers if worker.is_here), None)

    def _let_all_go_on(self, seconds: float) -> None:
        """Somebody waits: what is due is done, and where nothing is, time passes until something is."""
        if not any(worker.until <= self._time for worker in self._workers):
            ends = [worker.until for worker in self._workers if worker.until < math.inf]
            self._time = max(self._time + seconds, min(ends, default=self._time + 1.0))
        due = [worker for worker in self._workers if worker.until <= self._time]
        for worker in self._rng.sample(due, len(due)):
            self._go_on(worker)

    def _go_on(self, worker: _Worker) -> None:
        if not worker.is_done and not worker.is_under_way:
            worker.go_on()
        if worker.is_done and worker in self._workers:
            self._workers.remove(worker)


class _Worker:
    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, name="chaos-delivery", daemon=True)
        self.until = -math.inf
        """When it goes on."""
        self.has_begun = False
        self.is_done = False
        self.is_under_way = False
        """Whether it was let go on, and has not left off since; another may be running that it let go on."""

    @property
    def is_here(self) -> bool:
        return self._thread is threading.current_thread()

    def go_on(self) -> None:
        """Returns when it leaves off."""
        self.is_under_way = True
        if self.has_begun:
            self._turn.release()
        else:
            self.has_begun = True
            self._thread.start()
        self._back.acquire()

    def leave(self, until: float) -> None:
        self.until, self.is_under_way = until, False
        self._back.release()
        self._turn.acquire()

    def _run(self) -> None:
        try:
            self._work()
        finally:
            self.is_done, self.is_under_way = True, False
            self._back.release()
