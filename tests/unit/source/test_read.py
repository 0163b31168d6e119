"""Unit: rows come out in the stream's types; what cannot be read is set aside and the rest goes on."""

from __future__ import annotations

import datetime as dt
import errno
import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.errors import SourceError
from thalweg.model.generator import Generator
from thalweg.model.split import CsvOptions, Split
from thalweg.model.stream import SourceSpec, Stream
from thalweg.source import chunks as module
from thalweg.source import text
from thalweg.source.chunks import Chunk
from thalweg.source.read import read
from thalweg.source.schema import parse_schema
from thalweg.state.local_storage import LocalStorage

NOWHERE = LocalStorage("/nowhere")


def stream_of(ddl: str) -> Stream:
    return Stream("s", parse_schema(ddl), "ts", 0, SourceSpec("files", {}))


def read_all(split: Split, ddl: str, columns: list[str] | None = None) -> tuple[pa.Table, list[dict[str, str]], int]:
    stream = stream_of(ddl)
    chunks = list(read(split, stream, columns or stream.schema.names, NOWHERE))
    wanted = pa.schema([stream.schema.to_inner_arrow().field(n) for n in columns or stream.schema.names])
    assert all(chunk.table.schema == wanted for chunk in chunks)
    aside = [chunk.rejected.select(["reason", "row"]) for chunk in chunks if chunk.rejected is not None]
    rejected = [row for table in aside for row in table.to_pylist()]
    table = pa.concat_tables([chunk.table for chunk in chunks]) if chunks else wanted.empty_table()
    rows = sum(chunk.rows for chunk in chunks)
    return table, rejected, rows


def parquet(path: Path, table: pa.Table, **options: Any) -> Split:
    pq.write_table(table, path, **options)
    return Split("s", "parquet", str(path), 0, -1)


def test_parquet_row_groups_and_columns(tmp_path: Path) -> None:
    table = pa.table({"a": range(100), "b": ["x"] * 100})
    split = parquet(tmp_path / "f", table, row_group_size=10)
    part = Split("s", "parquet", split.path, 2, 5)
    result, rejected, rows = read_all(part, "a bigint, b string", ["a"])
    assert (result["a"].to_pylist(), rejected, rows) == (list(range(20, 50)), [], 30)


def test_types_are_made_to_fit(tmp_path: Path) -> None:
    moment = dt.datetime(2024, 1, 1, 12, 0, 0, 5000)
    table = pa.table(
        {
            "i": pa.array([1, None], pa.int32()),
            "u": pa.array([1, 2], pa.uint16()),
            "ms": pa.array([moment, None], pa.timestamp("ms")),
            "tz": pa.array([moment, None], pa.timestamp("us", tz="Europe/Berlin")),
            "ns": pa.array([-1, 1999], pa.timestamp("ns")),
            "d": pa.array([dt.date(2024, 1, 1), None]),
            "big": pa.array(["x", None], pa.large_string()),
            "dict": pa.array(["x", "y"]).dictionary_encode(),
            "dec": pa.array([Decimal("1.5"), None], pa.decimal128(5, 1)),
            "f": pa.array([2**60, 1], pa.int64()),
        }
    )
    ddl = (
        "i bigint, u bigint, ms timestamp, tz timestamp, ns timestamp, d timestamp, big string, dict string, "
        "dec decimal(10,3), f double, gone bigint"
    )
    result, rejected, _ = read_all(parquet(tmp_path / "f", table), ddl)
    assert rejected == []
    first = result.to_pylist()[0]
    assert first == {
        "i": 1,
        "u": 1,
        "ms": moment,
        "tz": moment,
        "ns": dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        "d": dt.datetime(2024, 1, 1),
        "big": "x",
        "dict": "x",
        "dec": Decimal("1.500"),
        "f": float(2**60),
        "gone": None,
    }
    assert result["ns"].to_pylist()[1] == dt.datetime(1970, 1, 1, 0, 0, 0, 1)


def test_wrong_types_in_parquet_are_set_aside_by_row(tmp_path: Path) -> None:
    table = pa.table(
        {
            "a": ["1", " 2 ", "x", None, "3.5", "99999999999999999999", "1_0"],
            "b": [1.0, 2.0, 3.0, None, 5.0, 6.0, 7.5],
        }
    )
    result, rejected, rows = read_all(parquet(tmp_path / "f", table), "a bigint, b int")
    assert result.to_pylist() == [{"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": None, "b": None}]
    assert [row["reason"] for row in rejected] == ["column a: not a bigint"] * 4
    assert json.loads(rejected[0]["row"]) == {"a": "x", "b": "3.0"}
    assert rows == 7


