"""The join half of a SELECT, read from the tree alone, before Spark is asked: every condition in its place.

What two rows must satisfy to be partners, what one row must, what a joined row must, and where tables come in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from thalweg.errors import bad_window, bounds_nothing, cross_product, not_supported, too_many_streams
from thalweg.frontend.aggregates import is_aggregate
from thalweg.frontend.bounds import Limit, both_ways, close, read_limits, within
from thalweg.frontend.functions import WINDOW
from thalweg.frontend.scope import Frame, FromEntry, Scope
from thalweg.frontend.tree import Binary, Call, Node, Select, conjuncts, walk
from thalweg.frontend.windows import read_window
from thalweg.model.join import MAX_RELATIONS, TimeBound
from thalweg.model.window import Window


@dataclass(frozen=True)
class Conjunct:
    node: Node
    scope: Scope
    relations: frozenset[FromEntry]

    @property
    def tables(self) -> bool:
        return any(entry.stream is None for entry in self.relations)


@dataclass(frozen=True)
class Pair:
    """An equality of two streams."""

    left: FromEntry
    left_node: Node
    right: FromEntry
    right_node: Node
    conjunct: Conjunct


@dataclass
class Lookup:
    """A table, the equalities that find its rows, and what else its ON says."""

    entry: FromEntry
    keys: list[tuple[Node, Node, Conjunct]] = field(default_factory=list)
    """(over rows joined so far, over the table)."""
    on: list[Conjunct] = field(default_factory=list)

    @property
    def outer(self) -> bool:
        return self.entry.source.kind == "left"


@dataclass
class JoinDraft:
    """What a join is, before anything is compiled."""

    streams: tuple[FromEntry, ...]
    kind: str = "inner"
    preserved: tuple[str, ...] = ()
    pairs: list[Pair] = field(default_factory=list)
    selections: dict[str, list[tuple[Node, Scope]]] = field(default_factory=dict)
    on: list[Conjunct] = field(default_factory=list)
    residual: list[Conjunct] = field(default_factory=list)
    lookups: list[Lookup] = field(default_factory=list)
    bounds: tuple[TimeBound, ...] = ()


def same_windows(tree: Select) -> list[Node]:
    """The conjuncts `window(a.ts, ...) = window(b.ts, ...)`, which Spark's analyser must not see."""
    roots = [source.on for source in tree.sources] + [tree.where]
    return [node for root in roots for node in conjuncts(root) if is_same_window(node)]


def is_same_window(node: Node) -> bool:
    sides = (node.left, node.right) if isinstance(node, Binary) and node.op == "=" else ()
    return bool(sides) and all(isinstance(side, Call) and side.name == WINDOW for side in sides)


# -- from the tree


def read_join(tree: Select, frame: Frame, text: str) -> JoinDraft:
    """Every condition in its place. Raises for a join that a stream cannot serve."""
    streams = tuple(entry for entry in frame.entries if entry.stream is not None)
    if len(streams) > MAX_RELATIONS:
        raise too_many_streams(MAX_RELATIONS, text, streams[MAX_RELATIONS].source.span)
    draft = JoinDraft(streams)
    decisive = _decisive(frame, streams, text)
    if decisive is not None:
        draft.kind, draft.preserved = _preserved(decisive, streams)
    return _JoinReader(tree, frame, text, draft, decisive).read()


def _decisive(frame: Frame, streams: Sequence[FromEntry], text: str) -> FromEntry | None:
    """The entry whose join of two streams is not an inner one."""
    found: FromEntry | None = None
    for entry in frame.entries:
        source = entry.source
        if source.kind == "inner":
            continue
        before = frame.entries[: frame.entries.index(entry)]
        near = [e for i, e in enumerate(before) if not any(b.source.apart for b in before[i + 1 :])]
        what = text[slice(*source.kind_span)].upper()
        if entry.stream is None:
            if source.kind != "left" or all(e.stream is None for e in near):
                hint = "a stream can be joined with a table by JOIN or LEFT JOIN"
                raise not_supported(f"{what} with a table", text, source.kind_span, hint)
            continue
        if all(e.stream is None for e in near):
            hint = "write the stream first: stream LEFT JOIN table"
            raise not_supported(f"{what} after a table", text, source.kind_span, hint)
        if len(streams) > 2:
            hint = "split it: only inner joins take more than two streams"
            raise not_supported(f"{what} of more than two streams", text, source.kind_span, hint)
        if source.kind in ("right", "full") and any(e.stream is None for e in near):
            hint = "join the table after the two streams"
            raise not_supported(f"{what} after a table", text, source.kind_span, hint)
        found = entry
    return found


