"""Property: joins in many batches in the calling process. Random joins, batches, slots, regrouping and intermediates
against DuckDB over the same rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from msgspec import structs
from tests.support.local_pipeline import LocalPipeline
from tests.support.unsettled import random_ordering

from thalweg.adapt.probe_orders import adaptation
from thalweg.adapt.settings import JoinPlanning
from thalweg.model.bucket import Layout
from thalweg.model.expr import Expr, quote
from thalweg.model.join import Atom, Equality, Join, KeyPart, Relation, TimeBound, joined_column
from thalweg.model.partitioning import Partitioning
from thalweg.model.plan import route_keys
from thalweg.model.plan_input import PlanInput, PlanSettings, RunningQuery
from thalweg.model.probe import Store
from thalweg.model.query import Output, Query, SinkSpec
from thalweg.model.report import SAMPLED, ProbeId, SlotReport
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.window import BEGINNING
from thalweg.operate import materialise, pieces
from thalweg.operate import probe_layout as laid
from thalweg.optimize import keep_intermediates, lay_out_stores
from thalweg.optimize.planner import make_plan

pytestmark = pytest.mark.slow

COLUMNS = ("k", "x", "y")
SCHEMA = Schema((*(Field(c, "int" if c == "k" else "bigint") for c in COLUMNS), Field("ts", "timestamp")))
STREAMS = {name: Stream(name, SCHEMA, "ts", 0, SourceSpec("memory", {})) for name in "abcd"}
SECOND = 1_000_000
SLOTS = 3
TELLING = (1, 17, 28, 34, 36, 41, 46, 101, 109, 116, 125, 127, 148, 152, 167, 171)
"""Worlds in which it shows if intermediates are looked into too early, or by rows of relations between their own."""


def column(name: str, kind: str = "bigint") -> Expr:
    return Expr(quote(name), kind, (name,))


def random_atoms(rng: random.Random) -> tuple[Atom, ...]:
    if rng.random() < 0.6:
        return ()
    return (Atom(rng.choice(COLUMNS), rng.choice(("<", ">=", "=")), rng.randint(0, 6)),)


def random_query(rng: random.Random, number: int, edges: list[tuple[str, str, str, str]]) -> Query:
    """A connected choice of the world's edges, so that queries overlap; sometimes a stream with itself."""
    start = rng.choice(edges)
    chosen = [start]
    names = {start[0], start[1]}
    for _ in range(rng.randint(0, 2)):
        more = [e for e in edges if (e[0] in names) != (e[1] in names)]
        if more:
            chosen.append(rng.choice(more))
            names |= {chosen[-1][0], chosen[-1][1]}
    relations = tuple(
        Relation(
            name,
            name.split("#")[0],
            (Atom(rng.choice(COLUMNS), rng.choice(("<", ">=", "=")), rng.randint(0, 6)),)
            if rng.random() < 0.4
            else (),
        )
        for name in sorted(names)
    )
    equalities = tuple(
        Equality(KeyPart(a, column(ca, "bigint")), KeyPart(b, column(cb, "bigint")))
        for a, b, ca, cb in sorted(chosen)
    )
    bounds = tuple(
        TimeBound(a, b, rng.choice((-3, -1, 0)) * SECOND, rng.choice((0, 1, 2)) * SECOND)
        for a, b, _, _ in sorted(chosen)
    )
    outputs = tuple(
        Output(f"{r.name}_{c}", column(joined_column(r.name, c))) for r in relations for c in rng.sample(COLUMNS, 2)
    )
    join = Join(relations, equalities, bounds)
    signature = repr((names, equalities))
    return Query(f"q{number}", "", f"j_{signature}", outputs, join=join)


@cache
def _connection() -> Any:
    """One for all: opening it takes as long as a query."""
    return duckdb.connect()


