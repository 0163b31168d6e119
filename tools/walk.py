"""The walk of a row: how often it changes packages on its way through a batch.

`walk(run)` watches a callable that runs one batch. A row's way goes from package to package by calls and back by
returns. Only the first call of a function counts, so the walk does not depend on how many rows or cells there are.
Packages that are words rather than places (`model`, `errors`, ...) are passed over: who calls them calls what they
call.

Only the thread that runs the batch is watched.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import CodeType, FrameType

VOCABULARY = frozenset(("model", "route", "kernel", "observe", "errors", "faults", "kinds", "testing"))
_PARTS_OF_FUNCTIONS = frozenset(("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"))


@dataclass(frozen=True)
class Place:
    """A function of the package, such as `engine.tasks:ingest_task.<locals>.run`."""

    module: str
    function: str

    @property
    def package(self) -> str:
        return self.module.split(".")[0]

    def __str__(self) -> str:
        return f"{self.module}:{self.function}"


@dataclass(frozen=True)
class Walk:
    way: tuple[str, ...]
    """The packages in the order in which they were entered, by a call or by its return."""
    calls: tuple[tuple[Place, Place], ...]
    """(caller, callee) of the calls from one package into another, each callee once."""
    functions: int
    """How many functions were called, those of the vocabulary left out."""

    @property
    def hops(self) -> int:
        """How often the row changed packages."""
        return max(0, len(self.way) - 1)

    def calls_between(self, caller: str, callee: str) -> int:
        return sum(one.package == caller and other.package == callee for one, other in self.calls)


def walk(
    run: Callable[[], object],
    *,
    package: str = "thalweg",
    vocabulary: Collection[str] = VOCABULARY,
    below: Collection[str] = (),
) -> Walk:
    """The walk through `run()`. `below`: functions (`module:function`); only what they call counts, with themselves.
    Without any, everything counts."""
    recorder = _Recorder(package, frozenset(vocabulary), frozenset(below))
    before = sys.getprofile(), threading.getprofile()
    sys.setprofile(recorder.observe)
    threading.setprofile(recorder.observe)  # of threads that begin now: batches have one of their own
    try:
        run()
    finally:
        sys.setprofile(before[0])
        threading.setprofile(before[1])  # type: ignore[arg-type]
    return Walk(tuple(recorder.way), tuple(recorder.calls), len(recorder.seen))


class _Recorder:
    def __init__(self, package: str, vocabulary: frozenset[str], below: frozenset[str]) -> None:
        self.package = package
        self.vocabulary = vocabulary
        self.below = below
        self.way: list[str] = []
        self.calls: list[tuple[Place, Place]] = []
        self.seen: set[Place] = set()
        self._stacks: dict[int, list[tuple[Place, bool]]] = {}
        """thread -> (function, whether its call was a hop: then its return is one) of those that run and count."""
        self._places: dict[CodeType, Place | None] = {}

    def observe(self, frame: FrameType, event: str, argument: object) -> None:
        if event not in ("call", "return"):
            return
        place = self._place(frame)
        if place is None:
            return
        if event == "call":
            self._enter(place)
        elif self._stack and self._stack[-1][0] == place:
            self._leave()

    @property
    def _stack(self) -> list[tuple[Place, bool]]:
        return self._stacks.setdefault(threading.get_ident(), [])

    def _place(self, frame: FrameType) -> Place | None:
        """Where the frame is, None if that is no place of a walk."""
        code = frame.f_code
        if code not in self._places:
            self._places[code] = self._find_place(frame)
        return self._places[code]

    def _find_place(self, frame: FrameType) -> Place | None:
        head, _, module = str(frame.f_globals.get("__name__", "")).partition(".")
        if head != self.package or frame.f_code.co_name in _PARTS_OF_FUNCTIONS:
            return None
        if frame.f_code.co_filename.startswith("<"):  # of a dataclass: nobody wrote it
            return None
        place = Place(module or head, frame.f_code.co_qualname)
        return None if place.package in self.vocabulary else place

    def _enter(self, place: Place) -> None:
        if not self._stack and self.below and str(place) not in self.below:
            return
        first = place not in self.seen
        self.seen.add(place)
        caller = self._stack[-1][0] if self._stack else None
        hop = first and caller is not None and caller.package != place.package
        if hop and caller is not None:
            self.calls.append((caller, place))
        if first and (hop or caller is None):
            self._go_to(place.package)
        self._stack.append((place, hop))

    def _leave(self) -> None:
        _, hop = self._stack.pop()
        if hop:
            self._go_to(self._stack[-1][0].package)

    def _go_to(self, package: str) -> None:
        if not self.way or self.way[-1] != package:
            self.way.append(package)