def test_numbers_are_no_times(tmp_path: Path) -> None:
    _, rejected, _ = read_all(parquet(tmp_path / "f", pa.table({"ts": [1, None]})), "ts timestamp")
    assert [row["reason"] for row in rejected] == ["column ts: not a timestamp"]


def test_columns_that_no_file_has_are_null(tmp_path: Path) -> None:
    split = parquet(tmp_path / "f", pa.table({"ts": pa.array(range(5), pa.timestamp("us"))}))
    chunks = list(read(split, stream_of("z bigint, ts timestamp"), ["z"], NOWHERE))
    assert [chunk.missing for chunk in chunks] == [("z",)]
    assert chunks[0].table.to_pylist() == [{"z": None}] * 5


def test_no_columns_still_counts_rows(tmp_path: Path) -> None:
    split = parquet(tmp_path / "f", pa.table({"a": range(5)}))
    assert sum(chunk.rows for chunk in read(split, stream_of("a bigint"), [], NOWHERE)) == 5


@pytest.mark.parametrize("failure", [OSError(errno.EIO, "a dead disk"), pa.ArrowMemoryError("too little")])
def test_rows_are_not_given_up_for_what_is_not_their_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    split = parquet(tmp_path / "f", pa.table({"a": range(100)}))

    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", fail)
    with pytest.raises((SourceError, MemoryError), match=r"dead disk|too little"):
        read_all(split, "a bigint")


def test_a_file_that_is_no_parquet_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    path.write_bytes(b"PAR1 not really PAR1")
    result, rejected, _ = read_all(Split("s", "parquet", str(path), 0, -1), "a bigint")
    assert result.num_rows == 0
    assert rejected[0]["row"] == str(path)
    assert "parquet file cannot be read" in rejected[0]["reason"]


def test_a_column_that_a_file_has_twice_sets_it_aside(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "a", "b"])
    split = parquet(tmp_path / "f", twice)
    result, rejected, _ = read_all(split, "a bigint, b bigint")
    assert (result.num_rows, rejected[0]["row"]) == (0, split.path)
    assert "exists 2 times" in rejected[0]["reason"]
    assert read_all(split, "a bigint, b bigint", ["b"])[0].to_pylist() == [{"b": 3}]
    for lines in ("1,2,3\n", "1,2,3\nx,y,z\n"):
        for multiline in (False, True):
            text_split = csv_split(tmp_path / "g", f"a,a,b\n{lines}", multiline=multiline)
            result, rejected, _ = read_all(text_split, "a bigint, b bigint")
            assert (result.num_rows, len(rejected)) == (0, 1)
            assert rejected[0]["reason"] == "csv file cannot be read: column a is there twice"


@pytest.mark.parametrize("failure", [duckdb.ConversionException("odd"), RuntimeError("odd")])
def test_whatever_a_file_makes_a_reader_raise_sets_it_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    split = parquet(tmp_path / "f", pa.table({"a": [1]}))
    monkeypatch.setattr(module, "conform", raising(failure))
    result, rejected, _ = read_all(split, "a bigint")
    assert (result.num_rows, rejected[0]["row"]) == (0, split.path)
    assert "odd" in rejected[0]["reason"]


@pytest.mark.parametrize("failure", [MemoryError(), pa.ArrowMemoryError("full"), SourceError("told already")])
def test_rows_are_not_given_up_for_what_is_no_fault_of_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    split = parquet(tmp_path / "f", pa.table({"a": [1]}))
    monkeypatch.setattr(module, "conform", raising(failure))
    with pytest.raises(type(failure)):
        read_all(split, "a bigint")


def raising(failure: Exception) -> Callable[..., Any]:
    def raise_it(*given: Any, **options: Any) -> Any:
        raise failure

    return raise_it


@pytest.mark.slow
def test_a_corrupt_row_group_does_not_take_the_others_along(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    table = pa.table({"a": pa.array(range(3_000_000), pa.int64())})
    split = parquet(path, table, row_group_size=1_000_000, compression="snappy", use_dictionary=False)
    start = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    data = bytearray(path.read_bytes())
    data[start + 100 : start + 5000] = b"\xff" * 4900
    path.write_bytes(data)
    result, rejected, _ = read_all(split, "a bigint")
    assert result.num_rows == 2_000_000
    assert len(rejected) == 1
    assert "row group 1" in rejected[0]["reason"]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "json", "csv"])
