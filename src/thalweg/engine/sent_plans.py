"""Plans on their way to Spark's Python workers: each as broadcasts of its pieces, of which workers have had most.

A new plan is sent with one more broadcast, of the pieces that no other holds. Older ones that are no larger go into
it, and such as are half out of use, so that there are few and all are mostly needed. Together they always hold all
of the plan: a worker that comes late or has forgotten opens those that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from thalweg.batch.pieces import Assembler, Cutter
from thalweg.model.plan import Plan

Pieces = Mapping[bytes, bytes]


class Broadcast(Protocol):
    """Spark's."""

    @property
    def value(self) -> Pieces: ...

    def destroy(self) -> None: ...


_assembler = Assembler()
"""Of this process."""


@dataclass(frozen=True)
class SentPlan:
    """What tasks carry of a plan."""

    name: bytes
    broadcasts: tuple[Broadcast, ...]
    """The newest first."""

    def open(self) -> Plan:
        """In a worker: from what it has, and as many of the broadcasts as it needs."""
        return _assembler.plan(self.name, (broadcast.value for broadcast in self.broadcasts))


@dataclass(frozen=True, eq=False)
class _Sent:
    sizes: Mapping[bytes, int]
    """Of its pieces, in bytes."""
    broadcast: Broadcast

    def bytes_of(self, pieces: Pieces) -> int:
        return sum(size for name, size in self.sizes.items() if name in pieces)


class PlanSender:
    def __init__(self, broadcast: Callable[[Pieces], Broadcast]) -> None:
        self._broadcast = broadcast
        self._cutter = Cutter()
        self._sent: tuple[_Sent, ...] = ()
        """The newest first."""
        self._last: tuple[str, SentPlan] | None = None
        """The plan that was sent last, by its id."""

    def send(self, plan: Plan) -> SentPlan:
        if self._last is None or self._last[0] != plan.id:
            cut = self._cutter.cut(plan)
            self._send(cut.pieces)
            self._last = plan.id, SentPlan(cut.name, tuple(sent.broadcast for sent in self._sent))
        return self._last[1]

    def _send(self, pieces: Pieces) -> None:
        there = frozenset[bytes]().union(*(sent.sizes for sent in self._sent))
        new = {name: piece for name, piece in pieces.items() if name not in there}
        kept: list[_Sent] = []
        for sent in self._sent:
            used, whole = sent.bytes_of(pieces), sum(sent.sizes.values())
            if whole > sum(map(len, new.values())) and 2 * used >= whole:
                kept.append(sent)
            else:
                new |= {name: pieces[name] for name in sent.sizes if name in pieces}
        old = [sent for sent in self._sent if sent not in kept]
        if new:
            kept.insert(0, _Sent({name: len(piece) for name, piece in new.items()}, self._broadcast(new)))
        self._sent = tuple(kept)
        for sent in old:
            with suppress(Exception):  # its file may be gone: somebody cleans temporary directories
                sent.broadcast.destroy()
