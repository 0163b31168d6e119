"""Watching a pipeline run: a display that is redrawn on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from thalweg.cli import show
from thalweg.cli.interrupt import Interrupt
from thalweg.foreign import plain_text
from thalweg.session import Session

_REDRAW_SECONDS = 0.25
_LINE_SECONDS = 2.0
_STILL_SECONDS = 60.0
"""Between lines in a log: while something changes, and while nothing does."""
_NOTES = 5

Draw = Callable[[Sequence[str]], None]
"""Shows where the session is; the argument is what else there is to say."""


def run_available(console: Console, session: Session, interrupt: Interrupt) -> bool:
    """Processes what is there, with progress; whether an interrupt has stopped it, after which it can be started
    again."""
    with interrupt.heeded(), ThreadPoolExecutor(max_workers=1) as pool, drawing(console, session) as draw:
        running = pool.submit(session.run_available)
        while not running.done():
            draw(())
            if interrupt.wait(_REDRAW_SECONDS):
                session.stop()
                return True
        running.result()
        draw(())
    return False


def run_until_interrupted(console: Console, session: Session, trigger: str, interrupt: Interrupt) -> None:
    """Runs batches until Ctrl-C, which is the ordinary end."""
    with interrupt.heeded():
        session.start(trigger=trigger)
        with drawing(console, session) as draw:
            while not interrupt.pressed:
                draw(("Ctrl-C ends it; started again on the same --state it goes on where it was.",))
                interrupt.wait(_REDRAW_SECONDS)
            draw(("stopping",))


@contextmanager
def drawing(console: Console, session: Session) -> Iterator[Draw]:
    """A function that shows the session's progress, as often as it is called or as is good for a log."""
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:

            def redraw(notes: Sequence[str]) -> None:
                live.update(show.progress(session.snapshot(), notes=notes[-_NOTES:]), refresh=True)

            yield redraw
        return
    yield _lines(console, session)


def _lines(console: Console, session: Session) -> Draw:
    said: set[str] = set()
    last, printed = "", float("-inf")

    def print_line(text: str) -> None:
        # At the end: programs look for lines that begin with "batch".
        console.print(
            f"{text}  at {time.strftime('%Y-%m-%d %H:%M:%S')}", markup=False, highlight=False, soft_wrap=True
        )

    def draw(notes: Sequence[str]) -> None:
        nonlocal last, printed
        for note in notes:
            if note not in said:
                said.add(note)
                console.print(plain_text(note), markup=False, highlight=False, soft_wrap=True)
        waited = time.monotonic() - printed
        if waited >= _LINE_SECONDS:
            line = show.line(session.snapshot())
            if line != last or waited >= _STILL_SECONDS:
                last, printed = line, time.monotonic()
                print_line(line)

    return draw
