"""The plan: everything the data path needs to run one batch. Immutable.

Its parts are named by their content (`named`), so the same piece of work has the same name in every plan
and in the state of every earlier batch: that is what lets a new query find what is already kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

from thalweg.model.canonical import canonical
from thalweg.model.expr import Expr, quote
from thalweg.model.own import OwnPartial
from thalweg.model.probe import JoinPlan
from thalweg.model.stream import Stream
from thalweg.model.window import Window

_NAME = re.compile(r'"((?:[^"]|"")*)"')
"""In a text of SQL."""

FILTER = "/*filter*/"
"""Where the filter of a partial goes in its combine text; at the end where the mark is missing."""

SMALLER, LARGER = f"{2.0**-64!r}::DOUBLE", f"{2.0**64!r}::DOUBLE"
"""Factors that keep a sum of doubles within a double, however many rows there may be."""

QUANTILE = "quantile_of_counts"
"""The slots' own function over a list of values, how often each was seen, and a share. Values may come again."""


def weighted_mean(counts: str, means: str, over: str = "") -> str:
    """The mean of means, each of `counts` values, as a DuckDB aggregate; `over`: as one over a window."""
    return f"sum({counts} * ({means} * {SMALLER})){over} / nullif(sum({counts}){over}, 0) * {LARGER}"


def route_key(stream: str, columns: tuple[str, ...]) -> str:
    """The name of a route key: the attributes by which rows of a stream are needed together."""
    shown = (repr(c) if {",", "(", ")", "'"} & set(c) else c for c in columns)
    return f"{stream}({', '.join(shown)})"


@canonical("Computed(name, expr, kind, precision)")
@dataclass(frozen=True)
class Computed:
    """A column worked out once per row for all who need it."""

    name: str
    expr: Expr
    kind: str = "sql"
    """sql, or register / rank: the two halves of a HyperLogLog observation of the expression's value."""
    precision: int = 0


@canonical("Partial(name, combine, filter, merge, type, mean_of, op, argument, own)")
@dataclass(frozen=True)
class Partial:
    """One mergeable column of a grouping: an aggregate before its window is complete."""

    name: str
    combine: str
    """DuckDB aggregate over rows."""
    filter: str | None
    """The boolean column that admits a row, None for all rows."""
    merge: str
    """DuckDB aggregate over partials of this column."""
    type: str
    """DuckDB's type of the column."""
    mean_of: tuple[str, str] | None = None
    """For a sum of squared deviations: the columns of its count and its mean, which the merge needs."""
    op: str = ""
    """count, sum, min or max where the partial is just that over a column of numbers; empty for all else."""
    argument: str | None = None
    """The column that `op` reads; None: every row counts."""
    own: OwnPartial | None = None
    """Of an aggregate that the user has defined: its states."""

    @property
    def reads(self) -> set[str]:
        """The columns that it is made from, as its text and its filter name them."""
        found = {name.replace('""', '"') for name in _NAME.findall(self.combine)}
        return found if self.filter is None else found | {self.filter}


@canonical("Quantile(value, partial, share)")
@dataclass(frozen=True)
class Quantile:
    """A quantile of the values of a grouping by values."""

    value: str
    """The column that the values are of."""
    partial: str
    """How often each was seen."""
    share: float

    @property
    def sql(self) -> str:
        """As a DuckDB aggregate over the grouping's partials, merged or not."""
        value, times = quote(self.value), quote(self.partial)
        counted = f"FILTER (WHERE {times} > 0 AND {value} IS NOT NULL)"
        lists = f"list({value}::DOUBLE) {counted}, list({times}::BIGINT) {counted}"
        return f"{QUANTILE}({lists}, {self.share!r}::DOUBLE)"


