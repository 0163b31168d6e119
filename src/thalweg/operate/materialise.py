"""Complete tuples become rows: values are fetched here, for those who need them, and not before.

A query that only selects columns gets them straight from the stores. The others see the joined rows as they see
any stream: computed columns, filters, partials, all shared, with a flag per query that says which rows are its.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from thalweg.model.address import NodeTuples, QueryRows, WholeRows
from thalweg.model.failure import Failures, OfQuery
from thalweg.model.join import split_column
from thalweg.model.plan import Plan, Selection
from thalweg.model.probe import Cohort, Joined, Store
from thalweg.model.times import BatchTimes, joint_time
from thalweg.model.types import to_inner_arrow
from thalweg.operate import duck
from thalweg.operate.gather import take_columns
from thalweg.operate.look_up import look_up_apart, own_columns
from thalweg.operate.probe_tree import Complete, Counted, Probing
from thalweg.operate.query_sets import count_sets, split_sets
from thalweg.operate.store import SETS, Views
from thalweg.operate.takers import Takers
from thalweg.operate.tuples import Tuples

TUPLES_AT_ONCE = 2_000_000
"""Tuples that are turned into rows in one go: more would share more, this many bounds the memory."""

ROWS_AT_ONCE = 1_000_000
"""Rows of results that are fetched in one go, of several queries or of one that has more."""

Made = Iterator[tuple[QueryRows | WholeRows, pa.Table]]
"""Results of a query, or rows of a joined stream with its columns and flags."""


@dataclass
class Materialising:
    """One slot's complete tuples on their way to results and groupings."""

    plan: Plan
    views: Views
    tables: Mapping[str, pa.Table]
    """The static tables, by name."""
    failures: Failures
    takers: Takers
    counted: Counter[str] = field(default_factory=Counter)
    """query -> how many there are."""
    _waiting: dict[tuple[str, str, tuple[str, ...]], list[Tuples]] = field(default_factory=dict)
    """Tuples of one shape together: a path may have found several relations as one intermediate."""

    def run(
        self, probing: Probing, clock: BatchTimes, is_first: bool, tuples: Iterable[tuple[NodeTuples, pa.Table]]
    ) -> Made:
        """One stage of the joins. Rows that came with the batch set out in the first; in all others come tuples that
        are on their way."""
        if is_first:
            yield from self.take(probing.first())
            yield from self.decide(probing, clock.closed_us, clock.closing_us)
        for address, table in tuples:
            yield from self.take(probing.further(address, table))
        yield from self.finish()

    def take(self, found: Iterable[Complete | Counted]) -> Made:
        """Gathers tuples, and gives rows whenever there are enough of them."""
        for one in found:
            joined, cohort = one.joined, one.cohort
            counted, rows = self.takers.of(joined, cohort)
            if isinstance(one, Counted):
                self._count(((bit, query) for bit, query in counted if one.queries >> bit & 1), one.counts)
                continue
            tuples = one.tuples
            if counted:
                self._count(counted, count_sets(tuples.sets))
                tuples = tuples.serving(rows)
            if not rows or not len(tuples):
                continue
            waiting = self._waiting.setdefault((joined, cohort.id, tuple(sorted(tuples.refs))), [])
            waiting.append(tuples)
            if sum(len(t) for t in waiting) >= TUPLES_AT_ONCE:
                yield from self._materialise(joined, cohort, Tuples.concat(waiting))
                waiting.clear()

    def _count(self, counted: Iterable[tuple[int, str]], counts: np.ndarray) -> None:
        self.counted.update({query: int(counts[bit]) for bit, query in counted if counts[bit]})

    def finish(self) -> Made:
        """What is left; and whoever has no rows because the one that leads to them was stopped is stopped, too."""
        for (joined, cohort, _), waiting in self._waiting.items():
            if waiting:
                yield from self._materialise(joined, self.plan.joins.cohorts[cohort], Tuples.concat(waiting))
        self._waiting.clear()
        for info in self.plan.joins.joined.values():
            leaders = info.leaders
            for query, flag in info.flags:
                leader = OfQuery(leaders[flag])
                if leader in self.failures:
                    self.failures.setdefault(OfQuery(query), self.failures[leader])

    def decide(self, probing: Probing, closed_us: Mapping[str, int], closing_us: Mapping[str, int]) -> Made:
        """Rows of outer, semi and anti joins whose time for partners is over."""
        leading = {query for info in self.plan.joins.joined.values() for query in info.leaders.values()}
        for decision in self.plan.joins.decisions:
            closed = joint_time(closed_us, decision.streams)
            closing = joint_time(closing_us, decision.streams)
            info = self.plan.joins.joined[decision.joined]
            cohort = self.plan.joins.cohorts[decision.cohort]
            if OfQuery(decision.query) in self.failures or decision.query not in leading:
                continue
            for rows, pairs in probing.decide(decision, closed, closing):
                pairs = self._holding(info, cohort, pairs)
                matched = np.isin(rows.refs[decision.relation], pairs.refs[decision.relation])
                wanted = matched if info.kind == "semi" else ~matched
                if wanted.any():
                    yield from self._rows(decision.joined, info, cohort, rows.pick(wanted))

    def _holding(self, info: Joined, cohort: Cohort, pairs: Tuples) -> Tuples:
        """The pairs for which the rest of ON is true. A query whose ON fails is stopped."""
        if info.on is None or not len(pairs):
            return pairs
        chunk = self._chunk(info, info.on.columns, pairs)
        try:
            found = duck.run(f"SELECT coalesce({info.on.sql}, FALSE) AS ok FROM batch", batch=chunk)
        except duck.Error as error:
            self._fail(info, cohort, error)
            return pairs.pick(np.zeros(len(pairs), dtype=bool))
        return pairs.pick(np.asarray(found.column(0).to_numpy(zero_copy_only=False), dtype=bool))

    def _fail(self, info: Joined, cohort: Cohort, error: Exception) -> None:
        for query in info.leaders.values():
            if query in cohort.queries:
                self.failures.setdefault(OfQuery(query), duck.reason(error))

    def _materialise(self, joined: str, cohort: Cohort, tuples: Tuples) -> Made:
        info = self.plan.joins.joined[joined]
        if info.kind in ("semi", "anti"):
            return
        plain = self.takers.plain(joined, cohort, {query for query, _ in info.flags})
        collected = [
            s for s in plain if s.query not in self.takers.uncollected and OfQuery(s.query) not in self.failures
        ]
        if collected:
            yield from self._choose(info, cohort, collected, tuples)
        leading = {*info.leaders.values()}
        rest = sum(1 << bit for bit, query in enumerate(cohort.queries) if query in leading)
        if rest:
            tuples = self._holding(info, cohort, tuples.serving(rest))
            if len(tuples):
                yield from self._rows(joined, info, cohort, tuples)

    def _choose(self, info: Joined, cohort: Cohort, selections: Sequence[Selection], tuples: Tuples) -> Made:
        """The rows of queries that choose columns. Those of queries with the same columns are fetched together, query
        by query: each has a piece of them."""
        offsets, positions = split_sets(tuples.sets, len(cohort.queries))
        ends = {
            s.query: (int(offsets[bit]), int(offsets[bit + 1])) for s in selections for bit in [cohort.bit(s.query)]
        }
        for like in _alike(selections):
            for some in _in_portions([(s.query, *ends[s.query]) for s in like]):
                chosen = np.concatenate([positions[first:last] for _, first, last in some])
                table, at = self._select(info, like[0], tuples, chosen), 0
                for query, first, last in some:
                    yield QueryRows(query), table.slice(at, last - first)
                    at += last - first

    def _select(self, info: Joined, selection: Selection, tuples: Tuples, chosen: np.ndarray) -> pa.Table:
        names = tuple(relation for relation, _ in info.relations)
        refs = {name: of[chosen] for name, of in tuples.refs.items()}
        found = take_columns([self.views.find(*split_column(column, names), refs) for column in selection.columns])
        arrays = [array.cast(to_inner_arrow(kind)) for array, kind in zip(found, selection.types, strict=True)]
        return pa.Table.from_arrays(arrays, names=[str(i) for i in range(len(arrays))])

    def _rows(self, joined: str, info: Joined, cohort: Cohort, tuples: Tuples) -> Made:
        """The rows of queries that are more than a choice of columns."""
        try:
            chunk = self._chunk(info, self.plan.streams[joined].columns, tuples)
            for flag, leader in info.leaders.items():
                mask = np.uint64(1 << cohort.bit(leader) if leader in cohort.queries else 0)
                chunk = chunk.append_column(flag, pa.array((tuples.sets & mask) != 0))
            columns = self.plan.streams[joined].columns
            rows = look_up_apart(chunk, info, self.tables, columns, cohort.queries, self.failures)
        except duck.Error as error:
            self._fail(info, cohort, error)
            return
        yield WholeRows(joined), rows

    def _chunk(self, info: Joined, columns: tuple[str, ...], tuples: Tuples) -> pa.Table:
        """Columns of joined rows; a relation that a tuple lacks is null."""
        names = tuple(relation for relation, _ in info.relations)
        arrays = {}
        for name in own_columns(info, columns):
            relation, column = split_column(name, names)
            kind = to_inner_arrow(self.plan.streams[info.stream].stream.schema.type_of(name))
            if self.views.has(relation, tuples.refs):
                # Rows from before anyone asked for a column have none: they serve only those who do not ask.
                arrays[name] = self.views.take(relation, column, tuples.refs).cast(kind)
            else:
                arrays[name] = pa.nulls(len(tuples), kind)
        return pa.table(arrays or {".none": pa.nulls(len(tuples), pa.int8())})


def _alike(selections: Sequence[Selection]) -> list[list[Selection]]:
    """Those with the same columns together."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Selection]] = {}
    for selection in selections:
        found.setdefault((selection.columns, selection.types), []).append(selection)
    return list(found.values())


def _in_portions(pieces: Sequence[tuple[str, int, int]]) -> Iterator[list[tuple[str, int, int]]]:
    """(query, first, last) of queries that have something, as many as are fetched in one go."""
    portion: list[tuple[str, int, int]] = []
    rows = 0
    for piece in pieces:
        size = piece[2] - piece[1]
        if portion and rows + size > ROWS_AT_ONCE:
            yield portion
            portion, rows = [], 0
        if size:
            portion.append(piece)
            rows += size
    if portion:
        yield portion


def intermediate_rows(store: Store, views: Views, relations: Sequence[str], tuples: Tuples) -> pa.Table:
    """The rows of an intermediate: what later steps and results need of its tuples, and whom each can serve."""
    arrays = []
    for name in store.columns:
        relation, column = split_column(name, tuple(relations))
        arrays.append(views.take(relation, column, tuples.refs))
    return pa.Table.from_arrays([*arrays, pa.array(tuples.sets)], names=[*store.columns, SETS])