def _preserved(decisive: FromEntry, streams: Sequence[FromEntry]) -> tuple[str, tuple[str, ...]]:
    kind = decisive.source.kind
    left, right = (entry.name for entry in streams)
    sides = {"right": (right,), "full": tuple(sorted((left, right)))}.get(kind, (left,))
    return (kind if kind in ("semi", "anti") else "outer"), sides


class _JoinReader:
    """Sorts conjuncts. ON of an inner join and WHERE are the same thing, so they share a pool."""

    def __init__(self, tree: Select, frame: Frame, text: str, draft: JoinDraft, decisive: FromEntry | None) -> None:
        self.tree, self.frame, self.text, self.draft, self.decisive = tree, frame, text, draft, decisive
        self.limits: list[Limit] = []
        self.of_tables: list[Conjunct] = []
        self.table_ons: dict[str, list[Conjunct]] = {}

    def read(self) -> JoinDraft:
        matches = self._match if self.decisive is None else self._filter
        for entry in self.frame.entries:
            conditions = list(self._conditions(entry))
            if entry.stream is None and entry.source.kind == "left":
                self.table_ons[entry.name] = conditions
                self._check_windows(conditions)
            else:
                for conjunct in conditions:
                    (self._match if entry is self.decisive else matches)(conjunct)
        where = self.frame.final
        for node in conjuncts(self.tree.where):
            matches(Conjunct(node, where, where.relations(node)))
        self._check_connected()
        for entry in self.frame.entries:
            self._within(entry)
        if self.tree.within is not None:
            if not self.draft.pairs:
                raise bounds_nothing(self.draft.streams[0].shown, self.text, self.tree.within.span)
            for pair in self.draft.pairs:
                self.limits += within(pair.left, pair.right, self.tree.within)
        self.draft.lookups = self._look_up()
        if len(self.draft.streams) > 1:
            self.draft.bounds = close(self.limits, self.draft.streams, self.text)
        return self.draft

    def _conditions(self, entry: FromEntry) -> Iterator[Conjunct]:
        if entry.name in self.frame.conditions:
            scope, condition = self.frame.conditions[entry.name]
            for node in conjuncts(condition):
                if (found := next((n for n in walk(node) if is_aggregate(n)), None)) is not None:
                    raise not_supported("an aggregate in ON", self.text, found.span, "use HAVING")
                yield Conjunct(node, scope, scope.relations(node))

    def _match(self, conjunct: Conjunct) -> None:
        """A conjunct that two rows must satisfy to be partners."""
        node, scope, relations = conjunct.node, conjunct.scope, conjunct.relations
        if conjunct.tables:
            if self.decisive is not None:
                raise not_supported("a table's column in this ON", self.text, node.span, "move it to WHERE")
            self._check_windows([conjunct])
            self.of_tables.append(conjunct)
        elif is_same_window(node):
            self.limits += self._same_window(conjunct)
            self._keep(conjunct)
        else:
            self._check_windows([conjunct])
            limits = read_limits(node, scope)
            pair = _pair(conjunct)
            self.limits += limits
            if pair is not None:
                self.draft.pairs.append(pair)
            elif not limits and len(relations) == 1:
                self._select_or_keep(conjunct)
            elif not limits:
                self._keep(conjunct)

    def _keep(self, conjunct: Conjunct) -> None:
        (self.draft.residual if self.decisive is None else self.draft.on).append(conjunct)

    def _select_or_keep(self, conjunct: Conjunct) -> None:
        """A row of the side that is preserved stays in the result whatever ON says of it."""
        (entry,) = conjunct.relations
        if entry.name in self.draft.preserved:
            self.draft.on.append(conjunct)
        else:
            self._select(entry, conjunct)

    def _filter(self, conjunct: Conjunct) -> None:
        """A conjunct over the result of an outer, semi or anti join."""
        self._check_windows([conjunct])
        names = tuple(entry.name for entry in conjunct.relations)
        if conjunct.tables:
            self.of_tables.append(conjunct)
        elif names == self.draft.preserved:
            self._select(next(iter(conjunct.relations)), conjunct)
        else:
            self.draft.residual.append(conjunct)

    def _select(self, entry: FromEntry, conjunct: Conjunct) -> None:
        self.draft.selections.setdefault(entry.name, []).append((conjunct.node, conjunct.scope))

    def _check_windows(self, conditions: Iterable[Conjunct]) -> None:
        for conjunct in conditions:
            for node in walk(conjunct.node):
                if isinstance(node, Call) and node.name == WINDOW:
                    hint = "as a condition, window(a.time, ...) = window(b.time, ...) in the join of two streams"
                    raise not_supported("window() here", self.text, node.span, hint)

    def _same_window(self, conjunct: Conjunct) -> list[Limit]:
        left, right, window = read_same_window(conjunct)
        return both_ways(left, right, window.reach_us, conjunct.node.span)

    def _within(self, entry: FromEntry) -> None:
        """WITHIN after ON: for the entry and every stream that this ON equates it with."""
        limit = entry.source.within
        if limit is None:
            return
        if entry.stream is None:
            raise not_supported("WITHIN of a table", self.text, limit.span, "a table has no event time: leave it out")
        scope, _ = self.frame.conditions[entry.name]
        said = [pair for pair in self.draft.pairs if pair.conjunct.scope is scope]
        mine = [pair for pair in said if entry in (pair.left, pair.right)]
        if not mine:
            raise bounds_nothing(entry.shown, self.text, limit.span)
        for pair in mine:
            self.limits += within(pair.left, pair.right, limit)

    def _check_connected(self) -> None:
        first, *others = self.draft.streams
        reached, grows = {first}, True
        while grows:
            more = {e for p in self.draft.pairs if {p.left, p.right} & reached for e in (p.left, p.right)} - reached
            reached |= more
            grows = bool(more)
        lost = next((entry for entry in others if entry not in reached), None)
        if lost is not None:
            known = [e.shown for e in self.draft.streams if e in reached]
            raise cross_product(lost.shown, known, self.text, lost.source.span)

    # -- tables

    def _look_up(self) -> list[Lookup]:
        """Tables in the order in which their keys are known; what is no key of one is a condition."""
        placed: set[FromEntry] = set(self.draft.streams)
        waiting = [entry for entry in self.frame.entries if entry.stream is None]
        lookups: list[Lookup] = []
        while waiting:
            lookup = next((found for entry in waiting if (found := self._placed(entry, placed)) is not None), None)
            if lookup is None:
                known = [e.shown for e in self.frame.entries if e in placed]
                raise cross_product(waiting[0].shown, known, self.text, waiting[0].source.span)
            lookups.append(lookup)
            placed.add(lookup.entry)
            waiting.remove(lookup.entry)
        self.draft.residual += self.of_tables
        return lookups

    def _placed(self, entry: FromEntry, placed: set[FromEntry]) -> Lookup | None:
        lookup = Lookup(entry)
        pool = self.table_ons.get(entry.name, []) if lookup.outer else self.of_tables
        left: list[Conjunct] = []
        for conjunct in pool:
            key = _key(conjunct, entry, placed)
            if key is None:
                left.append(conjunct)
            else:
                lookup.keys.append((*key, conjunct))
        if not lookup.keys:
            return None
        if not lookup.outer:
            self.of_tables = left
        elif all(conjunct.relations <= placed | {entry} for conjunct in left):
            lookup.on = left
        else:
            return None
        return lookup


