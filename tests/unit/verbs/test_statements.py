"""Unit: statements that make, replace, describe and drop, and a SELECT that is answered at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thalweg.catalog import Catalog
from thalweg.errors import NamingError, SqlError, ThalwegError, UsageError
from thalweg.testing import LocalSession
from thalweg.testing.memory_storage import MemoryStorage
from thalweg.verbs import selecting

Local = Callable[..., LocalSession]
STREAM = """CREATE STREAM s (k BIGINT, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND)
    WITH (source = 'memory') OPTIONS (max_ahead = 'none')"""
QUERY = "CREATE QUERY q AS SELECT k, v FROM s"
SUMS = "CREATE QUERY sums AS SELECT k, sum(v) AS total FROM s GROUP BY k, window(ts, '10 seconds')"


def rows(*pairs: tuple[float, int]) -> list[dict[str, Any]]:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return [{"ts": start + timedelta(seconds=second), "k": value % 2, "v": value} for second, value in pairs]


def objects(session: LocalSession) -> dict[str, bytes]:
    return {name: session.storage.read(name) for name in session.storage.names("")}


def names_of(session: LocalSession) -> list[str]:
    return [*session.streams, *session.tables, *session.queries]


@pytest.fixture
def names(tmp_path: Path) -> str:
    path = tmp_path / "names.parquet"
    pq.write_table(pa.table({"k": pa.array([0, 1], pa.int64()), "name": ["even", "odd"]}), path)
    return str(path)


@pytest.fixture
def session(local: Local) -> LocalSession:
    session = local()
    session.sql(STREAM)
    return session


def give(session: LocalSession, *pairs: tuple[float, int]) -> None:
    session._parts.feeding.sources["s"].append(rows(*pairs))  # type: ignore[attr-defined]


# -- CREATE OR REPLACE, IF [NOT] EXISTS --------------------------------------------------------------------


def test_a_query_is_replaced_with_the_next_batch(session: LocalSession) -> None:
    first = session.sql(QUERY)
    give(session, (0, 1))
    session.run_available()
    assert session.sql("CREATE OR REPLACE QUERY q AS SELECT k, v FROM s") is first, "it says the same"
    second = session.sql("CREATE OR REPLACE QUERY q AS SELECT v + 1 AS w FROM s")
    assert (first.status.state, second.status.state) == ("dropped", "pending")
    assert session.query("q") is second
    give(session, (1, 5))
    session.run_available()
    assert second.results().to_pylist() == [{"w": 6}]
    assert first.results().num_rows == 1


def test_one_that_is_refused_leaves_the_other(session: LocalSession) -> None:
    first = session.sql(QUERY)
    kept = objects(session)
    with pytest.raises(SqlError, match="nope"):
        session.sql("CREATE OR REPLACE QUERY q AS SELECT nope FROM s")
    with pytest.raises(SqlError, match="nope"):
        session.sql("CREATE OR REPLACE QUERY q AS SELECT v + 1 AS w FROM s; CREATE QUERY r AS SELECT nope FROM s")
    assert objects(session) == kept
    give(session, (0, 1))
    session.run_available()
    assert first.results().num_rows == 1
    assert first.status.state == "idle"


def test_a_replaced_query_after_a_restart(local: Local) -> None:
    """Whether or not a batch has seen the request: there is one query of the name."""
    for runs in (False, True):
        storage = MemoryStorage(f"memory://replaced-{runs}")
        session = local(state_dir=storage)
        session.sql(f"{STREAM}; {QUERY}")
        give(session, (0, 1))
        session.run_available()
        session.sql("CREATE OR REPLACE QUERY q AS SELECT v + 1 AS w FROM s")
        if runs:
            session.run_available()
        session.stop()
        session = local(state_dir=storage)
        session.sql(f"{STREAM}; CREATE OR REPLACE QUERY q AS SELECT v + 1 AS w FROM s")
        assert session.query("q").definition.text == "SELECT v + 1 AS w FROM s"
        give(session, (1, 5))
        session.run_available()
        assert session.query("q").results().to_pylist() == [{"w": 6}]
        session.stop()


def test_what_is_there_is_left_as_it_is(session: LocalSession, names: str) -> None:
    query = session.sql(QUERY)
    stream = session.stream("s")
    table = session.sql(f"CREATE TABLE names WITH (path = '{names}')")
    kept = objects(session)
    made = session.sql(
        f"{STREAM.replace('STREAM s', 'STREAM IF NOT EXISTS s').replace('1 SECOND', '9 SECONDS')};"
        "CREATE QUERY IF NOT EXISTS q AS SELECT v + 1 AS w FROM s;"
        "CREATE TABLE IF NOT EXISTS names WITH (path = 'nowhere.parquet');"
        "DROP QUERY IF EXISTS other; DROP STREAM IF EXISTS other; DROP TABLE IF EXISTS other"
    )
    assert made[:3] == [stream, query, table]
    assert objects(session) == kept
    assert session.sql("DROP QUERY IF EXISTS q; DROP STREAM IF EXISTS s; DROP TABLE IF EXISTS names") == [None] * 3
    assert names_of(session) == []


def test_a_list_replaces_a_stream_and_its_queries(session: LocalSession) -> None:
    """Checked as a whole: in the list the stream is read by nobody any more."""
    session.sql(QUERY)
    other = STREAM.replace("CREATE", "CREATE OR REPLACE").replace("v BIGINT", "w BIGINT")
    with pytest.raises(UsageError, match="read by q"):
        session.sql(other)
    with pytest.raises(SqlError):
        session.sql(f"DROP QUERY q; {other}; {QUERY}")
    assert session.stream("s").schema.names == ("k", "v", "ts")
    session.sql(f"DROP QUERY q; {other}; CREATE QUERY q AS SELECT w FROM s")
    assert session.stream("s").schema.names == ("k", "w", "ts")


def test_a_list_drops_and_alters(session: LocalSession) -> None:
    session.sql(
        f"{QUERY}; ALTER STREAM s SET (watermark = '5 seconds', idle_timeout = '1 minute', max_ahead = 'none')"
    )
    assert (session.stream("s").delay_us, session.stream("s").idle_us) == (5_000_000, 60_000_000)
    kept = objects(session)
    for last, said in (
        ("ALTER STREAM s SET (watermark = 'soon')", "soon"),
        ("ALTER STREAM t SET (watermark = '1 second')", "no stream named 't'"),
        ("DROP STREAM s", "read by q"),
    ):
        with pytest.raises(ThalwegError, match=said) as raised:
            session.sql(f"ALTER STREAM s SET (watermark = '7 seconds'); {last}")
        assert "None of the 2 statements has taken effect" in str(raised.value)
    assert objects(session) == kept
    assert session.sql("ALTER STREAM s SET (watermark = '7 seconds')").delay_us == 7_000_000


# -- DESCRIBE, SHOW CREATE ---------------------------------------------------------------------------------


def test_what_there_is_is_described(session: LocalSession, names: str) -> None:
    session.sql(f"{SUMS}; CREATE TABLE names WITH (path = '{names}')")

    def told(name: str) -> dict[tuple[str, str], str | None]:
        return {(row["part"], row["name"]): row["value"] for row in session.sql(f"DESCRIBE {name}").to_pylist()}

    stream = told("s")
    assert [name for part, name in stream if part == "column"] == ["k", "v", "ts"]
    assert stream["column", "v"] == "bigint"
    assert (stream["stream", "watermark"], stream["stream", "read by"]) == ("1 second", "sums")
    assert stream["source", "kind"] == "memory"
    query = told("QUERY sums")
    assert (query["column", "total"], query["query", "state"], query["sink", "kind"]) == (
        "bigint",
        "idle",
        "memory",
    ) or (query["query", "state"] == "pending")
    assert query["query", "select"] == SUMS.partition(" AS ")[2]
    assert told("TABLE names")["table", "rows"] == "2"
    assert told("names")["table", "path"] == names
    for text, said in (("DESCRIBE sum", "did you mean sums"), ("DESCRIBE TABLE s", "no table named 's'")):
        with pytest.raises(NamingError, match=said) as raised:
            session.sql(text)
        assert "^" in str(raised.value)


def test_what_is_shown_makes_the_same(local: Local, names: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    made = [
        STREAM,
        "CREATE STREAM g WATERMARK FOR ts AS ts WITH (source = 'generate', generator = 'purchases', users = 7)",
        f"""CREATE STREAM f (`a b` STRING, n DECIMAL(10, 2), ts TIMESTAMP_NTZ,
            WATERMARK FOR ts AS ts - INTERVAL 1 HOUR)
            WITH (path = '{tmp_path}/in/it\\'s*.csv', header = true, delimiter = '\\\\t', max_files_per_batch = 3)
            OPTIONS (idle_timeout = '90 seconds', max_ahead = '2 days', retain_rejected = '10 MB')""",
        f"CREATE TABLE names (k BIGINT, name STRING) WITH (path = '{names}', format = 'parquet')",
        QUERY,
        f"{SUMS} -- and no more\n EMIT UPDATES",
        f"""CREATE QUERY out INTO files OPTIONS (path = '{tmp_path}/out', format = 'csv', header = false, retries = 3,
            retry_delay = '2 seconds', undelivered_bytes = '5 MB') AS SELECT k FROM s WHERE k > 0""",
    ]
    shown = ["STREAM s", "STREAM g", "STREAM f", "TABLE names", "QUERY q", "QUERY sums", "QUERY out"]
    first = local()
    first.sql("; ".join(made))
    said = [first.sql(f"SHOW CREATE {what}") for what in shown]
    first.stop()
    second = local()
    second.sql("\n".join(said).replace(f"{tmp_path}/out", f"{tmp_path}/again"))
    for name, stream in first.streams.items():
        assert vars(second.stream(name)) == vars(stream)
    assert second.tables["names"].schema == first.tables["names"].schema
    for name, handle in first.queries.items():
        other = second.query(name).definition
        assert (other.text, other.emit, other.options) == (
            handle.definition.text, handle.definition.emit, handle.definition.options,
        )  # fmt: skip
    assert said[0].startswith("CREATE STREAM s (\n    k BIGINT,\n")
    assert [second.sql(f"SHOW CREATE {what}") for what in shown[:-1]] == said[:-1]


@pytest.mark.parametrize("ending", [";", " ; -- so far", ";;\n"])
def test_a_select_that_ended_is_shown_as_part_of_a_statement(local: Local, ending: str) -> None:
    said: list[str] = []
    for _ in range(2):
        session = local()
        session.sql(STREAM)
        if said:
            session.sql(said[0])
        else:
            session.create_query("q", "SELECT k, v FROM s" + ending, emit="updates")
        said.append(str(session.sql("SHOW CREATE QUERY q")))
        assert session.query("q").definition.emit == "updates"
    assert "\nEMIT UPDATES\n;" in said[0]


def test_secrets_are_not_shown(local: Local) -> None:
    from thalweg.frontend.write_statements import write_query

    text = write_query(
        "q", "SELECT 1 FROM s", "spark", {"password": "hush", "url": "jdbc:x://me:hush@host/db"}, "final"
    )
    assert "hush" not in text
    assert "password = '***'" in text


def test_what_no_statement_makes_is_said(session: LocalSession) -> None:
    session.create_table("given", pa.table({"k": pa.array([1], pa.int64())}))
    session.create_query("called", "SELECT k, v FROM s", lambda table, batch: None)
    for what in ("TABLE given", "QUERY called"):
        with pytest.raises(UsageError, match="no statement makes"):
            session.sql(f"SHOW CREATE {what}")
    with pytest.raises(NamingError, match="no query named 'nobody'"):
        session.sql("SHOW CREATE QUERY nobody")


# -- SELECT ------------------------------------------------------------------------------------------------


def test_results_and_tables_are_selected_from(session: LocalSession, names: str) -> None:
    session.sql(f"{QUERY}; CREATE TABLE names WITH (path = '{names}')")
    give(session, (0, 1), (1, 2), (2, 3))
    session.run_available()
    found = session.sql(
        "SELECT name, sum(v) AS total, 'a;b' AS x FROM q JOIN names USING (k) GROUP BY name ORDER BY name;"
        "WITH big AS (SELECT * FROM q WHERE v > 1) SELECT count(*) AS n FROM big"
    )
    assert found[0].to_pylist() == [{"name": "even", "total": 2, "x": "a;b"}, {"name": "odd", "total": 4, "x": "a;b"}]
    assert found[1].to_pylist() == [{"n": 2}]
    assert "total" in repr(found[0])


def test_a_select_in_a_list_is_checked_before(session: LocalSession) -> None:
    """Over what the statements before it make; nothing of the list takes effect if it cannot be answered."""
    assert session.sql(f"{QUERY}; SELECT count(*) AS n FROM q")[1].to_pylist() == [{"n": 0}]
    kept = objects(session)
    with pytest.raises(SqlError, match="nope") as raised:
        session.sql("CREATE QUERY r AS SELECT k FROM s; SELECT nope FROM r")
    assert "None of the 2 statements has taken effect" in str(raised.value)
    assert objects(session) == kept


@pytest.mark.parametrize(
    ("text", "said", "place"),
    [
        ("SELECT * FROM s", "the stream 's' are not kept", "s"),
        ("SELECT * FROM called", "go into its sink, callable", "called"),
        ("SELECT * FROM nobody", "no query or table named 'nobody'", "nobody"),
        ("SELECT nope FROM q", 'column "nope" not found', None),
        ("SELECT k FRO q", "syntax error", "q"),
        ("SELECT * FROM q EMIT UPDATES", "syntax error", None),
        ("SELECT * FROM read_csv('/etc/passwd')", "disabled by configuration", None),
        ("SELECT * FROM '/etc/passwd'", "no query or table named '/etc/passwd'", "'/etc/passwd'"),
        ("SELECT * FROM glob('/*')", "disabled by configuration", None),
        ("SELECT 'a\\'; DROP TABLE q; --'", "only a SELECT", None),
        ("WITH a AS (SELECT 1) INSERT INTO q SELECT * FROM a", "cannot be answered|only a SELECT", None),
        ("SELECT * FROM memory.main.q", "cannot be answered", "q"),
        ("SELECT * FROM session", "no query or table named 'session'", "session"),
    ],
)
def test_what_cannot_be_answered_is_refused(session: LocalSession, text: str, said: str, place: str | None) -> None:
    session.sql(QUERY)
    session.create_query("called", "SELECT k, v FROM s", lambda table, batch: None)
    with pytest.raises(SqlError, match=said) as raised:
        session.sql(text)
    assert raised.value.sql == text
    assert raised.value.span is not None
    assert "^" in str(raised.value)
    if place is not None:
        assert text[slice(*raised.value.span)] == place


def test_a_select_has_bounds(session: LocalSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selecting, "MOST_BYTES", 1 << 20)
    with pytest.raises(SqlError, match="more than 1 MB"):
        session.sql("SELECT * FROM range(1000000)")
    monkeypatch.setattr(selecting, "_SECONDS", 0.05)
    with pytest.raises(SqlError, match="stopped after"):
        session.sql("SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE a.range + b.range = 7")


def test_names_that_differ_in_case_only_are_not_mixed_up(
    session: LocalSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of queries that an earlier release has created."""
    monkeypatch.setattr(Catalog, "check_case", lambda catalog, name: None)
    session.sql(f"{QUERY}; CREATE QUERY Q AS SELECT v + 1 AS w FROM s")
    give(session, (0, 1))
    session.run_available()
    assert session.sql("SELECT * FROM q").to_pylist() == [{"k": 1, "v": 1}]
    assert session.sql("SELECT * FROM Q").to_pylist() == [{"w": 2}]
    with pytest.raises(SqlError, match="cannot tell 'q' and 'Q' apart"):
        session.sql("SELECT a.v, b.w FROM q AS a, Q AS b")


def test_what_fails_late_is_refused_as_well(session: LocalSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """After rows have come."""
    with pytest.raises(SqlError, match="cannot be answered") as raised:
        session.sql("SELECT CASE WHEN range = 900000 THEN error('too {late}') ELSE 1 END FROM range(1000000)")
    assert "too {late}" in str(raised.value)
    monkeypatch.setattr(selecting, "_SECONDS", 0.2)
    with pytest.raises(SqlError, match="stopped after"):
        session.sql("SELECT x.range FROM range(200000) x, range(200000) y WHERE (x.range * 31 + y.range) % 99983 = 1")


def test_a_select_of_a_stopped_pipeline_sees_what_is_committed(local: Local, tmp_path: Path) -> None:
    with local(state_dir=tmp_path / "state") as session:
        session.sql(f"{STREAM}; {QUERY}")
        give(session, (0, 1), (1, 2))
        session.run_available()
        give(session, (2, 3))  # no batch has it
        assert session.sql("SELECT max(v) AS most FROM q").to_pylist() == [{"most": 2}]
    with local(state_dir=tmp_path / "state") as session:
        assert session.sql("SELECT v FROM q ORDER BY v DESC").to_pylist() == [{"v": 2}, {"v": 1}]


def test_a_query_with_a_place_for_results_is_replaced(session: LocalSession, tmp_path: Path) -> None:
    """Into the same directory, as after DROP QUERY."""
    into = f"INTO files OPTIONS (path = '{tmp_path / 'out'}', format = 'csv')"
    session.sql(f"CREATE QUERY q {into} AS SELECT v FROM s")
    give(session, (0, 1))
    session.run_available()
    session.sql(f"CREATE OR REPLACE QUERY q {into} AS SELECT v + 100 AS v FROM s")
    give(session, (1, 2))
    session.run_available()
    text = "".join(path.read_text() for path in sorted((tmp_path / "out").glob("*.csv")))
    assert "102" in text
