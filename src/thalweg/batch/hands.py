"""Who gives results to sinks, and by which clock: threads, or whoever offers them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

_LINGER = 1.0
"""Seconds that a thread without work waits for some."""


class Hands(Protocol):
    """Who does the work, and by which clock."""

    linger: float
    """Seconds that a worker waits for work."""

    def now(self) -> float: ...

    def start(self, work: Callable[[], None]) -> None: ...

    def wait(self, condition: threading.Condition, seconds: float) -> None: ...


class Threads:
    """Each worker is a daemon thread: a call that never returns does not keep the program from ending."""

    linger = _LINGER

    def now(self) -> float:
        return time.monotonic()

    def start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name="thalweg-delivery", daemon=True).start()

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        condition.wait(seconds)


class Inline:
    """Whoever offers results gives them out before the offer returns; waiting takes no time. For tests that want the
    same order of events every time."""

    linger = 0.0

    def __init__(self) -> None:
        self._time = 0.0
        self._works = False

    def now(self) -> float:
        return self._time

    def start(self, work: Callable[[], None]) -> None:
        if self._works:  # it takes up this, too
            return
        self._works = True
        try:
            work()
        finally:
            self._works = False

    def wait(self, condition: threading.Condition, seconds: float) -> None:
        self._time += seconds