@canonical(
    "Grouping(id, stream, keys, values, partials, windows, slice_us, slice_start_us, finer=rolled_up_from, "
    "extra=partials_for_others, "
    "loose=rows_are_partials)"
)
@dataclass(frozen=True)
class Grouping:
    """One grouping pass over a stream, shared by all queries with these keys."""

    id: str
    stream: str
    keys: tuple[str, ...]
    """The columns (of the stream, or computed) that are the keys, in the order of k0, k1, ..."""
    values: tuple[str, ...]
    """Further grouping columns that are not routed by: the values of a DISTINCT, a register's number."""
    partials: tuple[Partial, ...]
    windows: tuple[Window, ...]
    slice_us: int
    slice_start_us: int
    rolled_up_from: str | None = None
    """The grouping whose partials this one is rolled up from, None: from the rows."""
    partials_for_others: tuple[Partial, ...] = ()
    """Partials made in the same pass for groupings that are rolled up from this one."""
    rows_are_partials: bool = False
    """Almost every row is a group of its own: rows become partials as they are, and are merged when a window
    closes."""

    @property
    def route_key(self) -> str:
        return route_key(self.stream, self.keys)


@canonical("Piece(grouping, aggregates, missing, quantiles)")
@dataclass(frozen=True)
class Contribution:
    """What one grouping contributes to a query's window: aggregate values over merged partials."""

    grouping: str
    aggregates: tuple[tuple[str, str], ...]
    """(name of the aggregate value, DuckDB expression over merged partials); for value groupings the
    expression is an aggregate over the values' merged partials."""
    missing: tuple[tuple[str, str], ...] = ()
    """(name, value) for keys of which this grouping holds nothing."""
    quantiles: tuple[Quantile, ...] = ()
    """What the aggregates are, where all of them are that."""


@canonical(
    "Member(query, window, main, further, keys, present, outputs, names, types, having, order, limit, updates, fence)"
)
@dataclass(frozen=True)
class WindowedQuery:
    """One windowed query as the slots finish it."""

    query: str
    """The id of the query."""
    window: Window
    main: Contribution
    """Of the grouping by exactly the query's keys."""
    further: tuple[Contribution, ...]
    """Of value and row groupings with the same keys, joined to the main one."""
    keys: tuple[tuple[str, str], ...]
    """(column, Spark type) of k0, k1, ..."""
    present: str
    """The partial that counts the rows which passed the query's WHERE: a group exists where it is > 0."""
    outputs: tuple[Expr, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]
    having: Expr | None
    order: tuple[tuple[Expr, bool, bool], ...]
    limit: int | None
    updates: bool
    fence: tuple[int, int] | None = None
    """(batch, event time): windows that start before the event time see only rows from that batch on."""

    def __hash__(self) -> int:
        """Of what tells members apart; all of it would take longer than what is kept by it."""
        return hash((self.query, self.main.grouping, self.window))


@canonical("Selection(query, stream, where, columns, names, types)")
@dataclass(frozen=True)
class Selection:
    """One plain filter/projection query as INGEST serves it."""

    query: str
    stream: str
    where: str | None
    """The boolean column that admits a row."""
    columns: tuple[str, ...]
    names: tuple[str, ...]
    types: tuple[str, ...]


@canonical(
    "StreamPlan(stream, columns, computed, groupings, selections, shipped, shipped_columns, users, rows?, "
    "keeps_rows?, later?)"
)
@dataclass(frozen=True)
class StreamPlan:
    """What INGEST does with the rows of one stream."""

    stream: Stream
    columns: tuple[str, ...]
    """What is read."""
    computed: tuple[Computed, ...]
    groupings: tuple[str, ...]
    """In the order in which they can be made: finer ones before those rolled up from them."""
    selections: tuple[Selection, ...]
    shipped: tuple[str, ...] = ()
    """The groupings that slots make from rows which are shipped whole, once per slot that needs them."""
    shipped_columns: tuple[str, ...] = ()
    """What of a row is shipped."""
    users: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """computed column or partial -> the ids of the queries that cannot do without it."""
    rows: Grouping | None = None
    """Of a stream of which the state holds rows as they are: these, as a grouping by nothing. Its groupings are made
    of them when windows close."""
    keeps_rows: bool = False
    """Whether rows that come are kept so, or groupings are made of them at once."""
    later: tuple[str, ...] = ()
    """The computed columns that only groupings need. They are worked out where groupings are made."""


