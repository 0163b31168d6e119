"""Ctrl-C. A command works in a thread of its own, so that an interrupt never breaks into a call to the JVM.

Python gives an interrupt to the main thread, which does nothing but wait here. Where the work heeds interrupts it is
told, and comes to its ordinary end; anywhere else, and on a second Ctrl-C, the process ends at once. A state
directory is as safe then as after a crash.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager

EXIT_CODE = 130
"""Of a command that an interrupt has cut short: what shells give for SIGINT."""
_LOOK_SECONDS = 0.2
"""How often the main thread looks up: a signal that another thread of the process got does not wake it."""


class Interrupted(BaseException):
    """The work goes on in its thread, and nobody waits for it any more."""


class Interrupt:
    """Whether Ctrl-C was pressed, for the work to look at."""

    def __init__(self) -> None:
        self._pressed = threading.Event()
        self._is_heeded = False

    @contextmanager
    def heeded(self) -> Iterator[None]:
        """As long as this lasts the work looks out for interrupts."""
        self._is_heeded = True
        try:
            yield
        finally:
            self._is_heeded = False

    @property
    def pressed(self) -> bool:
        return self._pressed.is_set()

    def wait(self, seconds: float) -> bool:
        """Sleeps, but not through an interrupt; whether there was one."""
        return self._pressed.wait(seconds)

    def press(self) -> bool:
        """Tells the work; False if it would not look."""
        if self._is_heeded and not self.pressed:
            self._pressed.set()
            return True
        return False


def run_interruptibly(work: Callable[[Interrupt], int]) -> int:
    """Does the work and gives its exit code. Raises `Interrupted` where it cannot be waited for."""
    interrupt = Interrupt()
    working: Future[int] = Future()
    # A daemon: the end of the process does not wait for it.
    thread = threading.Thread(target=_fulfil, args=(working, work, interrupt), name="thalweg-work", daemon=True)
    while True:
        try:
            if thread.ident is None:
                thread.start()
            while not working.done():
                wait([working], _LOOK_SECONDS)
            return working.result()
        except KeyboardInterrupt:
            if not interrupt.press():
                raise Interrupted from None


def _fulfil(working: Future[int], work: Callable[[Interrupt], int], interrupt: Interrupt) -> None:
    try:
        working.set_result(work(interrupt))
    except BaseException as error:
        working.set_exception(error)
