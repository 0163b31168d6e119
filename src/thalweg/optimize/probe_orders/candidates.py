"""Candidate probe orders (CLASH Algorithm 1) as tries: equal prefixes are one node; what nobody can share is cut off.

Where only one target can use a node, what it does from there on concerns nobody else: of all its ways to the end only
those are kept that no other beats, whatever stores are kept and however they are partitioned.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from thalweg.optimize.deadline import Deadline
from thalweg.optimize.probe_orders.forest import Path, Target
from thalweg.optimize.probe_orders.space import Move, Space, bits

MOST_ENDS = 64
"""Ways to the end that are kept for one partial result of one join. More than that are not all of them any more."""


class Doubt(NamedTuple):
    """What a step costs more if its store is not partitioned by an attribute that the partial result knows."""

    store: int
    known: int
    """Those attributes, as a mask."""
    penalty: float
    head: int


class End(NamedTuple):
    """A way from a partial result to the whole join that is shared with nobody."""

    cost: float
    """Without the doubts."""
    stores: int
    """The intermediate stores that are probed, as a mask of their numbers."""
    moves: Path = ()
    doubts: tuple[Doubt, ...] = ()


class Shared(NamedTuple):
    """A step that several targets can use."""

    number: int
    move: Move
    cost: float
    doubt: Doubt | None


class CandidateOrder(NamedTuple):
    """A candidate: the shared steps, then an end."""

    target: Target
    shared: tuple[Shared, ...]
    end: End
    probed: tuple[int, ...]
    """The intermediate stores that are probed."""

    @property
    def path(self) -> Path:
        return (*(step.move for step in self.shared), *self.end.moves)


@dataclass
class Candidates:
    orders: list[CandidateOrder] = field(default_factory=list)
    steps: list[Shared] = field(default_factory=list)
    whole: bool = True
    """Whether an optimal plan can be made of them."""


class TooManyError(Exception):
    """There is no time or no room for all candidates."""


class Generator:
    """For some joins and the intermediate stores that they may use, until the deadline and up to `most` orders."""

    def __init__(
        self,
        space: Space,
        numbers: Collection[int],
        stores: Collection[int],
        deadline: Deadline,
        most: int,
    ) -> None:
        self.space = space
        self.numbers = numbers
        self.stores = frozenset(stores)
        self.deadline = deadline
        self.most = most
        self.found = Candidates(whole=all(space.graphs[number].whole for number in numbers))
        self._ends: dict[tuple[int, int, int], list[End]] = {}
        self._moves: dict[tuple[int, int], dict[int, list[Move]]] = {}
        """By join, and by start where it depends on that which stores can be probed."""

    def generate(self) -> Candidates:
        """All candidates of all targets."""
        by_start: dict[int, list[int]] = {}
        for number in dict.fromkeys((*self.numbers, *sorted(self.stores))):
            for start in self.space.graph(number).starts:
                by_start.setdefault(start, []).append(number)
        for start, numbers in by_start.items():
            self._expand(start, numbers)
        return self.found

    def moves(self, number: int, start: int) -> dict[int, list[Move]]:
        key = number, start if self.space.restricted else -1
        if key not in self._moves:
            space = self.space
            usable = {store for store in self.stores if space.finds(start, store)}
            self._moves[key] = {
                head: [move for move in moves if move[0] in usable or space.base[move[0]]]
                for head, moves in space.graph(number).moves.items()
            }
        return self._moves[key]

    def _expand(self, start: int, numbers: list[int]) -> None:
        """The trie below an arrival: nodes that several targets can use, and how targets go on from each alone."""
        orders, steps, base = self.found.orders, self.found.steps, self.space.base
        stack: list[tuple[int, list[int], tuple[Shared, ...], tuple[int, ...]]] = [(start, numbers, (), ())]
        while stack:
            if self.deadline.over or len(orders) > self.most:
                raise TooManyError
            head, active, shared, probed = stack.pop()
            takers: dict[Move, list[int]] = {}
            for number in active:
                for move in self.moves(number, start).get(head, ()):
                    takers.setdefault(move, []).append(number)
            for move, several in takers.items():
                if len(several) > 1:
                    step = Shared(len(steps), move, *self._step(head, move))
                    steps.append(step)
                    stack.append((move[1], several, (*shared, step), probed if base[move[0]] else (*probed, move[0])))
            for number in active:
                target = number, start
                for end in self._ends_from(number, head, start):
                    if not end.moves or len(takers[end.moves[0]]) == 1:
                        more = (*probed, *bits(end.stores)) if end.stores else probed
                        orders.append(CandidateOrder(target, shared, end, more))

    def _step(self, head: int, move: Move) -> tuple[float, Doubt | None]:
        """CLASH Eq. 1: what the step costs in any case, and what it may cost more."""
        space, store, sent = self.space, move[0], self.space.sent[head]
        if space.chi == 1.0:
            return sent, None
        options, known = space.partitions[store], space.known(head, move)
        sure = [known >> attribute & 1 for attribute in options]
        if all(sure):
            return sent, None
        if not any(sure):
            return sent * space.chi, None
        return sent, Doubt(store, known, sent * (space.chi - 1.0), head)

    def _ends_from(self, number: int, head: int, start: int) -> list[End]:
        key = number, head, start if self.space.restricted else -1
        if key not in self._ends:
            if head == number:
                self._ends[key] = [End(0.0, 0)]
                return self._ends[key]
            found = []
            for move in self.moves(number, start)[head]:
                if self.deadline.over:
                    raise TooManyError
                cost, doubt = self._step(head, move)
                mask = 1 << move[0] if move[0] in self.stores else 0
                doubts = () if doubt is None else (doubt,)
                for end in self._ends_from(number, move[1], start):
                    stores = mask | end.stores
                    found.append(End(cost + end.cost, stores, (move, *end.moves), doubts + end.doubts))
            self._ends[key] = self._unbeaten(found)
        return self._ends[key]

    def _unbeaten(self, ends: list[End]) -> list[End]:
        kept: list[End] = []
        if self.space.chi == 1.0:
            for end in sorted(ends):
                if not any(not other.stores & ~end.stores for other in kept):
                    kept.append(end)
        else:
            for end in sorted(ends, key=lambda end: (end.cost + sum(d.penalty for d in end.doubts), end.stores)):
                if self.deadline.over:
                    raise TooManyError
                if not any(self._beats(other, end) for other in kept):
                    kept.append(end)
        if len(kept) > MOST_ENDS:
            self.found.whole = False
            # One must be possible whatever stores are kept.
            kept = [next(end for end in kept if not end.stores), *kept[: MOST_ENDS - 1]]
        return kept

    def _beats(self, one: End, other: End) -> bool:
        """Whether one is never dearer than the other and needs no further store."""
        if one.stores & ~other.stores or one.cost > other.cost + sum(doubt.penalty for doubt in other.doubts):
            return False
        if not one.doubts:
            # The other's doubts can only make it dearer.
            return one.cost <= other.cost
        worst = one.cost - other.cost
        theirs = {doubt.store: doubt for doubt in other.doubts}
        for mine in one.doubts:
            their = theirs.pop(mine.store, None)
            worst += max(
                (0.0 if mine.known >> attribute & 1 else mine.penalty)
                - (0.0 if their is None or their.known >> attribute & 1 else their.penalty)
                for attribute in self.space.partitions[mine.store]
            )
        for their in theirs.values():
            worst -= min(
                0.0 if their.known >> attribute & 1 else their.penalty
                for attribute in self.space.partitions[their.store]
            )
        return worst <= 0.0