def expected(query: Query, rows: dict[str, pa.Table]) -> Counter[tuple[Any, ...]]:
    """The query as batch SQL over the rows that are not late for it."""
    join = query.join
    assert join is not None
    tables = ", ".join(f'rows_{r.stream} AS "{r.name}"' for r in join.relations)
    where = [
        f'"{e.left.relation}".{e.left.expr.sql} = "{e.right.relation}".{e.right.expr.sql}' for e in join.equalities
    ]
    for b in join.bounds:
        apart = f'epoch_us("{b.right}".ts) - epoch_us("{b.left}".ts)'
        where.append(f"{apart} BETWEEN {b.low_us} AND {b.high_us}")
    where += [f'"{r.name}".{a.column} {a.op} {a.value}' for r in join.relations for a in r.atoms]
    where += [r.where.sql.replace('"x"', f'"{r.name}".x') for r in join.relations if r.where is not None]
    selected = []
    for output in query.outputs:
        relation, own = output.expr.columns[0].rsplit(".", 1)
        selected.append(f'"{relation}".{own}')
    con = _connection()
    for name, table in rows.items():
        con.register(f"rows_{name}", table)
    return Counter(con.execute(f"SELECT {', '.join(selected)} FROM {tables} WHERE {' AND '.join(where)}").fetchall())


def make_rows(
    rng: random.Random, batch: int, count: int, most_x: int = 9, most_y: int = 9, seconds: int = 4
) -> pa.Table:
    """A batch of so many seconds."""

    def value(most: int) -> int | None:
        return None if rng.random() < 0.05 else min(rng.randint(0, most), rng.randint(0, most))

    late = [rng.choice((0, 0, 0, 0, 5)) for _ in range(count)]
    times = [
        (batch * seconds + rng.randint(0, seconds) - late[i]) * SECOND + rng.randint(0, 3) * 250_000
        for i in range(count)
    ]
    return pa.table(
        {
            "k": pa.array([value(7) for _ in range(count)], pa.int32()),
            "x": pa.array([value(most_x) for _ in range(count)], pa.int64()),
            "y": pa.array([value(most_y) for _ in range(count)], pa.int64()),
            "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us")),
        }
    )


