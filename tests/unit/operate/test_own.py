"""Unit: users' own aggregates in batches of the calling process, against plain Python over all rows."""

from __future__ import annotations

import asyncio
import os
import pickle
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.local_pipeline import LocalPipeline

from thalweg.engine.functions import pickled
from thalweg.model import aggregate_state
from thalweg.model.budget import Budget
from thalweg.model.expr import Expr, quote
from thalweg.model.own import OWN, Functions, Own
from thalweg.model.plan import Plan
from thalweg.model.plan_input import GroupingLoad, PlanInput, PlanSettings, RunningQuery
from thalweg.model.query import Aggregate, Output, Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.window import BEGINNING, Window
from thalweg.optimize.planner import make_plan

SECOND = 1_000_000
TYPES = {"ts": "timestamp", "k": "int", "v": "bigint", "b": "string"}
STREAM = Stream("s", Schema(tuple(Field(n, t) for n, t in TYPES.items())), "ts", 2 * SECOND, SourceSpec("memory", {}))
TUMBLING, SLIDING = Window(10 * SECOND, 10 * SECOND), Window(24 * SECOND, 3 * SECOND)


def mean_of(state: tuple[float, int], batch: pa.RecordBatch) -> tuple[float, int]:
    return state[0] + (pc.sum(batch.column(0)).as_py() or 0), state[1] + len(batch) - batch.column(0).null_count


def add(a: Any, b: Any) -> Any:
    return a[0] + b[0], a[1] + b[1]


MEAN = Functions(lambda: (0.0, 0), mean_of, add, lambda s: s[0] / s[1] if s[1] else None)
MEDIAN = Functions(
    list, lambda s, b: s + b.column(0).drop_null().to_pylist(), lambda a, b: a + b, lambda s: median(s) if s else None
)
# Keeps Arrow arrays themselves as its state, and tells types and names.
TEXTS = Functions(
    list,
    lambda s, b: [*s, b.column("b")],
    lambda a, b: a + b,
    lambda s: sorted(x or "-" for a in s for x in a.to_pylist()),
)
SHAPE = Functions(str, lambda s, b: ", ".join(f"{f.name} {f.type}" for f in b.schema), max, str)


def call(name: str, version: str, type_: str, *args: str, where: str | None = None) -> Aggregate:
    exprs = tuple(Expr(quote(a), TYPES[a], (a,)) for a in args)
    condition = None if where is None else Expr(where, "boolean", ("v",))
    return Aggregate(OWN, exprs, type_, filter=condition, own=Own(name, args, version))


def query(name: str, window: Window, *aggregates: Aggregate) -> Query:
    outputs = [
        Output("w", Expr("window_start", "timestamp", ("window_start",))),
        Output("k", Expr("k0", "int", ("k0",))),
    ]
    outputs += [Output(f"x{i}", Expr(f"a{i}", a.type, (f"a{i}",), True)) for i, a in enumerate(aggregates)]
    return Query(name, "", "s", tuple(outputs), None, window, (Expr('"k"', "int", ("k",)),), aggregates)


def code(**functions: Functions) -> dict[str, bytes]:
    return {
        version: pickled(found, (found.init, found.update, found.merge, found.finish))
        for version, found in functions.items()
    }


def planned(queries: list[Query]) -> Plan:
    return make_plan(
        PlanInput([RunningQuery(q.name, q) for q in queries], {"s": STREAM}, settings=PlanSettings(1, 16))
    )


OpenPipeline = Callable[..., LocalPipeline]


@pytest.fixture
def open_pipeline(tmp_path: Path) -> Iterator[OpenPipeline]:
    with ExitStack() as stack:

        def open_one(queries: list[Query], functions: dict[str, bytes], slots: int = 1) -> LocalPipeline:
            pipeline = LocalPipeline(tmp_path, [STREAM], queries, slots=slots, groups=16, functions=functions)
            stack.callback(pipeline.close)
            return pipeline

        yield open_one


def run(pipeline: LocalPipeline, rows: pa.Table, groups_per_row: float = 0.1) -> None:
    """One batch, in which partials are made at the source; or, of many groups, in the slots."""
    pipeline.decide(loads={id_: GroupingLoad(groups_per_row) for id_ in pipeline.preview({}).groupings})
    pipeline.append("s", rows)
    assert pipeline.run()


