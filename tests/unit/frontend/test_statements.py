"""Unit: statements are read as written, and what cannot be read is underlined."""

from __future__ import annotations

import pytest

from thalweg.errors import SqlError
from thalweg.frontend.parse_statements import parse_statements as parse
from thalweg.frontend.statements import (
    AlterStream,
    CreateQuery,
    CreateStream,
    CreateTable,
    Describe,
    DropQuery,
    DropStream,
    DropTable,
    Explain,
    PauseQuery,
    ResetWatermark,
    ResumeQuery,
    SelectResults,
    Show,
    ShowCreate,
)
from thalweg.model.if_there import IfThere
from thalweg.model.stream import Field

STREAM = "CREATE STREAM s (id BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS)"


def test_a_stream_with_everything() -> None:
    [stream] = parse(
        "create stream `my stream` (id BIGINT, d DECIMAL(10, 2), v VARCHAR(7), n timestamp_ntz, `a b` int, "
        "ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL '1 minute 30 seconds') "
        "WITH (source = 'files', path = 'in/*.parquet;x', max_files = 3, header = true)"
    )
    assert stream == CreateStream(
        "my stream",
        (
            *(Field("id", "bigint"), Field("d", "decimal(10,2)"), Field("v", "string")),
            *(Field("n", "timestamp_ntz"), Field("a b", "int"), Field("ts", "timestamp")),
        ),
        "ts",
        90_000_000,
        {"source": "files", "path": "in/*.parquet;x", "max_files": "3", "header": "true"},
    )


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STREAM s WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS WITH (source = 'files')",
        "CREATE STREAM s (WATERMARK FOR ts AS ts - INTERVAL '10' SECOND) WITH (source = 'files')",
        "/* a ; b */ CREATE STREAM s -- columns; from the source\n(WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS) "
        "WITH (source = 'files');",
    ],
)
def test_columns_may_be_left_out(text: str) -> None:
    assert parse(text) == [CreateStream("s", None, "ts", 10_000_000, {"source": "files"})]


def test_a_watermark_without_delay() -> None:
    [stream] = parse("CREATE STREAM s (WATERMARK FOR ts AS ts)")
    assert isinstance(stream, CreateStream)
    assert stream.delay_us == 0


def test_tables() -> None:
    text = (
        "CREATE TABLE t WITH (path = 'dim/*.parquet', format = 'parquet');"
        "create or replace table t (id BIGINT, name STRING) with (path = 'x.csv'); DROP TABLE `t`; SHOW TABLES"
    )
    assert parse(text) == [
        CreateTable("t", None, {"path": "dim/*.parquet", "format": "parquet"}),
        CreateTable("t", (Field("id", "bigint"), Field("name", "string")), {"path": "x.csv"}, IfThere(replace=True)),
        DropTable("t"),
        Show("tables"),
    ]


def test_what_becomes_of_a_name_that_is_taken() -> None:
    rest = {
        "STREAM": "(ts TIMESTAMP, WATERMARK FOR ts AS ts)",
        "TABLE": "WITH (path = 'x')",
        "QUERY": "AS SELECT 1 FROM s",
    }
    for kind, after in rest.items():
        parsed = parse(
            f"CREATE {kind} a {after}; CREATE {kind} IF NOT EXISTS a {after}; CREATE OR REPLACE {kind} a {after}"
        )
        found = [statement.if_there for statement in parsed]  # type: ignore[union-attr]
        assert found == [IfThere(), IfThere(keep=True), IfThere(replace=True)]
    assert parse("DROP STREAM IF EXISTS a; drop table a; DROP QUERY if exists a") == [
        DropStream("a", if_exists=True),
        DropTable("a"),
        DropQuery("a", if_exists=True),
    ]
    [named] = parse("DROP QUERY if")
    assert named == DropQuery("if"), "a word alone is a name"


