"""Whether another partitioning is worth a switch: the numbers, and the answer in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from thalweg.adapt.slot_assignment.sharing import Shares
from thalweg.model.partitioning import Partitioning
from thalweg.optimize import slot_assignment
from thalweg.optimize.deadline import SECONDS, Clock

if TYPE_CHECKING:  # the optimiser is loaded when it is asked
    from thalweg.optimize.slot_assignment import Problem, RouteKey

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

THRESHOLD = 0.05
"""A switch must save this share of the cost at least: less is within what measurements differ by."""
PURE = 0.9
"""A route key may follow another where this share of its rows has a key that lies in one key group of the other. The
rest costs nothing but the chance to find all rows of a key in one bucket."""


@dataclass(frozen=True)
class AssignmentInput:
    """What is known when the optimiser is asked."""

    slots: int
    fitting: Mapping[str, Shares]
    """stream -> what the optimiser may look at."""
    held_out: Mapping[str, Shares]
    """stream -> what its answer is judged by. Cells outnumber sampled rows, so an optimiser that is judged by what
    it has looked at always finds agreement that is not there."""
    current: Partitioning
    lat_proc: float
    """What a slot's work on a row costs, in units of what shipping a copy costs."""
    purity: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(route key, other) -> the share of the one's rows whose key lies in one key group of the other."""
    bound: frozenset[str] = frozenset()
    """Route keys that may not follow others."""
    probed: Mapping[RouteKey, Floats] = field(default_factory=dict)
    """Route keys of joins alone -> rows by key group. Their rows do not travel, but slots work on them."""
    equal: Sequence[tuple[RouteKey, RouteKey]] = ()
    held: Mapping[str, Floats] = field(default_factory=dict)
    """route key -> rows in the state by key group: what another slot has to open after a move."""
    horizon: float = 60.0
    """The batches that a new partitioning is expected to serve."""


@dataclass(frozen=True)
class StreamVerdict:
    """The copies shipped per row of a stream."""

    now: float
    hashed: float
    proposed: float
    bound: float


@dataclass(frozen=True)
class Proposal:
    partitioning: Partitioning | None
    """The new one, None where the current one stays."""
    reason: str
    method: str = ""
    streams: Mapping[str, StreamVerdict] = field(default_factory=dict)
    moved_groups: int = 0
    moved_rows: float = 0.0
    saving: float = 0.0
    """The share of the cost that the best found saves."""


def decide(
    given: AssignmentInput,
    *,
    budget_seconds: float,
    seed: int = 0,
    threshold: float = THRESHOLD,
    clock: Clock = SECONDS,
) -> Proposal:
    """Optimises, and weighs what a batch saves against what the move costs."""
    co_located_with = choose_followers(given)
    problem = _problem(given, given.fitting, co_located_with)
    start = _arrays(problem, given.current.assignment)
    answer = slot_assignment.optimize(problem, budget_seconds=budget_seconds, seed=seed, start=start, clock=clock)
    assignment = {name: tuple(slots.tolist()) for (_, name), slots in answer.slots.items()}
    found = Partitioning(assignment, co_located_with, given.slots)
    now, hashed, new = (_costs(given, p) for p in (given.current, Partitioning(), found))
    share = answer.bound / answer.cost if answer.cost else 1.0
    streams = {
        s: StreamVerdict(now.copies[s], hashed.copies[s], n, max(1.0, n * share)) for s, n in new.copies.items()
    }
    moved_groups, moved_rows = _moves(given, start, answer.slots)
    saving = now.cost - new.cost
    saved = saving / now.cost if now.cost else 0.0
    judged = (answer.method, streams, moved_groups, moved_rows, saved)
    if moved_groups == 0 and co_located_with == dict(given.current.co_located_with):
        return Proposal(None, "nothing better was found", *judged)
    if saving <= threshold * now.cost:
        return Proposal(
            None, f"the best found would save {max(0.0, saved):.1%}, a switch asks for {threshold:.0%}", *judged
        )
    if saving * given.horizon <= moved_rows:
        work = f"{given.horizon:.0f} batches would save ({saving:,.0f} copies each)"
        return Proposal(None, f"moving {moved_rows:,.0f} rows of state costs more than {work}", *judged)
    return Proposal(found, f"{saved:.1%} of the cost is saved", *judged)


