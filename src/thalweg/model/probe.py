"""The join half of a plan: stores with their indexes, cohorts with their probe trees.

A store keeps the rows of one stream once, with an index per key. A cohort is a set of at most 64 queries
that run together: what a row or a tuple of rows can still serve is one 64-bit word, its query set. An arriving
row walks the trees of its relation: at every node it looks for partners in a store, and what it finds goes on
to the children, or is complete for the queries that end there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from thalweg.model.canonical import canonical
from thalweg.model.expr import Expr
from thalweg.model.join import Atom, TableJoin
from thalweg.model.probe_order import OrderedJoin

COHORT_SIZE = 64


@canonical("Predicate(id, atoms, computed)")
@dataclass(frozen=True)
class Predicate:
    """What queries ask of the rows of one stream."""

    id: str
    atoms: tuple[Atom, ...]
    computed: tuple[str, ...] = ()
    """Boolean columns that must hold too."""

    @cached_property
    def reads(self) -> frozenset[str]:
        return frozenset((*(atom.column for atom in self.atoms), *self.computed))


@canonical("Index(id, keys, word, exact)")
@dataclass(frozen=True)
class Index:
    """Finds the rows of a store by a key. Rows with a null in the key are not in it."""

    id: str
    keys: tuple[str, ...]
    """Columns of the store, in order."""
    word: str
    """The column that is compared: the key itself where it is one whole number, else a hash of the key."""
    exact: bool
    """Whether equal words are equal keys; otherwise the keys are compared after a probe."""


@canonical("Intermediate(id, relations, anchor, queries)")
@dataclass(frozen=True)
class Intermediate:
    """A joined intermediate result that a cohort keeps: what two relations yield is stored like rows of a stream."""

    id: str
    """Names its store, and stands for its relations in tuples."""
    relations: tuple[str, ...]
    anchor: str
    """The relation whose time is the time of its rows."""
    queries: tuple[str, ...]
    """The queries that its rows are kept for."""


@canonical("Store(stream, time, columns, predicates, keeps_all, indexes, needs)")
@dataclass(frozen=True)
class Store:
    """The rows of one stream that join queries may still need, once. Or those of an intermediate."""

    stream: str
    """The stream's name, or the intermediate's."""
    time: str
    columns: tuple[str, ...]
    """What is kept of a row, event time included; hashes for indexes are added to it."""
    predicates: tuple[Predicate, ...]
    """A row is kept if it satisfies one of them."""
    keeps_all: bool
    """Whether some query has no predicate here: then every row is kept."""
    indexes: tuple[Index, ...]
    needs: tuple[tuple[tuple[str, ...], int], ...]
    """(streams, reach): a row may find partners until the least watermark of the streams is past it by the reach."""

    def index(self, id_: str) -> Index:
        return next(i for i in self.indexes if i.id == id_)

    @cached_property
    def marked(self) -> tuple[Predicate, ...]:
        """The predicates that cannot be told from what is kept of a row: it keeps a bit for each, in this order."""
        kept = frozenset(self.columns)
        return tuple(p for p in self.predicates if not p.reads <= kept)


@canonical("Check(known, found, edges, masks)")
@dataclass(frozen=True)
class Check:
    """Queries whose bounds are tighter than the probe's: time(found) - time(known) decides which remain."""

    known: str
    """A relation that the tuple already has."""
    found: str
    edges: tuple[int, ...]
    """Ascending, in microseconds."""
    masks: tuple[int, ...]
    """masks[i]: the queries that admit a difference d with exactly i of the edges <= d."""


@canonical(
    "Node(relation, stream, edge, index, key, own, equal, moves, new, bounds, checks, queries, complete, "
    "keeps, children)"
)
@dataclass(frozen=True)
class ProbeNode:
    """One probe: tuples of known relations find rows of one more."""

    relation: str
    """A relation, or an intermediate that stands for several."""
    stream: str
    """The store that is probed, by its name."""
    edge: str
    """What is equal, by name: for measurements."""
    index: str
    """Of the stream's store."""
    key: tuple[tuple[str, str], ...]
    """(known relation, its column) for each key of the index, in order."""
    own: str
    """First step only: the index of the start relation by that key, which says where its rows are probed."""
    equal: tuple[tuple[str, str, str], ...]
    """(known relation, its column, column of the found one): equalities besides the key's."""
    moves: bool
    """Whether tuples are sent on to the slots of this key: a stage of its own."""
    new: bool
    """Whether rows of the batch itself are found too."""
    bounds: tuple[tuple[str, int, int], ...]
    """(known relation, low, high): low <= time(found) - time(known) <= high, as loose as the loosest query."""
    checks: tuple[Check, ...]
    queries: int
    """The set of queries that come through here."""
    complete: tuple[tuple[str, int], ...] = ()
    """(joined stream, queries) for which the tuples are complete here."""
    keeps: tuple[tuple[str, int], ...] = ()
    """(intermediate, queries) for which the tuples are kept."""
    children: tuple[ProbeNode, ...] = ()

    def walk(self) -> Iterator[ProbeNode]:
        yield self
        for child in self.children:
            yield from child.walk()