@pytest.fixture(autouse=True)
def _short_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured counts after two batches, whether orders are planned or not."""
    monkeypatch.setattr(adaptation, "EPOCH", 2)


@dataclass
class World:
    """A pipeline over four streams, all that came in, and what can be said of its plans."""

    pipeline: LocalPipeline
    unsettled: bool = False
    """Whether every batch has other orders and intermediates, at random."""
    newest: dict[str, int] = field(default_factory=dict)
    closed: dict[str, int] = field(default_factory=dict)
    counted: dict[str, dict[str, list[pa.Table]]] = field(default_factory=dict)
    """query -> stream -> the rows that are not late for it."""
    intermediates_used: int = 0
    orders_seen: dict[tuple[str, str], set[Any]] = field(default_factory=dict)
    probed: list[dict[ProbeId, tuple[int, int]]] = field(default_factory=list)
    """What the probes of every batch have counted."""

    def run(self, rng: random.Random, rows: dict[str, pa.Table]) -> None:
        """One batch. Of streams that no query reads there is nothing: their rows would wait."""
        pipeline = self.pipeline
        rows = {name: table if name in pipeline.used_streams() else table.slice(0, 0) for name, table in rows.items()}
        self._decide(rng)
        self._count_rows(rows)
        for name in sorted(pipeline.used_streams()):
            pipeline.append(name, rows[name], pieces=3)
        assert pipeline.run()
        pipeline.batches.adaptations.wait()
        self.closed |= {name: self.newest.get(name, BEGINNING) for name in pipeline.used_streams()}
        self._pass_time(rows)
        self._look_at_plan()

    def _decide(self, rng: random.Random) -> None:
        pipeline = self.pipeline
        moves = random.Random(rng.random())  # what else is random does not depend on how many there are
        pipeline.batches.adaptations.change("slot_count", slots=rng.choice((1, 2, 2, 3)))
        plan = pipeline.preview()
        if self.unsettled and rng.random() < 0.5:  # else once more as before: intermediates have time to fill
            pipeline.decide(ordering=random_ordering(rng, plan.joins.ordered))
        # Key groups anywhere, others in every batch: a switch of the partitioning loses and doubles nothing.
        moved = {key: moves.choices(range(plan.slots), k=plan.groups) for key in sorted(route_keys(plan))}
        # And some of them probed by all slots in turn.
        spread = {key: moves.sample(range(plan.groups), 100) for key in sorted(moved) if moves.random() < 0.6}
        pipeline.decide(partitioning=Partitioning(moved, {}, plan.slots), spread=spread)

    def _count_rows(self, rows: dict[str, pa.Table]) -> None:
        for name, query in self.pipeline.queries.items():
            threshold = min(self.closed.get(s, BEGINNING) for s in query.streams)
            for stream in query.streams:
                times = rows[stream].column("ts").cast(pa.int64()).to_numpy()
                kept = rows[stream].filter(pa.array(times > threshold))
                self.counted.setdefault(name, {}).setdefault(stream, []).append(kept)

    def _pass_time(self, rows: dict[str, pa.Table]) -> None:
        for name, table in rows.items():
            if table.num_rows:
                latest = max(table.column("ts").cast(pa.int64()).to_pylist())
                self.newest[name] = max(self.newest.get(name, BEGINNING), latest)

    def _look_at_plan(self) -> None:
        joins = self.pipeline.plan.joins
        for id_, join in joins.ordered.items():
            for start, order in join.orders.items():
                self.orders_seen.setdefault((id_, start), set()).add(order)
        self.intermediates_used += sum(
            n.relation.startswith("+") for g in joins.cohorts.values() for t in g.trees for n in t.nodes()
        )
        probes: dict[ProbeId, tuple[int, int]] = {}
        for report in self.pipeline.reports():
            for probe, (looked, found) in report.probes.items() if isinstance(report, SlotReport) else ():
                before = probes.get(probe, (0, 0))
                probes[probe] = before[0] + looked, before[1] + found
        self.probed.append(probes)

    def results(self, name: str) -> Counter[tuple[Any, ...]]:
        return Counter(self.pipeline.rows(name))

    def come(self, name: str) -> dict[str, pa.Table]:
        """stream -> the rows that are not late for the query."""
        return {stream: pa.concat_tables(tables) for stream, tables in self.counted[name].items()}

    def check(self) -> None:
        """Every query, also one that was dropped, has given what DuckDB finds in the rows that came while it ran."""
        assert not self.pipeline.failures()
        for name, query in self.pipeline.known.items():
            if name in self.counted:
                assert self.results(name) == expected(query, self.come(name)), query.join


OpenWorld = Callable[..., World]


@pytest.fixture
def open_world(tmp_path: Path) -> Iterator[OpenWorld]:
    with ExitStack() as stack:

        def open_one(queries: Iterable[Query] = (), kind: type[World] = World, **options: Any) -> World:
            own = {key: options.pop(key) for key in ("unsettled",) if key in options}
            place = tmp_path / str(len(list(tmp_path.iterdir())))
            pipeline = LocalPipeline(place, STREAMS.values(), queries, slots=SLOTS, **options)
            stack.callback(pipeline.close)
            return kind(pipeline, **own)

        yield open_one


def random_edges(rng: random.Random) -> list[tuple[str, str, str, str]]:
    edges = []
    for _ in range(6):
        a, b = sorted(rng.sample([*STREAMS, "a#2"], 2))
        if b != "a#2" or a == "a":
            edges.append((a, b, rng.choice(COLUMNS[1:]), rng.choice(COLUMNS[1:])))
    return edges


def play(open_world: OpenWorld, seed: int, *, unsettled: bool = False, batches: int = 6) -> World:
    rng = random.Random(seed)
    edges = random_edges(rng)
    queries = [random_query(rng, i, edges) for i in range(rng.randint(1, 6))]
    world = open_world(queries, unsettled=unsettled, shuffled=random.Random(f"order {seed}"), tasks=2 + seed % 2)
    for batch in range(batches):
        if batch == 3 and len(queries) > 1:
            world.pipeline.drop(rng.choice(queries).name)
        if batch == 4 and seed % 4 == 3:
            world.pipeline.reopen()
        rows = {name: make_rows(rng, batch, rng.choice((0, 15, 40))) for name in STREAMS}
        world.run(rng, rows)
    return world


@pytest.mark.parametrize("keep_below", [0.0, 100.0])
@pytest.mark.parametrize("seed", range(14))
def test_joins_equal_duckdb(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch, seed: int, keep_below: float
) -> None:
    monkeypatch.setattr(keep_intermediates, "KEEP_BELOW", keep_below)
    # Buckets of a few rows would hardly ever be laid out: never, always, and as long as there is room.
    few, worth, most = ((9999, 4, 9999), (1, 999, 9999), (1, 999, 25))[seed % 3]
    for name, value in (("FEW", few), ("WORTH", worth), ("MOST", most)):
        monkeypatch.setattr(laid, name, value)
    monkeypatch.setattr(materialise, "ROWS_AT_ONCE", (1, 20, 10**6)[seed % 3])
    monkeypatch.setattr(pieces, "WORTH_CUTTING", (1, 5, 10**6)[seed % 3])
    play(open_world, seed).check()


def test_intermediates_are_kept_and_used(open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison above means something: with a generous rule, rows are found in intermediates."""
    monkeypatch.setattr(keep_intermediates, "KEEP_BELOW", 100.0)
    assert play(open_world, 2).intermediates_used > 0


