from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from thalweg.errors import SinkError
from thalweg.model.query import SinkSpec
from thalweg.sink import files
from thalweg.sink.base import SinkContext, open_sink
from thalweg.sink.console import ConsoleSink
from thalweg.sink.specs import parse_spec, to_callable, to_console, to_files, to_memory, to_noop, to_spark

TABLE = pa.table({"n": [1, 2], "s": ["x", None]})
CONTEXT = SinkContext("revenue", "state-1")


def names(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.iterdir() if not p.name.startswith("."))


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_a_batch_is_one_file_and_a_repeat_the_same_one(tmp_path: Path, format: str) -> None:
    sink = open_sink(to_files(tmp_path / "out", format), CONTEXT)
    sink.commit(7, TABLE)
    (name,) = names(tmp_path / "out")
    assert name == f"part-000000000007.{format}"
    content = (tmp_path / "out" / name).read_bytes()
    again = open_sink(to_files(tmp_path / "out", format), CONTEXT)
    again.commit(7, TABLE)
    again.commit(8, TABLE.slice(0, 0))
    assert names(tmp_path / "out") == [name]
    assert (tmp_path / "out" / name).read_bytes() == content
    if format == "parquet":
        assert pq.read_table(tmp_path / "out" / name).equals(TABLE)


def test_readers_never_see_half_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = open_sink(to_files(tmp_path), CONTEXT)
    seen: list[list[str]] = []
    replace = os.replace

    def watch(old: Any, new: Any) -> None:
        assert pq.read_table(old).equals(TABLE)
        seen.append(names(tmp_path))
        replace(old, new)

    monkeypatch.setattr(os, "replace", watch)
    sink.commit(0, TABLE)
    assert seen == [[]]
    assert len(names(tmp_path)) == 1


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match=r"revenue: results cannot be written to .*file") as raised:
        open_sink(to_files(tmp_path / "file"), CONTEXT)
    assert "stopped" not in str(raised.value)  # it has not been created


def test_a_full_disk_is_a_sink_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = open_sink(to_files(tmp_path), CONTEXT)

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_atomic", fail)
    with pytest.raises(SinkError, match="No space left") as raised:
        sink.commit(0, TABLE)
    check_hint_of_a_stopped_query(raised.value)


def check_hint_of_a_stopped_query(error: SinkError) -> None:
    """What happens to a query whose sink has failed: it stops, and no batch is repeated for it."""
    assert "The query has stopped" in str(error.hint)
    assert "drop the query and create it again" in str(error.hint)
    assert "repeated" not in str(error.hint)


def test_two_queries_cannot_share_a_directory(tmp_path: Path) -> None:
    open_sink(to_files(tmp_path), CONTEXT)
    for other in (SinkContext("clicks", "state-1"), SinkContext("revenue", "state-2")):
        with pytest.raises(SinkError, match="already holds the results of query revenue"):
            open_sink(to_files(tmp_path), other)


def test_a_directory_claimed_by_a_path_is_claimed_anew(tmp_path: Path) -> None:
    """As earlier versions did: a state directory that is made anew at the same path is another one."""
    open_sink(to_files(tmp_path), SinkContext("revenue", "/state"))
    open_sink(to_files(tmp_path), SinkContext("revenue", "one", place="/state"))
    open_sink(to_files(tmp_path), SinkContext("revenue", "one", place="/elsewhere"))
    with pytest.raises(SinkError, match="already holds the results of query revenue"):
        open_sink(to_files(tmp_path), SinkContext("revenue", "other", place="/state"))


def test_a_column_without_a_text_form_is_named(tmp_path: Path) -> None:
    sink = open_sink(to_files(tmp_path, "csv"), CONTEXT)
    with pytest.raises(SinkError, match=r"column 'l' of type list<.*cannot be written as csv"):
        sink.commit(0, pa.table({"n": [1], "l": [[1]]}))


def test_console_prints_a_bounded_table_once() -> None:
    out = io.StringIO()
    sink = ConsoleSink("revenue [x]", rows=2, console=Console(file=out, width=80))
    table = pa.table({"city": ["[red]Rome", None, "Oslo"], "n": [1, 2, 3]})
    sink.commit(4, table)
    sink.commit(4, table)
    sink.commit(5, table.slice(0, 0))
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
    sink.commit(1, TABLE)
    sink.commit(2, TABLE.slice(0, 0))
    assert got == [(1, 2)]


@pytest.mark.parametrize("failure", [KeyError("no such thing"), SystemExit(1)])
def test_a_failing_or_missing_callable_is_a_sink_error(failure: BaseException) -> None:
    def fail(table: pa.Table, batch_id: int) -> None:
        raise failure

    said = rf"q: its callable failed on batch 3\n.*{type(failure).__name__}"
    with pytest.raises(SinkError, match=said) as raised:
        open_sink(to_callable(), SinkContext("q", callback=fail)).commit(3, TABLE)
    assert raised.value.__cause__ is failure
    check_hint_of_a_stopped_query(raised.value)
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
        ("kafka", {}, "no sink 'kafka'"),
        ("files", {}, "'path' is missing"),
        ("files", {"path": "x", "format": "xml"}, "must be one of parquet, json, csv"),
        ("files", {"path": "x", "colour": "red"}, "'colour' is not known"),
        ("console", {"rows": "many"}, "must be a number"),
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
    with pytest.raises(SinkError, match="callable, console, files"):
        open_sink(SinkSpec("carrier pigeon"), CONTEXT)
