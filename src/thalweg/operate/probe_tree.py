"""The probes of one slot: arriving rows walk their trees and find partners, as row numbers only.

For a batch, the new results are, for each relation, its new rows joined with the rows before the batch, and of
the relations before it with those of the batch too. Every combination has exactly one newest row by that order,
so none is missing and none is there twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.address import NodeTuples
from thalweg.model.failure import OfQuery
from thalweg.model.plan import Plan
from thalweg.model.probe import Check, Cohort, Decision, Index, ProbeNode, ProbeTree, Role
from thalweg.model.report import SAMPLED, ProbeId
from thalweg.operate.index import hash_range, hash_words, word_groups
from thalweg.operate.outbox import Outbox
from thalweg.operate.probe import (
    PAIR_LIMIT,
    Near,
    Side,
    SortedSide,
    TooMany,
    begin,
    count_pairs,
    group_places,
    narrow,
    probe,
)
from thalweg.operate.probe_layout import SortedSides
from thalweg.operate.slot_share import SlotShare
from thalweg.operate.store import Array, Rows, Views, numbers
from thalweg.operate.takers import Takers
from thalweg.operate.tuples import Tuples
from thalweg.route.hash import hash_rows
from thalweg.route.table import deal, with_slots

_ALL = (1 << 64) - 1
MOST_SAMPLED = 64
"""Rows of a bucket that a slot counts partners of, along an edge of which nothing else tells."""
MOST_FAILED = 16
"""Probes with too many pairs, after which it is no longer asked whose they are: enough for two queries out of 64."""
MOST_COUNTED = 1 << 18
"""Partners of these, in all: where there are more, those of fewer rows are counted."""


def _halves(queries: int) -> tuple[int, int]:
    """A set of at least two, cut in two."""
    bits = [bit for bit in range(queries.bit_length()) if queries >> bit & 1]
    first = sum(1 << bit for bit in bits[: len(bits) // 2])
    return first, queries & ~first


class Complete(NamedTuple):
    """Tuples of all relations of a joined stream."""

    joined: str
    cohort: Cohort
    tuples: Tuples


class Seeking(NamedTuple):
    """Where tuples look for partners: hashes of their keys, and from when until when."""

    hashes: Array
    low: Array
    high: Array


class Counted(NamedTuple):
    """How many such tuples there are, where that is all that anybody asks."""

    joined: str
    cohort: Cohort
    queries: int
    """Of which this is told."""
    counts: Array
    """By the bit of a query."""


@dataclass
class Probing:
    """One slot's probes in one batch: they give complete tuples, and leave what is for other slots in the outbox."""

    plan: Plan
    slot: int
    views: Views
    outbox: Outbox
    takers: Takers
    kept: dict[str, list[tuple[str, Tuples]]] = field(default_factory=dict)
    """intermediate -> (cohort, tuples) to be kept."""
    _sorted: SortedSides | None = None

    @cached_property
    def _share(self) -> SlotShare:
        return SlotShare(self.plan, self.slot)

    # -- stages

    def first(self) -> Iterator[Complete | Counted]:
        """The probes of rows that came with the batch."""
        for cohort in self.plan.joins.cohorts.values():
            for tree in cohort.trees:
                for number, child in enumerate(tree.children):
                    for tuples in self._starting(cohort, tree, child):
                        yield from self._go(cohort, child, NodeTuples(cohort.id, tree.order, (number,)), tuples)
                for node in tree.counted:
                    for tuples in self._starting(cohort, tree, node):
                        self._sample(cohort, node, tuples)

    def further(self, address: NodeTuples, table: pa.Table) -> Iterator[Complete | Counted]:
        """The probes of tuples that were sent here: `address` says which node they are for."""
        cohort = self.plan.joins.cohorts[address.cohort]
        first, *path = address.path
        node = cohort.trees[address.order].children[first]
        for number in path:
            node = node.children[number]
        yield from self._step(cohort, node, address, Tuples.from_table(table))

    def _go(
        self, cohort: Cohort, node: ProbeNode, address: NodeTuples, tuples: Tuples
    ) -> Iterator[Complete | Counted]:
        if node.moves:
            self._send(node, address, tuples)
        else:
            yield from self._step(cohort, node, address, tuples)

    def _starting(self, cohort: Cohort, tree: ProbeTree, child: ProbeNode) -> Iterator[Tuples]:
        """The slot's rows of the batch that serve a query of the child, by bucket: each is a stretch of time."""
        view = self.views[tree.stream]
        role = cohort.roles[tree.relation]
        own = view.store.index(child.own)
        for bucket, base in zip(view.buckets, view.bases, strict=False):
            if not bucket.is_new or not bucket.rows:
                continue
            marks = bucket.marks(cohort, role)
            serving = marks.allowed & child.queries & self._healthy(cohort)
            if not serving:
                continue
            side, places = self._sorted_rows(cohort, role, own, bucket)
            if side is not None:
                begun = begin(bucket.index(own), side, places, serving, int(base))
                if len(begun.rows):
                    yield Tuples({tree.relation: begun.rows}, begun.sets, begun)
                continue
            rows = self._share.mine(tree.stream, own, bucket.index(own))
            bucket.need(cohort, role, own, [(0, bucket.rows)] if self._share.spread(tree.stream, own) else places)
            sets = marks.of(rows) & np.uint64(serving)
            kept = sets != 0
            if not kept.all():
                rows, sets = rows[kept], sets[kept]
            if len(rows):
                yield Tuples({tree.relation: rows.astype(np.int64) + base}, sets)

    def _sorted_rows(
        self, cohort: Cohort, role: Role, index: Index, bucket: Rows
    ) -> tuple[SortedSide | None, list[tuple[int, int]]]:
        """The slot's rows of a bucket, laid out, and where they are; None where that is not worth it."""
        if self._share.spread(role.stream, index):
            return None, []
        places = group_places(bucket.index(index), self._share.ranges(role.stream, index), self.plan.groups)
        first, last = min((f for f, _ in places), default=0), max((to for _, to in places), default=0)
        rows = sum(to - f for f, to in places)
        return self._sides(cohort).find(bucket, role, index, first, last, rows), places

    def _sides(self, cohort: Cohort) -> SortedSides:
        """Of one cohort at a time: what was laid out for another is let go."""
        if self._sorted is None or self._sorted.cohort is not cohort:
            self._sorted = SortedSides(cohort)
        return self._sorted

    def _step(
        self, cohort: Cohort, node: ProbeNode, address: NodeTuples, tuples: Tuples
    ) -> Iterator[Complete | Counted]:
        """One probe and all that follows in this slot."""
        width = 0 if node.equal else len(node.bounds)
        if self._is_counted(cohort, node):
            counts = self._count_partners(cohort, node, tuples, width)
            if counts is not None:
                healthy = self._healthy(cohort)
                yield from (Counted(joined, cohort, queries & healthy, counts) for joined, queries in node.complete)
                return
        found = self.partners(cohort, node, tuples, new=node.new, width=width)
        if not len(found):
            return
        for kept, queries in node.keeps:
            keeping = found.serving(queries & self._healthy(cohort), node.queries)
            if len(keeping):
                self.kept.setdefault(kept, []).append((cohort.id, keeping))
        for joined, queries in node.complete:
            complete = found.serving(queries & self._healthy(cohort), node.queries)
            if len(complete):
                yield Complete(joined, cohort, complete)
        for number, child in enumerate(node.children):
            going = found.serving(child.queries & self._healthy(cohort), node.queries)
            if len(going):
                yield from self._go(cohort, child, address.child(number), going)

    def _send(self, node: ProbeNode, address: NodeTuples, tuples: Tuples) -> None:
        words, valid = self._words(node, tuples)
        table = tuples.to_table()
        if valid is not None:
            table, words = table.filter(pa.array(valid)), words[valid]
        index = self.views[node.stream].store.index(node.index)
        groups, routing = word_groups(words, self.plan.groups), self._share.routing(node.stream, index)
        spread = self._share.spread(node.stream, index)
        if spread:
            # Numbers above those of the key groups are slots: tuples of a hot key go to all of them, by the time of a
            # row. Not by their place here: another attempt may get them in another order, and must send them alike.
            times = self.views.times(node.bounds[0][0], tuples.refs)
            times = times if valid is None else times[valid]
            turns = hash_words(times) % np.uint64(self.plan.slots) + np.uint64(self.plan.groups)
            groups = np.where(np.isin(groups, spread), turns, groups).astype(np.uint16)
            routing = with_slots(routing)
        for slot, piece in deal(table, groups, routing):
            self.outbox.send(slot, address, piece)

    # -- one probe

    def partners(self, cohort: Cohort, node: ProbeNode, tuples: Tuples, *, new: bool, width: int = 0) -> Tuples:
        """The tuples with each partner in the node's store; `new`: also those that came with the batch.

        `width`: of how many relations the tuples are, where what they find tells of the edge."""
        tuples, words = self._with_key(node, tuples)
        try:
            found = self._pairs(cohort, node, tuples, words, new)
        except TooMany as error:
            found = self._pairs_apart(cohort, node, tuples, words, new, error)
        if len(tuples):
            self._count(cohort, node, width, len(tuples), len(found))
        return self._within_limits(cohort, node, found)

    def _sample(self, cohort: Cohort, node: ProbeNode, tuples: Tuples) -> None:
        """Counts the partners of some rows, which go nowhere from here."""
        some, words = self._with_key(node, tuples.pick(np.arange(0, len(tuples), -(-len(tuples) // MOST_SAMPLED))))
        while True:
            try:
                found = len(self._pairs(cohort, node, some, words, node.new, most=MOST_COUNTED))
                break
            except TooMany:
                if len(some) == 1:
                    found = MOST_COUNTED  # and more: enough to avoid the edge
                    break
                half = np.arange(len(some) // 2)
                some, words = some.pick(half), words[half]
        self._count(cohort, node, SAMPLED, len(some), found)

    def _with_key(self, node: ProbeNode, tuples: Tuples) -> tuple[Tuples, Array]:
        """The tuples that can have a partner, and their keys as the index compares them."""
        if tuples.begun is not None:
            return tuples, tuples.begun.words
        words, valid = self._words(node, tuples)
        if valid is not None:
            tuples, words = tuples.pick(valid), words[valid]
        return tuples, words if words.dtype == np.uint64 else words.astype(np.int64, copy=False)

    def _pairs(
        self, cohort: Cohort, node: ProbeNode, tuples: Tuples, words: Array, new: bool, most: int | None = None
    ) -> Tuples:
        """`most`: raises TooMany rather than to find more in all; else in one bucket."""
        if not len(tuples):
            return self._nothing(node, tuples)
        hashes, low, high = hash_words(words), *self._bounds(node, tuples)
        near, checks = self._near(node, tuples)
        parts: list[Tuples] = []
        for side, base in self._sides_near(cohort, node, Seeking(hashes, low, high), new):
            limit = PAIR_LIMIT if most is None else max(0, most - sum(map(len, parts)))
            pairs = probe(words, low, high, tuples.sets, side, limit, hashes, near)
            if len(pairs.left) == 0:
                continue
            refs = {name: known[pairs.left] for name, known in tuples.refs.items()}
            refs[node.relation] = pairs.right.astype(np.int64) + base
            parts.append(self._admitted(node, checks, Tuples(refs, pairs.sets)))
        return Tuples.concat(parts) if parts else self._nothing(node, tuples)

    def _sides_near(self, cohort: Cohort, node: ProbeNode, seeking: Seeking, new: bool) -> Iterator[tuple[Side, int]]:
        """The buckets in which such tuples may have partners, and the number of their first rows."""
        view = self.views[node.stream]
        role, index = cohort.roles[node.relation], view.store.index(node.index)
        between = int(seeking.hashes.min()), int(seeking.hashes.max())
        earliest, latest = int(seeking.low.min()), int(seeking.high.max())
        for bucket, base in zip(view.buckets, view.bases, strict=False):
            skipped = bucket.is_new and not new
            if skipped or not bucket.rows or bucket.layout.high_us < earliest or bucket.layout.low_us > latest:
                continue
            if not bucket.marks(cohort, role).allowed & node.queries:
                continue  # rows from before anyone asked: they may not even have the key
            first, last = hash_range(bucket.index(index), *between)
            ordered = self._sides(cohort).find(bucket, role, index, first, last, len(seeking.hashes))
            yield bucket.side(cohort, role, index, node.queries, ordered, first, last), base

    # -- partners that are only counted

    def _is_counted(self, cohort: Cohort, node: ProbeNode) -> bool:
        """Whether nobody asks more of what a probe finds than how much it is, and the probe alone can tell."""
        if not self.takers.uncollected or node.children or node.keeps or node.equal:
            return False
        if any(self.takers.of(joined, cohort).rows & queries for joined, queries in node.complete):
            return False
        if len(node.checks) > 1 or any(check.found != node.relation for check in node.checks):
            return False
        return self.views[node.stream].store.index(node.index).exact

    def _count_partners(self, cohort: Cohort, node: ProbeNode, tuples: Tuples, width: int) -> Array | None:
        """How many partners the tuples have, for each query. None: so many that some key may be too frequent."""
        tuples, words = self._with_key(node, tuples)
        counts, found = np.zeros(64, dtype=np.int64), 0
        if not len(tuples):
            return counts
        hashes, low, high = hash_words(words), *self._bounds(node, tuples)
        near, _ = self._near(node, tuples)
        limit = min(PAIR_LIMIT, *self._limits(cohort, node).values())
        for side, _ in self._sides_near(cohort, node, Seeking(hashes, low, high), node.new):
            more, of_each = count_pairs(words, low, high, tuples.sets, side, limit, hashes, near)
            counts, found = counts + of_each, found + more
            if found > limit:
                return None
        self._count(cohort, node, width, len(tuples), found)
        return counts

    def _pairs_apart(
        self, cohort: Cohort, node: ProbeNode, tuples: Tuples, words: Array, new: bool, error: TooMany
    ) -> Tuples:
        """The pairs of the queries that have not too many: half of the queries at a time, until one is left. A probe
        that fails takes as long as memory allows pairs, so after some of them all that are left are stopped."""
        waiting = [(int(np.bitwise_or.reduce(tuples.sets)) & node.queries, error)]
        parts: list[Tuples] = []
        failed = 0
        while waiting:
            queries, error = waiting.pop()
            if queries.bit_count() == 1 or failed > MOST_FAILED:
                self._stop(cohort, node, tuples, words, queries, error)
                continue
            for half in _halves(queries):
                mine = (tuples.sets & np.uint64(half)) != 0
                try:
                    parts.append(self._pairs(cohort, node, tuples.pick(mine).serving(half), words[mine], new))
                except TooMany as again:
                    failed += 1
                    waiting.append((half, again))
        return Tuples.concat(parts) if parts else self._nothing(node, tuples)

    def _nothing(self, node: ProbeNode, tuples: Tuples) -> Tuples:
        empty = np.empty(0, dtype=np.int64)
        return Tuples({**dict.fromkeys(tuples.refs, empty), node.relation: empty}, np.empty(0, dtype=np.uint64))

    def _count(self, cohort: Cohort, node: ProbeNode, width: int, probing: int, found: int) -> None:
        probe = ProbeId(cohort.id, node.key[0][0], node.relation, node.edge, width)
        before = self.outbox.probes.get(probe, (0, 0))
        self.outbox.probes[probe] = before[0] + probing, before[1] + found

    def _words(self, node: ProbeNode, tuples: Tuples) -> tuple[Array, Array | None]:
        """The key of each tuple as the index compares it, and which have one: a null matches nothing."""
        columns = [self.views.take(relation, column, tuples.refs) for relation, column in node.key]
        valid: Array | None = None
        for column in columns:
            if column.null_count:
                some = pc.is_valid(column).to_numpy(zero_copy_only=False)
                valid = some if valid is None else valid & some
        index = self.views[node.stream].store.index(node.index)
        plain = index.word in index.keys
        return (numbers(columns[0]) if plain else hash_rows(columns)), valid

    def _bounds(self, node: ProbeNode, tuples: Tuples) -> tuple[Array, Array]:
        low: Array | None = None
        high: Array | None = None
        for relation, least, most in node.bounds:
            times = self._times(relation, tuples)
            low = times + least if low is None else np.maximum(low, times + least)
            high = times + most if high is None else np.minimum(high, times + most)
        assert low is not None
        assert high is not None
        return low, high

    def _near(self, node: ProbeNode, tuples: Tuples) -> tuple[Near | None, Sequence[Check]]:
        """The check that a probe can make by itself, of the times of what it finds; and the others."""
        for check in node.checks:
            if check.found == node.relation:
                edges, masks = np.array(check.edges, dtype=np.int64), np.array(check.masks, dtype=np.uint64)
                return Near(self._times(check.known, tuples), edges, masks), [c for c in node.checks if c != check]
        return None, node.checks

    def _times(self, relation: str, tuples: Tuples) -> Array:
        return self.views.times(relation, tuples.refs) if tuples.begun is None else tuples.begun.times

    def _admitted(self, node: ProbeNode, checks: Sequence[Check], found: Tuples) -> Tuples:
        """Those whose keys are really equal, whose other equalities hold, and that are near enough for a query."""
        index = self.views[node.stream].store.index(node.index)
        equal = [*node.equal]
        if not index.exact:
            equal += [(relation, column, own) for (relation, column), own in zip(node.key, index.keys, strict=True)]
        for relation, column, own in equal:
            ours = self.views.take(relation, column, found.refs)
            theirs = self.views[node.stream].take(own, found.refs[node.relation])
            same = equals(ours, theirs)
            if not same.all():
                found = found.pick(same)
        sets = found.sets
        for check in checks:
            apart = self.views.times(check.found, found.refs) - self.views.times(check.known, found.refs)
            sets = narrow(sets, apart, check.edges, check.masks)
        return Tuples(found.refs, sets).serving(_ALL) if checks else found

    # -- keys that are too frequent

    def _healthy(self, cohort: Cohort) -> int:
        """The queries that have not been stopped."""
        return sum(1 << bit for bit, id_ in enumerate(cohort.queries) if OfQuery(id_) not in self.outbox.failures)

    def _within_limits(self, cohort: Cohort, node: ProbeNode, found: Tuples) -> Tuples:
        limits = self._limits(cohort, node)
        if len(found) <= min(limits.values()):
            return found
        words, _ = self._words(node, found)
        for bit, id_ in enumerate(cohort.queries):
            if id_ not in limits or OfQuery(id_) in self.outbox.failures:
                continue
            mine = (found.sets >> np.uint64(bit) & np.uint64(1)).astype(bool)
            if np.count_nonzero(mine) <= limits[id_]:
                continue
            values, counts = np.unique(words[mine], return_counts=True)
            if counts.max() > limits[id_]:
                at = int(np.argmax(words == values[counts.argmax()]))
                self.outbox.failures[OfQuery(id_)] = self._complaint(node, found.pick(np.array([at])), limits[id_])
        return found.serving(self._healthy(cohort))

    def _limits(self, cohort: Cohort, node: ProbeNode) -> dict[str, int]:
        """query -> the most rows that one key may yield."""
        return {id_: self.plan.joins.limits[id_] for b, id_ in enumerate(cohort.queries) if node.queries >> b & 1}

    def _stop(
        self, cohort: Cohort, node: ProbeNode, tuples: Tuples, words: Array, queries: int, error: TooMany
    ) -> None:
        """More pairs than memory is meant for: none of these queries can go on."""
        wide = words.astype(np.int64) if words.dtype != np.uint64 else words.view(np.int64)
        one = tuples.pick(np.array([int(np.argmax(wide == error.word))]))
        for bit, id_ in enumerate(cohort.queries):
            if queries >> bit & 1:
                self.outbox.failures.setdefault(OfQuery(id_), self._complaint(node, one, error.count - 1))

    def _complaint(self, node: ProbeNode, one: Tuples, limit: int) -> str:
        key = ", ".join(f"{r}.{c} = {self.views.take(r, c, one.refs)[0].as_py()!r}" for r, c in node.key)
        return (
            f"the key {key} is too frequent: it joins with {node.relation} to more than {limit:,} rows in "
            f"one batch. Narrow the join, or raise OPTIONS (join_limit = ...)"
        )

    # -- rows without a partner

    def decide(self, decision: Decision, closed_us: int, closing_us: int) -> Iterator[tuple[Tuples, Tuples]]:
        """(rows, their pairs) of a preserved relation that the watermark decides in this batch."""
        cohort = self.plan.joins.cohorts[decision.cohort]
        view, role = self.views[decision.stream], cohort.roles[decision.relation]
        own = view.store.index(decision.node.own)
        bit = np.uint64(1 << cohort.bit(decision.query))
        for bucket, base in zip(view.buckets, view.bases, strict=False):
            # What came with the batch has not been looked at yet, however early it can be decided.
            latest = closing_us - decision.reach_us
            earliest = -(2**63) if bucket.is_new else closed_us - decision.reach_us
            if decision.complete_from is not None:
                earliest = max(earliest, decision.complete_from)
            if not bucket.rows or bucket.layout.low_us > latest or bucket.layout.high_us <= earliest:
                continue
            marks = bucket.marks(cohort, role)
            if not marks.allowed & int(bit):
                continue
            rows = self._share.mine_or_without_key(decision.stream, own, bucket.index(own), bucket.rows)
            if len(rows):
                bucket.need_rows(cohort, role, own, [(int(rows.min()), int(rows.max()) + 1)])
            times = bucket.times[rows]
            rows = rows[(times > earliest) & (times <= latest)]
            sets = marks.of(rows) & bit
            rows = rows[sets != 0]
            if len(rows):
                tuples = Tuples({decision.relation: rows.astype(np.int64) + base}, np.full(len(rows), bit))
                yield tuples, self.partners(cohort, decision.node, tuples, new=True)


def equals(left: pa.Array, right: pa.Array) -> Array:
    """Where two columns are equal as Spark's joins see it: NaN is equal to itself, null to nothing."""
    same = pc.equal(left, right)
    if pa.types.is_floating(left.type):
        same = pc.or_(same, pc.and_(pc.is_nan(left), pc.is_nan(right)))
    return np.asarray(pc.fill_null(same, False).to_numpy(zero_copy_only=False), dtype=bool)