def random_rows(rng: random.Random, position: int, n: int) -> pa.Table:
    times = [position * 4 * SECOND - int(rng.expovariate(1) * SECOND) for _ in range(n)]
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us")),
            "k": pa.array([rng.choice([None, 1, 2]) for _ in range(n)], pa.int32()),
            "v": pa.array([rng.choice([None, *range(30)]) for _ in range(n)], pa.int64()),
            "b": pa.array([rng.choice([None, "x", "yy"]) for _ in range(n)], pa.string()),
        }
    )


Rows = list[dict[str, Any]]


def by_hand(
    window: Window, batches: list[pa.Table], values: Callable[[Rows], tuple[Any, ...]]
) -> list[tuple[Any, ...]]:
    """For every window that closes, the rows of the batches up to the one that closes it."""
    found: dict[tuple[int, Any], Rows] = defaultdict(list)
    newest = closed = BEGINNING
    for table in batches:
        for row in table.set_column(0, "ts", table.column("ts").cast(pa.int64())).to_pylist():
            w = row["ts"] - (row["ts"] - window.start_us) % window.slide_us
            for start in range(w, row["ts"] - window.range_us, -window.slide_us):
                if start + window.range_us > closed:
                    found[start, row["k"]].append(row)
        closed = max(closed, newest // 1000 * 1000 - 2 * SECOND)
        newest = max([newest, *table.column("ts").cast(pa.int64()).to_pylist()])
    return [(*place, *values(rows)) for place, rows in found.items() if place[0] + window.range_us <= closed]


def plain(rows: Rows) -> tuple[Any, ...]:
    known = [r["v"] for r in rows if r["v"] is not None]
    low = [v for v in known if v < 10]
    return (
        sum(known) / len(known) if known else None,
        median(low) if low else None,
        sorted(r["b"] or "-" for r in rows),
    )


def ordered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: (row[0], row[1] is None, row[1] or 0))


def three_calls() -> list[Query]:
    """Over windows of both kinds, by code of versions v1 to v3."""
    calls = (
        call("mean", "v1", "double", "v"),
        call("median_", "v2", "double", "v", where='"v" < 10'),
        call("texts", "v3", "array<string>", "b"),
    )
    return [query("tumbling", TUMBLING, *calls), query("sliding", SLIDING, *calls)]


@pytest.mark.slow
@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize(("seed", "groups_per_row"), [(1, 0.1), (2, 0.1), (3, 1.0), (4, 1.0)])
def test_many_batches_equal_one_pass_over_all_rows(
    open_pipeline: OpenPipeline, seed: int, groups_per_row: float, slots: int
) -> None:
    """Slices, nodes, compaction, late rows, NULLs, groups of which a FILTER admits nothing, rows shipped whole."""
    rng = random.Random(seed)
    queries = three_calls()
    pipeline = open_pipeline(queries, code(v1=MEAN, v2=MEDIAN, v3=TEXTS), slots)
    batches = [random_rows(rng, i, rng.choice([0, 3, 40])) for i in range(18)]
    for batch in batches:
        run(pipeline, batch, groups_per_row)
        assert bool(pipeline.plan.streams["s"].shipped) == (groups_per_row > 0.5)
    assert not pipeline.failures()
    for q in queries:
        assert q.window is not None
        wanted = by_hand(q.window, batches, plain)
        assert len(wanted) > 10
        assert ordered(pipeline.rows(q.name)) == ordered(wanted)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_keys_split_over_slots_in_some_batches_equal_one_pass_over_all_rows(
    open_pipeline: OpenPipeline, seed: int
) -> None:
    """A key in parts here, whole there; made at the source in one batch and by slots in the next; after restarts."""
    rng = random.Random(seed)
    queries = three_calls()
    pipeline = open_pipeline(queries, code(v1=MEAN, v2=MEDIAN, v3=TEXTS), 3)
    batches = [random_rows(rng, i, rng.choice([0, 3, 400])) for i in range(18)]
    for batch in batches:
        if rng.random() < 0.2:
            pipeline.reopen()
        is_split, groupings = rng.random() < 0.6, pipeline.preview({}).groupings
        names = {g.route_key: rng.choice(["dalton", "hash", "shuffle"]) for g in groupings.values()}
        loads = {id_: GroupingLoad(0.1, is_split=is_split) for id_ in groupings}
        pipeline.decide(loads=loads, partitioners=names)
        pipeline.append("s", batch)
        assert pipeline.run()
        assert bool(pipeline.plan.streams["s"].shipped) == is_split
    assert not pipeline.failures()
    for q in queries:
        assert q.window is not None
        wanted = by_hand(q.window, batches, plain)
        assert len(wanted) > 10
        assert ordered(pipeline.rows(q.name)) == ordered(wanted)


