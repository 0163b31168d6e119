"""Unit: what people type in their first hour who come from Spark, Flink or Materialize, and that the answer helps."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import thalweg
from thalweg.aggregates.families import arities
from thalweg.errors import NamingError, SourceError, SqlError, ThalwegError, UsageError
from thalweg.frontend import elsewhere
from thalweg.frontend.functions import FUNCTIONS
from thalweg.testing import LocalSession

Open = Callable[..., LocalSession]
SUMS = "SELECT k, sum(v) AS s, window.start AS w FROM events GROUP BY k, window(ts, '10 seconds')"
NOON = datetime(2026, 11, 1, 12, tzinfo=UTC)


@pytest.fixture
def session(local: Open) -> LocalSession:
    return local({"events": [{"ts": NOON, "k": 1, "v": 1}]}, {"sums": SUMS})


@pytest.mark.parametrize(
    ("typed", "message", "hint"),
    [
        ("TUMBLE(ts, INTERVAL '1' MINUTE)", "'tumble'", "write window(time, '1 minute')"),
        ("HOP(ts, INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)", "'hop'", "first the range, then the slide"),
        ("now()", "'now'", "event time, never on the clock"),
        ("current_timestamp()", "'current_timestamp'", "event time, never on the clock"),
        ("rand()", "'rand'", "may not depend on chance"),
        ("collect_list(k)", "'collect_list'", "thalweg.aggregate"),
        ("explode(k)", "'explode'", "no arrays yet"),
        ("json_tuple(k, 'a')", "'json_tuple'", "flat columns"),
        ("to_timestamp(k)", "'to_timestamp'", "declare the column as timestamp"),
        ("timestamp(CAST(k AS string))", "a cast from string to timestamp", "declare the column as timestamp"),
        ("CAST(1.5e0 * k AS string)", "a cast from double to string", "CAST(CAST(x AS decimal(18, 3)) AS string)"),
        ("shout(k)", "'shout'", "SHOW FUNCTIONS"),
        ("uper(k)", "'uper'", "did you mean upper"),
    ],
)
def test_functions_of_elsewhere(session: LocalSession, typed: str, message: str, hint: str) -> None:
    with pytest.raises(SqlError, match=message) as caught:
        session.sql(f"CREATE QUERY a AS SELECT k, {typed} FROM events")
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("typed", "message", "hint"),
    [
        ("CREATE MATERIALIZED VIEW a AS SELECT 1", "expected STREAM, TABLE or QUERY", "CREATE QUERY name"),
        ("CREATE VIEW a AS SELECT 1", "expected STREAM, TABLE or QUERY", "CREATE QUERY name"),
        ("CREATE OR REPLACE VIEW a AS SELECT 1", "expected STREAM, TABLE or QUERY", "CREATE QUERY name"),
        ("CREATE SOURCE a FROM KAFKA", "expected STREAM, TABLE or QUERY", "CREATE STREAM name"),
        ("CREATE SINK a FROM b", "expected STREAM, TABLE or QUERY", "CREATE QUERY name INTO"),
        ("INSERT INTO x SELECT k FROM events", "unknown statement 'INSERT'", "CREATE QUERY name INTO files OPTIONS"),
        ("CREATE TABLE t (a INT) WITH ('connector' = 'kafka')", "a table here is static", "CREATE STREAM t"),
        ("ALTER QUERY sums SET x = 1", "expected STREAM", "CREATE OR REPLACE QUERY"),
        ("DROP VIEW a", "expected STREAM, TABLE or QUERY", "DROP QUERY"),
        ("SHOW VIEWS", "expected QUERIES, STREAMS, TABLES, FUNCTIONS or CREATE", "SHOW QUERIES"),
        ("SHOW x", "expected QUERIES, STREAMS, TABLES, FUNCTIONS or CREATE", ""),
        ("EXPLAIN SELECT k FROM events", "expected the name of a query", "then EXPLAIN name"),
        ("SUBSCRIBE TO sums", "unknown statement 'SUBSCRIBE'", "INTO console"),
        ("SELECT k FROM events", "are not kept to be looked at", "CREATE QUERY name AS SELECT"),
        ("WITH a AS (SELECT k FROM events) SELECT k FROM a", "are not kept", "CREATE QUERY name AS SELECT"),
        ("EXECUTE STATEMENT SET BEGIN", "unknown statement 'EXECUTE'", "one after another"),
        ("PAUSE sums", "expected QUERY", "PAUSE QUERY name"),
        ("RESUME sums", "expected QUERY", "RESUME QUERY name"),
        ("ALTER STREAM events ADD x INT", "expected SET or RESET WATERMARK", "RESET WATERMARK"),
        ("GRANT x", "unknown statement 'GRANT'", "SHOW QUERIES | STREAMS | TABLES | FUNCTIONS"),
        ("CREATE QUERY a AS SELECT * FROM sums", "'sums' is a query", "computed once"),
        ("CREATE QUERY a AS SELECT k FROM nowhere", "unknown stream 'nowhere'", "SHOW STREAMS"),
        ("CREATE QUERY a AS SELECT window, k FROM events GROUP BY 1, 2", "none of these places", "window(ts, '1"),
        ("CREATE QUERY a AS SELECT k FROM TUMBLE(TABLE events)", "a table function", "window(time, '1 minute')"),
    ],
)  # fmt: skip
def test_statements_of_elsewhere(session: LocalSession, typed: str, message: str, hint: str) -> None:
    with pytest.raises(SqlError, match=re.escape(message)) as caught:
        session.sql(typed)
    assert hint in str(caught.value.hint)
    assert caught.value.span is not None


@pytest.mark.parametrize(
    ("sink", "hint"),
    [
        ("parquet", "INTO files OPTIONS (format = 'parquet', path = '...')"),
        ("kafka", "INTO spark OPTIONS (format = 'kafka'"),
        ("postgres", "INTO spark OPTIONS (format = 'jdbc'"),
        ("nowhere", "Use one of: memory, console, files, spark, noop"),
    ],
)
def test_sinks_of_elsewhere(session: LocalSession, sink: str, hint: str) -> None:
    with pytest.raises(ThalwegError, match=f"there is no sink '{sink}'") as caught:
        session.sql(f"CREATE QUERY a INTO {sink} OPTIONS (path = 'x') AS SELECT k FROM events")
    assert hint in str(caught.value.hint)


def test_every_function_that_a_hint_names_is_there() -> None:
    spelled = {"thalweg.aggregate", "window"}
    for hint in elsewhere._FUNCTIONS.values():
        for name in re.findall(r"([\w.]+)\(", hint):
            assert name in FUNCTIONS or name in arities() or name in spelled or name == "CAST", hint


def test_no_function_that_is_there_has_a_hint() -> None:
    assert not set(elsewhere._FUNCTIONS) & (set(FUNCTIONS) | set(arities()))


def test_a_query_that_is_not_there_says_which_are(session: LocalSession) -> None:
    with pytest.raises(NamingError) as caught:
        session.sql("DROP QUERY nosuch")
    assert caught.value.hint == "there are sums"
    with pytest.raises(NamingError) as caught:
        session.sql("DROP QUERY sum")
    assert caught.value.hint == "did you mean sums?"
    with pytest.raises(NamingError) as caught:
        session.sql("DROP TABLE nosuch")
    assert caught.value.hint == "there is no table yet"


def test_a_whole_statement_as_the_select(session: LocalSession) -> None:
    with pytest.raises(SqlError) as caught:
        session.create_query("cq", "CREATE QUERY cq AS SELECT k FROM events")
    assert "give the SELECT alone" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("stop", "drop()"), ("awaitTermination", "session.run_available()"), ("toPandas", "results().to_pandas()")],
)
def test_what_other_queries_can_do(session: LocalSession, name: str, instead: str) -> None:
    query = session.query("sums")
    assert not hasattr(query, name)
    with pytest.raises(AttributeError, match=re.escape(instead)):
        getattr(query, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'nosuch'$"):
        query.nosuch  # noqa: B018


@pytest.mark.parametrize("given", [None, 5, ["state"]])
def test_what_is_no_directory_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="the first argument of connect is the state directory"):
        thalweg.connect(given)


def test_what_is_no_spark_session_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="spark= is a SparkSession of yours, not a str"):
        thalweg.connect(tmp_path / "state", spark="local[2]")
    assert not (tmp_path / "state").exists()


def test_a_url_as_files() -> None:
    with pytest.raises(SourceError, match="not s3://b/x") as caught:
        thalweg.files("s3://b/x/*.parquet")
    assert "spark.readStream" in str(caught.value.hint)


def test_a_source_of_elsewhere(session: LocalSession) -> None:
    with pytest.raises(SourceError, match="no source of kind 'kafka'") as caught:
        session.sql("CREATE STREAM q WATERMARK FOR ts AS ts WITH (source = 'kafka')")
    assert "spark.readStream" in str(caught.value.hint)


def test_text_that_is_added_up_is_told(local: Open, caplog: pytest.LogCaptureFixture) -> None:
    """As in Spark; a row whose text is no number ends the query."""
    caplog.set_level(logging.WARNING, "thalweg")
    rows = [{"k": 1, "v": 1, "name": "7", "ts": NOON}]
    schema = pa.schema(
        [("k", pa.int32()), ("v", pa.int32()), ("name", pa.string()), ("ts", pa.timestamp("us", "UTC"))]
    )
    session = local({"events": pa.Table.from_pylist(rows, schema)})
    session.create_query("numbers", "SELECT k, sum(v) AS s FROM events GROUP BY k, window(ts, '10 seconds')")
    session.create_query("texts", "SELECT k, sum(name) AS s FROM events GROUP BY k, window(ts, '10 seconds')")
    assert [r.getMessage() for r in caplog.records] == ["text_as_number query=texts function=sum columns=name"]


@pytest.mark.parametrize(
    ("columns", "watermark", "said"),
    [
        ("a bigint, ts string", "10 seconds", ['schema="a bigint, ts timestamp"']),
        ("a bigint, ts string", "10s", ['schema="a bigint, ts timestamp"', "Also: not an interval: '10s'"]),
        ("a bigint, ts bigint", "10 seconds", ["numbers since the epoch"]),
        ("a bigint, ts timestamp", 10, ["watermark cannot be 10", "a length of time"]),
        ("a bigint, at timestamp", 10, ["no column 'ts'", "watermark cannot be 10"]),
    ],
)
def test_a_stream_says_all_that_is_wrong_with_its_time(
    local: Open, columns: str, watermark: Any, said: list[str]
) -> None:
    with pytest.raises((NamingError, UsageError)) as caught:
        local().create_stream("x", thalweg.memory(columns), time="ts", watermark=watermark)
    for part in said:
        assert part in str(caught.value)


ROW = {"k": 1, "ts": NOON}


@pytest.mark.parametrize(
    "given",
    [
        [ROW],
        [{"ts": NOON}, ROW],
        pd.DataFrame([ROW]),
        pa.RecordBatch.from_pylist([ROW]),
        [],
    ],
)
def test_rows_in_any_usual_form_can_be_appended(local: Open, given: Any) -> None:
    source = thalweg.memory("k bigint, ts timestamp")
    source.append(given)
    assert sum(table.num_rows for table in source._waiting) == len(given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (pa.table({"ts": [NOON]}), "They have no column k"),
        ([{"ts": NOON}], "They have no column k"),
        (pd.DataFrame([{**ROW, "x": 1}]), "There is no column x"),
        ([{"k": 1, "ts": NOON}, {"k": "a", "ts": NOON}], "do not fit"),
        ([1, 2], "list is not a table"),
        ("k,ts", "str is not a table"),
        ({"k": [1]}, "dict is not a table"),
    ],
)
def test_other_rows_are_refused_by_name(given: Any, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        thalweg.memory("k bigint, ts timestamp").append(given)
