"""Unit: a session without Spark: rows in, results out, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import thalweg
from thalweg import user_aggregates
from thalweg.batch.local_runner import LocalRunner
from thalweg.errors import SinkError, SqlError, StateError, ThalwegError, UsageError
from thalweg.model.analysis import Learned
from thalweg.model.stream import Schema
from thalweg.testing import LocalSession
from thalweg.testing.recorded import Answers, RecordedAnalyzer, spark_version

Local = Callable[..., LocalSession]
START = datetime(2026, 1, 1, tzinfo=UTC)
SUMS = "SELECT k, sum(v) AS s, window.start AS w FROM events GROUP BY k, window(ts, '10 seconds')"
ALL = "SELECT k, v FROM events WHERE v >= 0"


def rows(*seconds: int, k: int = 1) -> list[dict[str, Any]]:
    return [{"ts": START + timedelta(seconds=s), "k": k, "v": s} for s in seconds]


def values(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_rows_in_results_out(local: Local) -> None:
    session = local({"events": rows(1, 2, 12) + rows(3, 21, k=2)}, {"sums": SUMS})
    assert values(session.results("sums")) == [(1, 3, START), (1, 12, START + timedelta(seconds=10)), (2, 3, START)]
    session.append("events", rows(13))  # late: its window has closed
    session.append("events", rows(40))
    assert len(session.results("sums")) == 4
    assert session.progress()["streams"]["events"]["late"] == 1


def test_statements_join_and_table(local: Local, tmp_path: Path) -> None:
    session = local(
        {"a": rows(1, 2, 30), "b": rows(2, 3, 30)},
        "CREATE QUERY near AS SELECT a.v AS x, b.v AS y FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND",
    )
    assert values(session.results("near")) == [(1, 2), (2, 2), (2, 3), (30, 30)]
    pq.write_table(pa.table({"k": pa.array([1], pa.int64()), "name": ["one"]}), tmp_path / "names.parquet")
    session.create_table("names", str(tmp_path / "names.parquet"))
    named = session.create_query("named", "SELECT a.v, names.name FROM a JOIN names ON a.k = names.k")
    session.append("a", rows(40))
    session.run_available()
    assert values(named.results()) == [(40, "one")]


def test_a_session_goes_on_where_it_was(local: Local, state_dir: Path) -> None:
    def opened() -> tuple[LocalSession, Any]:
        session, source = local(state_dir=state_dir), thalweg.memory("ts timestamp, k bigint, v bigint")
        session.create_stream("events", source, time="ts", watermark="1 second")
        session.create_query("sums", SUMS)
        return session, source

    first, source = opened()
    source.append(pa.Table.from_pylist(rows(1, 2, 8)))
    first.run_available()
    first.stop()
    second, source = opened()
    assert second.progress()["batch"] == 1
    second.run_available()
    assert second.progress()["batch"] == 2, "what is not known yet, one batch finds out"
    second.run_available()
    assert second.progress()["batch"] == 2, "nothing new, nothing done"
    source.append(pa.Table.from_pylist(rows(9, 20)))
    second.run_available()
    assert values(second.query("sums").results()) == [(1, 20, START)]


def test_batches_in_the_background(local: Local) -> None:
    given: list[pa.Table] = []
    session = local({"events": rows(1)})
    session.create_query("all", ALL, lambda table, batch: given.append(table))
    session.start("0 seconds")
    for second in range(2, 6):
        session.append("events", rows(second))
        deadline = time.monotonic() + 10
        while sum(len(t) for t in given) < second and time.monotonic() < deadline:
            time.sleep(0.005)
    session.stop()
    assert [v for table in given for v in table.column("v").to_pylist()] == [1, 2, 3, 4, 5]


def test_a_failing_query_is_stopped_alone(local: Local) -> None:
    session = local({"events": rows(0, 5, 20)}, {"sums": SUMS, "bad": "SELECT 1 / v AS x FROM events"})
    assert len(session.results("sums")) == 1
    assert session.query("bad").status.state == "failed"
    assert "zero" in session.query("bad").status.error


def test_a_batch_that_keeps_failing_says_so(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    session = local({"events": rows(1)}, {"all": ALL})

    def fail(*arguments: Any) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(LocalRunner, "run", fail)
    with pytest.raises(ThalwegError, match="in batch 0") as first:
        session.run_available()
    assert first.value.detail == "RuntimeError: no such luck"
    assert "start again" in str(first.value.hint)
    with pytest.raises(ThalwegError) as second:
        session.run_available()
    assert "has failed 2 times" in str(second.value.hint)
    monkeypatch.undo()
    assert session.results("all").num_rows == 1


ORDERED = f"{SUMS} ORDER BY s DESC, k"
TOTALS = "SELECT k, total(v) AS t, window.start AS w FROM events GROUP BY k, window(ts, '10 seconds') ORDER BY t, k"


@pytest.mark.slow
def test_two_sessions_in_threads_of_their_own(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a connection to DuckDB of its own, and means by an aggregate what was defined when it came up."""
    monkeypatch.setattr(user_aggregates, "_defined", {})
    sessions, failed = [], []
    for factor in (1, 1000):

        def add(state: int, batch: pa.RecordBatch, factor: int = factor) -> int:
            return state + factor * int(pc.sum(batch.column(0)).as_py())

        thalweg.aggregate("total", lambda: 0, add, lambda a, b: a + b, lambda state: state, returns="bigint")
        sessions.append(local({"events": rows(0)}, {"sums": SUMS, "ordered": ORDERED, "totals": TOTALS}))

    def feed(session: LocalSession) -> None:
        try:
            for batch in range(1, 13):
                for k in range(3):
                    session.append("events", rows(*range(10 * batch, 10 * batch + 10), k=k))
                session.run_available()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=feed, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []
    for session in sessions:
        assert {handle.status.error for handle in session.queries.values()} == {None}
    one, other = sessions
    for query in ("sums", "ordered"):
        assert one.query(query).results().equals(other.query(query).results())
    assert one.query("ordered").results().num_rows == 34
    small, large = (session.query("totals").results().to_pylist() for session in sessions)
    assert len(small) > 30
    assert large == [{**row, "t": 1000 * row["t"]} for row in small]


