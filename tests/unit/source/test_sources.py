"""Unit: what users may say about sources, and what they are told when it is wrong."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from thalweg.errors import SourceError
from thalweg.model.stream import Field, Schema, Stream
from thalweg.source.files import files
from thalweg.source.generate import generate
from thalweg.source.inventory import Inventory
from thalweg.source.memory import memory
from thalweg.source.read import read
from thalweg.source.schema import parse_schema
from thalweg.state.local_storage import LocalStorage


def types_of(schema: Schema | None) -> dict[str, str]:
    assert schema is not None
    return {field.name: field.type for field in schema.fields}


def test_ddl() -> None:
    schema = parse_schema("a BIGINT, `b c` string, p decimal(10, 2), q numeric(5), l long, ts TIMESTAMP_LTZ")
    assert types_of(schema) == {
        "a": "bigint",
        "b c": "string",
        "p": "decimal(10,2)",
        "q": "decimal(5,0)",
        "l": "bigint",
        "ts": "timestamp",
    }


@pytest.mark.parametrize("text", ["a", "a bigint,", "a bigint, a int", "a bigint, A int", "a array<int>", ""])
def test_ddl_that_is_none(text: str) -> None:
    with pytest.raises(SourceError, match="not a schema"):
        parse_schema(text)


@pytest.mark.filterwarnings("ignore:n .list:UserWarning")
def test_schema_from_the_first_file_of_each_format(tmp_path: Path) -> None:
    table = pa.table({"a": [1], "b": ["x"], "n": [[1]], "ts": pa.array([0], pa.timestamp("ns", tz="UTC"))})
    pq.write_table(table, tmp_path / "a.parquet")
    feather.write_feather(table, tmp_path / "a.feather")
    (tmp_path / "a.csv").write_text("a,b,ts\n1,x,2024-01-01T00:00:00\n")
    (tmp_path / "a.json").write_text('{"a": 1, "b": "x", "n": [1], "ts": "2024-01-01T00:00:00"}\n')
    expected = {"a": "bigint", "b": "string", "ts": "timestamp"}
    for suffix in ("parquet", "feather", "csv", "json"):
        assert types_of(files(f"{tmp_path}/*.{suffix}").schema()) == expected


def test_names_that_differ_only_in_case_are_the_same(tmp_path: Path) -> None:
    """Spark would refuse them later, when the stream has been kept."""
    pq.write_table(pa.table({"id": [1], "ID": [2]}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("id,ID\n1,2\n")
    for suffix in ("parquet", "csv"):
        with pytest.raises(SourceError, match="column id is there twice"):
            files(f"{tmp_path}/*.{suffix}").schema()
    with pytest.raises(SourceError, match="column id is there twice"):
        memory(Schema((Field("id", "int"), Field("ID", "int"))))
    with pytest.raises(SourceError, match="column id is there twice"):
        memory(pa.schema([("id", pa.int32()), ("Id", pa.int32())]))


def test_no_file_yet_means_no_schema_yet(tmp_path: Path) -> None:
    assert files(f"{tmp_path}/*.parquet").schema() is None


def test_a_directory_means_all_that_is_in_it(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    assert types_of(files(str(tmp_path)).schema()) == {"a": "bigint"}


def test_what_files_told_once_holds_after_a_restart(tmp_path: Path) -> None:
    table = tmp_path / "b.csv"
    table.write_text("a;b\n1;2\n")
    known = files(str(tmp_path), sep=";").spec()
    table.unlink()
    emptied = files(str(tmp_path), sep=";")
    for ask in (emptied.spec, emptied.schema):
        with pytest.raises(SourceError, match="cannot tell the format"):
            ask()
    emptied.recall(known)
    assert emptied.spec() == known
    (tmp_path / "a.json").write_text("{}\n")
    another_first = files(str(tmp_path), sep=";")
    another_first.recall(known)
    assert another_first.spec() == known
    other = files(f"{tmp_path}/*", sep="|", format="csv")
    other.recall(known)
    assert other.spec() != known
    said = files(f"{tmp_path}/*", format="json")
    said.recall(known)
    assert said.spec().options["format"] == "json"


def test_specs_are_json(tmp_path: Path) -> None:
    for source in (
        files(f"{tmp_path}/*.csv", header="false", sep=";"),
        memory("a int"),
        generate("ads", start=datetime(2024, 1, 1, tzinfo=UTC)),
    ):
        assert json.loads(json.dumps(source.spec().options)) == source.spec().options


def test_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no such directory"):
        files(f"{tmp_path}/nowhere/*.parquet").schema()
    with pytest.raises(SourceError, match="format"):
        files(f"{tmp_path}/*.xlsx")
    with pytest.raises(SourceError, match="format"):
        files(f"{tmp_path}/*", format="xlsx")
    with pytest.raises(SourceError, match="headr"):
        files(f"{tmp_path}/*.csv", headr=True)
    with pytest.raises(SourceError, match="max_files_per_batch"):
        files(f"{tmp_path}/*.csv", max_files_per_batch=0)
    with pytest.raises(SourceError, match="generator"):
        generate("purchase")
    with pytest.raises(SourceError, match="keyz"):
        generate("facts", keyz=3)
    with pytest.raises(SourceError, match="rows"):
        generate("facts", rows="many")
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    with pytest.raises(SourceError, match="cannot read a schema"):
        files(f"{tmp_path}/*.parquet").schema()


def test_append_casts_or_refuses() -> None:
    source = memory(pa.schema([("a", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))]))
    source.append(pa.record_batch({"a": pa.array([1], pa.int8()), "ts": pa.array([1], pa.timestamp("ms", tz="UTC"))}))
    with pytest.raises(SourceError, match="column a: not a bigint"):
        source.append(pa.table({"a": ["x"], "ts": pa.array([0], pa.timestamp("us"))}))
    with pytest.raises(SourceError, match="no column b"):
        source.append(pa.table({"b": [1]}))


def test_appends_from_many_threads_are_all_kept_once(tmp_path: Path) -> None:
    source = memory("a bigint", max_files_per_batch=5)
    source.append(pa.table({"a": [-1]}))
    storage = LocalStorage(str(tmp_path))
    source.attach(storage, "s")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: source.append(pa.table({"a": [i]})), range(40)))
    stream = Stream("s", source.schema(), "a", 0, source.spec())
    inventory = Inventory(stream, storage)
    assert inventory.available() == 41
    assert inventory.limit(0, 41) == 5
    values = [
        value
        for split in inventory.splits(0, 41)
        for chunk in read(split, stream, ["a"], storage)
        for value in chunk.table["a"].to_pylist()
    ]
    assert values[0] == -1
    assert sorted(values) == list(range(-1, 40))


def test_columns_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    columns = {"id": [1], "user": [{"name": "u"}], "tags": [["a"]], "big": pa.array([1], pa.uint64())}
    pq.write_table(pa.table(columns), path)
    with pytest.warns(UserWarning, match="left out of the stream") as told:
        schema = files(str(path)).schema()
    assert schema is not None
    assert schema.names == ("id",)
    assert str(told[0].message).startswith(
        "user (struct<name: string>), tags (list<element: string>), big (uint64): these columns are left out"
    )