def test_arguments_come_with_the_names_and_types_that_users_know(open_pipeline: OpenPipeline) -> None:
    shape = query("q", TUMBLING, call("shape", "v", "string", "ts", "v", "b"))
    pipeline = open_pipeline([shape], code(v=SHAPE))
    for i in range(6):
        run(pipeline, random_rows(random.Random(i), i, 20))
    assert {row[2] for row in pipeline.rows("q")} == {"ts timestamp[us, tz=UTC], v int64, b string"}


def failing(step: str) -> Functions:
    def raises(*_: Any) -> Any:
        raise ValueError("no\nluck")

    return replace(MEAN, **{step: raises})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "where", "shown"),
    [
        ("init", None, "update"),
        ("init", '"v" < 0', "finish"),  # no row is admitted: only windows that close need a state
        ("update", None, "update"),
        ("merge", None, "merge"),
        ("finish", None, "finish"),
    ],
)
def test_code_that_raises_fails_its_own_query_only(
    open_pipeline: OpenPipeline, step: str, where: str | None, shown: str
) -> None:
    bad = query("bad", SLIDING, call("bad", "bad", "double", "v", where=where))
    good = query("good", SLIDING, call("mean", "good", "double", "v"))
    pipeline = open_pipeline([bad, good], code(bad=failing(step), good=MEAN))
    batches = [random_rows(random.Random(i), i, 30) for i in range(12)]
    for batch in batches:
        run(pipeline, batch)
    failures = pipeline.failures()
    assert failures.keys() == {"bad"}
    said, _, place = failures["bad"].partition(" (")
    assert said == f"aggregate bad: {shown} raised ValueError: no"
    assert place.startswith("test_own.py, line")
    assert ordered(pipeline.rows("good")) == ordered(by_hand(SLIDING, batches, lambda rows: plain(rows)[:1]))


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit])
def test_whatever_code_raises_concerns_its_query_alone(
    open_pipeline: OpenPipeline, error: type[BaseException]
) -> None:
    def refuse(state: Any, batch: pa.RecordBatch) -> Any:
        raise error

    queries = [query("good", TUMBLING, call("mean", "m", "double", "v"))]
    queries += [query("bad", TUMBLING, call("mine", "b", "double", "v"))]
    pipeline = open_pipeline(queries, code(m=MEAN, b=replace(MEAN, update=refuse)))
    run(pipeline, random_rows(random.Random(1), 3, 20))
    failures = pipeline.failures()
    assert failures.keys() == {"bad"}
    assert failures["bad"].startswith(f"aggregate mine: update raised {error.__name__}")


@pytest.mark.slow
@pytest.mark.parametrize("swallowed", [0, 2])
def test_code_that_does_not_end_is_ended_and_stops_its_query_alone(
    open_pipeline: OpenPipeline, swallowed: int
) -> None:
    def endless(state: Any, batch: pa.RecordBatch) -> Any:
        left = swallowed
        while True:
            try:
                sum(range(1000))
            except BaseException:
                if not left:
                    raise
                left -= 1

    queries = [query("good", TUMBLING, call("mean", "m", "double", "v"))]
    queries += [query("bad", TUMBLING, call("mine", "b", "double", "v"))]
    pipeline = open_pipeline(queries, code(m=MEAN, b=replace(MEAN, update=endless)))
    pipeline.batches.job.budget = Budget(seconds=0.3)
    for position in (3, 6, 9):
        run(pipeline, random_rows(random.Random(1), position, 20))
    failures = pipeline.failures()
    assert failures.keys() == {"bad"}
    assert failures["bad"].startswith("it took more than 0.3 s")
    assert pipeline.rows("good")


