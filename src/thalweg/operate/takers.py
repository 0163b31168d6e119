"""For whom complete tuples of a cohort are: who gets rows of them, and who only wants to know how many there are."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from thalweg.model.plan import Plan, Selection
from thalweg.model.probe import Cohort


class Taking(NamedTuple):
    """What is made of a cohort's tuples of one joined stream."""

    counted: tuple[tuple[int, str], ...]
    """(bit, query) of those whose results are only counted."""
    rows: int
    """The queries for which the others become rows."""


@dataclass
class Takers:
    """Looked up where tuples are complete: where nobody gets rows of them, they need not even be made."""

    plan: Plan
    uncollected: Collection[str] = ()
    """The queries whose results nobody takes: they are only counted."""
    _known: dict[tuple[str, str], Taking] = field(default_factory=dict)

    def of(self, joined: str, cohort: Cohort) -> Taking:
        if (joined, cohort.id) not in self._known:
            info = self.plan.joins.joined[joined]
            flagged = {query for query, _ in info.flags}
            led = flagged - {*info.leaders.values()}
            plain = (s.query for s in self.plain(joined, cohort, flagged) if info.kind not in ("semi", "anti"))
            counted = tuple((cohort.bit(query), query) for query in plain if query in self.uncollected)
            rest = led.union(query for _, query in counted)
            rows = sum(1 << bit for bit, query in enumerate(cohort.queries) if query not in rest)
            self._known[joined, cohort.id] = Taking(counted, rows)
        return self._known[joined, cohort.id]

    def plain(self, joined: str, cohort: Cohort, flagged: Collection[str]) -> Sequence[Selection]:
        """The cohort's queries that only choose columns of joined rows."""
        mine = frozenset(cohort.queries)
        return [s for s in self.plan.streams[joined].selections if s.query not in flagged and s.query in mine]
