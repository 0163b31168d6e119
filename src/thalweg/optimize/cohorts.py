"""Which queries run together: AJoin's query groups, by the cost of sharing against running apart.

A shared run finds the pairs of all its queries' rows, also those that serve nobody: a row that only one query
wants meets a row that only another one wants. So queries whose predicates meet share, and others run apart.
How often predicates meet is read off sampled rows. A query whose predicates have not been sampled yet is shared
eagerly with the cohort that has most in common with it, and judged when it has been.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from thalweg.model.join_statistics import PredicateSample
from thalweg.model.probe import COHORT_SIZE
from thalweg.optimize.cohort_costs import CohortCosts, Demand, Floats, Sides

KEEP = 1.1
"""Running cohorts cost at most this much more than new ones would, or they are formed anew: noise flips no plan."""
FULL_RUN = 0.5
"""All cohorts are looked at again once this share of the queries has been created or dropped."""


Ids = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Judged:
    """Cohorts, with what the next ones may take from it: while measurements stay, so does what was found of them."""

    cohorts: tuple[Ids, ...] = ()
    notes: tuple[str, ...] = ()
    given: tuple[object, ...] = ()
    demands: Mapping[str, Demand] = field(default_factory=dict)
    whole: frozenset[Ids] = frozenset()
    """Measured queries that run together, and are not better split."""
    nearest: Mapping[tuple[Ids, Ids], tuple[float, str]] = field(default_factory=dict)
    """The measured queries of two cohorts -> the least ratio of one of the first and one of the second, and whose of
    the second that is."""
    costs: Mapping[Ids, float] = field(default_factory=dict)
    """Of measured queries together."""


NOTHING = Judged()
_NOBODY = (np.inf, 0, 0)


def judge_cohorts(
    demands: Sequence[Demand],
    samples: Mapping[str, PredicateSample],
    current: Sequence[Sequence[str]] = (),
    *,
    sides: Mapping[str, Sides] | None = None,
    held: Mapping[str, float] | None = None,
    fixed: float = 0.0,
    before: Judged = NOTHING,
) -> Judged:
    """The cohorts, each in the order of the demands, and why some run apart.

    `samples` are by relation, `sides` by edge; without the sides of its edges a query counts as unmeasured.
    `held` says how many batches' rows the store of a relation holds (missing: 1): every new row meets those.
    `fixed` is what a join costs however few rows it has, in rows: the paper's Eq. 2 has no such term.
    `current` are the cohorts that run. Those that lose or take in a query are looked at together; each of the
    others is asked only whether it is better split: so a query that was shared eagerly comes to be judged.
    What did not change since `before` is not looked at again.
    """
    costs = CohortCosts(demands, samples, sides or {}, held or {}, fixed)
    judge = _Judge(costs, demands, (samples, held, fixed), before)
    number = judge.number
    running = {name for names in current for name in names}
    full = len(running ^ number.keys()) > FULL_RUN * max(len(running), len(number))
    kept: list[list[int]] = []
    touched: list[list[int]] = []
    loose = set(number.values())
    for names in current:
        members = costs.compatible(sorted(loose & {number[name] for name in names if name in number}))
        loose -= set(members)
        parts = None if full else judge.form_anew([members])
        if parts is not None:
            members = max(parts, key=len)
            loose |= {query for part in parts if part is not members for query in part}
        if members:
            (touched if full or len(members) < len(set(names)) else kept).append(members)
    cohorts = _settle(costs, kept + touched, loose)
    if current:
        same, others = _divide(cohorts, kept)
        cohorts = same + (judge.form_anew(others) or others)
    cohorts = sorted(sorted(cohort) for cohort in cohorts)
    names_of = [tuple(demands[query].query for query in cohort) for cohort in cohorts]
    notes = judge.explain(cohorts, names_of)
    return judge.judged(tuple(names_of), tuple(notes))


class _Judge:
    """Judges running cohorts one by one, and two by two, unless they have been judged before."""

    def __init__(
        self, costs: CohortCosts, demands: Sequence[Demand], given: tuple[object, ...], before: Judged
    ) -> None:
        self.costs, self.given = costs, given
        self.number = {demand.query: i for i, demand in enumerate(demands)}
        self.demands = {demand.query: demand for demand in demands}
        self._names = list(self.number)
        self.whole: set[Ids] = set()
        self.nearest: dict[tuple[Ids, Ids], tuple[float, str]] = {}
        self.prices: dict[Ids, float] = {}
        self._before = before if before.given == given else NOTHING
        self._known: dict[Ids, bool] = {}

    def judged(self, cohorts: tuple[Ids, ...], notes: tuple[str, ...]) -> Judged:
        return Judged(cohorts, notes, self.given, self.demands, frozenset(self.whole), self.nearest, self.prices)

    def _is_known(self, names: Ids) -> bool:
        """Whether all ask the same as before."""
        if names not in self._known:
            here, there = self.demands, self._before.demands
            self._known[names] = all(name in here and here[name] == there.get(name) for name in names)
        return self._known[names]

    def form_anew(self, cohorts: list[list[int]]) -> list[list[int]] | None:
        """The same queries in new cohorts where that is worth it."""
        known = self._ids([query for query in cohorts[0] if self.costs.measured[query]]) if len(cohorts) == 1 else ()
        if known and known in self._before.whole and self._is_known(known):
            self.whole.add(known)
            return None
        parts = _form_anew(self.costs, cohorts)
        if known and parts is None:
            self.whole.add(known)
        return parts

    def _ids(self, queries: Sequence[int]) -> Ids:
        return tuple(self._names[query] for query in queries)

    def _places(self, names: Ids) -> list[int]:
        return [self.number[name] for name in names]

    def explain(self, cohorts: list[list[int]], names: list[Ids]) -> list[str]:
        """Of each cohort, why it does not share with the one that is nearest to it."""
        known = [self._ids([query for query in cohort if self.costs.measured[query]]) for cohort in cohorts]
        notes: dict[frozenset[int], str] = {}
        for i, cohort in enumerate(cohorts):
            near = [(*self._near(known[i], known[j]), j) for j in range(len(cohorts)) if j != i]
            least, _, j = min(((ratio, self.number.get(query, 0), j) for ratio, query, j in near), default=_NOBODY)
            if np.isinf(least) or frozenset((i, j)) in notes:
                continue
            ratio = self._price(known[i] + known[j]) / (self._price(known[i]) + self._price(known[j]))
            who = f"{_name(names[i])} {'runs' if len(cohort) == 1 else 'run'} apart from {_name(names[j])}"
            if ratio >= 1.0:
                notes[frozenset((i, j))] = f"{who}: sharing would cost {ratio:.2f}x"
            elif len(cohort) + len(cohorts[j]) > COHORT_SIZE:
                notes[frozenset((i, j))] = f"{who}: a group holds at most {COHORT_SIZE} queries"
        return list(notes.values())

    def _near(self, one: Ids, other: Ids) -> tuple[float, str]:
        """The least ratio of a query of the one with one of the other, and whose of these that is."""
        if not one or not other:
            return np.inf, ""
        if (one, other) not in self.nearest:
            known = self._is_known(one) and self._is_known(other)
            found = self._before.nearest.get((one, other)) if known else None
            back = self._before.nearest.get((other, one)) if known else None
            if found is None or back is None:
                ratios = self.costs.ratios(self._places(one), self._places(other))
                there, here = ratios.min(axis=0), ratios.min(axis=1)
                found = float(there.min()), other[int(there.argmin())]
                back = float(here.min()), one[int(here.argmin())]
            self.nearest[one, other], self.nearest[other, one] = found, back
        return self.nearest[one, other]

    def _price(self, queries: Ids) -> float:
        """Of measured queries, run together."""
        if queries not in self.prices:
            before = self._before.costs.get(queries) if self._is_known(queries) else None
            self.prices[queries] = self.costs.of_cohort(self._places(queries)) if before is None else before
        return self.prices[queries]


def _divide(cohorts: list[list[int]], kept: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    """The cohorts that are among `kept` as they were, and the others."""
    before = {frozenset(cohort) for cohort in kept}
    same = [cohort for cohort in cohorts if frozenset(cohort) in before]
    return same, [cohort for cohort in cohorts if frozenset(cohort) not in before]


def _form_anew(costs: CohortCosts, cohorts: list[list[int]]) -> list[list[int]] | None:
    """The same queries in new cohorts where that is worth it."""
    known = [[query for query in cohort if costs.measured[query]] for cohort in cohorts]
    better = _settle(costs, [], {query for cohort in known for query in cohort})
    if sum(map(costs.of_cohort, known)) <= KEEP * sum(map(costs.of_cohort, better)):
        return None
    unknown = {query for cohort in cohorts for query in cohort if not costs.measured[query]}
    return _settle(costs, better, unknown)


def _settle(costs: CohortCosts, running: list[list[int]], queries: set[int]) -> list[list[int]]:
    """The cohorts after `queries` have been placed in running and new ones (AJoin Fig. 7a).

    A new cohort starts from the pair that gains most, not from the one with the best ratio: where two joins differ
    in size, two queries that share a small one perfectly would keep each other from sharing the large one.
    """
    loose = np.zeros(costs.count, bool)
    loose[list(queries)] = True
    cohorts = [_Cohort(costs, members, loose) for members in running]
    _absorb(cohorts, loose)
    pool = np.flatnonzero(loose & costs.measured)
    gains = costs.gains(pool)
    while gains.max(initial=0.0) > 0.0:
        first, second = divmod(int(gains.argmax()), len(pool))
        seed = [int(pool[first]), int(pool[second])]
        loose[seed] = False
        cohort = _Cohort(costs, seed, loose)
        _absorb([cohort], loose)
        taken = ~loose[pool]
        gains[taken] = gains[:, taken] = 0.0
        cohorts.append(cohort)
    cohorts += [_Cohort(costs, [int(query)], loose) for query in pool if loose[query]]
    for query in np.flatnonzero(loose & ~costs.measured).tolist():
        _share_eagerly(costs, cohorts, query, loose)
    return [cohort.members for cohort in cohorts]


def _absorb(cohorts: list[_Cohort], loose: NDArray[np.bool_]) -> None:
    """Takes loose queries into the cohorts, the greatest gain first, while sharing is cheaper than running apart."""
    if not cohorts:
        return
    gains = np.stack([cohort.gains_of(loose) for cohort in cohorts])
    while gains.max(initial=0.0) > 0.0:
        place, query = divmod(int(gains.argmax()), gains.shape[1])
        loose[query] = False
        cohorts[place].add(query, loose)
        gains[:, query] = 0.0
        gains[place] = cohorts[place].gains_of(loose)


def _share_eagerly(costs: CohortCosts, cohorts: list[_Cohort], query: int, loose: NDArray[np.bool_]) -> None:
    """Into the cohort that has most edges in common with the query: AJoin's first phase."""
    open_cohorts = [cohort for cohort in cohorts if cohort.admits(query)]
    if open_cohorts:
        max(open_cohorts, key=lambda cohort: len(cohort.edges & costs.edges_of[query])).add(query, loose)
    else:
        cohorts.append(_Cohort(costs, [query], loose))


