"""What there is to give to the sink of one query, in the order of its batches, and how it stands."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from thalweg.model.manifest import Prepared
from thalweg.model.patience import Patience
from thalweg.model.query import Query


class LostResultsError(Exception):
    """What was prepared cannot be read, or is no longer this session's to give. Its cause says why."""


@dataclass(frozen=True)
class Delivering:
    """How it stands with what a query's sink is to be given."""

    state: str = ""
    """retrying, paused, or waiting for the sink to be named; empty: nothing is in the way."""
    reason: str | None = None
    batches: int = 0
    rows: int = 0
    nbytes: int = 0

    @property
    def is_troubled(self) -> bool:
        return self.state != ""


@dataclass(eq=False)
class SinkCall:
    """Of a sink, in progress."""

    queue: Queue
    prepared: Prepared
    began: float
    thread: int = field(default_factory=threading.get_ident)


@dataclass(eq=False)
class Queue:
    id: str
    query: Query
    patience: Patience
    items: deque[Prepared] = field(default_factory=deque)
    rows: int = 0
    nbytes: int = 0
    last: int = -1
    """The newest batch that was put in."""
    given: int = -1
    """The newest batch that the sink has."""
    failures: int = 0
    """Of the first item, in a row."""
    reason: str | None = None
    paused: str | None = None
    ticket: int | None = None
    """Of its turn, if it has one."""
    call: SinkCall | None = None
    given_up: SinkCall | None = None
    """For which it is paused: it had not returned."""
    is_gone: bool = False
    """Whether the query was dropped."""

    def put(self, prepared: Prepared) -> None:
        self.items.append(prepared)
        self.last = prepared.batch
        self.rows += prepared.rows
        self.nbytes += prepared.nbytes

    def take(self) -> None:
        """The sink has the first item."""
        first = self.items.popleft()
        self.given = first.batch
        self.rows -= first.rows
        self.nbytes -= first.nbytes
        self.failures, self.reason = 0, None
