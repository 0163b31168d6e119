"""Batches, one after another: which input each has, when it begins, and how all of it ends.

The manifest of a batch says how far it goes; there is no other truth about offsets. Before its manifest is there,
nobody has seen anything of a batch, and how far it goes is chosen anew."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial

from thalweg.adapt.batch_size import BatchSize, Took
from thalweg.batch.contract import TasksCancelledError
from thalweg.batch.listeners import Listeners
from thalweg.batch.run import BatchRunner
from thalweg.errors import ThalwegError, pipeline_failed, session_stopped, stopped_inside_batch
from thalweg.model.offsets import Offsets
from thalweg.model.split import Split, dump_splits
from thalweg.model.stream import Stream
from thalweg.model.trouble import named_in
from thalweg.observe import log
from thalweg.observe.progress import BatchReport, progress_of
from thalweg.observe.stopwatch import DRIVER, SHUFFLE
from thalweg.source.split_planner import SplitPlanner, Target

_POLLS = (0.01, 0.1)
"""Seconds between two looks for new input without a trigger, at least and at most."""
_LOOKING = 0.05
"""Which share of its time a pipeline without a trigger may spend on looks that find nothing."""
_LOOK_SECONDS = 0.2
"""How often a thread that waits looks up: a signal that another thread got does not wake it."""
_CANCEL_SECONDS = 0.1
"""How often tasks are cancelled until they have ended: those that are about to begin cannot be cancelled yet."""


class Run:
    """One `start` or one `run_available`. Its batches run in a thread of their own: what interrupts the caller, such
    as Ctrl-C, does not break into a batch or a call to the JVM."""

    def __init__(self, work: Callable[[Run], None]) -> None:
        self.leaves = threading.Event()
        """Set when no further batch shall begin."""
        self._ending: Future[None] = Future()
        # A daemon: a program that is interrupted twice ends without it.
        self._thread = threading.Thread(target=self._work, args=(work,), name="thalweg-loop", daemon=True)

    def begin(self) -> None:
        self._thread.start()

    def _work(self, work: Callable[[Run], None]) -> None:
        try:
            work(self)
        except BaseException as error:
            self._ending.set_exception(error)
        else:
            self._ending.set_result(None)

    @property
    def has_begun(self) -> bool:
        return self._thread.ident is not None

    @property
    def has_ended(self) -> bool:
        return self._ending.done()

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is its own."""
        return self._thread is threading.current_thread()

    def wait(self, seconds: float | None = None) -> bool:
        """Returns when it has ended, however; False: it took longer."""
        end = None if seconds is None else time.monotonic() + seconds
        while not self._ending.done():
            rest = _LOOK_SECONDS if end is None else min(_LOOK_SECONDS, end - time.monotonic())
            if rest <= 0:
                return False
            wait([self._ending], rest)
        if not self.is_here:
            self._thread.join()
        return True

    def result(self) -> None:
        """Raises what ended it."""
        self._ending.result()


