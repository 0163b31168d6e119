"""What rules hand on: the plan so far, in parts.

A part is kept with all that it was made from. Whoever plans holds the draft of the last time, and a rule that finds a
part there, made from the same, takes it as it is: what did not change is not planned again. Nothing else is kept, so
what is kept is bounded by one plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Generic, TypeVar, TypeVarTuple

from thalweg.model.canonical import Written, named
from thalweg.model.expr import Expr
from thalweg.model.join import Join
from thalweg.model.plan import Computed, Grouping, Partial, Plan, Selection, StreamPlan, WindowedQuery
from thalweg.model.plan_input import PlanInput, RunningQuery
from thalweg.model.probe import Cohort, Decision, Index, Intermediate, Joined, JoinPlan, Predicate, Role, Store
from thalweg.model.probe_order import Edge, OrderedJoin
from thalweg.model.query import Query
from thalweg.model.stream import Stream
from thalweg.model.window import Window
from thalweg.optimize.cohort_costs import Demand, Sides
from thalweg.optimize.cohorts import Judged

T = TypeVar("T")
Given = TypeVarTuple("Given")
Keys = tuple[tuple[str, ...], tuple[str, ...]]
"""The key columns on either side of an edge."""
Queries = tuple[str, ...]
"""The ids of a cohort's queries, in the order of their bits."""


@dataclass(frozen=True, eq=False)
class Part(Generic[T]):
    given: tuple[object, ...]
    """All that it was made from."""
    value: T

    @cached_property
    def name(self) -> str:
        """Of what it is."""
        return named("", self.value)


def again(before: Part[T] | None, make: Callable[[*Given], T], *given: *Given) -> Part[T]:
    """The part as it was before, if it was made from the same; else it is made."""
    if before is not None and before.given == given:
        return before
    return Part(given, make(*given))


@dataclass(frozen=True)
class StreamUses:
    """What one query asks of the rows of one stream."""

    stream: str
    computed: tuple[Computed, ...] = ()
    uses: tuple[str, ...] = ()
    """What it cannot do without, columns and partials, each once."""


@dataclass(frozen=True)
class AskedGrouping:
    """What one query asks of one grouping."""

    id: str
    stream: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    window: Window
    partials: tuple[Partial, ...]
    names: frozenset[str]
    """What the partials name in their texts, and their filters."""
    columns: frozenset[str]
    """All that it is made from: what its computed columns read is among it."""


@dataclass(frozen=True)
class QueryParts:
    """A query, taken apart. It has a window and is a member, or it is a selection."""

    asked: tuple[StreamUses, ...]
    groupings: tuple[AskedGrouping, ...] = ()
    member: WindowedQuery | None = None
    selection: Selection | None = None
    pin: tuple[str, str] | None = None
    """(route key, the partitioner that it asks for)."""

    @cached_property
    def name(self) -> str:
        """Of what it is of the plan."""
        return named("", self.member, self.selection)


@dataclass(frozen=True)
class StoreShare:
    """What one join query, or all of them, ask of the store of one stream."""

    needs: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    columns: frozenset[str] = frozenset()
    predicates: Mapping[str, Predicate] = field(default_factory=dict)
    indexes: Mapping[str, Index] = field(default_factory=dict)
    keeps_all: bool = False


@dataclass(frozen=True)
class JoinParts:
    """What a query asks of the relations that it joins."""

    id: str
    query: Query
    join: Join
    complete_from: int | None
    far: Mapping[tuple[str, str], int]
    """(i, j) -> how much later j may be than i."""
    edges: Mapping[Edge, Keys]
    types: Mapping[Edge, tuple[str, ...]]
    predicates: Mapping[str, Predicate | None]
    """By relation; None: it wants every row."""
    stores: Mapping[str, StoreShare]
    """By stream, in their order: what it asks of its store. Nothing where rows need no partners."""
    asked: tuple[StreamUses, ...]
    reads: frozenset[str]
    """The joined columns that the query reads."""
    columns: Mapping[str, frozenset[str]]
    """By relation, those of them that are its own."""
    flag: str | None
    """The column of joined rows that says which are the query's; None: all."""

    @property
    def probes(self) -> bool:
        """Whether its rows need partners: else one stream is joined with tables only."""
        return len(self.join.relations) > 1


