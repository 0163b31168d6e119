"""Unit: what readers do not let in: other bytes, other numbers, other years, buffers that are not what they say."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as pa_ipc
import pyarrow.parquet as pq
import pytest

from thalweg.model.split import CsvOptions, Split
from thalweg.model.stream import SourceSpec, Stream
from thalweg.source.chunks import Chunk
from thalweg.source.conform import Admission, conform, convert
from thalweg.source.read import read
from thalweg.source.schema import parse_schema

BAD = b"caf\xe9"


def stream_of(ddl: str, **limits: Any) -> Stream:
    return Stream("s", parse_schema(ddl), "ts", 0, SourceSpec("files", {}), **limits)


def chunks_of(path: Path, kind: str, ddl: str, **split: Any) -> list[Chunk]:
    stream = stream_of(ddl)
    return list(read(Split("s", kind, str(path), 0, -1, **split), stream, stream.schema.names, None))


def aside(chunks: list[Chunk]) -> list[dict[str, Any]]:
    return [row for chunk in chunks if chunk.rejected is not None for row in chunk.rejected.to_pylist()]


def rows(chunks: list[Chunk]) -> list[dict[str, Any]]:
    return [row for chunk in chunks for row in chunk.table.to_pylist()]


@pytest.mark.parametrize(
    ("values", "kind", "kept"),
    [
        (pa.array([1.0, 1e300, float("inf"), None]), "float", [1.0, float("inf"), None]),
        (pa.array([16777216.0, 16777217.0, 0.1]), "float", [16777216.0, float(np.float32(0.1))]),
        (pa.array([2**53, 2**53 + 1, 2**60, 2**63 - 1]), "double", [2.0**53, 2.0**60]),
        (pa.array([2**24, 2**24 + 1]), "float", [2.0**24]),
        (pa.array([Decimal(2**53 + 1), Decimal(2**53)]), "double", [2.0**53]),
        (pa.array([1.0, 1.5]), "bigint", [1]),
        (pa.array([300, 3]), "tinyint", [3]),
        (pa.array([0, 2**62], pa.timestamp("s")), "timestamp", [dt.datetime(1970, 1, 1)]),
        (pa.array([0, 253_402_300_800_000], pa.timestamp("ms")), "timestamp", [dt.datetime(1970, 1, 1)]),
        (pa.array([0, -62_135_596_800_000_001], pa.timestamp("us", "UTC")), "timestamp", [dt.datetime(1970, 1, 1)]),
        (pa.array([0, 2_932_897], pa.date32()), "date", [dt.date(1970, 1, 1)]),
    ],
)
def test_what_a_column_cannot_hold_is_set_aside(values: pa.Array, kind: str, kept: list[Any]) -> None:
    schema = parse_schema(f"a {kind}")
    result = conform(pa.table({"a": values}), schema, ["a"])
    assert result.rejected is not None
    assert result.table["a"].to_pylist() == kept
    assert result.rejected.num_rows == len(values) - len(kept)
    assert all(line is not None for line in result.rejected["line"].to_pylist())


def test_a_whole_column_that_fits_is_not_looked_at_twice() -> None:
    for values, kind in ((pa.array([2**40]), "double"), (pa.array(["ü"]), "string"), (pa.array([0.1]), "float")):
        assert convert(pa.chunked_array([values]), kind)[1] is None


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_text_of_other_bytes_is_set_aside_row_by_row(kind: pa.DataType) -> None:
    as_bytes = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary(), pa.string_view(): pa.binary_view()}
    values = pa.array([b"one", BAD, None, "drü".encode()], as_bytes[kind]).view(kind)
    schema = parse_schema("g string, k bigint")
    result = conform(pa.table({"g": values, "k": range(4)}), schema, schema.names)
    assert result.table["g"].to_pylist() == ["one", None, "drü"]
    assert result.rejected is not None
    found = result.rejected.to_pylist()
    assert [(r["kind"], r["reason"], r["line"]) for r in found] == [("not UTF-8", "column g: not UTF-8", 2)]
    assert "caf" in found[0]["row"]


def test_text_of_other_bytes_in_parquet(tmp_path: Path) -> None:
    values = pa.array([b"one", BAD], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"g": values}), tmp_path / "f")
    chunks = chunks_of(tmp_path / "f", "parquet", "g string")
    assert rows(chunks) == [{"g": "one"}]
    assert [(r["reason"], r["line"]) for r in aside(chunks)] == [("column g: not UTF-8", 2)]


def broken_offsets() -> pa.Array:
    offsets = pa.py_buffer(np.array([0, 3, 1_000_000, 9], np.int32))
    return pa.Array.from_buffers(pa.string(), 3, [None, offsets, pa.py_buffer(b"onetwosix")])


@pytest.mark.parametrize("is_stream", [False, True])
def test_offsets_out_of_range_set_a_record_batch_aside(tmp_path: Path, is_stream: bool) -> None:
    path = tmp_path / "f.arrow"
    new = pa_ipc.new_stream if is_stream else pa_ipc.new_file
    good = pa.record_batch({"g": ["one", "two", "six"]})
    with new(str(path), good.schema) as writer:
        writer.write_batch(good)
        writer.write_batch(good)
    data = path.read_bytes()
    at = data.index(np.array([0, 3, 6, 9], np.int32).tobytes())
    path.write_bytes(data[: at + 8] + np.array([1_000_000], np.int32).tobytes() + data[at + 12 :])
    chunks = chunks_of(path, "arrow", "g string")
    assert rows(chunks) == [{"g": "one"}, {"g": "two"}, {"g": "six"}]
    found = aside(chunks)
    assert len(found) == 1
    assert found[0]["reason"].startswith("arrow file cannot be read: record batch 0, column g: ")
    with pytest.raises(pa.ArrowInvalid):
        broken_offsets().validate(full=True)


def test_a_page_with_another_checksum_sets_its_row_group_aside(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    table = pa.table({"k": pa.array(range(100), pa.int64())})
    options = {"use_dictionary": False, "compression": "none", "row_group_size": 50, "write_statistics": False}
    pq.write_table(table, path, write_page_checksum=True, **options)
    data = bytearray(path.read_bytes())
    data[data.index(np.array([60], np.int64).tobytes())] ^= 1
    path.write_bytes(data)
    chunks = chunks_of(path, "parquet", "k bigint")
    assert [row["k"] for row in rows(chunks)] == list(range(50))
    assert [r["kind"] for r in aside(chunks)] == ["unreadable"]
    assert "row group 1: could not verify page integrity" in aside(chunks)[0]["reason"]


@pytest.mark.parametrize(
    ("kind", "text", "ddl", "kept"),
    [
        ("csv", "f\n1e300\n1.5\ninf\n", "f float", [1.5, float("inf")]),
        ("csv", "f\n1e400\n", "f double", []),
        ("json", '{"f": 1e300}\n{"f": 1.5}\n{"f": "Infinity"}\n', "f float", [1.5, float("inf")]),
    ],
)
def test_no_number_of_a_text_becomes_infinite(
    tmp_path: Path, kind: str, text: str, ddl: str, kept: list[float]
) -> None:
    (tmp_path / "f").write_text(text)
    chunks = chunks_of(tmp_path / "f", kind, ddl)
    assert [row["f"] for row in rows(chunks)] == kept
    assert [r["reason"] for r in aside(chunks)] == [f"column f: not a {ddl[2:]}"]


def test_times_ahead_and_the_lines_of_text(tmp_path: Path) -> None:
    lines = ['{"a":1,"ts":"2026-01-01T00:00:00"}', "", '{"a":2,"ts":"2026-01-03T00:00:00"}']
    (tmp_path / "f").write_text("\n".join(lines))
    stream = stream_of("a bigint, ts timestamp", max_ahead_us=86_400_000_000)
    clock = int(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()) * 1_000_000
    chunks = list(read(Split("s", "json", str(tmp_path / "f"), 0, -1), stream, ["a", "ts"], None, clock))
    assert [row["a"] for row in rows(chunks)] == [1]
    assert [(r["kind"], r["line"], r["row"]) for r in aside(chunks)] == [("ahead", 3, lines[2])]


@pytest.mark.parametrize("us", [-62_104_060_800_000_001, 253_370_764_800_000_000])
def test_event_times_at_the_ends_of_time_are_not_let_in(us: int) -> None:
    schema = parse_schema("ts timestamp")
    table = pa.table({"ts": pa.array([0, us, None], pa.timestamp("us"))})
    result = conform(table, schema, ["ts"], Admission("ts"))
    assert result.table.num_rows == 2
    assert conform(table, schema, ["ts"]).rejected is None


@pytest.mark.slow
def test_lines_are_numbered_in_all_parts_of_a_large_file(tmp_path: Path) -> None:
    count = 200_000
    bad = {7, 1_000, 99_999, 150_001, 199_999}
    lines = ["x" if number in bad else str(number) for number in range(count)]
    (tmp_path / "f.csv").write_text("a\n" + "\n".join(lines) + "\n")
    size = (tmp_path / "f.csv").stat().st_size
    found = []
    for low, high in ((0, size // 3), (size // 3, size // 2), (size // 2, size)):
        split = Split("s", "csv", str(tmp_path / "f.csv"), low, high, csv=CsvOptions())
        found += aside(list(read(split, stream_of("a bigint"), ["a"], None)))
    assert {r["line"] for r in found} == {number + 2 for number in bad}  # from 1 on, after the header


def test_a_file_that_has_grown_is_read_up_to_what_was_seen(tmp_path: Path) -> None:
    path = tmp_path / "f.json"
    path.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    status = path.stat()
    path.write_text('{"a": 1}\n{"a": 2}\n{"a": 3}\n{"a": 4}\n')
    chunks = chunks_of(path, "json", "a bigint", size=status.st_size, modified_ns=status.st_mtime_ns)
    assert [row["a"] for row in rows(chunks)] == [1, 2]
    assert [r["kind"] for r in aside(chunks)] == ["changed"]


def test_a_file_that_shrank_or_was_written_again_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), path)
    status = path.stat()
    seen = {"size": status.st_size, "modified_ns": status.st_mtime_ns}
    assert aside(chunks_of(path, "parquet", "a bigint", **seen)) == []
    for changed in ({**seen, "size": seen["size"] + 1}, {**seen, "modified_ns": 5}):
        chunks = chunks_of(path, "parquet", "a bigint", **changed)
        assert rows(chunks) == []
        assert [r["kind"] for r in aside(chunks)] == ["changed"]