class Loop:
    """Runs batches when it is asked to: all that is there, or as input arrives."""

    def __init__(
        self,
        batches: BatchRunner,
        known: Callable[[], Mapping[str, Stream]],
        used: Callable[[], Mapping[str, Stream]],
        after_batch: Callable[[], None],
        cause_of: Callable[[BaseException], str] = repr,
    ) -> None:
        """`known`: all streams; `used`: those that some query reads. `cause_of`: what went wrong in a batch, in one
        line."""
        self.batches = batches
        self._cause_of = cause_of
        self.after_batch = after_batch
        self.after_end: Callable[[ThalwegError | None], None] = lambda reason: None
        """Called when a run has ended, with what ended it."""
        self._planner = SplitPlanner(batches.storage, used, known, batches.manifest.marks)
        """Only the thread of a run uses it."""
        self._size = BatchSize(batches.tasks)
        self.listeners = Listeners()
        self._tick = 0
        """Grows with every request for a batch."""
        self._run: Run | None = None
        self._failure: ThalwegError | None = None
        """What has ended the run in the background."""
        self._ended_by: BaseException | None = None
        """What has ended the last run, if it did not end by itself or by `stop`."""
        self._failed = (-1, 0)
        """A batch, and how often it has failed."""
        self._wake = threading.Event()
        self._stopped = False

    @property
    def is_running(self) -> bool:
        run = self._run  # once: another thread may be setting it
        return run is not None and not run.has_ended

    @property
    def failure(self) -> BaseException | None:
        """What has ended the pipeline, until it is started again."""
        return None if self.is_running else self._ended_by

    def await_end(self, seconds: float | None) -> bool:
        """Waits for the end of the run, and raises what ended it; False: it took longer."""
        run = self._run
        if run is not None and not run.wait(seconds):
            return False
        if self._ended_by is not None:
            raise self._ended_by
        return True

    def start(self, every_us: int) -> None:
        """Batches as data arrives, at most one in every `every_us` microseconds."""
        self._begin(partial(self._serve, every_us / 1e6))

    def run_available(self) -> None:
        """All that is there, in batches, and one last batch that closes what the final watermark closes."""
        before = self._run
        try:
            run = self._begin(self._drain)
            run.wait()
        except (
            BaseException
        ):  # Ctrl-C, which may come before the run is known here: without its caller it would run on
            begun = self._run
            if begun is not None and begun is not before:
                self._end(begun)
            raise
        run.result()

    def stop(self) -> None:
        """Ends the tasks that run, waits for a batch that is beyond them, and lets no other begin. A stopped pipeline
        stays stopped."""
        run = self._run
        if run is not None and run.is_here:
            raise stopped_inside_batch()
        self._stopped = True
        if run is not None:
            self._end(run)

    def check(self) -> None:
        """Raises what ended the pipeline, if it did not end by `stop`. After that it can be started again."""
        if self._failure is not None and not self.is_running:
            raise self._failure

    def tick(self) -> None:
        """Asks for a batch even where no stream has anything new."""
        self._tick = max(self._tick, self.batches.reached.tick) + 1
        self.wake()

    def wake(self) -> None:
        """There may be something new: it is looked for now, where no trigger says when."""
        self._wake.set()

    # -- a run -----------------------------------------------------------------------------------------------

    def _begin(self, work: Callable[[Run], None]) -> Run:
        if self._stopped:
            raise session_stopped()
        self._failure = self._ended_by = None
        log.info("pipeline", "pipeline_started", batch=self.batches.manifest.batch + 1)
        self.tick()
        self._run = run = Run(work)
        if self._stopped:  # by another thread, which may wait for this run or know nothing of it
            run.leaves.set()
        run.begin()
        return run

    def _end(self, run: Run) -> None:
        run.leaves.set()
        self._wake.set()
        if not run.has_begun:
            return
        # Not by this thread: an interrupt would break the call to the JVM.
        threading.Thread(target=self._cancel, args=(run,), name="thalweg-cancel", daemon=True).start()
        run.wait()

    def _cancel(self, run: Run) -> None:
        while not run.has_ended:
            self.batches.runner.cancel()
            time.sleep(_CANCEL_SECONDS)

    def _drain(self, run: Run) -> None:
        try:
            self._begin_batch()
            target = self._planner.target()
            while not run.leaves.is_set() and self._next(target, run.leaves):
                pass
            self.batches.flush(None, run.leaves)
            self.batches.note_delivery()
        except Exception as error:
            self._note_delivery()
            reason = self._reason(error)
            self._tell_end(reason)
            raise reason from error
        except BaseException as error:
            self._ended_by = error
            raise
        self._tell_end(None)

    def _serve(self, every: float, run: Run) -> None:
        try:
            self._follow(every, run)
            self.batches.note_delivery()
        except BaseException as error:
            self._note_delivery()
            self._failure = self._reason(error)
        self._tell_end(self._failure)

    def _tell_end(self, reason: ThalwegError | None) -> None:
        self._ended_by = reason
        if reason is None:
            log.info("pipeline", "pipeline_ended", batch=self.batches.manifest.batch)
        else:
            next_batch = self.batches.manifest.batch + 1
            log.error("pipeline", "pipeline_failed", batch=next_batch, error=reason.detail or reason.message)
        self.after_end(reason)
        self.listeners.tell_end(reason)

    def _note_delivery(self) -> None:
        """Of the batches before the one that failed; what is wrong now may keep it from that, too."""
        with suppress(Exception):
            self.batches.note_delivery()

    def _follow(self, every: float, run: Run) -> None:
        while not run.leaves.is_set():
            began = time.monotonic()
            self._wake.clear()
            ran = self._next(None)
            if not ran:
                self.batches.note_if_idle()
            if every and not self._planner.has_left:  # what was left waits for no trigger
                run.leaves.wait(max(0.0, began + every - time.monotonic()))
            elif not ran:
                self._wake.wait(next_pause(time.monotonic() - began))

    # -- a batch ---------------------------------------------------------------------------------------------

    def _next(self, target: Target | None, leaves: threading.Event | None = None) -> bool:
        """Runs one batch; False where there is nothing to do, or where it was cancelled."""
        self.batches.recover()
        if target is not None:  # also before the first: a query that was resumed has not yet given what was kept
            self.batches.make_room(leaves)
        began, settled = time.perf_counter(), self.batches.settled()
        if target is None and self.batches.has_idled():
            self.tick()
        start = self._begin_batch()
        end = settled or self._choose(start, target)
        if settled is None and not self._is_due(start, end):
            return False
        splits = self._planner.splits(start, end, self.batches.tasks)
        texts = [dump_splits(task) for task in splits]
        if self._planner.has_left:
            log.debug("batch", "backlog", batch=self.batches.manifest.batch + 1, most_rows=self._size.rows())
        try:
            self.batches.run(texts, end, time.perf_counter() - began, self._planner.marks(end))
        except TasksCancelledError:
            return False
        self._size.take_in(_took(splits, self.batches.reports[-1]))
        self.after_batch()
        self._planner.release(end)
        if self.batches.has_more_to_close() or self.batches.has_requests():
            self.tick()
        self.listeners.tell(progress_of(self.batches.reports[-1]))
        return True

    def _begin_batch(self) -> Offsets:
        """Where it begins."""
        start = self.batches.begin()
        self._planner.forget_marks(but=start.streams)
        return start

    def _is_due(self, start: Offsets, end: Offsets) -> bool:
        """Whether the batch would change anything."""
        return end.streams != start.streams or (end != start and self.batches.has_work_without_rows())

    def _choose(self, start: Offsets, target: Target | None) -> Offsets:
        """A run that ends takes all that users allow: which rows are late may not depend on how long batches take."""
        tick = self._tick
        if target is not None:
            return self._planner.until(start, target, tick)
        if self.batches.has_requests():
            self._size.forget()
        return self._planner.latest(start, tick, self._size.rows())

    def _reason(self, error: BaseException) -> ThalwegError:
        if isinstance(error, ThalwegError):
            return error
        batch, (before, times) = self.batches.manifest.batch + 1, self._failed
        self._failed = batch, times + 1 if batch == before else 1
        cause = self._cause_of(error)
        named = named_in(cause)
        return pipeline_failed(cause, *self._failed, file=named.file, stream=named.stream, queries=named.queries)


def _took(splits: Sequence[Sequence[Split]], report: BatchReport) -> Took:
    rows = sum(split.weight for task in splits for split in task)
    fixed = report.time.get(SHUFFLE, 0.0) + report.time.get(DRIVER, 0.0)
    return Took(rows, report.seconds, fixed, report.sent_bytes + report.written_bytes)


def next_pause(looked: float) -> float:
    """Seconds until the next look for input, after one that took so long and found nothing."""
    least, most = _POLLS
    return min(max(least, looked / _LOOKING), most)