@dataclass(frozen=True, eq=False)
class StreamShare:
    """What all queries ask of the rows of one stream."""

    computed: Mapping[str, Computed] = field(default_factory=dict)
    users: dict[str, tuple[str, ...]] = field(default_factory=dict)
    selections: tuple[Selection, ...] = ()
    read: frozenset[str] = frozenset()
    """Columns that expressions and selections read, computed ones among them."""
    askers: tuple[str, ...] = ()
    """The queries that ask anything."""
    computed_for: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By computed column, who asks for it."""


@dataclass(frozen=True, eq=False)
class SharedGrouping:
    """A grouping with what all its queries ask of it."""

    id: str
    stream: str
    keys: tuple[str, ...]
    values: tuple[str, ...]
    partials: Mapping[str, Partial] = field(default_factory=dict)
    windows: Mapping[Window, None] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    """What partials name in their texts, and their filters."""
    columns: frozenset[str] = frozenset()
    """The columns of the stream that it is made from, by computed ones too."""
    calls_users_code: bool = False
    partials_for: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By partial, who asks for it."""
    windows_for: Mapping[Window, tuple[str, ...]] = field(default_factory=dict)
    """By window, who asks for it."""

    @cached_property
    def most_windows(self) -> int:
        """That a row is in, of one query."""
        return max(window.windows_per_row for window in self.windows)


def read_through(names: Iterable[str], computed: Mapping[str, Computed]) -> frozenset[str]:
    """These columns, and all that computed ones among them are made from."""
    found: set[str] = set()
    waiting = {*names}
    while waiting:
        found |= waiting
        waiting = {c for name in waiting if name in computed for c in computed[name].expr.columns} - found
    return frozenset(found)


Share = TypeVar("Share", StreamShare, SharedGrouping)


def as_before(before: Share | None, share: Share) -> Share:
    """The one of before, if it is the same. They are compared as lists, for their order is that of the plan."""
    return share if before is None or _listed(before) != _listed(share) else before


def _listed(share: StreamShare | SharedGrouping) -> list[object]:
    values = (getattr(share, f.name) for f in fields(share))
    return [list(value.items()) if isinstance(value, Mapping) else value for value in values]


@dataclass(frozen=True, eq=False)
class Rolled:
    """A grouping that knows what it is made from, and for whom."""

    grouping: Grouping
    reads: frozenset[str]
    """What the texts and filters of its partials name, of those for others too."""

    @cached_property
    def route_key(self) -> str:
        return self.grouping.route_key

    @cached_property
    def width(self) -> int:
        """Bytes of its partials for one group, about."""
        return sum(16 if "HUGE" in p.type or "DECIMAL" in p.type else 8 for p in self.grouping.partials)

    @cached_property
    def name(self) -> str:
        """Of its content: a partial has the name of its own."""
        g = self.grouping
        partials, extra = tuple([p.name for p in g.partials]), tuple([p.name for p in g.partials_for_others])
        return named("", g.id, partials, g.windows, g.slice_us, g.slice_start_us, g.rolled_up_from, extra)


@dataclass(frozen=True, eq=False)
class RolledUp:
    """The groupings of one stream, with what is made from what."""

    chosen: Part[Mapping[str, str]]
    """coarser -> finer."""
    parts: Mapping[str, Part[Rolled]]

    @cached_property
    def made(self) -> dict[str, Rolled]:
        return {id_: part.value for id_, part in self.parts.items()}


@dataclass(frozen=True, eq=False)
class ComputedInOrder:
    """The computed columns of a stream, each after those that it reads."""

    columns: tuple[Computed, ...]
    names: Written
    """As a text, of which the name of the stream's plan is made."""


@dataclass(frozen=True)
class PlannedStream:
    plan: StreamPlan
    computed: ComputedInOrder
    groupings: Mapping[str, Grouping]
    route_keys: frozenset[str]
    name: str
    """Of its content."""


@dataclass(frozen=True)
class CohortNumbers:
    """What was measured of the joins of a cohort."""

    rows: Mapping[str, float]
    """Relation -> rows per batch that its queries want."""
    partners: Mapping[Edge, float]
    """As gathered over epochs."""
    matches: Mapping[Edge, float]
    """The same; where that is missing, of recent batches."""


@dataclass(frozen=True)
class CohortOrders:
    """In which order the rows of a cohort look for partners."""

    decided: Mapping[str, OrderedJoin]
    """By query, as it was decided."""
    orders: Mapping[tuple[str, str], tuple[str, ...]]
    """(query, start relation) -> the others, one after the other."""


@dataclass(frozen=True)
class GrownCohort:
    cohort: Cohort
    ordered: Mapping[str, OrderedJoin]
    decisions: tuple[Decision, ...]
    stages: int

    @cached_property
    def name(self) -> str:
        """Of its content."""
        return named("", self.cohort, dict(self.ordered), self.decisions)


