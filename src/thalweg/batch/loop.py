"""Batches that the engine runs itself: it chooses the offsets, and they are kept with the batch.

The intent of a batch says how far it goes, and so does its manifest; there is no other truth about offsets. A batch
whose intent is durable is repeated as the intent says. Before, nobody has seen anything of it, and how far it goes is
chosen anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from thalweg.batch.run import BatchRunner
from thalweg.errors import ThalwegError, offsets_elsewhere, pipeline_failed, session_stopped, stopped_inside_batch
from thalweg.source.split import dump_splits
from thalweg.source.split_planner import Offset, SplitPlanner, Target

_POLLS = (0.01, 0.1)
"""Seconds between two looks for new input without a trigger: right after a batch, and at most."""

_one_at_a_time = threading.Lock()
"""Held while a batch runs: all sessions of a process have one connection to DuckDB."""


class Loop:
    """Runs one batch after another in the calling thread, or in one of its own."""

    def __init__(
        self,
        state_dir: Path,
        batches: BatchRunner,
        after_batch: Callable[[], None],
        cause_of: Callable[[BaseException], str] = repr,
    ) -> None:
        """`cause_of`: what went wrong in a batch, in one line."""
        self.batches = batches
        self._cause_of = cause_of
        self.after_batch = after_batch
        if batches.manifest.batch >= 0 and "reached" not in batches.manifest.extra:
            raise offsets_elsewhere(state_dir)
        self._planner = SplitPlanner(state_dir)
        self._tick = batches.reached["tick"]
        """Grows with every request for a batch."""
        self._thread: threading.Thread | None = None
        self._running: int | None = None
        """The thread of the batch that runs."""
        self._draining = False
        self._failure: ThalwegError | None = None
        self._failed = (-1, 0)
        """A batch, and how often it has failed."""
        self._batch = threading.Lock()
        """Held while a batch runs."""
        self._wake = threading.Event()
        self._stopping = threading.Event()

    @property
    def is_running(self) -> bool:
        return self._draining or (self._thread is not None and self._thread.is_alive())

    def start(self, every_us: int) -> None:
        """Batches as data arrives, at most one in every `every_us` microseconds."""
        self._check_open()
        self._failure = None
        self.tick()
        self._thread = threading.Thread(target=self._serve, args=(every_us / 1e6,), name="thalweg-loop", daemon=True)
        self._thread.start()

    def run_available(self) -> None:
        """All that is there, in batches, and one last batch that closes what the final watermark closes."""
        self._check_open()
        self._failure = None
        self._draining = True
        try:
            self.tick()
            target = self._planner.target()
            while self._next(target):
                pass
        except Exception as error:
            raise self._reason(error) from error
        finally:
            self._draining = False

    def stop(self) -> None:
        """Lets the batch that runs come to its end, and no other begin. A stopped pipeline stays stopped."""
        if self._running == threading.get_ident():
            raise stopped_inside_batch()
        self._stopping.set()
        self._wake.set()
        with self._batch:
            pass
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Raises what ended the pipeline, if it did not end by `stop`: from when on it can be started again."""
        if self._failure is not None and not self.is_running:
            raise self._failure

    def tick(self) -> None:
        """Asks for a batch even where no stream has anything new."""
        self._tick += 1
        self._wake.set()

    def _check_open(self) -> None:
        if self._stopping.is_set():
            raise session_stopped()

    def _serve(self, every: float) -> None:
        pause = _POLLS[0]
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                ran = self._next(None)
            except BaseException as error:
                self._failure = self._reason(error)
                return
            if every:
                self._stopping.wait(max(0.0, began + every - time.monotonic()))
            elif not ran:
                self._wake.wait(pause)
                pause = min(2 * pause, _POLLS[1])
            else:
                pause = _POLLS[0]
            self._wake.clear()

    def _next(self, target: Target | None) -> bool:
        """Runs one batch; False where there is nothing to do."""
        with self._batch, _one_at_a_time:
            if self._stopping.is_set():
                return False
            start = self.batches.reached
            end = self.batches.settled() or self._choose(start, target)
            if end == start or (end["streams"] == start["streams"] and not self.batches.has_work_without_rows()):
                return False
            self._running = threading.get_ident()
            try:
                self._run(start, end)
            finally:
                self._running = None
            return True

    def _choose(self, start: Offset, target: Target | None) -> Offset:
        tick = self._tick
        return self._planner.latest(start, tick) if target is None else self._planner.until(start, target, tick)

    def _run(self, start: Offset, end: Offset) -> None:
        splits = [dump_splits(task) for task in self._planner.splits(start, end, self.batches.tasks)]
        self.batches.run(splits, self.batches.manifest.batch + 1, end)
        self.after_batch()
        self._planner.release(end)
        if self.batches.has_more_to_close():
            self.tick()

    def _reason(self, error: BaseException) -> ThalwegError:
        if isinstance(error, ThalwegError):
            return error
        batch, (before, times) = self.batches.manifest.batch + 1, self._failed
        self._failed = batch, times + 1 if batch == before else 1
        return pipeline_failed(self._cause_of(error), *self._failed)