@canonical(
    "Plan(id, slots, groups, streams, groupings, members, assignment, follows=co_located_with, partitioners, pinned, "
    "spread, joins, functions, notes)"
)
@dataclass(frozen=True)
class Plan:
    id: str
    slots: int
    groups: int
    """G: the number of key groups of every route key."""
    streams: dict[str, StreamPlan]
    groupings: dict[str, Grouping]
    members: tuple[WindowedQuery, ...]
    assignment: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """route key -> slot of each key group, where it is not the hashed default."""
    co_located_with: dict[str, str] = field(default_factory=dict)
    """route key -> the one whose slots its shipped rows go to. Its windows are finished in its own slots all the
    same, which read the state by key group, whoever wrote it."""
    partitioners: dict[str, str] = field(default_factory=dict)
    """route key -> what deals out its shipped rows, where a key need not stay whole in its slot. As with followers,
    its windows are finished in its own slots, which read what others wrote."""
    pinned: dict[str, str] = field(default_factory=dict)
    """route key -> what a query asks for to deal it out."""
    spread: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """route key -> key groups whose rows look for partners in all slots, each row in one of them: they are too many
    for one slot."""
    joins: JoinPlan = field(default_factory=JoinPlan)
    functions: dict[str, bytes] = field(default_factory=dict)
    """version -> the pickled code of an aggregate that the user has defined."""
    notes: tuple[str, ...] = ()
    """Why it is as it is, for EXPLAIN."""


ROWS = "rows of "
"""How the relation of a stream's rows is called that are kept as they are."""


def relation_of(plan: Plan, name: str) -> Grouping | None:
    """The grouping, or the kept rows of a stream, that a bucket of slices is of; None where the plan has none."""
    if not name.startswith(ROWS):
        return plan.groupings.get(name)
    stream = plan.streams.get(name.removeprefix(ROWS))
    return None if stream is None else stream.rows


def shipped_keys(plan: Plan, stream: StreamPlan) -> dict[str, list[Grouping]]:
    """route key -> the groupings that need rows of the stream together by it, in the order of the mask's bits."""
    found: dict[str, list[Grouping]] = {}
    for id_ in stream.shipped:
        found.setdefault(plan.groupings[id_].route_key, []).append(plan.groupings[id_])
    return found


def updated_groupings(plan: Plan) -> set[str]:
    """The groupings whose newest partials some query shows in the batch that brings them."""
    return {g for m in plan.members if m.updates for g in (m.main.grouping, *(p.grouping for p in m.further))}


def queries_of(plan: Plan, groupings: Collection[str]) -> set[str]:
    """The queries whose windows are put together from any of these groupings."""
    return {m.query for m in plan.members if any(p.grouping in groupings for p in (m.main, *m.further))}


def route_keys(plan: Plan) -> set[str]:
    """The route keys in use: of groupings, and of the indexes by which joins are probed."""
    found = {grouping.route_key for grouping in plan.groupings.values()}
    for store in plan.joins.stores.values():
        found |= {route_key(store.stream, index.keys) for index in store.indexes}
    return found


def joins_feed_groupings(plan: Plan) -> bool:
    """Whether joined rows are grouped: their partials need a stage after the last probe."""
    joined = plan.joins.joined
    return any(g.stream in joined and not joined[g.stream].alone for g in plan.groupings.values())


def slot_stages(plan: Plan) -> int:
    """How many times the slots are asked in a batch, each time after a shuffle."""
    return max(1, plan.joins.stages + int(joins_feed_groupings(plan)))
