"""Oracle: every kind of source and sink carries the same rows."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import thalweg
from thalweg.batch.loop import Loop
from thalweg.errors import pipeline_failed
from thalweg.source.log import LANDED, Log
from thalweg.testing.compare import rows_equal
from thalweg.testing.oracle import Feed, expected

SELECT = (
    "SELECT k, count(*) AS n, sum(v) AS total, max(name) AS last_name, window.start AS start "
    "FROM events GROUP BY k, window(ts, '10 seconds', '5 seconds')"
)
DDL = "k int, v double, name string, ts timestamp"


def batch(number: int, n: int = 60) -> pa.Table:
    first = number * n
    return pa.table(
        {
            "k": pa.array([i % 4 for i in range(n)], pa.int32()),
            "v": [(first + i) / 4 for i in range(n)],
            "name": [None if i % 7 == 0 else f"n{i % 5}" for i in range(n)],
            "ts": pa.array([(first + i) * 300_000 for i in range(n)], pa.timestamp("us", tz="UTC")),
        }
    )


BATCHES = tuple(batch(number) for number in range(4))
FEED = Feed("events", "ts", 2_000_000, BATCHES)


def write(table: pa.Table, path: Path, kind: str) -> None:
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "arrow":
        pa.feather.write_feather(table, path, compression="uncompressed")
    elif kind == "csv":
        pa.csv.write_csv(table, path)
    else:
        path.write_text("".join(row + "\n" for row in table.to_pandas().to_json(
            orient="records", lines=True, date_format="iso", date_unit="us").splitlines()))  # fmt: skip


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "json"])
def test_files_of_every_format(spark: SparkSession, state_dir: Path, tmp_path: Path, kind: str) -> None:
    for number, table in enumerate(BATCHES):
        write(table, tmp_path / f"{number}.{kind}", kind)
    with thalweg.connect(state_dir, spark=spark) as session:
        source = thalweg.files(f"{tmp_path}/*.{kind}", max_files_per_batch=1)
        session.create_stream("events", source, time="ts", watermark="2 seconds", schema=DDL)
        query = session.create_query("q", SELECT)
        session.run_available()
        assert session.progress()["streams"]["events"]["rejected"] == 0
        rows_equal(query.results(), expected(spark, FEED, SELECT))


def test_the_same_program_goes_on_whichever_files_are_left(
    spark: SparkSession, state_dir: Path, tmp_path: Path
) -> None:
    incoming = tmp_path / "in"
    incoming.mkdir()

    def run() -> int:
        with thalweg.connect(state_dir, spark=spark) as session:
            session.create_stream("events", thalweg.files(str(incoming)), time="ts", watermark="2 seconds")
            query = session.create_query("q", "SELECT k FROM events")
            session.run_available()
            return int(query.results().num_rows)

    pq.write_table(BATCHES[0], incoming / "b.parquet")
    assert run() == 60
    (incoming / "b.parquet").unlink()
    assert run() == 60
    pq.write_table(BATCHES[1].append_column("more", pa.nulls(60, pa.int32())), incoming / "a.parquet")
    assert run() == 120


def test_a_streaming_dataframe(spark: SparkSession, state_dir: Path, tmp_path: Path) -> None:
    for number, table in enumerate(BATCHES):
        pq.write_table(table, tmp_path / f"{number}.parquet")
    frame = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).parquet(str(tmp_path))
    with thalweg.connect(state_dir, spark=spark) as session:
        session.create_stream("events", frame, time="ts", watermark="2 seconds")
        query = session.create_query("q", SELECT)
        session.run_available()
        one = Feed("events", "ts", 2_000_000, (pa.concat_tables(BATCHES),))
        rows_equal(query.results(), expected(spark, one, SELECT))


def landed(session: thalweg.Session, stream: str) -> int:
    """Micro-batches of a streaming DataFrame that have been landed."""
    return len(Log(session.storage, stream, LANDED).entries)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_a_dataframe_that_nobody_reads_is_not_landed(spark: SparkSession, state_dir: Path) -> None:
    with thalweg.connect(state_dir, spark=spark) as session:
        for name in ("read", "unread"):
            frame = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
            session.create_stream(name, frame, time="timestamp", watermark="0 seconds")
        read = session.create_query("r", "SELECT value FROM read")
        session.run_available()
        assert landed(session, "unread") == 0
        session.start("0 seconds")
        wait_for(lambda: read.results().num_rows > 0)
        assert landed(session, "unread") == 0
        late = session.create_query("late", "SELECT value FROM unread")
        wait_for(lambda: late.results().num_rows > 0)
        late.drop()
        before = landed(session, "unread")
        assert before > 0
        seen = read.results().num_rows
        wait_for(lambda: read.results().num_rows > seen)
        assert landed(session, "unread") == before
        failing = session.create_query("failing", "SELECT 1 div (value - value) AS x FROM unread")
        wait_for(lambda: failing.status["state"] == "failed")
        wait_for(lambda: not session._parts.feeding.sources["unread"].is_started)
        again = session.create_query("again", "SELECT value FROM unread")
        wait_for(lambda: again.results().num_rows > 0)
        session.progress()


def test_a_start_that_fails_leaves_nothing_running(
    spark: SparkSession, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Loop, every_us: int) -> None:
        raise pipeline_failed(str(every_us))

    with thalweg.connect(state_dir, spark=spark) as session:
        frame = spark.readStream.format("rate").load()
        session.create_stream("rated", frame, time="timestamp", watermark="0 seconds")
        session.create_query("q", "SELECT value FROM rated")
        with pytest.raises(thalweg.ThalwegError, match="below 0"):
            session.start("-1 second")
        with monkeypatch.context() as patched:
            patched.setattr(Loop, "start", refuse)
            with pytest.raises(thalweg.ThalwegError, match="30000000"):
                session.start("0.5 minutes")
        assert not session._parts.feeding.sources["rated"].is_started
        session.start("0.001 minutes")
        session.progress()


def test_queries_wait_for_the_dataframes_that_they_read(spark: SparkSession, state_dir: Path) -> None:
    frame = spark.readStream.format("rate").load()
    with thalweg.connect(state_dir, spark=spark) as session:
        for name in ("one", "other"):
            session.create_stream(name, frame, time="timestamp", watermark="0 seconds")
        session.create_query("q", "SELECT value FROM one")
    with thalweg.connect(state_dir, spark=spark) as session:
        session.run_available()
        assert session.query("q").status["state"] == "waiting"
        assert "'one' reads a streaming DataFrame" in session.query("q").status["error"]
        session.create_stream("one", frame, time="timestamp", watermark="0 seconds")
        session.run_available()
        assert session.query("q").status["state"] == "idle"
        session.start("0 seconds")
        late = session.create_query("late", "SELECT value FROM other")
        assert late.status["state"] == "waiting"
        session.create_stream("other", frame, time="timestamp", watermark="0 seconds")
        wait_for(lambda: late.results().num_rows > 0)
        assert late.status["state"] == "running"


def test_started_in_the_background_while_files_arrive(spark: SparkSession, state_dir: Path, tmp_path: Path) -> None:
    """Rows come in order, so no window depends on how they fall into batches."""
    pq.write_table(BATCHES[0], tmp_path / "0.parquet")
    with thalweg.connect(state_dir, spark=spark) as session:
        source = thalweg.files(f"{tmp_path}/*.parquet")
        session.create_stream("events", source, time="ts", watermark="2 seconds")
        query = session.create_query("q", SELECT)
        session.start("0 seconds")
        for number, table in enumerate(BATCHES[1:], 1):
            pq.write_table(table, tmp_path / f".{number}")
            (tmp_path / f".{number}").rename(tmp_path / f"{number}.parquet")
            time.sleep(0.3)
        wanted = expected(spark, FEED, SELECT)
        deadline = time.monotonic() + 60
        while query.results().num_rows < wanted.num_rows and time.monotonic() < deadline:
            time.sleep(0.1)
        late = [threading.Thread(target=session.create_query, args=(f"t{i}", SELECT)) for i in range(4)]
        for thread in late:
            thread.start()
        for thread in late:
            thread.join()
        while any(session.query(f"t{i}").status["state"] == "pending" for i in range(4)):
            assert time.monotonic() < deadline, "requests were not taken up without new rows"
            time.sleep(0.1)
    rows_equal(query.results(), wanted)


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_files_sink_is_what_spark_reads(spark: SparkSession, state_dir: Path, tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    with thalweg.connect(state_dir, spark=spark) as session:
        source = thalweg.memory(DDL, max_files_per_batch=1)
        session.create_stream("events", source, time="ts", watermark="2 seconds")
        session.create_query("q", SELECT, thalweg.to_files(out, kind))
        for table in BATCHES:
            source.append(table)
        session.run_available()
    wanted = expected(spark, FEED, SELECT)
    schema = "k int, n bigint, total double, last_name string, start timestamp"
    read = spark.read.schema(schema).option("header", True).format(kind).load(str(out)).toArrow()
    rows_equal(read, wanted)


def test_spark_sink_and_callable(spark: SparkSession, state_dir: Path, tmp_path: Path) -> None:
    seen: dict[int, pa.Table] = {}
    with thalweg.connect(state_dir, spark=spark) as session:
        source = thalweg.memory(DDL, max_files_per_batch=1)
        session.create_stream("events", source, time="ts", watermark="2 seconds")
        session.create_query("files", SELECT, thalweg.to_spark("orc", path=str(tmp_path / "orc")))
        session.create_query("calls", SELECT, lambda table, batch_id: seen.update({batch_id: table}))
        for table in BATCHES:
            source.append(table)
        session.run_available()
        assert {h.status["error"] for h in session.queries.values()} == {None}
    wanted = expected(spark, FEED, SELECT)
    rows_equal(pa.concat_tables(seen.values()), wanted)
    rows_equal(spark.read.orc(str(tmp_path / "orc")).toArrow(), wanted)


def test_a_copy_that_is_forked_goes_on_elsewhere(spark: SparkSession, state_dir: Path, tmp_path: Path) -> None:
    """Both have all that came before the copy, and what each of them was given since."""

    def run(place: Path, tables: Sequence[pa.Table], out: Path, fork: bool = False) -> None:
        with thalweg.connect(place, spark=spark, fork=fork) as session:
            source = thalweg.memory(DDL, max_files_per_batch=1)
            session.create_stream("events", source, time="ts", watermark="2 seconds")
            if fork:
                session.create_query("forked", SELECT, thalweg.to_files(out))
                session.drop_query("q")
            else:
                session.create_query("q", SELECT, thalweg.to_files(out))
            for table in tables:
                source.append(table)
            session.run_available()

    copy, out, forked = tmp_path / "copy", tmp_path / "out", tmp_path / "forked"
    run(state_dir, BATCHES[:2], out)
    before = _rows_of(out)
    shutil.copytree(state_dir, copy)
    run(state_dir, BATCHES[2:], out)
    with pytest.raises(thalweg.ThalwegError, match="query q: another copy of this state writes to"):
        run(copy, (), out)
    run(copy, BATCHES[2:], forked, fork=True)
    wanted = expected(spark, FEED, SELECT)
    rows_equal(pq.read_table(out), wanted)
    # Windows that were open when the state was copied are whole in both.
    assert before
    assert sorted(before + _rows_of(forked), key=str) == sorted(_rows_of(out), key=str)


def _rows_of(directory: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(directory).to_pylist()
    return rows


NOOPS = {
    "windows": SELECT,
    "rows": "SELECT k, v FROM events WHERE k < 3",
    "joined": "SELECT e.k, f.v FROM events e JOIN events f ON e.k = f.k WITHIN 2 SECONDS WHERE e.v < f.v",
    "top": f"{SELECT} ORDER BY total DESC LIMIT 2",
    "updates": f"{SELECT} EMIT UPDATES",
}


def test_results_that_nobody_takes_are_counted(spark: SparkSession, state_dir: Path) -> None:
    """As many as a query with the same text has in memory; one that fails has none."""
    failing = "SELECT k, v / (k - 1) AS x FROM events"
    with thalweg.connect(state_dir, spark=spark) as session:
        source = thalweg.memory(DDL, max_files_per_batch=1)
        session.create_stream("events", source, time="ts", watermark="2 seconds")
        for name, select in NOOPS.items():
            session.sql(f"CREATE QUERY {name} INTO noop AS {select}")
            session.sql(f"CREATE QUERY {name}_kept AS {select}")
        failed = session.create_query("failing", failing, thalweg.to_noop())
        for table in BATCHES:
            source.append(table)
        session.run_available()
        for name in NOOPS:
            status, kept = session.query(name).status, session.query(f"{name}_kept")
            assert (status["state"], status["error"]) == ("idle", None)
            assert status["emitted"] == kept.results().num_rows > 0
        assert failed.status["state"] == "failed"
        assert "by zero" in (failed.status["error"] or "")
        assert failed.status["emitted"] == 0
        with pytest.raises(thalweg.ThalwegError):
            session.query("rows").results()


def test_updates_end_where_the_windows_do(spark: SparkSession, state_dir: Path) -> None:
    """The last update of every group of a closed window is its final result."""
    with thalweg.connect(state_dir, spark=spark) as session:
        source = thalweg.memory(DDL, max_files_per_batch=1)
        session.create_stream("events", source, time="ts", watermark="2 seconds")
        updates = session.sql(f"CREATE QUERY u AS {SELECT} EMIT UPDATES")
        final = session.create_query("f", SELECT)
        for table in BATCHES:
            source.append(table)
        session.run_available()
        last = {(row["start"], row["k"]): row for row in updates.results().to_pylist()}
        rows = final.results().to_pylist()
        assert rows
        assert [last[row["start"], row["k"]] for row in rows] == rows
        assert len(last) > len(rows)
        shown = session.sql("SHOW QUERIES").to_pylist()
        assert [row["query"] for row in shown] == ["u", "f"]
        assert "1 pass" in session.sql("EXPLAIN")
        assert "u, f" in session.explain("f") or "f, u" in session.explain("f")