def test_finish_sees_only_the_groups_of_its_query(open_pipeline: OpenPipeline) -> None:
    """Queries are finished together; a state of no rows is nothing that this one can finish."""
    picky = replace(MEAN, finish=lambda s: s[0] / s[1])
    some = replace(
        query("some", TUMBLING, call("picky", "v1", "double", "v")),
        where=Expr('"k" = 1 AND "v" >= 0', "boolean", ("k", "v")),
    )
    queries = [some, query("all", TUMBLING, call("mean", "v2", "double", "v"))]
    pipeline = open_pipeline(queries, code(v1=picky, v2=MEAN))
    for i in range(8):
        run(pipeline, random_rows(random.Random(i), i, 20))
    assert not pipeline.failures()
    assert {row[1] for row in pipeline.rows("some")} == {1}
    assert {row[1] for row in pipeline.rows("all")} == {None, 1, 2}


@pytest.mark.parametrize("value", ["text", 2.5, float("nan"), 1 << 70, {1}, [1]])
def test_a_value_of_another_type_fails_the_query(open_pipeline: OpenPipeline, value: Any) -> None:
    odd = replace(MEAN, finish=lambda s: value)
    pipeline = open_pipeline([query("q", TUMBLING, call("odd", "v", "bigint", "v"))], code(v=odd))
    for i in range(6):
        if pipeline.queries:  # until it is stopped
            run(pipeline, random_rows(random.Random(i), i, 10))
    assert "which is not of the type bigint" in pipeline.failures()["q"]
    assert not pipeline.rows("q")


def test_code_that_a_worker_cannot_load_fails_the_query(open_pipeline: OpenPipeline) -> None:
    lost = b"cno_such_module\nthing\n."
    # A version of its own: this process knows a version under the name that it had first.
    pipeline = open_pipeline([query("q", TUMBLING, call("lost", "lost", "double", "v"))], {"lost": lost})
    run(pipeline, random_rows(random.Random(1), 1, 9))
    assert "aggregate lost: loading raised ModuleNotFoundError" in pipeline.failures()["q"]


@pytest.mark.slow
def test_state_goes_on_with_the_code_that_is_defined_now(open_pipeline: OpenPipeline) -> None:
    """After a restart: the version names the state, the plan says what code stands for it."""
    pipeline = open_pipeline([query("q", TUMBLING, call("mean", "v", "double", "v"))], code(v=MEAN))
    batches = [random_rows(random.Random(i), i, 20) for i in range(8)]
    doubled = replace(MEAN, finish=lambda s: 2 * s[0] / s[1] if s[1] else None)
    for i, batch in enumerate(batches):
        if i == 4:
            pipeline.functions = code(v=doubled)
            pipeline.reopen()
        run(pipeline, batch)
    wanted = ordered(by_hand(TUMBLING, batches, lambda rows: plain(rows)[:1]))
    factors = {got[2] / want[2] for got, want in zip(ordered(pipeline.rows("q")), wanted, strict=True) if want[2]}
    assert factors == {1.0, 2.0}


def test_the_same_name_with_other_code_has_other_state() -> None:
    first, second = (query(n, TUMBLING, call("mean", n, "double", "v")) for n in ("v1", "v2"))
    again = query("v3", TUMBLING, call("mean", "v1", "double", "v"))
    plan = planned([first, second, again])
    names = {p.name for g in plan.groupings.values() for p in g.partials if p.own is not None}
    assert len(names) == 2, "one for each version; queries of the same version share theirs"


def test_a_coarser_grouping_is_not_rolled_up_through_users_code() -> None:
    fine = replace(query("fine", TUMBLING), keys=(Expr('"k"', "int", ("k",)), Expr('"b"', "string", ("b",))))
    coarse = query("coarse", TUMBLING, call("mean", "v", "double", "v"))
    plan = planned([fine, coarse])
    assert all(g.rolled_up_from is None for g in plan.groupings.values())


# -- states


@dataclass
class Sum:
    """A state of a class."""

    total: float
    count: int


def sum_of(state: Sum, batch: pa.RecordBatch) -> Sum:
    return Sum(*mean_of((state.total, state.count), batch))


SUM = Functions(
    lambda: Sum(0.0, 0),
    sum_of,
    lambda a, b: Sum(a.total + b.total, a.count + b.count),
    lambda s: s.total / s.count if s.count else None,
)
CODED = replace(SUM, encode=lambda s: {"sum": (s.total, s.count)}, decode=lambda v: Sum(*v["sum"]))