def test_a_vanished_file_is_an_error(tmp_path: Path, kind: str) -> None:
    split = Split("s", kind, str(tmp_path / "gone"), 0, -1)
    with pytest.raises(SourceError, match=r"stream s has vanished.*gone"):
        read_all(split, "a bigint")


def test_arrow_files_and_streams(tmp_path: Path) -> None:
    table = pa.table({"z": range(100), "a": range(100)})
    for name, new in (("file", pa_ipc.new_file), ("stream", pa_ipc.new_stream)):
        with new(str(tmp_path / name), table.schema) as writer:
            writer.write_table(table, max_chunksize=10)
        result, _, rows = read_all(Split("s", "arrow", str(tmp_path / name), 0, -1), "a bigint, z bigint", ["a"])
        assert (result["a"].to_pylist(), rows) == (list(range(100)), 100)
    part = Split("s", "arrow", str(tmp_path / "file"), 3, 5)
    assert read_all(part, "a bigint, z bigint")[0]["z"].to_pylist() == list(range(30, 50))


GOOD_JSON = '{"a":1,"b":"x","p":1.25,"f":1.5,"t":true,"d":"2024-02-29","ts":"2024-01-01T00:00:00Z","zz":{"q":1}}'
DDL = "a bigint, b string, p decimal(10,2), f double, t boolean, d date, ts timestamp"


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    lines = [
        GOOD_JSON,
        '{"a":2,"ts":"2024-01-01 00:00:00"}',
        "",
        '{"a":3,"ts":"2024-01-01T02:00:00+02:00"}',
        '{"a":4,"ts":"2024-01-01"}',
    ]
    path.write_text("\n".join(lines))
    result, rejected, rows = read_all(Split("s", "json", str(path), 0, -1), DDL)
    midnight = dt.datetime(2024, 1, 1)
    assert (rejected, rows) == ([], 4)
    assert result["ts"].to_pylist() == [midnight] * 4
    assert result.to_pylist()[0] == {
        "a": 1,
        "b": "x",
        "p": Decimal("1.25"),
        "f": 1.5,
        "t": True,
        "d": dt.date(2024, 2, 29),
        "ts": midnight,
    }


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"a":1', "not a JSON object"),
        ("[1]", "an array; JSON lines are wanted: one object a line"),
        ("17", "not a JSON object"),
        ("plain text", "not a JSON object"),
        ('{"a":1} {"a":2}', "not a JSON object"),
        ('{"a":"1"}', "column a: not a bigint"),
        ('{"a":1.0}', "column a: not a bigint"),
        ('{"a":true}', "column a: not a bigint"),
        ('{"a":9223372036854775808}', "column a: not a bigint"),
        ('{"p":123456789.1}', "column p: not a decimal(10,2)"),
        ('{"f":"x"}', "column f: not a double"),
        ('{"t":1}', "column t: not a boolean"),
        ('{"d":"2024-02-30"}', "column d: not a date"),
        ('{"ts":1700000000}', "column ts: not a timestamp"),
        ('{"ts":"infinity"}', "column ts: not a timestamp"),
        ('{"ts":"yesterday"}', "column ts: not a timestamp"),
    ],
)
def test_a_bad_json_line_is_set_aside_and_the_rest_goes_on(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "f.json"
    path.write_text(f"{GOOD_JSON}\n{line}\n{GOOD_JSON}\n")
    result, rejected, rows = read_all(Split("s", "json", str(path), 0, -1), DDL)
    assert rejected == [{"reason": reason, "row": line}]
    assert rows == 3
    path.write_text(f"{GOOD_JSON}\n{GOOD_JSON}\n")
    assert result == read_all(Split("s", "json", str(path), 0, -1), DDL)[0]


@pytest.mark.parametrize("columns", [["a", "b", "ts"], ["ts"], ["b", "ts"]])
def test_a_json_line_of_other_fields_is_set_aside(tmp_path: Path, columns: list[str]) -> None:
    """Whichever columns are asked for. One that has some of them, though they are null, is a row."""
    path = tmp_path / "f.json"
    good = [GOOD_JSON, '{"f":1.5}', '{"b":null}', '{"ts":null,"more":1}']
    other = ['{"A":1,"TS":"2024-01-01"}', "{}", '{"it\'s":{"a":1}}']
    path.write_text("\n".join([*good, *other, *good]) + "\n")
    result, rejected, _ = read_all(Split("s", "json", str(path), 0, -1), DDL, columns)
    assert result.num_rows == 8
    assert [row["row"] for row in rejected] == other
    assert {row["reason"] for row in rejected} == {"it has none of the columns of the stream"}


def test_an_array_is_set_aside_once_however_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('[\n{"a": 1},\n{"a": 2}\n]\n')
    parts = [
        read_all(Split("s", "json", str(path), low, high), "a bigint") for low, high in ((0, 5), (5, 15), (15, -1))
    ]
    assert sum(rows for _, _, rows in parts) == 1
    assert [reason["reason"] for _, rejected, _ in parts for reason in rejected] == [
        "json file cannot be read: an array; JSON lines are wanted: one object a line"
    ]


def test_json_numbers_and_objects_are_text_where_text_is_declared(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('{"b":5}\n{"b":{"x":1}}\n{"b":null}\n{"b":"ü\\n"}\n')
    result, rejected, _ = read_all(Split("s", "json", str(path), 0, -1), "b string")
    assert (result["b"].to_pylist(), rejected) == (["5", '{"x":1}', None, "ü\n"], [])


def test_odd_column_names_in_json(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('{"it\'s":1,"a/b":2,"c~d":3,"e.f":4}\nbroken\n')
    result, rejected, _ = read_all(
        Split("s", "json", str(path), 0, -1), "`it's` bigint, `a/b` bigint, `c~d` bigint, `e.f` bigint"
    )
    assert list(result.to_pylist()[0].values()) == [1, 2, 3, 4]
    assert len(rejected) == 1


def test_a_decimal_keeps_all_its_digits_beside_a_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('{"q":{"p":1.5},"p":12345678901234567890.12}\n{"p":"0.05"}\n{"p":1e3}\nbroken\n')
    result, rejected, _ = read_all(Split("s", "json", str(path), 0, -1), "p decimal(30,2)")
    assert result["p"].to_pylist() == [Decimal("12345678901234567890.12"), Decimal("0.05"), Decimal(1000)]
    assert len(rejected) == 1


@pytest.mark.parametrize("kind", ["json", "csv"])
def test_no_columns_of_a_text_file_still_counts_rows(tmp_path: Path, kind: str) -> None:
    moment = "2024-01-01T00:00:00Z"
    path = tmp_path / "f"
    path.write_text(f'{{"ts":"{moment}"}}\nbroken\n' if kind == "json" else f"ts,a\n{moment},1\nbroken\n")
    chunks = list(read(Split("s", kind, str(path), 0, -1), stream_of("a bigint, ts timestamp"), [], NOWHERE))
    assert [(chunk.rows, chunk.table.num_columns, chunk.rejected.num_rows) for chunk in chunks] == [(2, 0, 1)]


def csv_split(path: Path, content: str | bytes, **options: Any) -> Split:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Split("s", "csv", str(path), 0, -1, csv=CsvOptions(**options))


def test_csv(tmp_path: Path) -> None:
    content = (
        "\ufeffts,b,a,extra\r\n"
        '2024-01-01T00:00:00Z,"x, ""y""",1,9\r\n'
        "2024-01-01 00:00:00,,2,9\r\n"
        '2024-01-01T01:00:00+01:00,"",3,9\r\n'
    )
    result, rejected, rows = read_all(csv_split(tmp_path / "f", content), "a bigint, b string, ts timestamp, n int")
    assert (rejected, rows) == ([], 3)
    assert result["b"].to_pylist() == ['x, "y"', None, ""]
    assert result["ts"].to_pylist() == [dt.datetime(2024, 1, 1)] * 3
    assert result["n"].to_pylist() == [None] * 3


def test_csv_of_a_header_alone_has_no_rows_with_or_without_its_end(tmp_path: Path) -> None:
    for content in ("a,b", "a,b\n", "a,b\r\n"):
        result, rejected, rows = read_all(csv_split(tmp_path / "f", content), "a bigint, b string")
        assert (result.num_rows, rejected, rows) == (0, [], 0)


def test_csv_without_header_goes_by_order(tmp_path: Path) -> None:
    split = csv_split(tmp_path / "f", "1;x\n2;y\n", header=False, delimiter=";")
    result, _, _ = read_all(split, "a bigint, b string", ["b"])
    assert result["b"].to_pylist() == ["x", "y"]


@pytest.mark.parametrize(
    ("line", "reason", "shown"),
    [
        ("x,z,1.5", "column a: not a bigint", "x,z,1.5"),
        ("1,z,one", "column f: not a double", "1,z,one"),
        ("1,z", "expected 3 fields, got 2", "1,z"),
        ("1,z,1,1", "expected 3 fields, got 4", "1,z,1,1"),
        ('1,"z,1', "quote is not closed; a value with a line break needs multiline=true", '1,"z,1'),
    ],
)
def test_a_bad_csv_line_is_set_aside(tmp_path: Path, line: str, reason: str, shown: str) -> None:
    split = csv_split(tmp_path / "f", f"a,b,f\n1,x,0.5\n{line}\n2,y,nan\n")
    result, rejected, rows = read_all(split, "a bigint, b string, f double")
    assert result["a"].to_pylist() == [1, 2]
    assert rejected == [{"reason": reason, "row": shown}]
    assert rows == 3


def test_bytes_that_are_no_text_are_set_aside(tmp_path: Path) -> None:
    result, rejected, _ = read_all(csv_split(tmp_path / "f", b"a,b\n1,x\n2,\xff\n3,z\n"), "a bigint, b string")
    assert result["a"].to_pylist() == [1, 3]
    assert rejected[0]["reason"] == "not UTF-8"


def test_csv_values_with_line_breaks(tmp_path: Path) -> None:
    split = csv_split(tmp_path / "f", 'a,b\n1,"x\ny"\nz,"q"\n3\n4,w\n', multiline=True)
    result, rejected, _ = read_all(split, "a bigint, b string")
    assert result.to_pylist() == [{"a": 1, "b": "x\ny"}, {"a": 4, "b": "w"}]
    assert {row["reason"] for row in rejected} == {"column a: not a bigint", "expected 2 fields, got 1"}


def test_compressed_text(tmp_path: Path) -> None:
    path = tmp_path / "f.csv.gz"
    path.write_bytes(gzip.compress(b"a\n" + b"".join(b"%d\n" % i for i in range(100_000))))
    result, _, _ = read_all(Split("s", "csv", str(path), 0, -1), "a bigint")
    assert result["a"].to_pylist() == list(range(100_000))


@pytest.mark.parametrize("content", ["a,b\n", "\n\n"])
def test_nothing_in_a_csv_file(tmp_path: Path, content: str) -> None:
    assert read_all(csv_split(tmp_path / "f", content), "a bigint")[1:] == ([], 0)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(st.sampled_from(["1", "22", "333", "", "bad", "4444"]), max_size=30),
    cuts=st.lists(st.integers(0, 120), max_size=6),
    last_newline=st.booleans(),
    kind=st.sampled_from(["json", "csv"]),
)
def test_byte_ranges_give_every_line_once(
    tmp_path: Path, lines: list[str], cuts: list[int], last_newline: bool, kind: str
) -> None:
    """Property: however the file is cut, the same rows are read and the same set aside."""
    if kind == "json":
        content = "\n".join(f'{{"a":{line}}}' if line else "" for line in lines)
    else:
        content = "a,b\n" + "\n".join(f"{line},x" if line else "" for line in lines)
    content += "\n" if last_newline else ""
    path = tmp_path / "f"
    path.write_text(content)
    bounds = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    splits = [Split("s", kind, str(path), low, high) for low, high in pairwise(bounds)]
    parts = [read_all(split, "a bigint") for split in splits]
    values = [value for part in parts for value in part[0]["a"].to_pylist()]
    assert values == [int(line) for line in lines if line.isdigit()]
    assert sum(len(part[1]) for part in parts) == lines.count("bad")
    assert sum(part[2] for part in parts) == sum(1 for line in lines if line)


@pytest.mark.slow
def test_small_blocks_give_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.json"
    path.write_text("".join(f'{{"a":{i}}}\n' if i % 97 else "broken\n" for i in range(20_000)))
    split = Split("s", "json", str(path), 0, -1)
    whole = read_all(split, "a bigint")
    monkeypatch.setattr(text, "BLOCK", 5000)
    monkeypatch.setattr(text, "_SMALL_BLOCK", 1000)
    parts = read_all(split, "a bigint")
    assert parts[0]["a"].to_pylist() == whole[0]["a"].to_pylist()
    assert len(parts[1]) == len(whole[1]) == 207
    assert parts[2] == whole[2] == 20_000


def test_generated_rows_are_read_in_the_streams_types() -> None:
    from thalweg.source.generate import generate

    source = generate("facts", rows=10)
    stream = Stream("s", source.schema(), "ts", 0, source.spec())
    split = Split("s", "generate", "", 3, 7, generator=msgspec.convert(source.spec().options, Generator))
    chunks: list[Chunk] = list(read(split, stream, ["id", "ts"], NOWHERE))
    assert [chunk.table["id"].to_pylist() for chunk in chunks] == [[3, 4, 5, 6]]
