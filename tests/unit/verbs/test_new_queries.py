"""Unit: a list of queries is created as one, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import thalweg
from thalweg.errors import NamingError, SqlError, ThalwegError, UsageError
from thalweg.testing import LocalSession
from thalweg.testing.memory_storage import MemoryStorage
from thalweg.verbs.parts import SessionParts

Local = Callable[..., LocalSession]
ROWS = [{"ts": datetime(2026, 1, 1, tzinfo=UTC), "k": 1, "v": 1}]
SELECT = "SELECT k, v FROM events"


def objects(session: LocalSession) -> dict[str, bytes]:
    """All that is kept."""
    storage = session.storage
    return {name: storage.read(name) for name in storage.names("")}


def requests(session: LocalSession) -> list[str]:
    return session.storage.names("requests/")


def test_all_are_one_request_and_run(local: Local) -> None:
    session = local({"events": ROWS})
    given: list[Any] = [(f"q{i}", SELECT) for i in range(20)]
    given.append({"name": "last", "select": SELECT, "options": {"retain_results": "10"}})
    handles = session.create_queries(iter(given))
    assert [handle.name for handle in handles] == [f"q{i}" for i in range(20)] + ["last"]
    assert requests(session) == ["requests/000000000001", "requests/last"]
    assert session.create_query("alone", SELECT).id == "alone@2"
    session.run_available()
    for handle in (*handles, session.query("alone")):
        assert handle.results().to_pylist() == [{"k": 1, "v": 1}]
    assert session.create_queries([]) == []


@pytest.mark.parametrize(
    ("wrong", "kind", "message"),
    [
        (("b", "SELECT v FROM nowhere"), SqlError, "nowhere"),
        (("q0", SELECT), NamingError, "already a query named 'q0'"),
        (("Q1", SELECT), NamingError, "already a query named 'q1' \\(names do not differ by case\\)"),
        (("before", SELECT), NamingError, "already a query named 'before'"),
        (("Before", SELECT), NamingError, "already a query named 'before' \\(names do not differ by case\\)"),
        (("b c", SELECT), NamingError, "'b c' cannot be the name"),
        (("b", SELECT, 7), UsageError, "cannot go to a int"),
        ({"name": "b", "select": SELECT, "options": {"nope": "1"}}, ThalwegError, "nope"),
    ],
)
def test_one_that_is_refused_is_named_and_none_is_created(
    local: Local, wrong: Any, kind: type[ThalwegError], message: str, tmp_path: Path
) -> None:
    session = local({"events": ROWS})
    session.create_query("before", SELECT)
    kept, known = objects(session), dict(session.queries)
    files = thalweg.to_files(tmp_path / "out")
    given = [("q0", SELECT), ("q1", SELECT), ("filed", SELECT, files), wrong, ("q2", SELECT)]
    with pytest.raises(kind, match=message) as raised:
        session.create_queries(given)
    name = wrong["name"] if isinstance(wrong, dict) else wrong[0]
    assert f"This is query 4 of 5, '{name}'; none of them has been created." in str(raised.value)
    assert (objects(session), dict(session.queries)) == (kept, known)
    assert not (tmp_path / "out").exists()
    session.run_available()
    assert session.create_queries([("q0", SELECT)])[0].status.state == "pending"


def test_an_error_is_underlined_in_its_own_text(local: Local) -> None:
    with pytest.raises(SqlError, match="nowhere") as raised:
        local({"events": ROWS}).create_queries([("a", SELECT), ("b", "SELECT v FROM nowhere")])
    assert raised.value.sql == "SELECT v FROM nowhere"
    assert raised.value.span == (14, 21)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("SELECT 1", "neither a tuple"),
        (("a",), "neither a tuple"),
        (("a", SELECT, None, "final"), "neither a tuple"),
        ({"name": "a"}, "its select is missing"),
        ((7, SELECT), "its name is missing, or no text"),
        ({"name": "a", "select": SELECT, "sinks": None}, "there is no argument 'sinks'"),
    ],
)
def test_what_is_no_query_is_told_by_its_place(local: Local, wrong: Any, message: str) -> None:
    session = local({"events": ROWS})
    with pytest.raises(UsageError, match=f"query 2 of the list is (?s:.*){message}"):
        session.create_queries([("q", SELECT), wrong])
    assert not session.queries


def test_some_may_be_there(local: Local) -> None:
    session = local({"events": ROWS})
    first, second = session.create_queries([("a", SELECT), ("b", SELECT)])
    third, kept = session.create_queries([("c", SELECT), ("a", "SELECT v FROM events")], if_not_exists=True)
    assert kept is first
    assert third.id == "c@2"
    again, new = session.create_queries([("a", "SELECT v FROM events"), ("d", SELECT)], replace=True)
    assert first.dropped
    assert (again.id, new.id) == ("a@3", "d@3")
    session.run_available()
    assert again.results().to_pylist() == [{"v": 1}]
    assert {name: handle.id for name, handle in session.queries.items()} == {
        "a": "a@3", "b": second.id, "c": "c@2", "d": "d@3",
    }  # fmt: skip


def test_after_a_restart_the_same_list_takes_them_up(local: Local) -> None:
    storage = MemoryStorage("memory://list")
    found: list[int] = []
    given = [("a", SELECT), ("b", SELECT, lambda table, batch: found.append(table.num_rows))]
    session = local({"events": ROWS}, state_dir=storage)
    ids = [handle.id for handle in session.create_queries(given)]
    session.stop()
    session = local({"events": ROWS}, state_dir=storage)
    assert [handle.id for handle in session.create_queries([*given, ("c", SELECT)])] == [*ids, "c@2"]
    session.run_available()
    session.stop()
    assert found == [2]
    session = local({"events": ROWS}, state_dir=storage)
    with pytest.raises(NamingError, match=r"defined differently(?s:.*)This is query 2 of 2, 'b'"):
        session.create_queries([("a", SELECT), ("b", "SELECT v FROM events")])


def test_queries_of_a_text_are_one_request(local: Local) -> None:
    session = local({"events": ROWS})
    text = ";".join(f"CREATE QUERY q{i} AS {SELECT}" for i in range(5))
    again = f"CREATE OR REPLACE QUERY q1 AS SELECT v FROM events; SHOW STREAMS; CREATE QUERY z AS {SELECT}"
    made = session.sql(f"{text}; {again}")
    assert [handle.id for handle in (*made[:6], made[7])] == [*(f"q{i}@1" for i in range(5)), "q1@2", "z@3"]
    assert made[1].dropped
    assert len(requests(session)) == 4
    with pytest.raises(SqlError, match="None of the 2 statements") as raised:
        session.sql(f"CREATE QUERY y AS {SELECT}; CREATE QUERY x AS SELECT v FROM nowhere")
    assert raised.value.sql is not None
    assert raised.value.sql[slice(*raised.value.span or ())] == "nowhere"
    assert "y" not in session.queries


def test_one_more_query_looks_at_no_other(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    session = local({"events": ROWS})
    session.create_queries([(f"q{i}", SELECT) for i in range(50)])
    session.run_available()
    looked: list[str] = []
    before = SessionParts.entry_of
    monkeypatch.setattr(
        SessionParts, "entry_of", lambda parts, handle: looked.append(handle.name) or before(parts, handle)
    )
    session.create_query("one", SELECT)
    session.create_queries([("two", SELECT), ("three", SELECT)])
    session.drop_query("two")
    assert len(looked) <= 1
