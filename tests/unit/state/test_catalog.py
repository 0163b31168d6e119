"""Unit: streams and tables come back; a catalogue that is damaged or missing is named."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from thalweg.errors import StateError
from thalweg.model.bucket import Section
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.source.contract import Source
from thalweg.source.files import files
from thalweg.source.generate import generate
from thalweg.source.memory import memory
from thalweg.state.catalog import (
    Table,
    check_catalog,
    load_streams,
    load_tables,
    save_streams,
    save_tables,
)
from thalweg.state.local_storage import LocalStorage
from thalweg.state.sealed import write_value

SCHEMA = Schema((Field("a", "bigint"), Field("b é", "string")))
STREAMS = {
    "s": Stream("s", SCHEMA, "a", 5, SourceSpec("files", {"path": "/in/*.csv", "header": True, "columns": None})),
    "t": Stream("t", SCHEMA, "a", 0, SourceSpec("memory", {})),
}
TABLES = {"names": Table("names", SCHEMA, Section("tables/names-ab.arrow", "names", 64, 10, 2, 7))}
OLD_SCHEMA = [["a", "bigint"], ["b é", "string"]]
OLD_STREAMS = {
    "streams": [
        {
            "name": s.name,
            "schema": OLD_SCHEMA,
            "time": "a",
            "delay_us": s.delay_us,
            "source": {"kind": s.source.kind, "options": s.source.options},
        }
        for s in STREAMS.values()
    ]
}
VERSION = {
    "file": "tables/names-ab.arrow",
    "name": "names",
    "offset": 64,
    "length": 10,
    "rows": 2,
    "crc": 7,
    "meta": {},
}
OLD_TABLES = {"names": {"schema": OLD_SCHEMA, "version": VERSION}}


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def test_streams_and_tables_come_back_in_order(storage: LocalStorage) -> None:
    assert load_streams(storage) == {}
    assert load_tables(storage) == {}
    save_streams(storage, STREAMS)
    save_tables(storage, TABLES)
    assert load_streams(storage) == STREAMS
    assert [*load_streams(storage)] == ["s", "t"]
    assert load_tables(storage) == TABLES
    save_streams(storage, {})
    assert load_streams(storage) == {}


def test_streams_of_real_sources_come_back(storage: LocalStorage) -> None:
    csv, schema = files("/in/*.csv", header=True, delimiter=";"), memory("a int").schema()
    given: tuple[Source, ...] = (generate("purchases", rows=10, start="2024-05-01T00:00:00"), memory("a int"))
    streams = {f"s{n}": Stream(f"s{n}", source.schema(), "a", n, source.spec()) for n, source in enumerate(given)}
    streams["csv"] = Stream("csv", schema, "a", 0, csv.spec())
    save_streams(storage, streams)
    assert load_streams(storage) == streams


@pytest.mark.parametrize(
    ("name", "load"), [("catalog.json", load_streams), ("tables.json", load_tables)], ids=["streams", "tables"]
)
@pytest.mark.slow
def test_damage_at_any_byte_is_named(storage: LocalStorage, name: str, load: Any) -> None:
    save_streams(storage, STREAMS)
    save_tables(storage, TABLES)
    path = storage.root / name
    good = path.read_bytes()
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]):
            path.write_bytes(bad)
            with pytest.raises(StateError) as raised:
                load(storage)
            assert str(path) in str(raised.value)


def test_one_is_not_read_as_the_other(storage: LocalStorage) -> None:
    save_tables(storage, TABLES)
    (storage.root / "tables.json").rename(storage.root / "catalog.json")
    with pytest.raises(StateError, match=r"catalog\.json is not what was written"):
        load_streams(storage)


def test_those_of_earlier_releases_are_read(storage: LocalStorage) -> None:
    (storage.root / "catalog.json").write_text(json.dumps(OLD_STREAMS))
    (storage.root / "tables.json").write_text(json.dumps(OLD_TABLES))
    assert load_streams(storage) == STREAMS
    assert load_tables(storage) == TABLES


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"streams": [{}]}', '{"streams": 1}', "null"])
def test_a_damaged_catalogue_of_earlier_releases_is_named(storage: LocalStorage, text: str) -> None:
    (storage.root / "catalog.json").write_text(text)
    with pytest.raises(StateError, match=r"catalog\.json is not what was written"):
        load_streams(storage)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"names": {}}', '{"names": 1}', "null"])
def test_damaged_tables_of_earlier_releases_are_named(storage: LocalStorage, text: str) -> None:
    (storage.root / "tables.json").write_text(text)
    with pytest.raises(StateError, match=r"tables\.json is not what was written"):
        load_tables(storage)


def test_what_queries_read_must_be_there(storage: LocalStorage) -> None:
    join = SimpleNamespace(tables=[SimpleNamespace(table="names")])
    query = SimpleNamespace(streams=("s", "t"), join=join)
    manifest: Any = SimpleNamespace(queries={"q": SimpleNamespace(query=query)})
    check_catalog(storage, manifest, STREAMS, TABLES)
    with pytest.raises(StateError, match=r"catalog\.json is missing"):
        check_catalog(storage, manifest, {"s": STREAMS["s"]}, TABLES)
    with pytest.raises(StateError, match=r"tables\.json is missing"):
        check_catalog(storage, manifest, STREAMS, {})
    check_catalog(storage, SimpleNamespace(queries={}), {}, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["stream", "source", "field"])
def test_a_field_that_is_not_known_is_refused(storage: LocalStorage, where: str) -> None:
    streams = msgspec.to_builtins(list(STREAMS.values()))
    within = {"stream": streams[0], "source": streams[0]["source"], "field": streams[0]["schema"]["fields"][0]}
    write_value(storage, "catalog.json", "catalog", streams)
    assert load_streams(storage) == STREAMS
    within[where]["newer"] = 1
    write_value(storage, "catalog.json", "catalog", streams)
    with pytest.raises(StateError, match=r"catalog\.json") as raised:
        load_streams(storage)
    assert "newer" in str(raised.value)
