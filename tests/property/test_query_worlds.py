"""Property: worlds of queries that come, go and fail, over rows that are kept, over partials, and over both in turns
with restarts in between: the same results and the same failures; those of queries that saw all are DuckDB's.

`THALWEG_SEEDS=1,2,3` asks for more worlds.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import pyarrow as pa
import pytest
from tests.support.local_pipeline import LocalPipeline
from tests.support.query_worlds import ARROW, BASE, SECOND, STREAMS, Rows, WorldQuery, Writer, bound

from thalweg.model.plan_input import GroupingLoad
from thalweg.operate import classes, columns, dense, finish_rows, kept_rows
from thalweg.optimize import keep_rows
from thalweg.state import compact

pytestmark = pytest.mark.slow

SEEDS = [int(s) for s in os.environ.get("THALWEG_SEEDS", "1,2,3").split(",")]
KEPT, MADE = 0.5, 0.00001
BATCHES = 6
WAYS = ("kept", "made", "turns")
LIMITS = {
    finish_rows: {"MOST_CELLS": (1, 500, 1 << 22), "SMALLEST_LIMIT": (1, 1 << 16)},
    classes: {"SOME_ROWS": (4, 1 << 15), "MOST_BETWEEN": (4, 1 << 16)},
    columns: {"WORTH_CLASSES": (1, 3)},
    dense: {
        "WORTH_CLASSES": (1, 3),
        "ROWS_A_CLASS_CELL": (1, 2),
        "_FEW_SPANS": (0, 4),
        "SMALLEST_LIMIT": (1, 1 << 16),
    },
    kept_rows: {"FEW_CODES": (1, 1 << 16), "MOST_CODES": (40, 1 << 62)},
    compact: {"FANOUT": (2, 8)},
    keep_rows: {"MOST_OVERLAP": (1000,), "UNMEASURED": (0.0,), "WORTH": (0.03,), "STILL_WORTH": (0.03,)},
}
"""What decides between two ways of doing the same."""


@contextmanager
def drawn_limits(rng: random.Random) -> Iterator[None]:
    with ExitStack() as stack:
        for module, limits in LIMITS.items():
            for name, values in limits.items():
                stack.enter_context(patch.object(module, name, rng.choice(values)))
        yield


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_partials_and_turns_agree_with_duckdb(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    with drawn_limits(rng), ExitStack() as stack:
        World(rng, tmp_path, stack).run()


COUNT = "SELECT window.start AS w, count(*) AS x0 FROM s{} GROUP BY window(ts, '10 seconds')"
SUM = "SELECT window.start AS w, sum(q) AS x0 FROM s WHERE i < {} GROUP BY window(ts, '10 seconds')"


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("text", [COUNT.format(" WHERE 10 / i > {}"), SUM])
def test_a_query_fails_for_rows_of_its_own_windows_alone(text: str, kept: bool, tmp_path: Path) -> None:
    """Rows that are kept may be those of before it, on which another query fails, or of windows that it never had."""
    types = [("w", "timestamp"), ("x0", "bigint")]
    queries = {name: bound(name, text.format(than), types) for name, than in (("older", 8), ("newer", 9))}
    sound = bound("sound", COUNT.format(""), types)
    limits = LIMITS[keep_rows]
    with ExitStack() as stack:
        for name in limits:
            stack.enter_context(patch.object(keep_rows, name, limits[name][0]))
        pipeline = LocalPipeline(tmp_path, STREAMS.values(), [sound, queries["older"]], slots=1, tasks=1, groups=16)
        stack.enter_context(closing(pipeline))
        poison = {"i": 0, "q": 3 << 61}
        batches = [[(1, poison), (2, poison)], [(11, {"i": 1, "q": 1}), (12, {"i": 7, "q": 2})], [(40, {})], []]
        for number, rows in enumerate(batches):
            if number == 1:
                pipeline.create(queries["newer"])
            ratio = KEPT if kept else MADE
            pipeline.decide(loads={id_: GroupingLoad(ratio) for id_ in pipeline.preview({}).groupings})
            pipeline.append("s", rows_of(rows))
            assert pipeline.run()
        assert pipeline.plan.streams["s"].keeps_rows == kept
        assert {*pipeline.failures()} == {"older"}
        assert pipeline.rows("sound") == [(BASE, 2), (BASE + 10 * SECOND, 2)]
        assert pipeline.rows("newer") == [(BASE + 10 * SECOND, 1 if text != SUM else 3)]


def test_memory_is_bounded_whatever_the_number_of_filters(tmp_path: Path) -> None:
    """Places of all classes that are there at once: of comparisons, and of predicates that are none."""
    rng, cells, most = random.Random(7), list[int](), 1 << 14

    class Counted(finish_rows._Blocks):
        def __init__(self, placed: Any, partials: Any) -> None:
            super().__init__(placed, partials)
            cells.append(sum(lanes.shape[0] * lanes.shape[1] for lanes in {*self.lanes.values()}))

    where = [f"(i * i * {n} + a * i * {n // 3} + a * a) % {5 + n % 7} < 2" for n in range(120)]
    where += [f"q {op} {n}" for n in range(-30, 30) for op in ("<", "<>")]
    select = "SELECT window.start AS w, b AS k0, count(*) AS x0 FROM s WHERE {} GROUP BY b, window(ts, {})"
    types = [("w", "timestamp"), ("k0", "string"), ("x0", "bigint")]
    window = "'60 seconds', '1 seconds'"
    queries = [bound(f"q{n}", select.format(text, window), types) for n, text in enumerate(where)]
    rows = Rows(rng)
    rows.sizes, rows.late = (400,), 0.0
    with ExitStack() as stack:
        for name in LIMITS[keep_rows]:
            stack.enter_context(patch.object(keep_rows, name, LIMITS[keep_rows][name][0]))
        stack.enter_context(patch.object(finish_rows, "MOST_CELLS", most))
        stack.enter_context(patch.object(finish_rows, "_Blocks", Counted))
        pipeline = stack.enter_context(closing(LocalPipeline(tmp_path, STREAMS.values(), queries, slots=1)))
        for table in (rows.batch(0), rows_of([(300, {})]), rows_of([])):
            pipeline.decide(loads={id_: GroupingLoad(KEPT) for id_ in pipeline.preview({}).groupings})
            pipeline.append("s", table)
            assert pipeline.run()
        assert not pipeline.failures()
        assert pipeline.rows("q1")
    assert cells
    assert max(cells) <= most


def rows_of(rows: Sequence[tuple[int, dict[str, int]]]) -> pa.Table:
    """(seconds, values); all else is NULL."""
    times = pa.array([BASE + at * SECOND for at, _ in rows], pa.int64()).cast(ARROW["ts"])
    others = [(n, t) for n, t in ARROW.items() if n != "ts"]
    return pa.table({"ts": times, **{n: pa.array([values.get(n) for _, values in rows], t) for n, t in others}})


class World:
    def __init__(self, rng: random.Random, path: Path, stack: ExitStack) -> None:
        self.rng, self.writer, self.rows = rng, Writer(rng), {name: Rows(rng) for name in STREAMS}
        count = rng.choice((1, 2, 5, 12, 12, 40, 40, 150 if rng.random() < 0.3 else 12))
        self.first = [self.writer.query() for _ in range(count)]
        if self.writer.failing:  # or a stream would not be read once all of its queries have failed, sooner or later
            self.first += [self.writer.unfailing(name) for name in STREAMS]
        self.queries = {q.name: q for q in self.first}
        self.dropped: set[str] = set()
        self.pipelines = [
            stack.enter_context(
                closing(
                    LocalPipeline(
                        path / way,
                        STREAMS.values(),
                        [q.query for q in self.first],
                        slots=rng.choice((1, 2, 3)),
                        tasks=rng.choice((1, 2)),
                        groups=16,
                    )
                )
            )
            for way in WAYS
        ]
        self.changes, self.restarts = rng.choice((0.2, 0.5, 1.0)), rng.choice((0.0, 0.2, 0.5))
        self.flips = rng.choice((0.3, 1.0))
        self.turn = rng.random() < 0.5
        self.seen: dict[str, list[pa.Table]] = {name: [] for name in STREAMS}

    def run(self) -> None:
        for number in range(BATCHES):
            if number:
                self.change()
            self.batch({name: self.rows[name].batch(number) for name in STREAMS})
        self.batch({name: rows_of([(BATCHES * 15 + 300, {})]) for name in STREAMS})
        self.batch({name: rows_of([]) for name in STREAMS})  # closes what those rows have passed
        self.check()

    def change(self) -> None:
        alive = sorted(q.name for q in self.queries.values() if q.name not in self.dropped and not q.stays)
        goes = self.rng.choice(alive) if self.rng.random() < self.changes and len(alive) > 1 else None
        comes = self.writer.query() if self.rng.random() < self.changes else None
        for pipeline in self.pipelines:
            if goes in pipeline.queries:
                pipeline.drop(goes)
            if comes is not None:
                pipeline.create(comes.query)
        if goes is not None:
            self.dropped.add(goes)
        if comes is not None:
            self.queries[comes.name] = comes

    def batch(self, tables: dict[str, pa.Table]) -> None:
        pieces, slots, moved = self.rng.randint(1, 3), self.rng.choice((1, 2, 3)), self.rng.random() < 0.3
        self.turn = self.turn != (self.rng.random() < self.flips)
        restart = self.rng.random() < self.restarts
        closed = self.pipelines[1].manifest.closed
        for name, table in tables.items():
            mark = pa.repeat(pa.scalar(closed.get(name, 0), pa.int64()), table.num_rows)
            self.seen[name].append(table.append_column("mark", mark))
        for pipeline, kept in zip(self.pipelines, (True, False, self.turn), strict=True):
            if restart and pipeline is self.pipelines[2]:
                pipeline.reopen()
            if moved and pipeline is not self.pipelines[1]:
                pipeline.batches.adaptations.change("slot_count", slots=slots)
            self.decide(pipeline, kept)
            for name, table in tables.items():
                pipeline.append(name, table, pieces)
            pipeline.run()

    def decide(self, pipeline: LocalPipeline, kept: bool) -> None:
        loads = {id_: GroupingLoad(KEPT if kept else MADE) for id_ in pipeline.preview({}).groupings}
        pipeline.decide(loads=loads)

    def check(self) -> None:
        failed = [pipeline.failures().keys() - self.dropped for pipeline in self.pipelines]
        assert failed[0] == failed[1] == failed[2], self.texts(failed)
        for name in sorted(failed[1]):
            assert self.queries[name].may_fail, (self.queries[name].query.text, self.pipelines[1].failures()[name])
        kept, made, turns = self.pipelines
        connection = self.duckdb()
        firsts = {q.name for q in self.first}
        for name, q in self.queries.items():
            if name in failed[1] or q.query.sink.kind == "noop" or name in self.failed_once():
                continue
            wanted = listed(made.rows(name), q)
            for way, pipeline in (("rows", kept), ("turns", turns)):
                assert_equal(listed(pipeline.rows(name), q), wanted, way, q.query.text)
            if name in firsts - self.dropped and q.sql is not None and not q.may_fail:
                closed = made.manifest.closed[q.query.stream]
                found = connection.sql(q.sql).fetchall()
                ended = [
                    row for row in found if q.query.window is not None and q.query.window.end_of(us(row[0])) <= closed
                ]
                assert_equal(wanted, listed(ended, q), "DuckDB", q.sql)

    def failed_once(self) -> set[str]:
        return set().union(*(pipeline.failures() for pipeline in self.pipelines))

    def texts(self, failed: Sequence[Iterable[str]]) -> list[Any]:
        some = set().union(*failed)
        differ = sorted(some - set(failed[0]).intersection(*failed[1:]))
        return [(n, [n in f for f in failed], self.queries[n].query.text) for n in differ]

    def duckdb(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'; SET ieee_floating_point_ops = true")
        for name, tables in self.seen.items():
            connection.register(f"rows_of_{name}", pa.concat_tables(tables))
        return connection


def listed(rows: Iterable[Sequence[Any]], q: WorldQuery) -> list[str]:
    return sorted(repr(tuple(plain(v, n in q.rounded) for n, v in enumerate(row))) for row in rows)


def assert_equal(found: list[str], wanted: list[str], way: str, text: str) -> None:
    missing, more = Counter(wanted) - Counter(found), Counter(found) - Counter(wanted)
    assert not missing, (way, text, [*missing][:3], [*more][:3])
    assert not more, (way, text, [], [*more][:3])


def us(time: Any) -> int:
    return round(time.timestamp() * SECOND) if hasattr(time, "timestamp") else int(time)


def plain(value: Any, rounded: bool = False) -> Any:
    if hasattr(value, "timestamp"):
        return us(value)
    if isinstance(value, float):
        return 0.0 if value == 0 else round(value, 9) if rounded else value
    return value