@dataclass(frozen=True)
class Draft:
    """The plan so far. A rule sets the fields under its name, and reads those above."""

    given: PlanInput

    # derive_streams
    new: tuple[RunningQuery, ...] = ()
    """The queries that the last draft did not have, or not as they are; all, if it is not gone on from."""
    gone: tuple[RunningQuery, ...] = ()
    """The queries of the last draft that there are no more, or not as they were."""
    tail: int = 0
    """From here on there are only queries that the last draft did not have at all."""
    ranks: Mapping[str, int] = field(default_factory=dict)
    """The places of queries; where they were only added, those of new ones."""
    continues: bool = False
    """Whether the last draft is gone on from: over the same streams, and queries that stay are in the same order."""
    derived: Mapping[str, Stream] = field(default_factory=dict)

    # split_aggregates
    parts: Mapping[str, Part[QueryParts]] = field(default_factory=dict)
    members: Mapping[str, WindowedQuery] = field(default_factory=dict)
    """By query, in the order of the queries."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """route key -> the partitioner that a query asks for; of several, the oldest query's."""

    # split_joins
    joins: Mapping[str, Part[JoinParts]] = field(default_factory=dict)

    # share_expressions
    asked: tuple[Mapping[str, StreamShare], ...] = ({}, {}, {})
    """By stream: what queries ask of its rows; what probes ask; what joins with tables only ask."""
    shares: Mapping[str, Part[StreamShare]] = field(default_factory=dict)
    """All three together."""
    touched: tuple[str, ...] = ()
    """The streams that have to be planned again; all, where more than new queries came."""

    # share_slices
    shared: Mapping[str, SharedGrouping] = field(default_factory=dict)
    of_stream: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """stream -> its groupings."""
    groupings: Mapping[str, Part[Grouping]] = field(default_factory=dict)

    # roll_up
    rolled_up: Mapping[str, RolledUp] = field(default_factory=dict)
    """By stream."""

    # form_cohorts
    relations: Mapping[str, str] = field(default_factory=dict)
    """Relation -> stream, of all joins."""
    demands: Mapping[str, Demand] = field(default_factory=dict)
    """By query."""
    sides: Mapping[str, Sides] = field(default_factory=dict)
    formed: Part[Judged] | None = None
    """The cohorts, and why some run apart."""
    cohorts: Mapping[Queries, tuple[JoinParts, ...]] = field(default_factory=dict)

    # order_probes
    roles: Mapping[Queries, Part[Mapping[str, Role]]] = field(default_factory=dict)
    numbers: Mapping[Queries, Part[CohortNumbers]] = field(default_factory=dict)
    orders: Mapping[Queries, Part[CohortOrders]] = field(default_factory=dict)

    # keep_intermediates
    kept: Mapping[Queries, Part[tuple[Intermediate, ...]]] = field(default_factory=dict)

    # grow_probe_trees
    grown: Mapping[Queries, Part[GrownCohort]] = field(default_factory=dict)

    # lay_out_stores
    asked_stores: Mapping[str, StoreShare] = field(default_factory=dict)
    stores: Mapping[str, Part[Store]] = field(default_factory=dict)
    kept_stores: Mapping[Queries, Part[tuple[Store, ...]]] = field(default_factory=dict)
    joined: Mapping[str, Joined] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    join_plan: JoinPlan = field(default_factory=JoinPlan)

    # keep_rows
    updated: frozenset[tuple[str, str]] = frozenset()
    """(stream, query that shows updates of its windows)."""
    kept_rows: Mapping[str, Part[bool]] = field(default_factory=dict)
    """stream -> whether its rows are kept as they are."""

    # send_rows_whole
    sent_whole: Mapping[str, Part[tuple[str, ...]]] = field(default_factory=dict)
    """stream -> the groupings that slots make from whole rows."""

    # prune_columns
    planned: Mapping[str, Part[PlannedStream]] = field(default_factory=dict)

    # name_plan
    query_names: Mapping[str, str] = field(default_factory=dict)
    """Of what each query is of the plan, in the order of the queries."""
    joined_names: Mapping[str, str] = field(default_factory=dict)
    """Of joined rows, by their content."""

    # put_together, and all that follow
    plan: Plan = field(default_factory=lambda: Plan("", 1, 1, {}, {}, ()))

    @cached_property
    def streams(self) -> Mapping[str, Stream]:
        return {**self.given.streams, **self.derived}

    def begun(self, last: Draft) -> Draft:
        """What queries are taken from, and new ones are added to."""
        return last if self.continues else NOTHING

    @property
    def adds_at_end(self) -> bool:
        """Whether the new queries come after all that stay as they are."""
        return len(self.given.queries) - len(self.new) == self.tail

    @property
    def only_adds(self) -> bool:
        """Whether the queries of the last draft are the first ones of this."""
        return not self.gone and self.adds_at_end

    def of_queries(self, known: Mapping[str, T], new: Mapping[str, T]) -> Mapping[str, T]:
        """By query, in the order of the queries: what was known of those that stay, and what is new."""
        found = {**known}
        for running in self.gone:
            found.pop(running.id, None)
        found.update(new)
        return found if self.adds_at_end or not new else {id_: found[id_] for id_ in self.ranks if id_ in found}


NOTHING = Draft(PlanInput((), {}))
"""Before the first plan."""

Rule = Callable[[Draft, Draft], Draft]
"""(the draft so far, the whole draft of the last time) -> the next draft."""
ColumnOf = Callable[[str, Expr, Expr | None], str]
"""(stream, expression, guard) -> the column that holds its value, worked out where the guard holds."""