# -- following


def choose_followers(given: AssignmentInput) -> dict[str, str]:
    """Who follows whom: those whose keys lie inside the keys of another, where that does not overload a slot."""
    co_located_with: dict[str, str] = {}
    for shares in given.fitting.values():
        names = list(shares.counts)
        heaviest = {name: _heaviest(shares.counts[name], given.slots) for name in names}
        # A route key with many inside it leads before one with few, an even one before a skewed one.
        inside = {a: [k for k in names if k != a and _is_inside(given, k, a)] for a in names}
        for leader in sorted(names, key=lambda a: (-len(inside[a]), heaviest[a], a)):
            if leader in co_located_with:
                continue
            for k in inside[leader]:
                burden = given.lat_proc * (heaviest[leader] - heaviest[k])
                if k not in co_located_with and k not in co_located_with.values() and burden < 1 - 1 / given.slots:
                    co_located_with[k] = leader
    return dict(sorted(co_located_with.items()))


def _is_inside(given: AssignmentInput, route_key: str, other: str) -> bool:
    return route_key not in given.bound and given.purity.get((route_key, other), 0.0) >= PURE


def _heaviest(counts: Floats, slots: int) -> float:
    """The share of rows in the most loaded slot, at best."""
    total = float(counts.sum())
    return max(1 / slots, float(counts.max()) / total) if total else 1 / slots


# -- costs


@dataclass(frozen=True)
class _Costs:
    cost: float
    copies: dict[str, float]
    """stream -> copies per row."""


def _costs(given: AssignmentInput, partitioning: Partitioning) -> _Costs:
    """Judged on the rows that the optimiser has not seen."""
    problem = _problem(given, given.held_out, partitioning.co_located_with)
    slots = _arrays(problem, partitioning.assignment)
    shipped = problem.shipped(slots)
    copies, cost = {}, problem.cost(slots)
    for stream, shares in given.held_out.items():
        probed = sum(float(problem.rows[key].sum()) for key in given.probed if key[0] == stream)
        shipped_rows = shipped.get(stream, 0.0) - probed
        cost -= probed  # a constant: they do not travel
        copies[stream] = shipped_rows / shares.rows if shares.rows else 0.0
    return _Costs(cost, copies)


def _problem(given: AssignmentInput, shares: Mapping[str, Shares], co_located_with: Mapping[str, str]) -> Problem:
    """One that follows another is not in the problem: its rows go along, and its work with them."""
    counts = {
        (stream, name): rows
        for stream, s in shares.items()
        for name, rows in s.counts.items()
        if name not in co_located_with
    }
    joint = {
        ((stream, a), (stream, b)): rows
        for stream, s in shares.items()
        for (a, b), rows in s.joint.items()
        if a not in co_located_with and b not in co_located_with
    }
    led = sum(name in co_located_with for s in shares.values() for name in s.counts)
    counts.update(given.probed)
    return slot_assignment.Problem(
        slots=given.slots,
        counts=counts,
        joint=joint,
        equal=[pair for pair in given.equal if pair[0] in counts and pair[1] in counts],
        lat_proc=given.lat_proc * (1 + led / max(1, len(counts))),
    )


def _arrays(problem: Problem, assignment: Mapping[str, Sequence[int]]) -> dict[RouteKey, Ids]:
    hashed = problem.hashed()
    return {
        key: np.array(assignment[key[1]], dtype=np.int64) if key[1] in assignment else slots
        for key, slots in hashed.items()
    }


def _moves(given: AssignmentInput, now: Mapping[RouteKey, Ids], new: Mapping[RouteKey, Ids]) -> tuple[int, float]:
    groups, rows = 0, 0.0
    for key, slots in now.items():
        moved = slots != new[key]
        groups += int(np.count_nonzero(moved))
        if key[1] in given.held:
            rows += float(given.held[key[1]][moved].sum())
    return groups, rows
