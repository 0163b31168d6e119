"""Unit: kinds from outside the package, registered and used from SQL, end to end; and what is refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from tests.support.outside_kinds import Hop, Lines, Products, Ticks

import thalweg
from thalweg.aggregates.families import FAMILIES
from thalweg.errors import SinkError, SourceError, SqlError, UsageError
from thalweg.frontend.window_kinds import WINDOWS
from thalweg.kinds import registry as module
from thalweg.kinds.registry import Registry
from thalweg.sink.contract import SinkKind
from thalweg.sink.kinds import SINKS
from thalweg.source.kinds import SOURCES
from thalweg.testing import LocalSession

Local = Callable[..., LocalSession]
STREAM = "CREATE STREAM ticks WATERMARK FOR ts AS ts WITH (source = 'ticks', rows = '{rows}', step = '10')"
QUERY = (
    "CREATE QUERY q INTO lines OPTIONS (path = '{path}') AS "
    "SELECT product(n + 1) AS p, window.start AS w FROM ticks GROUP BY hop(ts, '30 seconds', '1 minute')"
)


@pytest.fixture
def kinds() -> Iterator[None]:
    thalweg.register_source(Ticks())
    thalweg.register_sink(Lines())
    thalweg.register_aggregate(Products())
    thalweg.register_window(Hop())
    yield
    for registry, name in ((SOURCES, "ticks"), (SINKS, "lines"), (FAMILIES, "products"), (WINDOWS, "hop")):
        cast(Registry[Any], registry).forget(name)


def products(first: int, rows: int) -> list[str]:
    """Of windows of six rows, from row `first` on, that rows up to `rows` have closed."""
    return [f"{math.prod(range(max(0, s) + 1, s + 7))}.0" for s in range(first, rows - 6, 3)]


def written(path: Path) -> list[str]:
    lines = [line for file in sorted(path.iterdir()) for line in file.read_text().splitlines()]
    return [line.split(", ")[0] for line in lines]


@pytest.mark.usefixtures("kinds")
def test_a_kind_of_each_sort_from_sql_to_results(local: Local, tmp_path: Path) -> None:
    session = local()
    session.sql(STREAM.format(rows=13))
    session.sql(QUERY.format(path=tmp_path / "out"))
    session.run_available()
    assert sorted(written(tmp_path / "out"), key=float) == sorted(products(-3, 13), key=float)
    shown = session.sql("SHOW QUERIES").to_pylist()[0]
    assert "hop(" in shown["select"]
    assert (shown["sink"], shown["delivery"]) == ("lines", "at least once")
    assert "windows of 1 minute sliding by 30 seconds" in session.explain("q")


@pytest.mark.usefixtures("kinds")
def test_they_go_on_after_a_restart_and_options_that_may_change_do(
    local: Local, state_dir: Path, tmp_path: Path
) -> None:
    for rows in (7, 13):
        session = local(state_dir=state_dir)
        session.sql(STREAM.format(rows=rows))
        session.sql(QUERY.format(path=tmp_path / "out"))
        session.run_available()
        session.stop()
    assert sorted(written(tmp_path / "out"), key=float) == sorted(products(-3, 13), key=float)
    session = local(state_dir=state_dir)
    with pytest.raises(thalweg.ThalwegError, match="ticks"):
        session.sql(STREAM.format(rows=13).replace("'10'", "'11'"))


def test_python_makes_them_too(local: Local, tmp_path: Path) -> None:
    ticks, to_lines = thalweg.register_source(Ticks()), thalweg.register_sink(Lines())
    try:
        session = local()
        session.create_stream("ticks", ticks(rows=5), time="ts", watermark="0 seconds")
        session.create_query("all", "SELECT n FROM ticks", to_lines(path=str(tmp_path / "out")))
        session.run_available()
        assert written(tmp_path / "out") == ["0", "1", "2", "3", "4"]
    finally:
        SOURCES.forget("ticks")
        SINKS.forget("lines")


@pytest.mark.usefixtures("kinds")
def test_a_kind_that_is_registered_twice_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"a source 'ticks' already: one that is registered"):
        thalweg.register_source(Ticks())
    with pytest.raises(UsageError, match=r"a sink 'lines' already"):
        thalweg.register_sink(Lines())
    with pytest.raises(UsageError, match=r"aggregate 'product' already"):
        thalweg.register_aggregate(Products())
    with pytest.raises(UsageError, match=r"window 'hop' already"):
        thalweg.register_window(Hop())
    thalweg.register_sink(Lines(), replace=True)

    class Files(Lines):
        name = "files"

    with pytest.raises(UsageError, match=r"a sink 'files' already: Thalweg's own"):
        thalweg.register_sink(Files())


def test_what_is_no_kind_is_refused() -> None:
    with pytest.raises(UsageError, match=r"Lines cannot be registered as a sink\n.*an instance"):
        thalweg.register_sink(cast(Any, Lines))
    with pytest.raises(UsageError, match="Ticks cannot be registered as a sink"):
        thalweg.register_sink(cast(Any, Ticks()))

    class Loud(Lines):
        name = "Loud!"

    with pytest.raises(UsageError, match="its name is 'Loud!'"):
        thalweg.register_sink(Loud())

    class Loose(Lines):
        name = "loose"
        options = dict

    with pytest.raises(UsageError, match=r"not a msgspec\.Struct"):
        thalweg.register_sink(Loose())

    class Untyped(Products):
        name = "untyped"
        names = {"product_of": (1, 1)}  # noqa: RUF012
        returns = None

    with pytest.raises(UsageError, match="`returns` has to say"):
        thalweg.register_aggregate(Untyped())

    class Sum(Products):
        name = "more_sums"
        names = {"sum": (1, 1)}  # noqa: RUF012

    with pytest.raises(UsageError, match="aggregate 'sum' already"):
        thalweg.register_aggregate(Sum())


@pytest.mark.usefixtures("kinds")
@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        (STREAM.format(rows="many"), SourceError, "ticks: option 'rows' must be a whole number above 0, not 'many'"),
        (STREAM.format(rows=0), SourceError, "above 0, not '0'"),
        (STREAM.format(rows=1).replace("step", "stepp"), SourceError, r"'stepp' is not known\n.*Did you mean step\?"),
        (STREAM.format(rows=1).replace("rows = '1', ", ""), SourceError, "option 'rows' is missing"),
        (STREAM.format(rows=1).replace("'ticks'", "'tocks'"), SourceError, "no source of kind 'tocks'\n.*ticks"),
        ("CREATE QUERY q INTO lines AS SELECT n FROM ticks", SinkError, "sink lines: option 'path' is missing"),
        ("CREATE QUERY q INTO line AS SELECT n FROM ticks", SinkError, "no sink 'line'\n.*lines"),
        ("CREATE QUERY q AS SELECT count(*) FROM ticks GROUP BY hop(ts, '1 minute')", SqlError, "hop takes a time"),
        (
            "CREATE QUERY q AS SELECT count(*) FROM ticks GROUP BY hop(ts, '7 seconds', '1 minute')", SqlError,
            "a multiple of its slide",
        ),
        (
            "CREATE QUERY q AS SELECT product(DISTINCT n) FROM ticks GROUP BY window(ts, '1 minute')", SqlError,
            r"product\(DISTINCT \.\.\.\)",
        ),
    ],
)  # fmt: skip
def test_bad_input_is_refused_by_name(local: Local, statement: str, error: type[Exception], said: str) -> None:
    session = local()
    if "CREATE QUERY" in statement:
        session.sql(STREAM.format(rows=5))
    with pytest.raises(error, match=said):
        session.sql(statement)


def test_a_sink_that_is_not_installed_any_more_waits_by_name(local: Local, state_dir: Path, tmp_path: Path) -> None:
    ticks, to_lines = thalweg.register_source(Ticks()), thalweg.register_sink(Lines())
    try:
        session = local(state_dir=state_dir)
        session.create_stream("ticks", ticks(rows=5), time="ts", watermark="0 seconds")
        session.create_query("all", "SELECT n FROM ticks", to_lines(path=str(tmp_path / "out")))
        session.stop()
        SINKS.forget("lines")
        again = local(state_dir=state_dir)
        again.run_available()
        status = again.query("all").status
        assert (status.state, status.undelivered.rows) == ("waiting", 5)
        assert "there is no sink 'lines' in this program" in status.error
        again.stop()
        thalweg.register_sink(Lines())
        local(state_dir=state_dir).run_available()
        assert written(tmp_path / "out") == ["0", "1", "2", "3", "4"]
    finally:
        SINKS.forget("lines")
        SOURCES.forget("ticks")


def test_a_source_that_is_not_installed_any_more_is_named(local: Local, state_dir: Path) -> None:
    session = local(state_dir=state_dir)
    try:
        ticks = thalweg.register_source(Ticks())
        session.create_stream("ticks", ticks(rows=5), time="ts", watermark="0 seconds")
        session.create_query("all", "SELECT n FROM ticks")
        session.stop()
    finally:
        SOURCES.forget("ticks")
    again = local(state_dir=state_dir)
    assert "no source of kind 'ticks' in this program" in again.query("all").status.error
    with pytest.raises(SourceError, match="no source of kind 'ticks'"):
        again.run_available()


# -- installed packages


class Bare(msgspec.Struct, frozen=True):
    pass


def entries(monkeypatch: pytest.MonkeyPatch, *given: tuple[str, str]) -> Registry[SinkKind[Any]]:
    found = [EntryPoint(name, value, "thalweg.sinks") for name, value in given]
    monkeypatch.setattr(module, "entry_points", lambda group: found if group == "thalweg.sinks" else [])
    return Registry("sink", SinkKind, {"files": "thalweg.sink.files:FILES"}, lambda name, known, near: KeyError(name))  # type: ignore[arg-type, return-value]


HOME = "tests.support.outside_kinds"


def test_an_entry_point_is_loaded_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = entries(monkeypatch, ("lines", f"{HOME}:Lines"), ("broken", "no.such.module:x"))
    assert registry.names() == ("files", "broken", "lines")
    assert isinstance(registry.get("lines"), Lines)
    assert registry.get("lines") is registry.get("lines")
    with pytest.raises(UsageError, match=r"the sink 'broken' of .* cannot be loaded\n.*No module named"):
        registry.get("broken")
    with pytest.raises(KeyError):
        registry.get("nothing")


def test_entry_points_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = entries(monkeypatch, ("lines", f"{HOME}:Lines"), ("lines", f"{HOME}:Ticks"))
    with pytest.raises(UsageError, match="a sink 'lines' already"):
        registry.get("lines")
    with pytest.raises(UsageError, match="a sink 'lines' already"):
        registry.register(Lines())
    taken = entries(monkeypatch, ("files", f"{HOME}:Lines"))
    with pytest.raises(UsageError, match=r"a sink 'files' already: Thalweg's own; .* brings one, too"):
        taken.names()


def test_an_entry_point_must_be_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = entries(monkeypatch, ("words", f"{HOME}:Lines"), ("ticks", f"{HOME}:Ticks"))
    with pytest.raises(UsageError, match="it calls itself 'lines'"):
        registry.get("words")
    with pytest.raises(UsageError, match="Ticks cannot be registered as a sink"):
        registry.get("ticks")