def test_progress_in_the_words_of_spark(local: Local) -> None:
    session = local({"events": rows(1, 2, 12)}, {"sums": SUMS, "all": ALL})
    heard: list[Any] = []

    class Listener:
        def on_progress(self, progress: Any) -> None:
            heard.append(progress)

    assert session.progress()["last_progress"] is None
    listener = Listener()
    session.add_listener(listener)
    session.run_available()
    first, last = heard
    assert session.progress()["last_progress"] == last
    assert [h["batchId"] for h in heard] == [0, 1]
    assert [h["numInputRows"] for h in heard] == [3, 0]
    (source,) = first["sources"]
    assert (source["stream"], source["description"]) == ("events", "memory")
    assert (source["startOffset"], source["endOffset"], source["numInputRows"]) == (0, 1, 3)
    assert first["eventTime"] == {"events": {"max": "2026-01-01T00:00:12.000Z", "watermark": None}}
    assert last["eventTime"] == {"events": {"max": None, "watermark": "2026-01-01T00:00:12.000Z"}}
    assert first["sinks"] == [{"query": "all", "numOutputRows": 3}]
    assert last["sinks"] == [{"query": "sums", "numOutputRows": 1}]
    assert [h["numOutputRows"] for h in heard] == [3, 1]
    steps = last["durationMs"]
    assert steps["triggerExecution"] == last["batchDuration"]
    assert abs(sum(steps.values()) - 2 * steps["triggerExecution"]) <= len(steps)
    begun = datetime.fromisoformat(last["timestamp"])
    assert timedelta(0) <= datetime.now(UTC) - begun < timedelta(minutes=5)
    assert first["inputRowsPerSecond"] == 0.0
    assert first["processedRowsPerSecond"] > 0
    json.dumps(heard)
    session.remove_listener(listener)
    session.append("events", rows(30))
    session.run_available()
    assert len(heard) == 2


def test_a_session_that_lost_its_directory_gives_nothing_to_sinks(local: Local, tmp_path: Path) -> None:
    given: list[int] = []
    session = local({"events": rows(1)}, state_dir=tmp_path / "state")
    session.create_query("all", ALL, lambda table, batch: given.append(table.num_rows))
    (tmp_path / "state" / "lock").unlink()
    with pytest.raises(StateError, match="no longer holds"):
        session.run_available()
    assert given == []
    assert session.progress()["batch"] == -1


def test_mistakes_are_told_as_spark_tells_them(local: Local) -> None:
    session = local({"events": rows(1)})
    with pytest.raises(SqlError, match="unknown column") as error:
        session.create_query("q", "SELECT vv FROM events")
    assert error.value.hint == "did you mean v?"
    assert error.value.span is not None


def test_what_is_not_recorded_says_how_to_record_it() -> None:
    with pytest.raises(UsageError, match="not recorded") as error:
        LocalSession({"events": rows(1)}, {"q": ALL})
    assert "record=True" in str(error.value)
    assert "./dev test --record" in str(error.value)
    with pytest.raises(UsageError, match="not recorded") as error:
        LocalSession({"events": rows(1)}, {"q": ALL}, recorded=Answers(None, "./dev chaos --record"))
    assert "./dev chaos --record" in str(error.value)
    assert "./dev test" not in str(error.value)


