"""Unit: batches on Spark have a session of their own there, and can be ended while their tasks run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark import RDD
from pyspark.sql import SparkSession

import thalweg
from thalweg import user_aggregates
from thalweg.batch import pieces
from thalweg.engine.spark import BATCH_SETTINGS, SETTINGS, JobGroup
from thalweg.model.way import Way
from thalweg.optimize import keep_rows
from thalweg.testing import LocalSession

WAYS = (Way.STAGES, Way.FUSED, Way.FUSED)


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


def test_workers_have_the_whole_plan_whatever_they_were_given_of_it(
    spark: SparkSession, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries come and go between batches, which run in stages and fused, and workers forget in the middle of it."""
    monkeypatch.setattr(pieces, "MOST", 4)  # small plans are cut, too
    monkeypatch.setattr(pieces, "ABOUT", 2)
    with thalweg.connect(state_dir, spark=spark) as session:
        runner: Any = session._parts.engine.runner
        ways: Any = SimpleNamespace(choose=lambda *_: next(ways.next), next=cycle(WAYS), take_in=lambda *_: None)
        session._parts.runner.job.small_batches = ways
        found = _queries_come_and_go(session, lambda: _forget(runner._spark))
        sizes = [sum(sent.sizes.values()) for sent in runner._plans._sent]
    assert len(sizes) > 1, "what is new of a plan was sent beside what was there"
    with LocalSession(recorded=tmp_path, record=True) as session:
        assert found == _queries_come_and_go(session, lambda: None)
    assert sum(map(len, found.values())) > 20


def _queries_come_and_go(session: Any, in_the_middle: Callable[[], None]) -> dict[str, list[Any]]:
    """The results of all queries."""
    source = thalweg.memory("ts timestamp, v bigint")
    session.create_stream("events", source, time="ts", watermark="0 seconds")
    grouped = (
        "SELECT v % {} AS k, sum(v + {}) AS s FROM events WHERE v > {} GROUP BY v % {}, window(ts, '10 seconds')"
    )
    queries, found = {}, {}
    for n in range(8):
        queries[n] = session.create_query(f"q{n}", grouped.format(n + 2, n, n % 3, n + 2))
    for turn in range(5):
        source.append(rows(*range(turn * 10, turn * 10 + 10)))
        session.run_available()
        queries[8 + turn] = session.create_query(f"q{8 + turn}", grouped.format(turn + 2, 3 * turn, 1, turn + 2))
        found[f"q{turn}"] = queries.pop(turn).results().to_pylist()
        session.drop_query(f"q{turn}")
        if turn == 2:
            in_the_middle()
    source.append(rows(60, 70))
    session.run_available()
    found |= {f"q{n}": query.results().to_pylist() for n, query in queries.items()}
    return {name: sorted(results, key=repr) for name, results in found.items()}


def _forget(spark: SparkSession) -> None:
    """Makes the workers that run batches like new ones. One that is killed while it is idle may be given a task all
    the same."""

    def forget(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from thalweg.engine import sent_plans

        sent_plans._assembler = pieces.Assembler()
        yield from batches

    spark.range(0, 8, 1, 8).mapInArrow(forget, "id long").collect()


def test_who_fails_over_kept_rows_is_known_to_workers(
    spark: SparkSession, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("UNMEASURED", 0.5), ("WORTH", 0.0), ("STILL_WORTH", 0.0)):
        monkeypatch.setattr(keep_rows, name, value)
    with thalweg.connect(state_dir, spark=spark) as session:
        source = thalweg.memory("ts timestamp, v bigint")
        session.create_stream("events", source, time="ts", watermark="0 seconds")
        window = "GROUP BY v % 2, window(ts, '10 seconds')"
        sound = session.create_query("sound", f"SELECT v % 2 AS k, count(*) AS n FROM events {window}")
        bad = session.create_query(
            "bad", f"SELECT v % 2 AS k, count(*) AS n FROM events WHERE 6 / (v - 3) > 1 {window}"
        )
        source.append(rows(*range(10)))
        session.run_available()
        source.append(rows(40))
        session.run_available()
        kept = {bucket.relation for bucket in session._parts.runner.manifest.buckets}
        assert "rows of events" in kept
        assert "zero" in bad.status["error"]
        assert sorted(sound.results().to_pydict()["n"]) == [5, 5]