@canonical("Tree(relation, stream, order, children, counted)")
@dataclass(frozen=True)
class ProbeTree:
    """Where arriving rows of one relation go."""

    relation: str
    stream: str
    order: int
    """Its place among the cohort's relations: of those before it new rows are found too, of those after only old."""
    children: tuple[ProbeNode, ...]
    counted: tuple[ProbeNode, ...] = ()
    """Probes of some rows that are only counted: edges of which the other probes of the cohort tell nothing."""

    def nodes(self) -> Iterator[ProbeNode]:
        for child in self.children:
            yield from child.walk()


@canonical("Want(queries, predicate, columns)")
@dataclass(frozen=True)
class Want:
    """Queries that ask the same of a relation."""

    queries: int
    predicate: Predicate | None
    """None: every row."""
    columns: tuple[str, ...]
    """What they need of its rows, besides what the predicate reads."""


@canonical("Role(relation, stream, wants)")
@dataclass(frozen=True)
class Role:
    """What the queries of a cohort ask of one relation."""

    relation: str
    stream: str
    wants: tuple[Want, ...]

    @cached_property
    def queries(self) -> int:
        return sum(want.queries for want in self.wants)


@canonical("Group(id, queries, streams, roles, trees)")
@dataclass(frozen=True)
class Cohort:
    """Queries that run together."""

    id: str
    queries: tuple[str, ...]
    """Their ids; a query's bit is its place."""
    streams: tuple[tuple[str, ...], ...]
    """Of each query: whose watermarks are its own."""
    roles: Mapping[str, Role]
    """By relation, in the order of the relations."""
    trees: tuple[ProbeTree, ...]

    def bit(self, query: str) -> int:
        return self.queries.index(query)


@canonical(
    "Decision(group=cohort, query, joined, node, relation, stream, streams, reach_us, before_us, complete_from)"
)
@dataclass(frozen=True)
class Decision:
    """A preserved relation of an outer, semi or anti join: its rows are decided when the watermark passes."""

    cohort: str
    query: str
    joined: str
    node: ProbeNode
    """The probe of its rows for partners."""
    relation: str
    stream: str
    streams: tuple[str, ...]
    reach_us: int
    """A row is decided when the watermark reaches its time plus this. Negative where partners come before it."""
    before_us: int
    """How much earlier than the row a partner may be. Negative where partners come after it."""
    complete_from: int | None = None
    """Rows up to this event time are not decided: of their partners some may be missing."""


@canonical("Joined(stream, relations, streams, lag_us, span_us, flags, kind, on, tables, alone, reads)")
@dataclass(frozen=True)
class Joined:
    """A stream of joined rows, as the plan makes it."""

    stream: str
    relations: tuple[tuple[str, str], ...]
    """(relation, stream)."""
    streams: tuple[str, ...]
    lag_us: int
    """How far its watermark stays behind the least of its streams'."""
    span_us: int
    """The farthest apart that the times of a joined row can be."""
    flags: tuple[tuple[str, str], ...] = ()
    """(query, boolean column that says which rows are the query's), for queries that need such a column. Those that
    ask the same have the same."""
    kind: str = "inner"
    on: Expr | None = None
    tables: tuple[TableJoin, ...] = ()
    alone: tuple[tuple[str, Predicate | None], ...] = ()
    """(query, predicate) where one stream is joined with tables only: its rows need no partner."""
    reads: tuple[str, ...] = ()
    """The joined columns that its queries read."""

    @cached_property
    def leaders(self) -> dict[str, str]:
        """flag -> the query by whose tuples rows get it. Others with the same flag would find the same tuples, in a
        cohort of their own or by another order: a row that came by both would count twice for both."""
        found: dict[str, str] = {}
        for query, flag in self.flags:
            found.setdefault(flag, query)
        return found


@canonical("JoinPlan(stores, groups=cohorts, joined, decisions, intermediates, stages, limits, notes, ordered)")
@dataclass(frozen=True)
class JoinPlan:
    stores: Mapping[str, Store] = field(default_factory=dict)
    """By stream, or intermediate."""
    cohorts: Mapping[str, Cohort] = field(default_factory=dict)
    joined: Mapping[str, Joined] = field(default_factory=dict)
    """By the name of the joined stream."""
    decisions: tuple[Decision, ...] = ()
    intermediates: Mapping[str, Intermediate] = field(default_factory=dict)
    stages: int = 0
    """How many times tuples are sent to slots at most, the first probe included."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """query -> the most rows that one key may yield in one batch."""
    notes: tuple[str, ...] = ()
    ordered: Mapping[str, OrderedJoin] = field(default_factory=dict)
    """query -> its order, of inner joins."""