@pytest.mark.parametrize("seed", TELLING)
def test_other_orders_and_intermediates_in_every_batch(open_world: OpenWorld, seed: int) -> None:
    """An order says which probes are made, not what is stored: it may change at any batch boundary."""
    play(open_world, seed, unsettled=True, batches=9).check()


def test_orders_and_intermediates_do_change(open_world: OpenWorld) -> None:
    """The comparison above means something: queries had several orders, and rows were found in intermediates."""
    world = play(open_world, 34, unsettled=True, batches=9)
    assert max(len(orders) for orders in world.orders_seen.values()) > 2
    assert world.intermediates_used > 0


@pytest.mark.parametrize("seed", range(4))
def test_of_results_that_nobody_takes_there_are_as_many(open_world: OpenWorld, seed: int) -> None:
    """Every query has a twin that gives its results to nobody; some of a cohort are counted, the others kept."""
    rng = random.Random(f"twins {seed}")
    edges = random_edges(rng)
    queries = [random_query(rng, i, edges) for i in range(6)]
    twins = {q.name: replace(q, name=f"{q.name}'", sink=SinkSpec("noop")) for q in queries}
    world = open_world([*queries, *twins.values()])
    for batch in range(4):
        world.run(rng, {name: make_rows(rng, batch, 30) for name in STREAMS})
    emitted = {entry.query.name: entry.emitted for entry in world.pipeline.batches.entries.values()}
    kept = {query.name: world.results(query.name) for query in queries}
    assert {name: emitted[twins[name].name] for name in kept} == {name: found.total() for name, found in kept.items()}
    assert sum(found.total() for found in kept.values()) > 0
    assert all(found == expected(world.pipeline.known[name], world.come(name)) for name, found in kept.items())


