"""Unit: a list of statements takes effect as a whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from thalweg.catalog import Catalog
from thalweg.errors import NamingError, SinkError, SqlError, ThalwegError, UsageError
from thalweg.testing import LocalSession
from thalweg.testing.memory_storage import MemoryStorage
from thalweg.verbs import tables

Local = Callable[..., LocalSession]
ROWS = [{"ts": datetime(2026, 1, 1, tzinfo=UTC), "k": 1, "v": 1}]
STREAM = """CREATE STREAM s (k BIGINT, v BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND)
    WITH (source = 'memory');"""
QUERY = "CREATE QUERY {} {} AS SELECT k, v FROM {};"


def names(session: LocalSession) -> tuple[set[str], set[str], set[str]]:
    return set(session.streams), set(session.tables), set(session.queries)


def objects(session: LocalSession) -> dict[str, bytes]:
    """All that is kept."""
    storage = session.storage
    return {name: storage.read(name) for name in storage.names("")}


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "names.parquet"
    pq.write_table(pa.table({"k": pa.array([1], pa.int64()), "name": ["one"]}), path)
    return f"CREATE TABLE names WITH (path = '{path}');"


JOINED = "CREATE QUERY joined AS SELECT s.v, names.name FROM s JOIN names ON s.k = names.k;"


def test_later_statements_know_what_earlier_ones_made(local: Local, table: str) -> None:
    session = local()
    made = session.sql(STREAM + table + JOINED + QUERY.format("a", "", "s") + "SHOW QUERIES; EXPLAIN a")
    assert names(session) == ({"s"}, {"names"}, {"joined", "a"})
    assert made[4].num_rows == 2
    assert "a" in made[5]


@pytest.mark.parametrize(
    ("last", "kind", "message"),
    [
        (QUERY.format("b", "", "nowhere"), SqlError, "nowhere"),
        (QUERY.format("a", "", "s"), NamingError, "already a query named 'a'"),
        ("CREATE QUERY b AS SELECT nope FROM s;", SqlError, "nope"),
        (QUERY.format("b", "INTO pigeon", "s"), SinkError, "no sink 'pigeon'"),
        (QUERY.format("b", "INTO spark OPTIONS (format = 'delta', path = 'x')", "s"), UsageError, "needs Spark"),
        ("DROP QUERY b;", NamingError, "b"),
        ("DROP TABLE names;", UsageError, "cannot be dropped"),
        ("DROP TABLE other;", NamingError, "other"),
        (STREAM, NamingError, "already a stream named 's'"),
        ("CREATE TABLE s WITH (path = 'x.parquet');", NamingError, "already a table named 's'"),
        ("EXPLAIN b;", NamingError, "b"),
        ("CREATE STREAM t WATERMARK FOR ts AS ts WITH (source = 'kafka');", ThalwegError, "kafka"),
    ],
)
def test_one_that_is_refused_leaves_nothing(
    local: Local, table: str, last: str, kind: type[ThalwegError], message: str
) -> None:
    session = local({"events": ROWS})
    session.create_query("before", "SELECT k, v FROM events")
    kept, known = objects(session), names(session)
    with pytest.raises(kind, match=message) as raised:
        session.sql(STREAM + table + JOINED + QUERY.format("a", "", "s") + "DROP QUERY before;" + last)
    assert "None of the 6 statements has taken effect." in str(raised.value)
    assert names(session) == known
    assert objects(session) == kept
    assert session.query("before").status["state"] == "pending"
    # The analyser has forgotten them, too, and the same list without the last takes effect.
    with pytest.raises(SqlError):
        session.create_query("early", "SELECT k, v FROM s")
    session.sql(STREAM + table + JOINED + QUERY.format("a", "", "s") + "DROP QUERY before;")
    assert names(session) == ({"events", "s"}, {"names"}, {"joined", "a"})


def test_a_name_may_change_its_meaning_in_a_list(local: Local, table: str, tmp_path: Path) -> None:
    """What comes before the change is analysed with what the name meant then."""
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"k": pa.array([1], pa.int64()), "title": ["uno"]}), other)
    session = local()
    session.sql(STREAM + table)
    changed = JOINED.replace("names.name", "names.title").replace("joined", "titled")
    again = f"DROP QUERY joined; DROP TABLE names; CREATE TABLE names WITH (path = '{other}');"
    session.sql(JOINED + again + changed)
    assert set(session.queries) == {"titled"}
    with pytest.raises(ThalwegError):
        session.sql(again + changed)  # there is no query joined
    assert session.tables["names"].schema.names == ("k", "title")
    session.sql("CREATE QUERY more AS SELECT s.v, names.title FROM s JOIN names ON s.k = names.k")


def test_a_sinks_place_is_looked_at_before(local: Local, tmp_path: Path) -> None:
    session = local()
    (tmp_path / "file").write_text("")
    place = QUERY.format("b", f"INTO files OPTIONS (path = '{tmp_path / 'file' / 'out'}')", "s")
    fine = QUERY.format("a", f"INTO files OPTIONS (path = '{tmp_path / 'deep' / 'out'}')", "s")
    with pytest.raises(SinkError, match="cannot be written"):
        session.sql(STREAM + fine + place)
    assert names(session) == (set(), set(), set())
    assert os.listdir(tmp_path) == ["file"], "nothing was made"
    session.sql(STREAM + fine)
    assert (tmp_path / "deep" / "out").is_dir()


def test_a_table_is_read_once(local: Local, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    session = local()
    given: list[Any] = []
    read = session._parts.engine.read_table

    def counted(name: str, source: Any, *rest: Any) -> pa.Table:
        given.append(source)
        return read(name, source, *rest)

    monkeypatch.setattr(session._parts.engine, "read_table", counted)
    session.sql(STREAM + table + JOINED)
    assert [isinstance(source, str) for source in given] == [True, False]
    assert session.tables["names"].version.rows == 1


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), SinkError("full")])
def test_what_fails_only_when_it_is_done_says_what_took_effect(
    local: Local, table: str, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def fail(*given: object) -> None:
        raise failure

    session = local()
    monkeypatch.setattr(tables, "save_tables", fail)
    with pytest.raises(type(failure)) as raised:
        session.sql(STREAM + QUERY.format("a", "", "s") + table + JOINED)
    said = str(raised.value) + "".join(getattr(raised.value, "__notes__", []))
    assert "Of 4 statements the first 2 have taken effect: CREATE STREAM s, CREATE QUERY a." in said
    assert names(session) == ({"s"}, set(), {"a"})
    monkeypatch.undo()
    session.sql(table + JOINED)


def test_a_definition_is_taken_up_again_once(local: Local, tmp_path: Path) -> None:
    """As a program that starts again says it."""
    program = STREAM + QUERY.format("a", "", "s")
    with local(state_dir=tmp_path / "state") as session:
        session.sql(program)
    with local(state_dir=tmp_path / "state") as session:
        session.sql(program)
        with pytest.raises(NamingError, match="there is already a"):
            session.sql(program)


@pytest.mark.parametrize("verb", ["CREATE", "CREATE OR REPLACE"])
def test_a_name_that_differs_only_in_case_is_refused(local: Local, verb: str) -> None:
    session = local()
    session.sql(STREAM + QUERY.format("a", "", "s"))
    with pytest.raises(NamingError, match=r"already a query named 'a' \(names do not differ by case\)"):
        session.sql(QUERY.format("A", "", "s").replace("CREATE", verb))
    with pytest.raises(NamingError, match="already a query named 'a'"):
        session.create_query("A", "SELECT k, v FROM s")
    assert set(session.queries) == {"a"}
    session.sql("DROP QUERY a;" + QUERY.format("A", "", "s"))
    assert set(session.queries) == {"A"}


def test_a_state_that_holds_names_of_two_cases_goes_on(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage("memory://two-cases")
    session = local(state_dir=storage)
    with monkeypatch.context() as earlier:
        earlier.setattr(Catalog, "check_case", lambda catalog, name: None)
        session.sql(STREAM + QUERY.format("a", "", "s") + QUERY.format("A", "", "s"))
    session.stop()
    session = local(state_dir=storage)
    session.sql(STREAM + QUERY.format("a", "", "s") + QUERY.format("A", "", "s"))
    assert {name: query.status.state for name, query in session.queries.items()} == {"a": "pending", "A": "pending"}


@pytest.mark.parametrize(
    ("again", "ways"),
    [
        (QUERY.format("a", "", "s"), ["CREATE OR REPLACE QUERY a"]),
        (STREAM, ["CREATE OR REPLACE STREAM s", "ALTER STREAM s"]),
    ],
)
def test_a_taken_name_comes_with_the_ways_out(local: Local, again: str, ways: list[str]) -> None:
    session = local()
    session.sql(STREAM + QUERY.format("a", "", "s"))
    with pytest.raises(NamingError, match="already a") as refused:
        session.sql(again)
    assert all(way in (refused.value.hint or "") for way in ways)
