"""A plan that is refused: the running one stays in force, whatever was asked or decided since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.local_pipeline import LocalPipeline

from thalweg.errors import PlanRefusedError
from thalweg.model.expr import Expr
from thalweg.model.query import Aggregate, Output, Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.window import tumbling
from thalweg.optimize import planner
from thalweg.optimize.draft import Draft

SECOND = 1_000_000
SCHEMA = Schema((Field("ts", "timestamp"), Field("k", "bigint")))
STREAM = Stream("s", SCHEMA, "ts", 0, SourceSpec("memory", {}))
K = Expr('"k"', "bigint", ("k",))


def query(name: str, function: str) -> Query:
    outputs = (Output("n", Expr('"a0"', "bigint", ("a0",))),)
    aggregate = Aggregate(function, () if function == "count_all" else (K,), "bigint")
    return Query(name, "", "s", outputs, None, tumbling(10 * SECOND), (K,), (aggregate,))


def rows(*seconds: int) -> pa.Table:
    times = pa.array([s * SECOND for s in seconds], pa.int64()).cast(pa.timestamp("us"))
    return pa.table({"ts": times, "k": pa.array([1] * len(seconds), pa.int64())})


def break_two(draft: Draft, last: Draft) -> Draft:
    """Makes a plan of two queries one that no task could run."""
    if len(draft.plan.members) < 2:
        return draft
    members = tuple(replace(member, present="p_none") for member in draft.plan.members)
    return replace(draft, plan=replace(draft.plan, members=members))


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "RULES", (*planner.RULES[:-1], break_two, planner.RULES[-1]))


@pytest.fixture
def pipeline(tmp_path: Path, broken: None) -> Iterator[LocalPipeline]:
    pipeline = LocalPipeline(tmp_path / "state", [STREAM], [query("first", "count_all")])
    yield pipeline
    pipeline.close()


def test_batches_go_on_under_the_running_plan(pipeline: LocalPipeline, caplog: pytest.LogCaptureFixture) -> None:
    batches = pipeline.batches
    pipeline.append("s", rows(1, 2))
    assert pipeline.run()
    running = batches.plan
    pipeline.create(query("second", "sum"))
    pipeline.append("s", rows(3, 14))
    assert pipeline.run()
    assert batches.plan == running
    assert batches.manifest.through < batches.requests.last
    while pipeline.run():  # what waits is no reason for batches without rows
        pass
    assert pipeline.results("first")["n"].to_pylist() == [3]
    told, *_ = [record.getMessage() for record in caplog.records if "plan_refused" in record.getMessage()]
    assert all(word in told for word in ("p_none", "plan_", "first@"))
    pipeline.drop("second")  # what the error says to do
    pipeline.append("s", rows(25))
    assert pipeline.run()
    assert batches.manifest.through == batches.requests.last
    assert [entry.query.name for entry in batches.entries.values()] == ["first"]


def test_without_a_running_plan_it_is_refused_to_the_caller(pipeline: LocalPipeline) -> None:
    pipeline.create(query("second", "sum"))
    pipeline.append("s", rows(1, 2))
    with pytest.raises(PlanRefusedError, match="p_none"):
        pipeline.run()
