"""Chaos: callables that raise, are slow or do not return."""

from __future__ import annotations

import asyncio
import math
import random
import time
from dataclasses import dataclass, field

from tests.recovery.chaos_hands import Drawn

TIMEOUT = 5.0
"""Seconds, as the queries' options have it."""
_LENGTHS = (0.01, 1.0, 2 * TIMEOUT, 400.0, math.inf)


class RefusalError(Exception):
    """What a callable raises."""


_RAISED = (RefusalError, SystemExit, KeyboardInterrupt, asyncio.CancelledError)


@dataclass
class Trouble:
    """Of the sinks of one life."""

    calls: int
    """The call of a callable with which it begins."""
    manner: str
    """raises | rests."""
    times: int | None
    """How often; None: until somebody sees to it."""
    seconds: float = 0.0
    """How long it rests."""
    keeps: bool = False
    """Whether it has taken the rows before."""
    query: str | None = None
    """The one that it hit."""
    _turns: int = field(default=0)

    @classmethod
    def draw(cls, rng: random.Random) -> Trouble:
        calls, manner = rng.randint(1, 8), rng.choice(("raises", "raises", "rests"))
        times = rng.choice((1, 3, 12, None)) if manner == "raises" else rng.choice((1, 2))
        return cls(calls, manner, times, rng.choice(_LENGTHS), rng.random() < 0.5)

    def strikes(self, query: str) -> bool:
        """Whether this call is one of those."""
        self.calls -= self.query is None
        if self.query is None and self.calls <= 0:
            self.query = query
        if self.query != query or self.times == 0:
            return False
        if self.times is not None:
            self.times -= 1
        return True

    def act(self, hands: Drawn | None) -> None:
        if self.manner == "raises":
            self._turns += 1
            raise _RAISED[self._turns % len(_RAISED)](self.query)
        if hands is None:  # real threads, and real time
            time.sleep(min(0.05, self.seconds))
        else:
            hands.rest(self.seconds)

    def heal(self, query: str) -> None:
        """Somebody has seen to it."""
        if self.query == query:
            self.times = 0

    def __str__(self) -> str:
        often = "until it is mended" if self.times is None else f"{self.times} times"
        length = f" for {self.seconds} s" if self.manner == "rests" else ""
        return (
            f"call {self.calls} of a callable {self.manner}{length}, {often}" + " having kept the rows" * self.keeps
        )
