"""Unit: batches on Spark have a session of their own there, and can be ended while their tasks run."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import RDD
from pyspark.sql import SparkSession

import thalweg
from thalweg import user_aggregates
from thalweg.engine.spark import BATCH_SETTINGS, SETTINGS, JobGroup


def wait_for(condition: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def rows(*seconds: int) -> pa.Table:
    times = pa.array([s * 1_000_000 for s in seconds], pa.timestamp("us", tz="UTC"))
    return pa.table({"ts": times, "v": pa.array(seconds, pa.int64())})


def test_what_a_user_sets_does_not_act_on_batches(spark: SparkSession, state_dir: Path) -> None:
    others = {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
        "spark.sql.shuffle.partitions": "5",
    }
    before, to_dataframe = {name: spark.conf.get(name) for name in others}, RDD.toDF
    try:
        for name, value in others.items():
            spark.conf.set(name, value)
        with thalweg.connect(state_dir, spark=spark) as session:
            runner: Any = session._parts.engine.runner
            spark.conf.set("spark.sql.ansi.enabled", "true")
            spark.conf.set("spark.sql.ansi.enabled", "false")
            assert {name: runner._spark.conf.get(name) for name in BATCH_SETTINGS} == {
                name: SETTINGS[name] for name in BATCH_SETTINGS
            }
            assert {name: spark.conf.get(name) for name in others} == others, "the user's are not touched"
            assert RDD.toDF is to_dataframe, "PySpark binds it to every session that is made"
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def test_tasks_that_run_are_ended_by_stop_and_the_batch_is_run_later(
    spark: SparkSession, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_aggregates, "_defined", {})
    begun, stays = tmp_path / "begun", tmp_path / "stays"
    stays.touch()

    def update(state: int, batch: pa.RecordBatch) -> int:
        begun.touch()
        while stays.exists():
            time.sleep(0.05)
        return state + batch.num_rows

    def open_session() -> tuple[thalweg.Session, Any, Any]:
        session = thalweg.connect(state_dir, spark=spark)
        source = thalweg.memory("ts timestamp, v bigint")
        session.create_stream("events", source, time="ts", watermark="0 seconds")
        thalweg.aggregate("many", lambda: 0, update, lambda a, b: a + b, lambda state: state, returns="bigint")
        query = session.create_query("q", "SELECT many(v) AS n FROM events GROUP BY window(ts, '10 seconds')")
        return session, source, query

    session, source, _ = open_session()
    source.append(rows(1, 2, 3))
    session.start("0 seconds")
    wait_for(begun.exists)
    began = time.monotonic()
    session.stop()
    assert time.monotonic() - began < 20
    assert session._parts.runner.manifest.batch == -1
    tracker = spark.sparkContext.statusTracker()
    assert list(tracker.getActiveJobsIds()) == []
    assert list(tracker.getActiveStageIds()) == []
    stays.unlink()
    session, source, query = open_session()
    with session:
        source.append(rows(4, 20))
        session.run_available()
        assert query.results().to_pylist() == [{"n": 4}]
        assert session.progress()["batch"] == 1, "all rows in one batch: nobody had seen the first"


class Context:
    """Spark's, as far as a group of jobs knows it."""

    def __init__(self) -> None:
        self.properties: dict[str, Any] = {}
        self.cancelled: list[str] = []
        self.active = iter((1, 1, 0))
        """Tasks that still run, at every look."""

    def setJobGroup(self, group: str, description: str, interruptOnCancel: bool) -> None:  # noqa: N802, N803
        self.properties["spark.jobGroup.id"] = group
        self.properties["spark.job.description"] = description
        self.properties["spark.job.interruptOnCancel"] = interruptOnCancel

    def setLocalProperty(self, name: str, value: Any) -> None:  # noqa: N802 - Spark's name
        self.properties[name] = value

    def cancelJobGroup(self, group: str) -> None:  # noqa: N802
        self.cancelled.append(group)

    def statusTracker(self) -> Any:  # noqa: N802
        return SimpleNamespace(
            getJobIdsForGroup=lambda group: [4],
            getJobInfo=lambda job: SimpleNamespace(stageIds=[1, 2]),
            getStageInfo=lambda stage: SimpleNamespace(numActiveTasks=next(self.active)) if stage == 1 else None,
        )


def test_jobs_outside_of_a_group_cannot_be_cancelled_with_it() -> None:
    """Such as those of a sink, which come after the tasks."""
    context: Any = Context()
    with JobGroup(context, "batch 3 of x") as group:
        inside = dict(context.properties)
        assert inside["spark.job.description"] == "thalweg: batch 3 of x"
        assert not group.is_cancelled
    assert context.properties["spark.jobGroup.id"] is None
    assert context.properties["spark.job.description"] == "thalweg: batch 3 of x"
    group.cancel()
    assert group.is_cancelled
    assert context.cancelled == [inside["spark.jobGroup.id"]]
    with JobGroup(context, "batch 4 of x"):
        assert context.properties["spark.jobGroup.id"] != inside["spark.jobGroup.id"]
    group.wait()


def test_an_expression_that_needs_too_much_memory_stops_its_query_and_no_worker(
    spark: SparkSession, state_dir: Path
) -> None:
    """DuckDB does not count the strings that functions make: the system holds the worker to its share."""
    texts = pa.table({"ts": rows(*range(500))["ts"], "g": pa.array(["a"] * 500)})
    huge = "length(concat(" + ", ".join(["repeat(g, 900000)"] * 40) + "))"  # 18 GB
    with thalweg.connect(state_dir, spark=spark, worker_memory="300 MB") as session:
        source = thalweg.memory(texts.schema)
        session.create_stream("s", source, time="ts", watermark="0 seconds")
        much = session.create_query("much", f"SELECT {huge} AS n FROM s")
        fine = session.create_query("fine", "SELECT count(*) AS n FROM s GROUP BY window(ts, '100 seconds')")
        source.append(texts)
        session.run_available()
        assert much.status["state"] == "failed"
        assert much.status["error"].startswith("it needs more memory than the 286 MiB of a worker")
        assert fine.status["state"] == "idle"
        assert fine.results().num_rows == 4
