from __future__ import annotations

import asyncio
import functools
import io
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from thalweg.errors import SinkError
from thalweg.model.query import SinkSpec
from thalweg.sink.callables import check_callback, to_callable
from thalweg.sink.console import ConsoleSink, to_console
from thalweg.sink.contract import Sink, SinkContext
from thalweg.sink.files import to_files
from thalweg.sink.kinds import delivery_of, open_sink, parse_spec
from thalweg.sink.memory import to_memory
from thalweg.sink.noop import to_noop
from thalweg.sink.spark import to_spark

TABLE = pa.table({"n": [1, 2], "s": ["x", None]})
CONTEXT = SinkContext("revenue", "state-1", term="term-1", newest=1000)


def write(sink: Sink, batch: int, table: pa.Table = TABLE) -> None:
    """Both steps, as a batch does them."""
    token = sink.prepare(batch, table)
    sink.commit(batch, token, None if token else table)


def test_console_prints_a_bounded_table_once() -> None:
    out = io.StringIO()
    sink = ConsoleSink("revenue [x]", rows=2, console=Console(file=out, width=80))
    table = pa.table({"city": ["[red]Rome", None, "Oslo"], "n": [1, 2, 3]})
    write(sink, 4, table)
    write(sink, 4, table)
    write(sink, 5, table.slice(0, 0))
    text = out.getvalue()
    assert text.count("revenue [x] · batch 4 · 3 rows") == 1
    assert "[red]Rome" in text
    assert "NULL" in text
    assert "Oslo" not in text
    assert "first 2 of 3 rows" in text
    assert "batch 5" not in text


def test_a_callable_gets_each_batch_that_has_rows() -> None:
    got: list[tuple[int, int]] = []
    context = SinkContext("q", callback=lambda table, batch: got.append((batch, table.num_rows)))
    sink = open_sink(to_callable(), context)
    assert sink.prepare(1, TABLE) == "", "the rows wait with the state"
    assert got == []
    sink.commit(1, "", TABLE)
    write(sink, 2, TABLE.slice(0, 0))
    assert got == [(1, 2)]


@pytest.mark.parametrize("failure", [KeyError("no such thing"), SystemExit(1), KeyboardInterrupt()])
def test_a_failing_or_missing_callable_is_a_sink_error(failure: BaseException) -> None:
    def fail(table: pa.Table, batch_id: int) -> None:
        raise failure

    said = rf"q: its callable failed on batch 3\n.*{type(failure).__name__}"
    with pytest.raises(SinkError, match=said) as raised:
        write(open_sink(to_callable(), SinkContext("q", callback=fail)), 3)
    assert raised.value.__cause__ is failure
    assert "RESUME QUERY q" in str(raised.value.hint)
    with pytest.raises(SinkError, match="must be given again"):
        open_sink(to_callable(), SinkContext("q"))


