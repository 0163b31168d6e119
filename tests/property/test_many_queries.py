"""Property: up to hundreds of queries over the same rows, as SQL. Rows that are kept, partials that are made at once,
and both in turns give the same to the last bit; each query by itself gives the same as DuckDB over all rows.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.support.local_pipeline import LocalPipeline

from thalweg.frontend.bind import bind
from thalweg.model.bucket import NewSlices, SliceBucket
from thalweg.model.plan_input import GroupingLoad
from thalweg.model.query import Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.operate import finish_rows
from thalweg.operate.lanes import unpacked
from thalweg.optimize import keep_rows
from thalweg.state import compact, writer

pytestmark = pytest.mark.slow

SECOND = 1_000_000
TYPES = {"ts": "timestamp", "a": "int", "b": "string", "c": "bigint", "i": "int", "x": "double", "d": "date"}
STREAM = Stream("s", Schema(tuple(Field(n, t) for n, t in TYPES.items())), "ts", 0, SourceSpec("memory", {}))
KEYS = ((), ("a",), ("b",), ("a", "b"), ("c",), ("a", "c", "b"), ("d", "a"))
WINDOWS = ("'10 seconds'", "'20 seconds', '5 seconds'", "'7 seconds'")
AGGREGATES = {
    "count(*)": "bigint",
    "count(i)": "bigint",
    "count(x)": "bigint",
    "sum(i)": "bigint",
    "min(i)": "int",
    "max(c)": "bigint",
    "min(x)": "double",
    "max(x)": "double",
    "sum(x)": "double",
    "avg(i)": "double",
    "min(b)": "string",
    "max(d)": "date",
    "count(i) FILTER (WHERE x > 1.5)": "bigint",
    "sum(i) FILTER (WHERE c <= 4)": "bigint",
}
KEPT, MADE = 0.5, 0.00001


def random_predicate(rng: random.Random, depth: int = 0) -> str:
    if depth < 2 and rng.random() < 0.25:
        word = rng.choice(("AND", "AND", "OR"))
        return f"({random_predicate(rng, depth + 1)} {word} {random_predicate(rng, depth + 1)})"
    op = rng.choice(("=", "<>", "<", "<=", ">", ">="))
    return rng.choice(
        (
            f"i {op} {rng.randint(-12, 12)}",
            f"i {op} {rng.randint(-12, 12)}",
            f"c {op} {rng.randint(-1, 9)}",
            f"x {op} {rng.randint(-40, 40) / 4}D",
            f"x {op} {rng.randint(-10, 10)}",
            f"b = '{rng.choice('xyz')}'",
            f"b LIKE '%{rng.choice('xyz')}%'",
            f"i BETWEEN {rng.randint(-12, 0)} AND {rng.randint(0, 12)}",
            f"i IN ({rng.randint(-9, 9)}, {rng.randint(-9, 9)})",
            "x IS NULL",
        )
    )


def random_query(rng: random.Random, name: str) -> tuple[Query, str]:
    keys, window = rng.choice(KEYS), rng.choice(WINDOWS)
    aggregates = rng.sample(sorted(AGGREGATES), rng.choice((1, 2, 3)))
    where = f" WHERE {random_predicate(rng)}" if rng.random() < 0.8 else ""
    having = " HAVING count(*) > 2" if rng.random() < 0.1 else ""
    columns = [("w", "timestamp"), *((k, TYPES[k]) for k in keys)]
    columns += [(f"x{n}", AGGREGATES[a]) for n, a in enumerate(aggregates)]
    listed = ", ".join(["window.start AS w", *keys, *(f"{a} AS x{n}" for n, a in enumerate(aggregates))])
    by = ", ".join([*keys, f"window(ts, {window})"])
    text = f"SELECT {listed} FROM s{where} GROUP BY {by}{having}"
    answers: Any = SimpleNamespace(analyze=lambda sql: columns, learned={})
    slide = window.split(", ")[-1]
    rows = f"(SELECT *, {_starts(window, slide)} FROM rows)"
    plain = ", ".join(["w", *keys, *(f"{a} AS x{n}" for n, a in enumerate(aggregates))])
    sql = f"SELECT {plain} FROM {rows}{where} GROUP BY {', '.join(['w', *keys])}{having}"
    return bind(name, text, {"s": STREAM}, answers), re.sub(r"(?<=\d)D\b", "", sql)


def _starts(window: str, slide: str) -> str:
    """A row for each window that a row is in."""
    width, step = (int(text.strip("'").split()[0]) for text in (window.split(", ")[0], slide))
    last = f"(epoch_us(ts) - epoch_us(ts) % {step * SECOND})"
    return f"unnest(range(0, {-(-width // step)})) AS n, make_timestamp({last} - n * {step * SECOND}) AS w"


def random_rows(rng: random.Random, number: int) -> pa.Table:
    n = rng.choice((0, 1, 30, 200))

    def maybe(value: Any, share: float = 0.1) -> Any:
        return None if rng.random() < share else value

    times = sorted(1000 * SECOND + number * 6 * SECOND + rng.randrange(6 * SECOND) for _ in range(n))
    keys = rng.choice((0.0, 0.1))
    doubles = [rng.choice((rng.randint(-40, 40) / 4, math.nan, math.inf, -0.0)) for _ in range(n)]
    return pa.table(
        {
            "ts": pa.array(times, pa.int64()).cast(pa.timestamp("us")),
            "a": pa.array([maybe(rng.randint(1, 4), keys) for _ in range(n)], pa.int32()),
            "b": pa.array([maybe(rng.choice(("x", "y", "z", "xyz"))) for _ in range(n)], pa.string()),
            "c": pa.array([rng.randint(0, 8) * 10 ** rng.choice((0, 0, 12)) for _ in range(n)], pa.int64()),
            "i": pa.array([maybe(rng.randint(-10, 10)) for _ in range(n)], pa.int32()),
            "x": pa.array([maybe(value) for value in doubles], pa.float64()),
            "d": pa.array([rng.randint(0, 3) for _ in range(n)], pa.int32()).cast(pa.date32()),
        }
    )


def decide(pipeline: LocalPipeline, kept: bool) -> None:
    loads = {id_: GroupingLoad(KEPT if kept else MADE) for id_ in pipeline.preview({}).groupings}
    pipeline.decide(loads=loads)


@pytest.mark.parametrize("seed", range(4))
def test_rows_partials_and_both_in_turns(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MOST_OVERLAP", 1000), ("UNMEASURED", 0.0), ("WORTH", 0.03), ("STILL_WORTH", 0.03)):
        monkeypatch.setattr(keep_rows, name, value)
    rng = random.Random(seed)
    monkeypatch.setattr(finish_rows, "MOST_CELLS", rng.choice((1, 500, 1 << 22)))
    number = itertools.count()
    queries = dict(random_query(rng, f"q{next(number)}") for _ in range(rng.choice((1, 3, 12, 40))))
    # Some that ask the same: they have one result, which is worked out once.
    queries |= {replace(q, name=f"{q.name} again"): sql for q, sql in queries.items() if rng.random() < 0.3}
    first = list(queries)
    pipelines = [
        LocalPipeline(tmp_path / name, [STREAM], first, slots=rng.choice((1, 2, 3)), groups=16)
        for name in ("kept", "made", "turns")
    ]
    batches = []
    for batch in range(9):
        table, comes = random_rows(rng, batch), rng.random() < 0.4
        batches.append(table)
        goes = rng.choice(sorted(pipelines[0].queries)) if rng.random() < 0.2 and len(queries) > 1 else None
        turn, coming = rng.random() < 0.5, random_query(rng, f"q{next(number)}")
        for pipeline, kept in zip(pipelines, (True, False, turn), strict=True):
            if goes in pipeline.queries and len(pipeline.queries) > 1:
                pipeline.drop(goes)
            if comes:
                pipeline.create(coming[0])
            decide(pipeline, kept)
            pipeline.append("s", table, 3)
            assert pipeline.run()
    assert pipelines[0].plan.streams["s"].keeps_rows
    assert not pipelines[1].plan.streams["s"].keeps_rows
    kept, made, turns = pipelines
    for name in kept.known:
        wanted = _listed(made.rows(name))
        assert _listed(kept.rows(name)) == wanted, kept.known[name].text
        assert _listed(turns.rows(name)) == wanted, kept.known[name].text
    _check_with_duckdb(kept, {q.name: (q, sql) for q, sql in queries.items()}, pa.concat_tables(batches))
    for pipeline in pipelines:
        assert not pipeline.failures()
        pipeline.close()


@pytest.mark.parametrize("seed", range(4))
def test_buckets_of_an_earlier_release_are_merged_with_newer_ones(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those had a column for each partial. Queries come and go, and buckets are made one all the time."""
    monkeypatch.setattr(keep_rows, "MOST_OVERLAP", 0)
    monkeypatch.setattr(compact, "FANOUT", 2)
    rng = random.Random(seed)
    number = itertools.count()
    queries = dict(random_query(rng, f"q{next(number)}") for _ in range(rng.choice((2, 12, 40))))
    pipelines = [
        LocalPipeline(tmp_path / name, [STREAM], list(queries), slots=2, groups=16) for name in ("now", "older")
    ]
    is_old, add = False, writer._add_slices

    def add_slices(to: Any, new: NewSlices, *given: Any) -> SliceBucket:
        return add(to, replace(new, table=unpacked(new.table)) if is_old else new, *given)

    monkeypatch.setattr(writer, "_add_slices", add_slices)
    batches = []
    for batch in range(9):
        table, coming = random_rows(rng, batch), random_query(rng, f"q{next(number)}")
        batches.append(table)
        comes, older = rng.random() < 0.4, rng.random() < 0.6
        goes = rng.choice(sorted(pipelines[0].queries)) if rng.random() < 0.3 else None
        for pipeline in pipelines:
            is_old = older and pipeline is pipelines[1]
            if goes in pipeline.queries and len(pipeline.queries) > 1:
                pipeline.drop(goes)
            if comes:
                pipeline.create(coming[0])
            pipeline.append("s", table, 3)
            assert pipeline.run()
    now, mixed = pipelines
    for name in now.known:
        assert _listed(mixed.rows(name)) == _listed(now.rows(name)), now.known[name].text
    _check_with_duckdb(mixed, {q.name: (q, sql) for q, sql in queries.items()}, pa.concat_tables(batches))
    for pipeline in pipelines:
        assert not pipeline.failures()
        pipeline.close()


def _check_with_duckdb(pipeline: LocalPipeline, queries: dict[str, tuple[Query, str]], rows: pa.Table) -> None:
    """Those that have seen all: of windows that have closed."""
    closed = pipeline.manifest.closed["s"]
    connection = duckdb.connect()
    connection.register("rows", rows)
    for name, (query, sql) in queries.items():
        if name in pipeline.queries and query.window is not None:
            found = connection.sql(sql).fetchall()
            ended = [row for row in found if query.window.end_of(_us(row[0])) <= closed]
            assert _listed(pipeline.rows(name)) == _listed(ended), sql


def _listed(rows: Iterable[Sequence[Any]]) -> list[str]:
    return sorted(repr(tuple(_plain(value) for value in row)) for row in rows)


def _us(time: Any) -> int:
    return round(time.timestamp() * SECOND) if hasattr(time, "timestamp") else int(time)


def _plain(value: Any) -> Any:
    return _us(value) if hasattr(value, "timestamp") else 0.0 if value == 0 and isinstance(value, float) else value