def _pair(conjunct: Conjunct) -> Pair | None:
    node, scope = conjunct.node, conjunct.scope
    if not isinstance(node, Binary) or node.op != "=":
        return None
    sides = [(scope.relations(side), side) for side in (node.left, node.right)]
    if any(len(relations) != 1 for relations, _ in sides) or sides[0][0] == sides[1][0]:
        return None
    (one, one_node), (other, other_node) = sorted(((next(iter(r)), n) for r, n in sides), key=lambda s: s[0].name)
    return Pair(one, one_node, other, other_node, conjunct)


def _key(conjunct: Conjunct, table: FromEntry, placed: set[FromEntry]) -> tuple[Node, Node] | None:
    """(over what is there already, over the table), where the conjunct is such an equality."""
    node, scope = conjunct.node, conjunct.scope
    if not isinstance(node, Binary) or node.op != "=":
        return None
    for own, other in ((node.left, node.right), (node.right, node.left)):
        known = scope.relations(other)
        if scope.relations(own) == {table} and known and known <= placed:
            return other, own
    return None


def read_same_window(conjunct: Conjunct) -> tuple[FromEntry, FromEntry, Window]:
    """The two streams whose rows must be in the same window, and the window."""
    node, scope = conjunct.node, conjunct.scope
    assert isinstance(node, Binary)
    found: list[tuple[FromEntry, Window]] = []
    for side in (node.left, node.right):
        assert isinstance(side, Call)
        window, time = read_window(side, scope)
        if not window.is_tumbling:
            hint = "leave out the slide, or bound the times with WITHIN"
            raise bad_window("windows that rows must share cannot slide", scope.text, side.span, hint)
        found.append((scope.times[time], window))
    (left, window), (right, other) = found
    if left == right:
        raise bad_window("both windows are over the same stream", scope.text, node.span)
    if window != other:
        raise bad_window("windows that rows must share are written alike", scope.text, node.span)
    return left, right, window