def test_specs_are_plain_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert to_memory() == SinkSpec("memory")
    assert to_console(5) == SinkSpec("console", (("rows", 5),))
    assert dict(to_files("out").options) == {"format": "parquet", "path": str(tmp_path / "out")}
    assert to_spark("delta", mergeSchema=True, path="p").options == (
        ("format", "delta"),
        ("mergeSchema", "true"),
        ("path", "p"),
    )
    assert parse_spec("FILES", {"path": "out", "format": "CSV", "header": "false"}) == to_files(
        "out", "csv", header=False
    )
    assert parse_spec("console", {"rows": "5"}) == to_console(5)
    assert parse_spec("NOOP", {}) == to_noop() == SinkSpec("noop")
    assert parse_spec("spark", {"format": "delta", "path": "p"}) == to_spark("delta", path="p")


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("kafka", {}, r"no sink 'kafka'\n  hint: Write INTO spark OPTIONS \(format = 'kafka', ...\)"),
        ("Parquet", {}, r"no sink 'Parquet'\n  hint: Write INTO files OPTIONS \(format = 'parquet', path = '...'\)"),
        ("pigeon", {}, "no sink 'pigeon'\n  hint: Use one of: memory"),
        ("files", {}, "'path' is missing"),
        ("files", {"path": "x", "format": "xml"}, "must be one of csv, json, parquet, not 'xml'"),
        ("files", {"path": "x", "colour": "red"}, "'colour' is not known"),
        ("console", {"rows": "many"}, "must be a whole number"),
        ("console", {"rows": "0"}, "above 0"),
        ("memory", {"rows": "3"}, "'rows' is not known"),
        ("noop", {"rows": "3"}, "'rows' is not known"),
        ("spark", {}, "must name a Spark writer"),
    ],
)
def test_bad_specs_say_why(kind: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(SinkError, match=message):
        parse_spec(kind, options)


def test_an_unknown_kind_cannot_be_opened() -> None:
    with pytest.raises(SinkError, match="memory, console, files, spark, noop"):
        open_sink(SinkSpec("carrier pigeon"), CONTEXT)


def test_the_console_shows_control_characters_as_text() -> None:
    out = io.StringIO()
    table = pa.table({"na\x1bme": ["\x1b[2J\nx", "\u202eevil"], "list": [["\x1b"], ["\u202e"]]})
    write(ConsoleSink("q", console=Console(file=out, width=80)), 1, table)
    text = out.getvalue()
    assert "\x1b" not in text
    assert "\u202e" not in text
    for shown in (r"na\x1bme", r"\x1b[2J\nx", r"\u202eevil"):
        assert shown in text


class Callables:
    async def waits(self, table: pa.Table, batch_id: int) -> None: ...

    def yields(self, table: pa.Table, batch_id: int) -> Iterator[int]:
        yield 1

    async def both(self, table: pa.Table, batch_id: int) -> AsyncIterator[int]:
        yield 1

    def one(self, table: pa.Table) -> None: ...

    def three(self, table: pa.Table, batch_id: int, more: int) -> None: ...

    def right(self, table: pa.Table, batch_id: int, more: int = 0) -> None: ...


class CalledLater:
    async def __call__(self, table: pa.Table, batch_id: int) -> None: ...


REFUSED: list[tuple[Any, str]] = [
    (Callables().waits, "coroutine function"),
    (Callables().yields, "generator function"),
    (Callables().both, "generator function"),
    (CalledLater(), "coroutine function"),
    (functools.partial(Callables().waits), "coroutine function"),
    (functools.partial(functools.partial(CalledLater())), "coroutine function"),
    (functools.partial(Callables.yields, Callables()), "generator function"),
    (Callables().one, "cannot be called with a table and a batch id"),
    (Callables().three, "missing a required argument: 'more'"),
    (lambda: None, "cannot be called with a table and a batch id"),
    (functools.partial(Callables().right, 1, 2), "cannot be called with a table and a batch id"),
]


@pytest.mark.parametrize(("callback", "reason"), REFUSED)
def test_a_callable_that_would_take_no_rows_is_refused(callback: Any, reason: str) -> None:
    with pytest.raises(SinkError, match=f"query q: its callable .*{reason}") as raised:
        check_callback("q", callback)
    assert raised.value.hint


@pytest.mark.parametrize(
    "callback",
    [Callables().right, functools.partial(Callables().three, more=1), lambda *rest: None, print],
)
def test_a_callable_of_two_arguments_is_taken(callback: Any) -> None:
    check_callback("q", callback)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("made", [Callables().waits, Callables().yields, Callables().both])
def test_what_a_callable_only_begins_fails_its_batch(made: Any) -> None:
    sink = open_sink(to_callable(), SinkContext("q", callback=lambda table, batch_id: made(table, batch_id)))
    with pytest.raises(SinkError, match=r"failed on batch 3\n.*which nobody runs: no rows were taken"):
        sink.commit(3, "", TABLE)


def test_what_only_looks_as_if_it_had_taken_the_rows_fails_its_batch() -> None:
    taken: list[str] = []
    for made in (map(taken.append, "ab"), filter(taken.append, "ab")):
        sink = open_sink(to_callable(), SinkContext("q", callback=lambda table, batch_id, made=made: made))
        with pytest.raises(SinkError, match=r"it returned (map|filter), which nobody runs: no rows were taken"):
            sink.commit(3, "", TABLE)
    loop = asyncio.new_event_loop()
    sink = open_sink(to_callable(), SinkContext("q", callback=lambda table, batch_id: loop.create_future()))
    with pytest.raises(SinkError, match="it returned Future, which nobody waits for"):
        sink.commit(3, "", TABLE)
    loop.close()
    assert taken == []


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), asyncio.CancelledError("x"), GeneratorExit()])
def test_whatever_a_callable_raises_is_its_own_failure(failure: BaseException) -> None:
    def fail(table: pa.Table, batch_id: int) -> None:
        raise failure

    with pytest.raises(SinkError, match=type(failure).__name__):
        open_sink(to_callable(), SinkContext("q", callback=fail)).commit(3, "", TABLE)


@pytest.mark.parametrize(
    ("spec", "delivery"),
    [
        (to_memory(), "exactly once"),
        (to_files("out"), "exactly once"),
        (to_spark("Parquet", path="p"), "exactly once"),
        (to_spark("delta", path="p"), "exactly once"),
        (to_spark("kafka"), "at least once"),
        (to_spark("jdbc"), "at least once"),
        (to_callable(), "at least once"),
        (to_console(), "at least once"),
    ],
)
def test_a_spec_tells_how_often_a_row_is_seen(spec: SinkSpec, delivery: str) -> None:
    assert delivery_of(spec) == delivery
