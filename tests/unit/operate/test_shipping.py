"""Unit: a row is shipped once to every slot that needs it, and every route key finds all its rows there."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from thalweg.model.address import Address, WholeRows
from thalweg.model.columns import GROUP, SERVES
from thalweg.model.expr import Expr
from thalweg.model.plan import Plan, shipped_keys
from thalweg.model.plan_input import GroupingLoad, Placement, PlanInput, PlanMeasurements, PlanSettings, RunningQuery
from thalweg.model.query import Aggregate, Output, Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.times import BatchTimes
from thalweg.model.window import Window
from thalweg.operate.consume import consume
from thalweg.operate.lanes import unpacked
from thalweg.operate.outbox import Outbox
from thalweg.operate.partitioners import TaskPartitioners
from thalweg.operate.shipment import Shipment, groups_made, keys_together
from thalweg.operate.shipping import ship, unship
from thalweg.optimize.planner import make_plan
from thalweg.partition import names
from thalweg.route.hash import hash_rows, key_groups
from thalweg.route.table import routing_table

SECOND = 1_000_000
SCHEMA = Schema((Field("ts", "timestamp"), Field("a", "bigint"), Field("b", "string"), Field("v", "double")))
STREAM = Stream("s", SCHEMA, "ts", 5 * SECOND, SourceSpec("memory", {}))


def median_by(*keys: str, below: int | None = None) -> RunningQuery:
    column = {f.name: Expr(f'"{f.name}"', f.type, (f.name,)) for f in SCHEMA.fields}
    where = None if below is None else Expr(f'"v" < {below}', "boolean", ("v",))
    middle = Aggregate("percentile", (column["v"],), "double", parameters=(0.5,))
    outputs = (*(Output(k, column[k]) for k in keys), Output("m", Expr("a0", "double", ("a0",))))
    window = Window(10 * SECOND, 10 * SECOND)
    name = f"by_{'_'.join(keys)}_{below}"
    return RunningQuery(name, Query(name, "", "s", outputs, where, window, tuple(column[k] for k in keys), (middle,)))


def rows(seed: int, n: int = 500) -> pa.Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "ts": pa.array(rng.integers(0, 60 * SECOND, n), pa.timestamp("us")),
            "a": pa.array(rng.integers(0, 40, n), pa.int64(), mask=rng.random(n) < 0.05),
            "b": pa.array([f"b{i}" for i in rng.integers(0, 30, n)]),
            "v": pa.array(rng.random(n) * 100),
        }
    )


def with_filters(plan: Plan, table: pa.Table) -> pa.Table:
    for column in plan.streams["s"].computed:
        limit = float(column.expr.sql.rsplit(" ", 1)[1])
        table = table.append_column(column.name, pa.array(table.column("v").to_numpy() < limit))
    return table


def times_of(table: pa.Table) -> np.ndarray:
    return table.column("ts").cast(pa.int64()).to_numpy()


def plan_of(*queries: RunningQuery, slots: int = 4, stream: Stream = STREAM, **options: object) -> Plan:
    """Values that hardly come again, and rows that travel all the same."""
    given = PlanInput(queries, {"s": stream}, settings=PlanSettings(slots, 64))
    plan = make_plan(given)
    options.setdefault("partitioners", {g.route_key: "hash" for g in plan.groupings.values()})
    many = {id_: GroupingLoad(1.0) for id_, g in plan.groupings.items() if g.values}
    placement = Placement(**options)  # type: ignore[arg-type]
    return make_plan(replace(given, measurements=PlanMeasurements(many), decisions=placement))


@pytest.mark.parametrize("seed", range(6))
def test_every_route_key_finds_its_rows_in_the_slot_of_their_key(seed: int) -> None:
    rng = random.Random(seed)
    queries = (median_by("a"), median_by("b", below=rng.choice([None, 40])), median_by("a", "b", below=60))
    plan = plan_of(*queries)
    keys = list(shipped_keys(plan, plan.streams["s"]))
    assignment = {key: [rng.randrange(4) for _ in range(64)] for key in keys[1:]}
    plan = plan_of(*queries, assignment=assignment)
    table = with_filters(plan, rows(seed))
    shipment = Shipment(tuple(keys))
    pieces = ship(plan, plan.streams["s"], table, times_of(table), -1, shipment, TaskPartitioners(), {})
    found: dict[str, Counter] = defaultdict(Counter)
    for slot, piece in enumerate(pieces):
        arrived = {WholeRows("s"): [piece]} if piece.num_rows else {}
        ready, served = unship(plan, arrived, failures := {}, time.perf_counter)
        assert not failures
        for id_, (made,) in ready.items():
            owners = routing_table(plan, plan.groupings[id_].route_key).owners
            n = len(plan.groupings[id_].keys)
            assert set(owners[made.column(GROUP).to_numpy()]) == {slot}
            assert served[id_].rows >= made.num_rows
            assert served[id_].keys == len(
                set(zip(*(made.column(f".k{i}").to_pylist() for i in range(n)), strict=True))
            )
            assert served[id_].owners[slot] == served[id_].keys
            found[id_].update(made.column(".v0").to_pylist())
    for id_, values in found.items():
        filters = {p.filter for p in plan.groupings[id_].partials}
        admitted = table if None in filters else table.filter(table.column(next(iter(filters))))
        assert values == Counter(admitted.column("v").to_pylist())
    assert len(found) == 3
    assert sum(p.num_rows for p in pieces) == int(shipment.copies.sum())
    assert shipment.rows == table.num_rows


def test_route_keys_that_agree_share_the_copy() -> None:
    queries = (median_by("a"), median_by("a", "b"))
    table = rows(1)
    alike = {key: [0] * 64 for key in shipped_keys(plan_of(*queries), plan_of(*queries).streams["s"])}
    for co_located_with, copies in (({}, None), ({"s(a, b)": "s(a)"}, 1.0), ({"s(a)": "s(a, b)"}, 1.0)):
        plan = plan_of(*queries, co_located_with=co_located_with)
        shipped = sum(
            p.num_rows
            for p in ship(
                plan, plan.streams["s"], table, times_of(table), -1, Shipment(("", "")), TaskPartitioners(), {}
            )
        )
        assert shipped > 1.5 * table.num_rows if copies is None else shipped == table.num_rows
    plan = plan_of(*queries, assignment=alike)
    pieces = ship(plan, plan.streams["s"], table, times_of(table), -1, Shipment(("", "")), TaskPartitioners(), {})
    assert [p.num_rows for p in pieces] == [table.num_rows, 0, 0, 0]
    assert set(pieces[0].column(SERVES).to_pylist()) == {3}


def test_a_follower_goes_home_where_its_window_is_about_to_close() -> None:
    plan = plan_of(median_by("a"), median_by("b"), co_located_with={"s(b)": "s(a)"})
    table = rows(2)
    times = times_of(table)
    closing = 30 * SECOND
    keys = list(shipped_keys(plan, plan.streams["s"]))
    pieces = ship(plan, plan.streams["s"], table, times, closing, Shipment(tuple(keys)), TaskPartitioners(), {})
    bit = 1 << keys.index("s(b)")
    owners = routing_table(plan, "s(b)").owners
    elsewhere = 0
    for slot, piece in enumerate(pieces):
        mine = piece.filter(pa.array((piece.column(SERVES).to_numpy() & bit) != 0))
        home = owners[key_groups(hash_rows([mine.column("b")]), 64)] == slot
        assert home[times_of(mine) < closing].all()
        elsewhere += int(np.count_nonzero(~home))
    assert elsewhere > 50


def test_keys_inside_others_are_noticed() -> None:
    rng = np.random.default_rng(3)
    user = rng.integers(0, 5_000, 200_000)
    pack, shop = user * 4 + rng.integers(0, 4, len(user)), rng.integers(0, 5_000, len(user))
    hashes = [hash_rows([pa.array(column)]) for column in (user, pack, shop)]
    looked_at, distinct, together = keys_together(hashes, [key_groups(h, 64) for h in hashes])
    share = together / looked_at[:, None]
    assert looked_at[1] / distinct[1] == pytest.approx(10, rel=0.1)
    assert (looked_at > 1_000).all()
    assert (looked_at < 20_000).all()
    assert share[1, 0] == 1.0
    assert share[0, 1] < 0.1
    assert share[2, 0] < 0.1
    assert share[0, 2] < 0.1


@pytest.mark.slow
def test_more_route_keys_than_a_mask_has_bits() -> None:
    """The surplus is made at the source, as everything was once."""
    v = Expr('"v"', "double", ("v",))
    window = Window(10 * SECOND, 10 * SECOND)
    queries = []
    for i in range(70):
        key = Expr(f'"a" % {i + 2}', "bigint", ("a",))
        outputs = (Output("k", key), Output("m", Expr("a0", "double", ("a0",))))
        middle = Aggregate("percentile", (v,), "double", parameters=(0.5,))
        queries.append(RunningQuery(f"q{i}", Query(f"q{i}", "", "s", outputs, None, window, (key,), (middle,))))
    plan = plan_of(*queries)
    stream = plan.streams["s"]
    assert len(shipped_keys(plan, stream)) == 64
    outbox = Outbox()
    consume(
        plan, "s", rows(4, 50).select(stream.columns), BatchTimes(0, {"s": -(2**62)}, {"s": -(2**62)}), outbox, {}
    )
    raw = {id_ for id_, g in plan.groupings.items() if g.values}
    counts: Counter = Counter()
    for sent in outbox.sent.values():
        arrived: dict[Address, list[pa.Table]] = defaultdict(list)
        for address, table in sent:
            arrived[address].append(table)
        ready, _ = unship(plan, arrived, {}, time.perf_counter)
        seen = {id_: plan.groupings[id_].partials[0].name for id_ in raw}
        made = {id_: [unpacked(t) for t in ready.get(id_, ())] for id_ in raw}
        counts.update({id_: sum(pc.sum(t.column(seen[id_])).as_py() for t in made[id_]) for id_ in raw})
    assert set(counts.values()) == {50}
    assert len(counts) == 70


def test_wide_columns_of_one_are_not_carried_by_all() -> None:
    fields = Schema((*SCHEMA.fields, *(Field(f"w{i}", "string") for i in range(6))))
    stream = Stream("s", fields, "ts", 5 * SECOND, SourceSpec("memory", {}))
    wide = median_by("a")
    keys = tuple(Expr(f'"w{i}"', "string", (f"w{i}",)) for i in range(6))
    wide = RunningQuery("wide", replace(wide.query, keys=keys, outputs=wide.query.outputs[1:]))
    plan = plan_of(wide, median_by("a"), median_by("b"), stream=stream)
    assert set(shipped_keys(plan, plan.streams["s"])) == {"s(a)", "s(b)"}


@pytest.mark.parametrize("seed", range(4))
def test_rows_that_stay_are_put_where_all_slots_find_them(seed: int) -> None:
    """Only those of windows that are about to close travel."""
    queries = (median_by("a"), median_by("b", below=40))
    plan = plan_of(*queries, partitioners={"s(a)": "local", "s(b)": "local"})
    table = with_filters(plan, rows(seed))
    closing, shipment = 20 * SECOND, Shipment(tuple(shipped_keys(plan, plan.streams["s"])))
    pieces = ship(plan, plan.streams["s"], table, times_of(table), closing, shipment, TaskPartitioners(), {})
    for id_, grouping in ((id_, g) for id_, g in plan.groupings.items() if g.values):
        (filter_,) = {p.filter for p in grouping.partials}
        needed = table if filter_ is None else table.filter(table.column(filter_))
        later = needed.filter(pa.array(times_of(needed) >= closing))
        (stayed,) = shipment.staying[id_]
        assert Counter(stayed.column(".v0").to_pylist()) == Counter(later.column("v").to_pylist())
        groups = key_groups(hash_rows([stayed.column(".k0")]), 64)
        assert (stayed.column(GROUP).to_numpy() == groups).all()
        assert shipment.stayed[id_].rows == later.num_rows
        assert shipment.stayed[id_].keys == len(set(stayed.column(".k0").to_pylist()))
        travelled = Counter()
        for slot, piece in enumerate(pieces):
            arrived = {WholeRows("s"): [piece]} if piece.num_rows else {}
            ready, _ = unship(plan, arrived, {}, time.perf_counter)
            for made in ready.get(id_, ()):
                assert set(routing_table(plan, grouping.route_key).owners[made.column(GROUP).to_numpy()]) == {slot}
                travelled.update(made.column(".v0").to_pylist())
        earlier = needed.filter(pa.array(times_of(needed) < closing))
        assert travelled == Counter(earlier.column("v").to_pylist())
    nothing = ship(plan, plan.streams["s"], table, times_of(table), -1, shipment, TaskPartitioners(), {})
    assert nothing == []


def test_partitioners_send_rows_anywhere_but_those_of_closing_windows() -> None:
    table, closing = rows(6, 4000), 10 * SECOND
    for name in names():
        plan = plan_of(median_by("a"), partitioners={"s(a)": name})
        shipment = Shipment(("s(a)",))
        pieces = ship(plan, plan.streams["s"], table, times_of(table), closing, shipment, TaskPartitioners(), {})
        assert sum(p.num_rows for p in pieces) == table.num_rows
        for slot, piece in enumerate(pieces):
            early = piece.filter(pa.array(times_of(piece) < closing))
            owners = routing_table(plan, "s(a)").owners[key_groups(hash_rows([early.column("a")]), 64)]
            assert (owners == slot).all()
        skew = shipment.skews["s(a)"]
        assert (skew.rows, skew.looked_at, int(skew.slots.sum())) == (4000, 4000, 4000)


def test_a_key_that_stays_does_not_hide_what_others_have() -> None:
    """Statistics of a route key are about the rows that it needs, whatever is done with those of another one."""
    table = rows(8, 4000).set_column(2, "b", pa.array([f"b{i % 3}" for i in range(4000)]))
    plan = plan_of(median_by("a"), median_by("b"), partitioners={"s(a)": "local", "s(b)": "hash"})
    shipment = Shipment(("s(b)",))
    ship(plan, plan.streams["s"], table, times_of(table), -1, shipment, TaskPartitioners(), {})
    assert (shipment.skews["s(b)"].keys, shipment.skews["s(b)"].rows_of_keys) == (3, 4000)
    assert (shipment.rows, shipment.shared) == (4000, 4000)
    later = ship(
        plan, plan.streams["s"], table.slice(0, 0), times_of(table)[:0], -1, Shipment(()), TaskPartitioners(), {}
    )
    assert sum(piece.num_rows for piece in later) == 0


def test_groups_are_counted_among_the_rows_that_are_admitted() -> None:
    plan = plan_of(median_by("a", below=5))
    table = with_filters(plan, rows(9, 4000))
    (grouping,) = [g for g in plan.groupings.values() if g.values]
    admitted = table.filter(pa.array(table.column("v").to_numpy() < 5))
    made, looked_at = groups_made(table, times_of(table), grouping)
    assert looked_at == admitted.num_rows
    assert made == looked_at
    same = admitted.set_column(3, "v", pa.array([1.0] * admitted.num_rows))
    made, looked_at = groups_made(same, times_of(same), grouping)
    assert looked_at == admitted.num_rows
    assert made < 0.8 * looked_at


def test_nobody_follows_a_key_that_is_dealt_out() -> None:
    co_located_with = {"s(b)": "s(a)"}
    assert plan_of(median_by("a"), median_by("b"), co_located_with=co_located_with).co_located_with == co_located_with
    for name in ("dalton", "local"):
        dealt = {"s(a)": name, "s(b)": "hash"}
        assert (
            plan_of(
                median_by("a"), median_by("b"), co_located_with=co_located_with, partitioners=dealt
            ).co_located_with
            == {}
        )