def _name(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


class _Cohort:
    """A cohort that grows: what it would gain by each loose query is kept current edge by edge."""

    def __init__(self, costs: CohortCosts, members: Iterable[int], loose: NDArray[np.bool_]) -> None:
        self.costs = costs
        self.members = list(members)
        self.edges = frozenset[str]().union(*(costs.edges_of[query] for query in self.members))
        self._open = np.zeros(costs.count, bool)
        self._open[loose] = costs.common(self.members, np.flatnonzero(loose)).all(axis=0)
        """Only of those that were loose."""
        # Of those that are not measured nothing is weighed.
        self._weighs = bool((loose & costs.measured).any())
        self._unions = costs.unions(self.members) if self._weighs else {}
        self._gains: dict[str, Floats] = {}
        self._gain = np.zeros(costs.count)
        for name in self._unions:
            self._weigh(name, loose)

    def admits(self, query: int) -> bool:
        return len(self.members) < COHORT_SIZE and bool(self._open[query])

    def add(self, query: int, loose: NDArray[np.bool_]) -> None:
        self.members.append(query)
        self.edges |= self.costs.edges_of[query]
        at = np.flatnonzero(self._open)
        self._open[at] &= self.costs.common([query], at)[0]
        for name, bits in self.costs.unions([query]).items() if self._weighs else ():
            self._unions[name] = [a | b for a, b in zip(self._unions.get(name, bits), bits, strict=True)]
            self._weigh(name, loose)

    def gains_of(self, loose: NDArray[np.bool_]) -> Floats:
        """What running apart costs more than sharing, for each loose query that may join; 0 for the others."""
        if len(self.members) >= COHORT_SIZE:
            return np.zeros_like(self._gain)
        return np.where(loose & self._open, self._gain, 0.0)

    def _weigh(self, name: str, loose: NDArray[np.bool_]) -> None:
        edge, union = self.costs.edge(name), self._unions[name]
        at = np.flatnonzero(loose[edge.queries])
        wider = [wanted | bits for wanted, bits in zip(edge.wanted(at), union, strict=True)]
        gain = np.zeros_like(self._gain)
        gain[edge.queries[at]] = edge.cost(*union) + edge.alone[at] - edge.cost(*wider)
        self._gain += gain - self._gains.get(name, 0.0)
        self._gains[name] = gain
