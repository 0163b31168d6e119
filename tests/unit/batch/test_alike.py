"""Queries that differ in their names and sinks alone: their result is worked out once, and each has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.support.local_pipeline import LocalPipeline

from thalweg.frontend.bind import bind
from thalweg.model.plan import WindowedQuery
from thalweg.model.query import Query, SinkSpec
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.operate import close_windows, gather_results
from thalweg.operate.finish import Closing, finish
from thalweg.sink.files import to_files

SECOND = 1_000_000
TYPES = {"ts": "timestamp", "k": "int", "v": "int"}
STREAM = Stream("s", Schema(tuple(Field(n, t) for n, t in TYPES.items())), "ts", 0, SourceSpec("memory", {}))
COLUMNS = {"n": "bigint", "total": "bigint", "share": "double"}
SUM = "SELECT k, count(*) AS n, sum(v) AS total FROM s GROUP BY k, window(ts, '1 second')"
FEW = "SELECT k, count(*) AS n FROM s GROUP BY k, window(ts, '1 second') ORDER BY n DESC, k LIMIT 2"
FAILING = "SELECT k, 6 / count(v) AS share FROM s GROUP BY k, window(ts, '1 second')"


def _query(name: str, text: str, sink: SinkSpec | None = None) -> Query:
    columns = [("k", "int"), *((c, kind) for c, kind in COLUMNS.items() if f"AS {c}" in text)]
    answers: Any = SimpleNamespace(analyze=lambda sql: columns, learned={})
    return bind(name, text, {"s": STREAM}, answers, sink=sink or SinkSpec("memory"))


def _rows(number: int) -> pa.Table:
    """Of key 3 there are no values."""
    keys = [i % 4 for i in range(40)]
    return pa.table(
        {
            "ts": pa.array([number * SECOND + i for i in range(40)], pa.int64()).cast(pa.timestamp("us")),
            "k": pa.array(keys, pa.int32()),
            "v": pa.array([None if k == 3 else k * number for k in keys], pa.int32()),
        }
    )


def _run(pipeline: LocalPipeline, numbers: Iterable[int]) -> None:
    """A batch closes the window of the one before the last."""
    for number in numbers:
        pipeline.append("s", _rows(number))
        assert pipeline.run()


def _emitted(pipeline: LocalPipeline, name: str) -> int:
    return pipeline.batches.entries[pipeline.ids[name]].emitted


@pytest.mark.slow
def test_each_has_the_result_whatever_its_sink_and_whoever_else_is_dropped(tmp_path: Path) -> None:
    queries = [
        _query("one", SUM),
        _query("two", SUM),
        _query("counted", SUM, SinkSpec("noop")),
        _query("counted too", SUM, SinkSpec("noop")),
        _query("written", SUM, to_files(tmp_path / "written")),
        _query("few", FEW),
        _query("fewer", FEW),
    ]
    pipeline = LocalPipeline(tmp_path / "state", [STREAM], queries, slots=2, groups=16)
    _run(pipeline, range(4))
    pipeline.drop("one")
    _run(pipeline, range(4, 6))
    wanted = [(k, 10, None if k == 3 else 10 * k * number) for number in range(4) for k in range(4)]
    assert sorted(pipeline.rows("two"), key=repr) == sorted(wanted, key=repr)
    assert sorted(pipeline.rows("one"), key=repr) == sorted(wanted[: 4 * 2], key=repr)
    assert [_emitted(pipeline, name) for name in ("two", "counted", "counted too", "written")] == [16] * 4
    written = pa.concat_tables(pa.parquet.read_table(path) for path in (tmp_path / "written").glob("part-*"))
    assert sorted(zip(*written.to_pydict().values(), strict=True), key=repr) == sorted(wanted, key=repr)
    assert pipeline.rows("few") == pipeline.rows("fewer") == [(k, 10) for _ in range(4) for k in range(2)]
    pipeline.close()


def test_they_fail_alike_and_concern_no_others(tmp_path: Path) -> None:
    queries = [_query("bad", FAILING), _query("sound", SUM), _query("as bad", FAILING), _query("as sound", SUM)]
    pipeline = LocalPipeline(tmp_path / "state", [STREAM], queries, slots=2, groups=16)
    _run(pipeline, range(3))
    found = pipeline.failures()
    assert found.keys() == {"bad", "as bad"}
    assert len({*found.values()}) == 1
    assert len(pipeline.rows("sound")) == 4
    assert pipeline.rows("as sound") == pipeline.rows("sound")
    pipeline.close()


@pytest.mark.slow
@pytest.mark.parametrize("kept", [True, False])
def test_it_is_worked_out_once(kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that are collected, and of those that are counted."""
    asked: list[int] = []

    def gather(wanted: Sequence[gather_results.Wanted], merged: gather_results.Merged) -> list[pa.Table | None]:
        asked.append(len(wanted))
        return gather_results.gather_results(wanted, merged)

    seen: list[tuple[WindowedQuery, ...]] = []

    def watched(closing: Closing, *given: Any) -> dict[str, pa.Table]:
        seen.append(closing.members)
        return finish(closing, *given)

    monkeypatch.setattr("thalweg.operate.finish.gather_results", gather)
    monkeypatch.setattr(close_windows, "finish", watched)
    sink = None if kept else SinkSpec("noop")
    pipeline = LocalPipeline(tmp_path / "state", [STREAM], [_query(f"q{i}", SUM, sink) for i in range(5)], groups=16)
    _run(pipeline, range(3))
    assert {*asked} == {1 if kept else 0}
    assert {len(members) for members in seen} == {1}
    assert [_emitted(pipeline, f"q{i}") for i in range(5)] == [4] * 5
    pipeline.close()