def test_streams_are_altered() -> None:
    assert parse(
        "ALTER STREAM s SET (watermark = '10 seconds', idle_timeout = 'none'); ALTER STREAM s RESET WATERMARK"
    ) == [
        AlterStream("s", {"watermark": "10 seconds", "idle_timeout": "none"}),
        ResetWatermark("s"),
    ]


def test_what_there_is_is_looked_at() -> None:
    selects = "-- now\n SELECT ';' AS x FROM q LIMIT 3; WITH a AS (SELECT 1) SELECT * FROM a"
    text = f"DESCRIBE s; desc query q; SHOW CREATE TABLE t; {selects}"
    assert parse(text) == [
        Describe("s", 9),
        Describe("q", 23, "query"),
        ShowCreate("table", "t"),
        SelectResults("SELECT ';' AS x FROM q LIMIT 3", text.index("SELECT")),
        SelectResults("WITH a AS (SELECT 1) SELECT * FROM a", text.index("WITH")),
    ]
    assert parse("DESCRIBE stream") == [Describe("stream", 9)]


def test_several_statements() -> None:
    text = "SHOW QUERIES; show streams;; EXPLAIN; EXPLAIN `a q`; DROP QUERY q -- the end"
    assert parse(text) == [Show("queries"), Show("streams"), Explain(None), Explain("a q"), DropQuery("q")]


def test_queries_are_paused_and_resumed() -> None:
    assert parse("PAUSE QUERY q; resume query `a q`") == [PauseQuery("q"), ResumeQuery("a q")]


def test_explain_draws() -> None:
    text = "EXPLAIN MERMAID; explain graphviz q; EXPLAIN `mermaid`"
    assert parse(text) == [Explain(None, "mermaid"), Explain("q", "graphviz"), Explain("mermaid")]


def test_no_statement() -> None:
    assert parse(" ; -- nothing\n ;") == []


def test_a_query_keeps_its_select_as_written() -> None:
    select = "SELECT ';' AS x /* ; */ FROM s"
    text = f"DROP QUERY a;\nCREATE QUERY q INTO console OPTIONS (rows = '5') AS {select} EMIT UPDATES;"
    query = parse(text)[1]
    assert query == CreateQuery("q", select, text.index("SELECT"), "console", {"rows": "5"}, "updates")
    assert text[query.offset :].startswith(query.select)