@pytest.mark.parametrize("seed", [0, 1, 2, 4, 5, 7, 9, 12])
def test_what_is_only_counted_is_as_much_as_what_is_found(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Differential: a world all of whose results are dropped counts as one that keeps them finds, query by query and
    probe by probe; of one query in every second world, of several in the others."""
    few, worth, most = ((9999, 4, 9999), (1, 999, 9999), (1, 999, 25))[seed % 3]
    for name, value in (("FEW", few), ("WORTH", worth), ("MOST", most)):
        monkeypatch.setattr(laid, name, value)

    def play(sink: str) -> World:
        rng = random.Random(f"counted {seed}")
        edges = random_edges(rng)
        queries = [random_query(rng, i, edges) for i in range(1 if seed % 2 else 5)]
        world = open_world([replace(query, sink=SinkSpec(sink)) for query in queries])
        for batch in range(4):
            world.run(rng, {name: make_rows(rng, batch, 60) for name in STREAMS})
        return world

    counted, kept = play("noop"), play("memory")
    emitted = {entry.query.name: entry.emitted for entry in counted.pipeline.batches.entries.values()}
    assert emitted == {name: kept.results(name).total() for name in kept.pipeline.known}
    assert sum(emitted.values()) > 0
    assert counted.probed == kept.probed
    kept.check()


# -- queries that come and go


STRETCH = 5
"""Batches after which keys that matched seldom match often, and the other way round."""


@dataclass
class Company(World):
    """Queries of which some come and some go at every batch boundary."""

    past: dict[str, list[tuple[pa.Table, dict[str, int]]]] = field(default_factory=dict)
    """stream -> the rows of every batch, and how far streams had closed when they came."""
    since: dict[str, int] = field(default_factory=dict)
    until: dict[str, int] = field(default_factory=dict)
    """query -> the batch that was the first without it."""

    def _count_rows(self, rows: dict[str, pa.Table]) -> None:
        for name, table in rows.items():
            self.past.setdefault(name, []).append((table, dict(self.closed)))

    def change(self, rng: random.Random, batch: int, edges: list[tuple[str, str, str, str]]) -> None:
        running = list(self.pipeline.queries)
        for name in rng.sample(running, rng.choice((0, 0, 1, 2)) if len(running) > 3 else 0):
            self.pipeline.drop(name)
            self.until[name] = batch
        for _ in range(rng.choice((0, 1, 1, 2)) if batch else 4):
            query = random_query(rng, len(self.since), edges)
            self.pipeline.create(query)
            self.since[query.name] = batch

    def rows_for(self, query: Query, first: int, until: int) -> dict[str, pa.Table]:
        """The rows of some batches that are not late for the query."""
        found = {}
        for stream in query.streams:
            tables = []
            for table, closed in self.past[stream][first:until]:
                threshold = min(closed.get(s, BEGINNING) for s in query.streams)
                tables.append(table.filter(pa.array(table.column("ts").cast(pa.int64()).to_numpy() > threshold)))
            found[stream] = pa.concat_tables(tables) if tables else self.past[stream][0][0].slice(0, 0)
        return found

    def check(self) -> None:
        """All pairs of rows since a query's creation have come, and pairs of old rows with new ones may have."""
        assert not self.pipeline.failures()
        ended = len(next(iter(self.past.values())))
        for name, query in self.pipeline.known.items():
            since, until, given = self.since[name], self.until.get(name, ended), self.results(name)
            must = expected(query, self.rows_for(query, since, until))
            may = expected(query, self.rows_for(query, 0, until)) - expected(query, self.rows_for(query, 0, since))
            assert must <= given <= may, (name, since, until, query.join, must - given, given - may)


def play_company(open_world: OpenWorld, seed: int, *, planned: bool, batches: int = 9) -> Company:
    rng = random.Random(f"company {seed}")
    edges = random_edges(rng)
    planning = JoinPlanning(epoch=2, budget_seconds=10.0) if planned else None
    shuffled = random.Random(f"order {seed}")
    world = open_world(kind=Company, unsettled=not planned, join_planning=planning, shuffled=shuffled)
    assert isinstance(world, Company)
    for batch in range(batches):
        world.change(rng, batch, edges)
        seldom = batch // STRETCH % 2 == 0
        rows = {
            name: make_rows(rng, batch, rng.choice((10, 20, 40)), *((20, 5) if seldom else (5, 20)), seconds=2)
            for name in STREAMS
        }
        world.run(rng, rows)
    return world


@pytest.mark.parametrize(("seed", "planned"), [(2, True), (6, True), (7, True), (0, False), (2, False)])
def test_queries_come_and_go_while_orders_change(open_world: OpenWorld, seed: int, planned: bool) -> None:
    """As the planner decides, or at random. Worlds in which orders do change and rows are found in intermediates;
    where the planner decides, it shows if these are looked into too early."""
    world = play_company(open_world, seed, planned=planned)
    world.check()
    assert max(len(orders) for orders in world.orders_seen.values()) > 1
    assert world.pipeline.manifest.measured.probe_orders.ordering.switches > 0 or not planned
    assert world.intermediates_used > 0


# -- many queries, and rows that an earlier release has kept


def selective_query(rng: random.Random, number: int) -> Query:
    """Two streams, of which most selections are a few comparisons, and some an expression."""

    def relation(name: str) -> Relation:
        atoms = tuple(
            Atom(rng.choice(COLUMNS), rng.choice(OPS), rng.randint(-1, 9)) for _ in range(rng.choice((0, 1, 1, 2)))
        )
        where = Expr(f'("x" % {rng.randint(2, 4)} = 1)', "boolean", ("x",)) if rng.random() < 0.2 else None
        return Relation(name, name, tuple(dict.fromkeys(atoms)), where)

    key = rng.choice(COLUMNS[1:])
    bound = TimeBound("a", "b", rng.choice((-3, -1)) * SECOND, rng.choice((0, 2)) * SECOND)
    join = Join(
        (relation("a"), relation("b")), (Equality(KeyPart("a", column(key)), KeyPart("b", column(key))),), (bound,)
    )
    outputs = tuple(
        Output(f"{name}_{c}", column(joined_column(name, c))) for name in "ab" for c in rng.sample(COLUMNS, 1)
    )
    return Query(f"q{number}", "", f"j_{key}", outputs, join=join)


OPS = ("<", "<=", "=", ">=", ">")


def keep_as_earlier_releases(patch: pytest.MonkeyPatch) -> None:
    """A bit of every predicate with each row, whatever its columns tell."""
    of = Layout.of
    patch.setattr(Store, "marked", property(lambda store: store.predicates))
    patch.setattr(Layout, "of", classmethod(lambda cls, *given: structs.replace(of(*given), bits=None)))


@pytest.mark.parametrize(("seed", "count"), [(0, 1), (1, 9), (2, 70), (3, 70), (4, 500)])
def test_many_queries_over_rows_that_an_earlier_release_has_kept(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch, seed: int, count: int
) -> None:
    rng = random.Random(f"many {seed}")
    if seed % 2:
        monkeypatch.setattr(lay_out_stores, "_worth_keeping", lambda stream, asked, kept: {*COLUMNS})
    world = open_world(kind=Company, shuffled=random.Random(seed))
    assert isinstance(world, Company)
    for batch in range(6 if count < 100 else 4):
        with pytest.MonkeyPatch.context() as patch:
            if batch in (0, 1, 3):
                keep_as_earlier_releases(patch)
            new = count if batch == 0 else rng.randint(0, 3)
            for query in [selective_query(rng, len(world.since) + i) for i in range(new)]:
                world.pipeline.create(query)
                world.since[query.name] = batch
            for name in rng.sample([*world.pipeline.queries], rng.randint(0, min(4, count - 1)) if batch else 0):
                world.pipeline.drop(name)
                world.until[name] = batch
            if batch == 3:
                world.pipeline.reopen()
            world.run(rng, {name: make_rows(rng, batch, 30 if name in "ab" else 0, seconds=2) for name in STREAMS})
    world.check()
    assert sum(world.results(name).total() for name in world.since) > 0


# -- edges that are only compared beside others


TRIANGLE = (("a", "b", "x"), ("a", "c", "y"), ("b", "c", "x"))


def run_triangle(open_world: OpenWorld) -> World:
    rng = random.Random(5)
    relations = tuple(Relation(name, name, (Atom("k", "<", 5),) if name == "b" else ()) for name in "abc")
    join = Join(
        relations,
        tuple(Equality(KeyPart(one, column(key)), KeyPart(other, column(key))) for one, other, key in TRIANGLE),
        tuple(TimeBound(one, other, -2 * SECOND, 2 * SECOND) for one, other, _ in TRIANGLE),
    )
    outputs = tuple(Output(name, column(joined_column(name, "k"))) for name in "abc")
    world = open_world([Query("q", "", "j", outputs, join=join)])
    for batch in range(4):
        rows = {name: make_rows(rng, batch, 40 if name in "abc" else 0) for name in STREAMS}
        world.run(rng, rows)
    world.check()
    return world


@pytest.mark.slow
def test_of_an_edge_with_too_many_partners_fewer_rows_are_counted(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = counted_rows(run_triangle(open_world))
    monkeypatch.setattr("thalweg.operate.probe_tree.MOST_COUNTED", 2)
    few = counted_rows(run_triangle(open_world))
    assert 0 < few[0] < whole[0]
    assert 0 < few[1] < whole[1]


def counted_rows(world: World) -> tuple[int, int]:
    """Rows that were only counted, and the partners that they found."""
    counts = [of for probes in world.probed for probe, of in probes.items() if probe.width == SAMPLED]
    return sum(looked for looked, _ in counts), sum(found for _, found in counts)


def test_an_edge_that_closes_a_cycle_is_counted(open_world: OpenWorld) -> None:
    """Some rows look along it and go nowhere: here all, so what they find can be told exactly."""
    world = run_triangle(open_world)
    come, checked = world.counted["q"], 0
    for batch, probes in enumerate(world.probed[1:], 1):
        for probe, (_, found) in probes.items():
            if probe.width == SAMPLED:
                con = duckdb.connect()
                con.register("mine", come[probe.known][batch])
                con.register("theirs", pa.concat_tables(come[probe.found][:batch]))
                key = next(key for a, b, key in TRIANGLE if (a, b) == (probe.known, probe.found))
                asked = {"a": "TRUE", "b": "{}.k < 5", "c": "TRUE"}
                text = (
                    f"SELECT count(*) FROM mine m JOIN theirs o USING ({key}) WHERE {asked[probe.known].format('m')}"
                )
                text += (
                    f" AND {asked[probe.found].format('o')} AND abs(epoch_us(o.ts) - epoch_us(m.ts)) <= {2 * SECOND}"
                )
                assert con.execute(text).fetchall() == [(found,)]
                checked += found
    assert checked


# -- keys that are too frequent


def _pairs_of(number: int, atoms: tuple[Atom, ...]) -> Query:
    relations = (Relation("a", "a", atoms), Relation("b", "b"))
    equality = Equality(KeyPart("a", column("x")), KeyPart("b", column("x")))
    join = Join(relations, (equality,), (TimeBound("a", "b", -9 * SECOND, 9 * SECOND),))
    outputs = tuple(Output(name, column(joined_column(name, "y"))) for name in "ab")
    return Query(f"q{number}", "", "j", outputs, join=join)


@pytest.mark.parametrize("wide", [{3}, {0, 7}, set(range(8))])
def test_a_key_that_is_too_frequent_stops_only_whom_it_is_too_frequent_for(
    open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch, wide: set[int]
) -> None:
    monkeypatch.setattr("thalweg.operate.probe_tree.PAIR_LIMIT", 100)  # of others there are 80
    atoms = (Atom("k", "=", 0),)
    queries = {f"q{i}": _pairs_of(i, () if i in wide else atoms) for i in range(8)}
    plan = make_plan(
        PlanInput([RunningQuery(name, q) for name, q in queries.items()], STREAMS, settings=PlanSettings(SLOTS))
    )
    assert [len(cohort.queries) for cohort in plan.joins.cohorts.values()] == [8]
    world = open_world(queries.values())
    count = 40
    rows = {
        name: pa.table(
            {
                "k": pa.array([i % 20 for i in range(count)], pa.int32()),
                "x": pa.array([5] * count, pa.int64()),
                "y": pa.array(range(count), pa.int64()),
                "ts": pa.array([i * 1000 for i in range(count)], pa.int64()).cast(pa.timestamp("us")),
            }
        ).slice(0, count if name in "ab" else 0)
        for name in STREAMS
    }
    world.run(random.Random(1), rows)
    failures = world.pipeline.failures()
    assert failures.keys() == {f"q{i}" for i in wide}
    assert all("x = 5 is too frequent" in said for said in failures.values())
    for name in failures:
        assert not world.results(name)
    for name in queries.keys() - failures.keys():
        assert world.results(name) == expected(queries[name], world.come(name))
        assert world.results(name).total() == 2 * count
