"""Fault points: places at which a test can kill the process as a power cut would.

The engine registers the phases of a batch and calls `point` as it passes each of them. A test starts a
process with `THALWEG_FAULT=name` (or `name:3` for the third passage) and that process ends there by SIGKILL:
no handler runs, nothing is flushed. A program that knows when it wants to end calls `arm` instead, and one that runs
the engine in its own process calls `watch` to see every passage and raise what it likes. Without any of them a point
costs two comparisons.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from thalweg.errors import bad_fault_setting

VARIABLE = "THALWEG_FAULT"

PHASES: list[str] = []
"""Every registered point, in the order a batch passes them: what a recovery test goes through."""


def register(*names: str) -> None:
    """Adds points to `PHASES`, each once, in the order given."""
    for name in names:
        if name not in PHASES:
            PHASES.append(name)


def point(name: str) -> None:
    """The process ends here if the environment asks for it."""
    if _target is not None and name == _target:
        _pass()
    if _watcher is not None:
        _watcher(name)


@contextmanager
def watch(watcher: Callable[[str], None]) -> Iterator[None]:
    """Tells `watcher` of every point that this process passes meanwhile. What it raises ends the batch there."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before


def _pass() -> None:
    global _left
    _left -= 1
    if _left <= 0:
        os.kill(os.getpid(), signal.SIGKILL)


def arm(setting: str) -> None:
    """As if the variable had had this value, from now on and in this process only: workers are not concerned."""
    global _target, _left
    _target, _left = parse(setting)


def parse(setting: str | None) -> tuple[str | None, int]:
    """(name, which passage) of a setting such as `manifest` or `manifest:2`; (None, 0) if there is none."""
    if not setting:
        return None, 0
    name, _, count = setting.partition(":")
    if not name or (count and not (count.isdecimal() and int(count) > 0)):
        raise bad_fault_setting(VARIABLE, setting)
    return name, int(count or 1)


_target, _left = parse(os.environ.get(VARIABLE))
_watcher: Callable[[str], None] | None = None
