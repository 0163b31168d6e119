"""A statement held to its budget: interrupted when its time is over, refused memory when it has had its share.

DuckDB counts only a part of what a statement allocates: not the strings that functions make. So where a process has
no other work, the system refuses what goes beyond, and DuckDB says that it is out of memory.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from thalweg.model.budget import Budget

try:
    import resource
except ImportError:  # pragma: no cover - Windows has no such limits
    resource = None  # type: ignore[assignment]

_LOOKS = 0.5
"""Seconds between two looks at what runs, unless a budget is shorter than a few of them."""
_STEPS = 100
"""Calls within which an exception that was set comes: the first, as far as is known."""
_PAGES = "/proc/self/statm"
_T = TypeVar("_T")


class Interruptible(Protocol):
    def interrupt(self) -> None: ...


@dataclass
class _Running:
    statement: Interruptible
    clock: Callable[[], float]
    until: float
    is_over: bool = False
    in_python: bool = False
    """Whether the statement is in a function of a user's, where an interrupt of DuckDB's does not reach."""
    is_raised: bool = False
    """Whether an exception was set for its thread, and nobody has seen it yet."""


class _OverTime(BaseException):
    """Raised in a function of a user's whose time is over."""


class _Watch:
    """The thread that looks at the time of what runs in this process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: dict[int, _Running] = {}
        self.looks = _LOOKS
        self.process = 0

    def begin(self, statement: Interruptible, seconds: float) -> _Running:
        clock = _clock_of(thread := threading.get_ident())
        found = _Running(statement, clock, clock() + seconds)
        with self.lock:
            self.running[thread] = found
            self.looks = min(self.looks, max(seconds / 4, 0.01))
            if self.process != os.getpid():  # threads do not come along when a process forks
                self.process, self.running = os.getpid(), {thread: found}
                threading.Thread(target=self._look, name="thalweg-budgets", daemon=True).start()
        return found

    def end(self) -> None:
        with self.lock:
            self.running.pop(threading.get_ident(), None)

    @contextmanager
    def in_python(self) -> Iterator[None]:
        running = self.running.get(threading.get_ident())
        if running is None:
            yield
            return
        running.in_python = True
        try:
            yield
        except _OverTime:
            running.is_raised = False
            raise
        finally:
            self._leave(running)

    def _leave(self, running: _Running) -> None:
        """When this returns, no exception is on its way to the thread. One that was set is let come, not taken back:
        that would leave Python 3.11 looking for it for ever, in an endless loop if somebody profiles."""
        try:
            running.in_python = False
            with self.lock:  # who was about to set one has done so
                pass
            for _ in range(_STEPS if running.is_raised else 0):
                _take_a_step()
        except _OverTime:
            running.is_raised = False
            self._leave(running)

    def _look(self) -> None:
        while True:
            time.sleep(self.looks)
            self._interrupt_overdue()

    def _interrupt_overdue(self) -> None:
        with self.lock:
            for thread, running in self.running.items():
                if running.clock() > running.until:
                    running.is_over = True
                    running.statement.interrupt()
                    if running.in_python:
                        running.is_raised = True
                        _raise_in(thread, _OverTime)


_watch = _Watch()


def _raise_in(thread: int, error: type[BaseException]) -> None:
    """Has the thread raise it at its next step in Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def _take_a_step() -> None:
    """Calls of Python functions are where exceptions of other threads come."""


def interruptible(function: Callable[..., _T]) -> Callable[..., _T]:
    """A function of a statement that runs code of a user's: it is ended, too, when its time is over."""

    def run(*args: Any) -> _T:
        with _watch.in_python():
            return function(*args)

    return run


def _clock_of(thread: int) -> Callable[[], float]:
    """The processor's time of the thread, where others can read it: on a busy machine waiting is nobody's fault."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    clock = time.pthread_getcpuclockid(thread)
    return lambda: time.clock_gettime(clock)


class OverTimeError(Exception):
    """The statement was interrupted."""


@contextmanager
def within(budget: Budget, statement: Interruptible, memory: int) -> Iterator[None]:
    """What `statement` runs inside is held to its time, and to this many bytes of memory beyond what there is."""
    running = None if budget.seconds is None else _watch.begin(statement, budget.seconds)
    limited = budget.owns_process and _limit_memory(memory)
    try:
        yield
    except Exception as error:
        if running is not None and running.is_over:
            raise OverTimeError from error
        raise
    finally:
        if limited:
            _limit_memory(None)
        if running is not None:
            _watch.end()


def _limit_memory(more: int | None) -> bool:
    """Holds the process to what it has now and so much more; None: to what it was held to at first."""
    if resource is None or not os.path.exists(_PAGES):
        return False
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if more is None:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
        return True
    if soft != hard:  # somebody else's
        return False
    with open(_PAGES) as file:
        now = int(file.read().split()[0]) * resource.getpagesize()
    if hard != resource.RLIM_INFINITY and now + more >= hard:
        return False
    resource.setrlimit(resource.RLIMIT_AS, (now + more, hard))
    return True