def test_a_result_of_spark_that_is_not_recorded_is_told_by_its_query(tmp_path: Path) -> None:
    from tests.support.side import Side, Tables

    from thalweg.testing.oracle import Feed

    side = Side(Answers(None), Tables(tmp_path / "none.zip"), None)
    feed = Feed("events", "ts", 0, (pa.Table.from_pylist(rows(1)),))
    with pytest.raises(UsageError, match="what batch Spark SQL gives for this query is not recorded") as error:
        side.expected(feed, "SELECT v + 41 AS w FROM events")
    assert "none.zip has no result, over these rows of events, of: SELECT v + 41 AS w FROM events" in str(error.value)
    assert "./dev test --record" in str(error.value)


def test_an_answer_is_one_of_the_columns_and_of_sparks_version(tmp_path: Path) -> None:
    class Told:
        @property
        def learned(self) -> Learned:
            return {}

        def analyze(self, sql: str) -> list[tuple[str, str]]:
            return [("v", "int")]

        def register_table(self, name: str, schema: Schema) -> None: ...

        check_table = register_table

    from thalweg.source.schema import as_schema

    answers = Answers(tmp_path)
    asking: Any = RecordedAnalyzer(answers, Told)  # type: ignore[arg-type]
    asking.register_table("t", as_schema("v int"))
    assert asking.analyze("SELECT v FROM t") == [("v", "int")]
    answers.save()
    lines = (tmp_path / f"{spark_version()}.jsonl").read_text().splitlines()
    assert [json.loads(line)["asked"] for line in lines if "SELECT" in line] == ["SELECT v FROM t"]
    again = RecordedAnalyzer(Answers(tmp_path))
    again.register_table("t", as_schema("v int"))
    assert again.analyze("SELECT v FROM t") == [("v", "int")]
    other = RecordedAnalyzer(Answers(tmp_path))
    with pytest.raises(UsageError, match="not recorded"):
        other.register_table("t", as_schema("v bigint"))


def test_what_only_spark_can_do_is_refused_by_name(local: Local, tmp_path: Path) -> None:
    class Frame: ...

    Frame.__module__ = "pyspark.sql.classic.dataframe"
    session = local({"events": rows(1)})
    with pytest.raises(UsageError, match=r"streaming DataFrame of stream 's' needs Spark"):
        session.create_stream("s", Frame(), time="ts", watermark="1 second")
    with pytest.raises(UsageError, match=r"the DataFrame of table 't' needs Spark"):
        session.create_table("t", Frame())
    with pytest.raises(UsageError, match=r"the Spark writer of query 'q' needs Spark"):
        session.create_query("q", ALL, thalweg.to_spark("delta", path=str(tmp_path / "d")))
    (tmp_path / "t.csv").write_text("k\n1\n")
    with pytest.raises(UsageError, match=r"the file of table 't' needs Spark"):
        session.create_table("t", str(tmp_path / "t.csv"))


@pytest.mark.parametrize(("given", "match"), [([1, 2], "not a table"), ([{"v": 1}], "event time")])
def test_rows_that_are_none(local: Local, given: Any, match: str) -> None:
    with pytest.raises(UsageError, match=match):
        local({"events": given})


@pytest.mark.slow
def test_no_process_is_started_and_no_directory_left(tmp_path: Path) -> None:
    """In a process of its own, with Java out of reach."""
    program = f"""
import sys, tempfile
sys.path[:0] = {sys.path!r}
tempfile.tempdir = {str(tmp_path)!r}
from tests.unit.testing.test_local import ALL, RECORDED, rows
from thalweg.testing import LocalSession
with LocalSession({{"events": rows(1, 2)}}, {{"all": ALL}}, recorded=RECORDED) as session:
    assert len(session.results("all")) == 2
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={"JAVA_HOME": "/nowhere", "PATH": ""}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


RECORDED = Path(__file__).parents[2] / "golden" / "analyser"


def test_a_callable_that_takes_no_rows_is_refused_and_leaves_nothing(local: Local) -> None:
    async def later(table: pa.Table, batch_id: int) -> None: ...

    session = local({"events": rows(1)})
    with pytest.raises(SinkError, match="coroutine function"):
        session.create_query("q", ALL, later)
    with pytest.raises(SinkError, match="cannot be called with a table and a batch id"):
        session.create_query("q", ALL, lambda table: None)
    assert not session.queries


def test_what_a_callable_raised_is_kept_without_its_secrets(local: Local, tmp_path: Path) -> None:
    def fail(table: pa.Table, batch_id: int) -> None:
        raise KeyboardInterrupt("no route to postgresql://bob:hunter2@db/x\nsecond line")

    session = local({"events": rows(1)}, state_dir=tmp_path / "state")
    query = session.create_query("q", ALL, fail, options={"retries": 1})
    session.run_available()
    assert "KeyboardInterrupt: no route to postgresql://bob:***@db/x" in query.status["error"]
    session.stop()
    kept = b"".join(path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file())
    assert b"hunter2" not in kept
    assert b"second line" not in kept