def test_final_is_the_default() -> None:
    first, second = parse("CREATE QUERY a AS SELECT 1 FROM s; CREATE QUERY b AS SELECT 1 FROM s EMIT FINAL")
    assert isinstance(first, CreateQuery)
    assert isinstance(second, CreateQuery)
    assert (first.emit, second.emit, second.select) == ("final", "final", "SELECT 1 FROM s")


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("FROB x", "unknown statement", "FROB"),
        ("CREATE VIEW t", "expected STREAM, TABLE or QUERY", "VIEW"),
        ("CREATE OR REPLACE VIEW q", "expected STREAM, TABLE or QUERY", "VIEW"),
        ("CREATE TABLE t", "no files", "t"),
        ("CREATE TABLE t (id INT, ID INT) WITH (path = 'x')", "twice", "ID"),
        ("CREATE TABLE t (WATERMARK FOR ts AS ts) WITH (path = 'x')", "unknown type 'FOR'", "FOR"),
        ("DROP VIEW s", "expected STREAM, TABLE or QUERY", "VIEW"),
        ("DROP STREAM IF NOT EXISTS s", "expected ';'", "NOT"),
        ("CREATE OR REPLACE QUERY IF NOT EXISTS q AS SELECT 1", "exclude each other", "IF NOT EXISTS"),
        ("CREATE QUERY IF EXISTS q AS SELECT 1", "expected AS", "EXISTS"),
        ("ALTER STREAM s", "expected SET or RESET WATERMARK", "s"),
        ("ALTER STREAM s SET watermark = '1 second'", "expected '('", "watermark"),
        ("ALTER STREAM s SET (delay = '1 second')", "no option 'delay'", "delay"),
        ("ALTER STREAM s SET (watermark = '1 s', watermark = '2 s')", "twice", "watermark"),
        ("DESCRIBE", "expected the name of a stream", "E"),
        ("SHOW CREATE s", "expected STREAM, TABLE or QUERY", "s"),
        ("SHOW CREATE STREAM", "expected the name of a stream", "M"),
        ("SHOW VIEWS", "expected QUERIES, STREAMS, TABLES, FUNCTIONS or CREATE", "VIEWS"),
        ("DROP QUERY", "expected the name of a query", "Y"),
        ("PAUSE q", "expected QUERY", "q"),
        ("SHOW QUERIES SHOW", "expected ';'", "SHOW"),
        ("CREATE QUERY q SELECT 1", "expected AS", "SELECT"),
        ("CREATE QUERY q AS DELETE", "expected SELECT", "DELETE"),
        ("CREATE QUERY q AS SELECT 1 FROM s EMIT SOON", "expected UPDATES or FINAL", "SOON"),
        ("CREATE STREAM s (id BIGINT)", "no event time", "s"),
        ("CREATE STREAM s (id BLOB, WATERMARK FOR ts AS ts)", "unknown type 'BLOB'", "BLOB"),
        ("CREATE STREAM s (id ARRAY<INT>)", "unknown type", "ARRAY"),
        ("CREATE STREAM s (d DECIMAL(50,2), WATERMARK FOR ts AS ts)", "1 to 38 digits", "DECIMAL(50,2)"),
        ("CREATE STREAM s (id INT, ID INT, WATERMARK FOR ts AS ts)", "twice", "ID"),
        ("CREATE STREAM s (id INT, WATERMARK FOR id AS id)", "not a timestamp", "s"),
        ("CREATE STREAM s (id INT, WATERMARK FOR ts AS ts)", "not one of its columns", "s"),
        ("CREATE STREAM s (WATERMARK FOR ts AS tt - INTERVAL 1 DAY)", "is written as", "tt"),
        ("CREATE STREAM s (WATERMARK FOR ts AS ts - INTERVAL 1 MONTH)", "no fixed length", "INTERVAL 1 MONTH"),
        (
            "CREATE STREAM s (WATERMARK FOR ts AS ts - INTERVAL 200000000 DAYS)",
            "longer than 73,000 years",
            "INTERVAL 200000000 DAYS",
        ),
        ("CREATE STREAM s (WATERMARK FOR ts AS ts - INTERVAL soon)", "number and a unit", "INTERVAL"),
        ("CREATE STREAM s (WATERMARK FOR ts AS ts) WITH (a = 'x', a = 'y')", "twice", "a"),
        ("CREATE STREAM s (WATERMARK FOR ts AS ts) WITH (a = b)", "expected a string", "b"),
        ("SHOW QUERIES; DROP QUERY 'x", "never closed", "'x"),
        ("DROP QUERY `x", "never closed", "`x"),
        ("DROP /* x", "never closed", "/* x"),
        ("DROP QUERY ö", "unexpected character", "ö"),
    ],
)
def test_bad_statements_are_underlined(text: str, message: str, place: str) -> None:
    with pytest.raises(SqlError) as caught:
        parse(text)
    assert message in caught.value.message
    assert caught.value.span is not None
    assert text[slice(*caught.value.span)] == place
    assert "^" in str(caught.value)


def test_the_place_is_in_the_whole_text() -> None:
    text = STREAM + ";\n  SHOW nothing"
    with pytest.raises(SqlError) as caught:
        parse(text)
    assert "line 2:   SHOW nothing" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "CREATE STREAM s (id BIGINT, ts TIMESTAMP) WITH (path = 'in/*')",
            "stream s has no event time and no watermark",
        ),
        ("CREATE STREAM s WATERMARK ts WITH (path = 'in/*')", "expected FOR, found 'ts'"),
    ],
)
def test_how_a_watermark_is_written_is_said(text: str, said: str) -> None:
    with pytest.raises(SqlError, match=said) as refused:
        parse(text)
    assert "WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS" in (refused.value.hint or "")
