"""Those who want to hear of batches. Whatever they do, the pipeline goes on."""

from __future__ import annotations

import threading
import warnings
from contextlib import suppress
from typing import Protocol

from thalweg.errors import ThalwegError, wrong_listener
from thalweg.foreign import said_by
from thalweg.observe.progress import Progress


class Listener(Protocol):
    """Is called in the thread of the batches, which waits for it. `on_terminated(error)` is called, too, if there is
    one: when a `start` or a `run_available` has ended, with what ended it, or None."""

    def on_progress(self, progress: Progress) -> None:
        """After a batch."""
        ...


class Listeners:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listening: tuple[Listener, ...] = ()

    def add(self, listener: Listener) -> None:
        if not callable(getattr(listener, "on_progress", None)):
            raise wrong_listener(listener)
        with self._lock:
            self._listening = (*self._listening, listener)

    def remove(self, listener: Listener) -> None:
        """Of one that is not there, nothing."""
        with self._lock:
            self._listening = tuple(other for other in self._listening if other is not listener)

    def tell(self, progress: Progress) -> None:
        for listener in self._listening:
            self._call(listener, "on_progress", progress)

    def tell_end(self, error: ThalwegError | None) -> None:
        for listener in self._listening:
            if callable(getattr(listener, "on_terminated", None)):
                self._call(listener, "on_terminated", error)

    def _call(self, listener: Listener, name: str, told: Progress | ThalwegError | None) -> None:
        """One that raises is not called again."""
        try:
            getattr(listener, name)(told)
        except BaseException as error:
            self.remove(listener)
            with suppress(Warning):  # a program that makes errors of warnings
                warnings.warn(f"{name} of {listener!r} raised {said_by(error)}; it is not called again", stacklevel=2)
