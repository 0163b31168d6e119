"""What users get wrong: a clear error, and nothing that runs is disturbed."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from tests.support.side import Side

import thalweg
from thalweg.errors import NamingError, SourceError, SqlError, StateError, ThalwegError, UsageError
from thalweg.observe.progress import Progress
from thalweg.state.manifest import Manifests
from thalweg.testing import LocalSession

SCHEMA = "k int, v int, name string, ts timestamp"


def rows(start: int, n: int, zero: bool = False) -> pa.Table:
    return pa.table(
        {
            "k": pa.array([i % 3 for i in range(n)], pa.int32()),
            "v": pa.array([0 if zero and i == 5 else i + 1 for i in range(n)], pa.int32()),
            "name": [f"n{i % 4}" for i in range(n)],
            "ts": pa.array([(start + i) * 1_000_000 for i in range(n)], pa.timestamp("us", tz="UTC")),
        }
    )


@pytest.fixture
def session(side: Side, state_dir: Path) -> Iterator[thalweg.Session]:
    with side.connect(state_dir) as session:
        yield session


def feed(session: thalweg.Session) -> object:
    source = thalweg.memory(SCHEMA)
    session.create_stream("events", source, time="ts", watermark="0 seconds")
    return source


def second_beside(session: thalweg.Session, select: str) -> threading.Event:
    """From when the event is set, the next batch with rows of `events` creates the query `second` while it runs."""
    wanted = threading.Event()

    def create(table: pa.Table, batch: int) -> None:
        if wanted.is_set() and "second" not in session.queries:
            session.create_query("second", select)

    session.create_query("watch", "SELECT k FROM events", create)
    return wanted


BAD = [
    ("SELECT k, count(*) FROM evnts GROUP BY k, window(ts, '1 minute')", "evnts", "stream"),
    ("SELECT kk, count(*) FROM events GROUP BY kk, window(ts, '1 minute')", "kk", "column"),
    ("SELECT k, count(*) FROM events GROUP BY k", "k", "window"),
    ("SELECT count(*) FROM events", "count(*)", "window"),
    ("SELECT k FROM events WHERE rand() > 0.5", "rand", "rand"),
    ("SELECT reflect('java.lang.System', 'exit', 1) FROM events", "reflect", "reflect"),
    ("SELECT java_method('java.lang.System', 'exit', 1) FROM events", "java_method", "java_method"),
    ("SELECT current_timestamp() FROM events", "current_timestamp", "current_timestamp"),
    ("SELECT * FROM parquet.`/etc/passwd`", "parquet", "parquet"),
    ("SELECT k FROM events WHERE k IN (SELECT 1)", "SELECT", "SELECT"),
    ("SELEC k FROM events", "SELEC", "SELEC"),
    ("SELECT k + FROM events", "FROM", "FROM"),
    ("SELECT k, NULL AS n FROM events", "NULL", "CAST"),
    ("SELECT count(*) FROM events GROUP BY window(ts, '200000000 days')", "'200000000 days'", "73,000 years"),
    ("SELECT count(*) FROM events GROUP BY window(ts, '1 hour', '1 millisecond')", "'1 millisecond'", "10,000"),
    ("SELECT approx_count_distinct(k, 0.0) FROM events GROUP BY window(ts, '1 hour')", "0.0", "0.0041"),
    ("SELECT approx_count_distinct(k, 1e-7) FROM events GROUP BY window(ts, '1 hour')", "1e-7", "0.0041"),
    ("SELECT ts + INTERVAL 1.5 MONTHS FROM events", "INTERVAL 1.5 MONTHS", "whole number"),
    (f"SELECT {'(' * 500}k{')' * 500} FROM events", "k", "nested too deeply"),
    (f"SELECT k{' + 1' * 500} FROM events", "k", "nested too deeply"),
    (f"SELECT {'round(' * 20}double(k){', 1)' * 20} FROM events", "round", "too large"),
]


@pytest.mark.parametrize(("select", "place", "word"), BAD)
def test_a_bad_select_is_refused_with_its_place(session: thalweg.Session, select: str, place: str, word: str) -> None:
    feed(session)
    with pytest.raises(SqlError) as caught:
        session.create_query("bad", select)
    error = caught.value
    assert word.lower() in str(error).lower()
    assert "\tat " not in str(error)
    assert "org.apache" not in str(error)
    assert error.span is not None
    assert "^" in str(error)
    assert place.lower() in select[error.span[0] : error.span[1]].lower() or error.span[0] <= select.find(place)
    assert "bad" not in session.queries


def test_what_is_large_but_allowed_runs(session: thalweg.Session) -> None:
    """Spark's analyser and DuckDB's parser both have a stack that ends; what is let through has to fit on it."""
    source = feed(session)
    conditions = " OR ".join(f"v = {i}" for i in range(1000))
    signs = "sign(" * 60 + "v" + ")" * 60
    query = session.create_query("large", f"SELECT v{' + 1' * 190} AS s, {signs} AS t FROM events WHERE {conditions}")
    source.append(rows(0, 3))
    session.run_available()
    assert query.status["state"] == "idle"
    found = query.results().to_pydict()
    assert (sorted(found["s"]), found["t"]) == ([191, 192, 193], [1.0, 1.0, 1.0])


def test_names_and_definitions(session: thalweg.Session) -> None:
    feed(session)
    session.create_query("q", "SELECT k FROM events")
    with pytest.raises(NamingError, match="already a query named 'q'"):
        session.create_query("q", "SELECT v FROM events")
    with pytest.raises(NamingError, match="already a stream named 'events'"):
        feed(session)
    with pytest.raises(NamingError, match="cannot be the name"):
        session.create_query("no good", "SELECT k FROM events")
    with pytest.raises(NamingError, match="no query named 'p'"):
        session.sql("DROP QUERY p")
    with pytest.raises(NamingError, match="no column 'time'"):
        session.create_stream("other", thalweg.memory(SCHEMA), time="time", watermark="1 second")
    with pytest.raises(NamingError, match="of type int"):
        session.create_stream("other", thalweg.memory(SCHEMA), time="k", watermark="1 second")
    with pytest.raises(ThalwegError, match="interval"):
        session.create_stream("other", thalweg.memory(SCHEMA), time="ts", watermark="soon")
    with pytest.raises(ThalwegError, match="cannot be made from"):
        session.create_stream("other", 42, time="ts", watermark="1 second")
    assert list(session.streams) == ["events"]


@pytest.mark.parametrize("columns", ["x decimal(5,10), ts timestamp", "x varchar(), ts timestamp"])
def test_columns_that_spark_refuses_are_not_kept(side: Side, state_dir: Path, columns: str) -> None:
    """They were, and the state directory could not be opened any more."""
    with side.connect(state_dir) as session:
        with pytest.raises(SourceError, match="columns of stream 'bad' cannot be used"):
            session.create_stream("bad", thalweg.memory(columns), time="ts", watermark="0 seconds")
        with pytest.raises(ThalwegError, match="'bad'"):
            session.create_table("bad", pa.table({"x": ["1"], "ts": rows(0, 1).column("ts")}), schema=columns)
        source = feed(session)
        session.create_table("names", pa.table({"id": pa.array([1], pa.int32()), "label": ["one"]}))
        with pytest.raises(SourceError, match="columns of table 'names' cannot be used"):
            session.create_table("names", pa.table({"x": ["1"]}), schema=columns, replace=True)
        query = session.create_query("q", "SELECT v, label FROM events JOIN names ON events.k = names.id")
        source.append(rows(0, 3))
        session.run_available()
        assert query.results().to_pylist() == [{"v": 2, "label": "one"}]
    with side.connect(state_dir) as session:
        assert (list(session.streams), list(session.tables)) == (["events"], ["names"])


def test_columns_that_an_earlier_release_kept_are_told(side: Side, state_dir: Path) -> None:
    with side.connect(state_dir) as session:
        feed(session)
    columns = [["V", "int"], ["v", "int"], ["name", "string"], ["ts", "timestamp"]]
    kept = {
        "name": "events",
        "schema": columns,
        "time": "ts",
        "delay_us": 0,
        "source": {"kind": "memory", "options": {}},
    }
    (state_dir / "catalog.json").write_text(json.dumps({"streams": [kept]}))
    with pytest.raises(StateError, match=r"catalog\.json holds what cannot be used: .*'events'"):
        side.connect(state_dir)


def test_a_failing_query_stops_alone(session: thalweg.Session) -> None:
    source = feed(session)
    window = "window(ts, '10 seconds')"
    good = session.create_query("good", f"SELECT k, sum(v) AS s FROM events GROUP BY k, {window}")
    argument = session.create_query("argument", f"SELECT k, sum(100 / v) AS s FROM events GROUP BY k, {window}")
    guarded = session.create_query(
        "guarded", f"SELECT k, sum(100 / v) AS s FROM events WHERE v <> 0 GROUP BY k, {window}"
    )
    output = session.create_query("output", f"SELECT k, 1 / (min(v) - min(v)) AS s FROM events GROUP BY k, {window}")
    plain = session.create_query("plain", "SELECT k, 10 / v AS x FROM events")
    overflow = session.create_query(
        "overflow", f"SELECT k, sum(9000000000000000000 + 0 * v) AS s FROM events GROUP BY k, {window}"
    )
    source.append(rows(0, 40, zero=True))
    session.run_available()
    states = {name: handle.status["state"] for name, handle in session.queries.items()}
    assert states == {
        "good": "idle",
        "argument": "failed",
        "guarded": "idle",
        "output": "failed",
        "plain": "failed",
        "overflow": "failed",
    }
    for failed in (argument, output, plain):
        assert "DIVIDE_BY_ZERO" in failed.status["error"] or "zero" in failed.status["error"]
        assert failed.results().num_rows == 0
    assert overflow.status["error"]
    assert good.results().num_rows == guarded.results().num_rows == 9
    source.append(rows(40, 40))
    session.run_available()
    assert good.results().num_rows > 9


def test_a_query_that_comes_as_an_equal_one_fails_knows_what_it_lacks(session: thalweg.Session) -> None:
    """The failed column is NULL for all rows of its batch, and the state has these partials until the next one."""
    source = feed(session)
    select = "SELECT k, sum(100 div v) AS s FROM events GROUP BY k, window(ts, '1 minute')"
    first = session.create_query("first", select)
    poisoned = second_beside(session, select)
    source.append(rows(0, 10))
    session.run_available()
    poisoned.set()
    source.append(rows(10, 10, zero=True))
    session.run_available()
    assert first.status["state"] == "failed"
    source.append(rows(20, 10))
    source.append(rows(200, 1))
    source.append(rows(400, 1))
    session.run_available()
    second = session.queries["second"]
    assert second.status["state"] == "idle"
    found = second.results().to_pydict()
    # Rows from its creation on, of which there are four keys and windows; of those before, some are missing.
    assert sorted(zip(found["k"], found["s"], strict=True)) == [(0, 100), (0, 149), (1, 82), (2, 60)]


def test_a_failure_on_one_stream_leaves_equal_queries_on_another_alone(session: thalweg.Session) -> None:
    """Columns and partials are named by what they are: the same on both streams, and by other keys."""
    source, other = feed(session), thalweg.memory(SCHEMA)
    session.create_stream("others", other, time="ts", watermark="0 seconds")
    window = "window(ts, '10 seconds')"
    bad = session.create_query("bad", "SELECT 100 div v AS x FROM events")
    good = session.create_query("good", "SELECT 100 div v AS x FROM others")
    large = "sum(CASE WHEN v < 3 THEN 9000000000000000000 ELSE 0 END) AS s"
    overflows = session.create_query("overflows", f"SELECT k, {large} FROM others GROUP BY k, {window}")
    fits = session.create_query("fits", f"SELECT v, {large} FROM others GROUP BY v, {window}")
    source.append(rows(0, 10, zero=True))
    table = rows(0, 10)
    other.append(table.set_column(0, "k", pa.array([0] * 10, pa.int32())))
    source.append(rows(100, 1))
    other.append(rows(100, 1))
    session.run_available()
    states = {q.name: q.status["state"] for q in (bad, good, overflows, fits)}
    assert states == {"bad": "failed", "good": "idle", "overflows": "failed", "fits": "idle"}
    assert good.results().num_rows == 11
    assert fits.results().num_rows == 10


@pytest.mark.parametrize(
    "select",
    [
        "SELECT e.ts, o.v FROM events e JOIN others o ON e.k = o.k WITHIN 1 HOUR WHERE 100 div e.v > 0",
        "SELECT e.ts, o.v FROM events e LEFT JOIN others o ON 100 div e.v = o.v WITHIN 5 SECONDS",
    ],
)
def test_a_join_that_comes_as_an_equal_one_fails_knows_what_it_lacks(session: thalweg.Session, select: str) -> None:
    """The failed column is NULL for all rows of its batch: they were not chosen, or have no key."""
    source, other = feed(session), thalweg.memory(SCHEMA)
    session.create_stream("others", other, time="ts", watermark="0 seconds")
    first = session.create_query("first", select)
    poisoned = second_beside(session, select)
    source.append(rows(0, 10))
    other.append(rows(0, 10))
    session.run_available()
    poisoned.set()
    source.append(rows(10, 10, zero=True))
    other.append(rows(10, 10))
    session.run_available()
    assert first.status["state"] == "failed"
    second = session.queries["second"]
    for start in (20, 100, 200):
        source.append(rows(start, 5))
        other.append(rows(start, 5))
        session.run_available()
    complete = second.status["complete_from"]
    assert complete is not None
    assert complete >= datetime(1970, 1, 1, 0, 0, 19, tzinfo=UTC)
    seconds = {t.timestamp() for t in second.results()["ts"].to_pylist()}
    assert seconds
    assert not seconds & set(range(10, 20))


@dataclass
class AfterBatch:
    """Does something in the thread of the batches, which waits for it: sinks are given results beside it."""

    do: Callable[[], None]

    def on_progress(self, progress: object) -> None:
        self.do()


def test_a_query_with_which_a_batch_cannot_be_run_can_be_dropped(session: thalweg.Session, tmp_path: Path) -> None:
    """The file of the second batch is gone when it is read: once nobody asks for its rows, it is run without."""
    paths = [tmp_path / f"{i}.parquet" for i in range(2)]
    for i, path in enumerate(paths):
        pq.write_table(rows(10 * i, 10), path)
    source = thalweg.memory(SCHEMA, max_files_per_batch=1)
    session.create_stream("events", source, time="ts", watermark="0 seconds")
    files = thalweg.files(str(tmp_path / "*.parquet"), max_files_per_batch=1)
    session.create_stream("lost", files, time="ts", watermark="0 seconds")
    good = session.create_query("good", "SELECT v FROM events")
    session.create_query("bad", "SELECT v FROM lost")
    session.add_listener(AfterBatch(lambda: paths[1].unlink(missing_ok=True)))
    source.append(rows(0, 10))
    source.append(rows(10, 10))
    with pytest.raises(ThalwegError, match=r"1\.parquet"):
        session.run_available()
    assert good.results().num_rows == 10
    session.drop_query("bad")
    session.run_available()
    assert good.results().num_rows == 20
    source.append(rows(20, 10))
    session.run_available()
    assert good.results().num_rows == 30


def test_what_an_attempt_set_aside_that_came_to_nothing_is_forgotten(
    session: thalweg.Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt reads a column that nobody reads in the second."""
    (tmp_path / "0.json").write_text('{"k": 1, "v": "none", "ts": "1970-01-01T00:00:01Z"}\n')
    source = thalweg.files(str(tmp_path / "*.json"))
    session.create_stream("events", source, time="ts", watermark="0 seconds", schema=SCHEMA)
    good = session.create_query("good", "SELECT k FROM events")
    session.create_query("bad", "SELECT v FROM events")
    with monkeypatch.context() as patch:
        patch.setattr(Manifests, "create", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(ThalwegError, match="disk full"):
            session.run_available()
    assert session.storage.names("rejected/")
    assert session.rejected("events").num_rows == 0  # it did not count
    session.drop_query("bad")
    session.run_available()
    assert good.results().to_pydict() == {"k": [1]}
    assert session.rejected("events").num_rows == 0


def test_a_time_that_python_does_not_know_is_not_let_in(session: thalweg.Session) -> None:
    """Milliseconds that were written as seconds: the year 55,000."""
    source = feed(session)
    session.create_query("first", "SELECT k, count(*) AS n FROM events GROUP BY k, window(ts, '1 minute')")
    with pytest.raises(ThalwegError, match="column ts: not of the years 1 to 9999, in row 1"):
        source.append(rows(1_680_000_000_000, 1))
    source.append(rows(0, 1))
    session.run_available()
    assert session.progress()["streams"]["events"]["watermark"].year == 1970


def test_a_condition_on_a_table_that_fails_stops_whose_row_it_is(session: thalweg.Session) -> None:
    source = feed(session)
    session.create_table("labels", pa.table({"id": pa.array([1, 2], pa.int32()), "label": ["one", "two"]}))
    select = "SELECT events.v, labels.label FROM events JOIN labels ON CAST(events.name AS INT) = labels.id"
    good = session.create_query("good", f"{select} WHERE events.k = 1")
    bad = session.create_query("bad", select)
    names = {1: "2", 0: "zero", 2: "two"}
    table = rows(0, 9)
    table = table.set_column(2, "name", pa.array([names[k] for k in table.column("k").to_pylist()]))
    source.append(table)
    session.run_available()
    assert bad.status["state"] == "failed"
    assert good.status["state"] == "idle"
    assert sorted(good.results().column("v").to_pylist()) == [2, 5, 8]
    assert bad.results().num_rows == 0


def test_a_sink_that_fails_keeps_its_results_from_itself_alone(session: thalweg.Session) -> None:
    source = feed(session)

    def refuse(table: pa.Table, batch: int) -> None:
        raise ValueError("no")

    bad = session.create_query("bad", "SELECT k FROM events", refuse, options={"retries": "0"})
    good = session.create_query("good", "SELECT k FROM events")
    source.append(rows(0, 4))
    session.run_available()
    assert bad.status["state"] == "paused"
    assert "no" in bad.status["error"]
    assert good.results().num_rows == 4


class Vanishing:
    """Two files of ten rows each, of which the second is taken away while the first is processed."""

    def __init__(self, session: thalweg.Session, directory: Path) -> None:
        directory.mkdir()
        for number in range(2):
            pq.write_table(rows(10 * number, 10), directory / f"{number}.parquet")
        self.second, self.aside = directory / "1.parquet", directory / "_1"
        source = thalweg.files(f"{directory}/*.parquet", max_files_per_batch=1)
        session.create_stream("events", source, time="ts", watermark="0 seconds")
        self.query = session.create_query("q", "SELECT v FROM events")
        session.add_listener(self)
        self._taken = False

    def on_progress(self, progress: Progress) -> None:
        if not self._taken:
            self.second.rename(self.aside)
            self._taken = True

    def put_back(self) -> None:
        self.aside.rename(self.second)


def test_what_is_said_of_a_second_start_leads_on(spark: SparkSession, state_dir: Path) -> None:
    """The hint names what can be done instead, and doing it works."""
    for _ in range(2):
        with thalweg.connect(state_dir, spark=spark) as session:
            feed(session)
            session.start()
            for run in (session.start, session.run_available):
                with pytest.raises(UsageError, match="already running") as caught:
                    run()
                assert "thalweg.connect(...) to the same directory goes on" in str(caught.value.hint)
        with pytest.raises(UsageError, match="the session is stopped"):
            session.start()


def test_after_a_failure_the_session_can_be_put_right(session: thalweg.Session, tmp_path: Path) -> None:
    files = Vanishing(session, tmp_path / "in")
    with pytest.raises(SourceError, match="vanished"):
        session.run_available()
    with pytest.raises(SourceError, match="vanished"):
        session.run_available()
    other = session.create_query("other", "SELECT k FROM events")
    files.put_back()
    session.run_available()
    assert files.query.results().num_rows == 20
    assert other.status["state"] == "idle"
    assert session.progress()["rows"] == 20


def watch(session: thalweg.Session, deadline: float) -> None:
    while time.monotonic() < deadline:
        session.progress()
        time.sleep(0.05)


def test_a_failure_in_the_background_is_told_by_progress(session: thalweg.Session, tmp_path: Path) -> None:
    files = Vanishing(session, tmp_path / "in")
    session.start("0 seconds")
    deadline = time.monotonic() + 60
    with pytest.raises(SourceError, match="vanished"):
        watch(session, deadline)
    other = session.create_query("other", "SELECT k FROM events")
    files.put_back()
    session.start("0 seconds")
    while (files.query.results().num_rows, other.status["state"]) != (20, "running"):
        assert time.monotonic() < deadline, "it did not go on"
        time.sleep(0.05)
    session.progress()


def test_a_value_that_a_sink_cannot_show_is_kept_from_it_alone(session: thalweg.Session) -> None:
    source = thalweg.memory("k int, ts timestamp")
    session.create_stream("events", source, time="ts", watermark="0 seconds", max_ahead=None)
    shown = session.sql(
        """CREATE QUERY shown INTO console OPTIONS (retries = 0) AS
        SELECT count(*) AS n, window.end AS until FROM events GROUP BY window(ts, '36500 days') EMIT UPDATES"""
    )
    kept = session.create_query("kept", "SELECT k FROM events")
    source.append([{"k": 1, "ts": datetime(9990, 1, 1, tzinfo=UTC)}])  # its window ends in a year that Python has not
    session.run_available()
    assert shown.status["state"] == "paused"
    assert "console" in shown.status["error"]
    assert kept.results().num_rows == 1


@pytest.mark.on_spark
@pytest.mark.parametrize(
    "text",
    [
        "--\rINSERT OVERWRITE DIRECTORY '{0}' USING csv\nSELECT k FROM events",
        "/* /* */ SELECT k FROM events -- */ INSERT OVERWRITE DIRECTORY '{0}' USING csv SELECT k FROM events",
    ],
)
def test_what_is_a_comment_here_is_one_for_spark(session: thalweg.Session, tmp_path: Path, text: str) -> None:
    feed(session)
    place = tmp_path / "data"
    place.mkdir()
    (place / "precious").write_text("kept")
    query = session.create_query("q", text.format(place))
    assert query.status["state"] in ("pending", "running")
    assert [path.name for path in place.iterdir()] == ["precious"]


def test_rows_that_cannot_be_read_are_set_aside(session: thalweg.Session, tmp_path: Path) -> None:
    lines = [json.dumps({"k": i, "ts": f"2026-01-01T00:00:{i:02d}Z"}) for i in range(20)]
    lines[7] = '{"k": 7, "ts": '
    lines[11] = '{"k": "many", "ts": "2026-01-01T00:00:11Z"}'
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("\n".join(lines) + "\n")
    session.sql(
        "CREATE STREAM lines (k INT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND) "
        f"WITH (source = 'files', path = '{tmp_path}/in/*.json', format = 'json')"
    )
    query = session.sql("CREATE QUERY ks AS SELECT k FROM lines")
    session.run_available()
    assert sorted(query.results().column("k").to_pylist()) == [i for i in range(20) if i not in (7, 11)]
    assert session.progress()["streams"]["lines"]["rejected"] == 2
    rejected = session.rejected("lines").to_pylist()
    assert {r["row"] for r in rejected} == {lines[7], lines[11]}
    assert all(r["reason"] for r in rejected)


def test_a_second_process_is_refused(session: thalweg.Session) -> None:
    program = f"import thalweg.state.lock as l; l.DirectoryLock({str(session.state_dir)!r})"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert other.returncode
    assert "StateError" in other.stderr
    with pytest.raises(StateError):
        LocalSession(state_dir=session.state_dir)


def test_state_of_another_version_and_damaged_state(side: Side, state_dir: Path) -> None:
    with side.connect(state_dir) as session:
        source = feed(session)
        session.create_query("q", "SELECT k, count(*) AS n FROM events GROUP BY k, window(ts, '1 hour')")
        source.append(rows(0, 50))
        session.run_available()
    manifest = max((state_dir / "manifests").iterdir())
    original = manifest.read_bytes()
    header, body = original.split(b"\n", 1)
    manifest.write_bytes(json.dumps({**json.loads(header), "format": 99}).encode() + b"\n" + body)
    with pytest.raises(StateError, match="99"):
        side.connect(state_dir)
    manifest.write_bytes(original[:-20])
    with pytest.raises(StateError):
        side.connect(state_dir)
    manifest.write_bytes(original)
    bucket = next((state_dir / "buckets").glob("*.arrow"))
    data = bytearray(bucket.read_bytes())
    data[len(data) // 3] ^= 0xFF
    bucket.write_bytes(bytes(data))
    with side.connect(state_dir) as session:
        source = thalweg.memory(SCHEMA)
        session.create_stream("events", source, time="ts", watermark="0 seconds")
        source.append(rows(4000, 1))
        with pytest.raises(StateError, match=bucket.name):
            session.run_available()
    bucket.unlink()
    with side.connect(state_dir) as session:
        session.create_stream("events", thalweg.memory(SCHEMA), time="ts", watermark="0 seconds")
        with pytest.raises(StateError, match=bucket.name):
            session.run_available()


def test_a_changed_definition_is_refused_after_a_restart(side: Side, state_dir: Path) -> None:
    with side.connect(state_dir) as session:
        feed(session)
        session.create_query("q", "SELECT k FROM events")
    with side.connect(state_dir) as session:
        with pytest.raises(NamingError, match="defined differently"):
            session.create_query("q", "SELECT v FROM events")
        with pytest.raises(NamingError, match="defined differently"):
            session.create_stream("events", thalweg.memory("k int, ts timestamp"), time="ts", watermark="1 second")
        feed(session)
        again = session.create_query("q", "SELECT k FROM events")
        assert again.status["state"] in ("pending", "running")