def run_all(pipeline: LocalPipeline, batches: list[pa.Table]) -> None:
    for batch in batches:
        if pipeline.queries:  # until all are stopped
            run(pipeline, batch)


def test_states_of_a_class_are_encoded_by_its_functions(open_pipeline: OpenPipeline) -> None:
    pipeline = open_pipeline([query("q", SLIDING, call("coded", "v", "double", "v"))], code(v=CODED))
    batches = [random_rows(random.Random(i), i, 20) for i in range(10)]
    run_all(pipeline, batches)
    assert not pipeline.failures()
    assert ordered(pipeline.rows("q")) == ordered(by_hand(SLIDING, batches, lambda rows: plain(rows)[:1]))


def test_a_state_that_cannot_be_kept_fails_its_query(open_pipeline: OpenPipeline) -> None:
    queries = [query(name, TUMBLING, call(name, name, "double", "v")) for name in ("bad", "good")]
    pipeline = open_pipeline(queries, code(bad=SUM, good=MEAN))
    run(pipeline, random_rows(random.Random(1), 1, 20))
    failures = pipeline.failures()
    assert failures.keys() == {"bad"}
    assert "aggregate bad: its state holds a value of" in failures["bad"]
    assert "test_own.Sum, which cannot be kept: give encode= and decode=" in failures["bad"]


@pytest.mark.parametrize("step", ["encode", "decode"])
def test_encode_and_decode_that_raise_fail_their_query(open_pipeline: OpenPipeline, step: str) -> None:
    functions = replace(CODED, **{step: failing("update").update})
    pipeline = open_pipeline([query("q", SLIDING, call("bad", step, "double", "v"))], code(**{step: functions}))
    run_all(pipeline, [random_rows(random.Random(i), i, 20) for i in range(8)])
    assert f"aggregate bad: {step} raised ValueError: no (test_own.py" in pipeline.failures()["q"]


def test_pickled_states_of_earlier_releases_are_read(
    open_pipeline: OpenPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = call("mean", "v1", "double", "v"), call("median_", "v2", "double", "v", where='"v" < 10')
    pipeline = open_pipeline([query("q", SLIDING, *calls)], code(v1=MEAN, v2=MEDIAN))
    batches = [random_rows(random.Random(i), i, 20) for i in range(10)]
    with monkeypatch.context() as earlier:
        earlier.setattr(aggregate_state, "encode", pickle.dumps)
        run_all(pipeline, batches[:5])
    pipeline.reopen()
    run_all(pipeline, batches[5:])
    assert not pipeline.failures()
    assert ordered(pipeline.rows("q")) == ordered(by_hand(SLIDING, batches, lambda rows: plain(rows)[:2]))


class Crafted:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


@pytest.mark.parametrize("window", [TUMBLING, SLIDING])
def test_a_crafted_bucket_runs_nothing(
    open_pipeline: OpenPipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, window: Window
) -> None:
    ran = tmp_path / "ran"
    pipeline = open_pipeline([query("q", window, call("mean", "crafted", "double", "v"))], code(crafted=MEAN))
    with monkeypatch.context() as crafting:
        crafted = pickle.dumps(Crafted(f"touch {ran}"))
        crafting.setattr(aggregate_state, "encode", lambda state: crafted)
        run(pipeline, random_rows(random.Random(0), 0, 20))
    pipeline.reopen()
    run_all(pipeline, [random_rows(random.Random(i), i, 20) for i in range(1, 6)])
    assert not ran.exists()
    assert (
        "aggregate mean: a state in the state directory is a pickle that asks for posix.system"
        in (pipeline.failures()["q"])
    )


def test_a_state_that_is_neither_fails_its_query(
    open_pipeline: OpenPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = open_pipeline([query("q", TUMBLING, call("mean", "crafted", "double", "v"))], code(crafted=MEAN))
    with monkeypatch.context() as crafting:
        crafting.setattr(aggregate_state, "encode", lambda state: b"junk")
        run(pipeline, random_rows(random.Random(0), 0, 20))
    run_all(pipeline, [random_rows(random.Random(i), i, 20) for i in range(1, 6)])
    assert "aggregate mean: a state in the state directory cannot be read: ValueError" in pipeline.failures()["q"]
