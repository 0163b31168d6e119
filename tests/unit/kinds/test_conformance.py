"""Conformance: what holds of every kind, Thalweg's own and those from outside.

A new kind needs a line in a table below; without one the first test fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.outside_kinds import Hop, Lines, Products, Ticks

import thalweg
from thalweg.aggregates.families import FAMILIES, arities, family_named
from thalweg.errors import SinkError, SourceError, StateError, ThalwegError
from thalweg.frontend.window_kinds import WINDOWS
from thalweg.kinds.options import describe_options
from thalweg.model.query import SinkSpec
from thalweg.model.stream import Schema, Stream
from thalweg.sink.contract import EXACTLY_ONCE, Sink, SinkContext
from thalweg.sink.kinds import SINKS, delivery_of, parse_spec
from thalweg.source.contract import Source
from thalweg.source.inventory import Inventory
from thalweg.source.kinds import SOURCES, is_same_source, make_source
from thalweg.source.memory import Memory
from thalweg.source.read import read
from thalweg.state.local_storage import LocalStorage
from thalweg.state.storage import Storage
from thalweg.testing import LocalSession

Local = Callable[..., LocalSession]
TABLE = pa.table({"k": [1, 2], "v": ["a", "b"]})


@pytest.fixture(autouse=True)
def outside() -> Iterator[None]:
    thalweg.register_source(Ticks())
    thalweg.register_sink(Lines())
    thalweg.register_aggregate(Products())
    thalweg.register_window(Hop())
    yield
    SOURCES.forget("ticks")
    SINKS.forget("lines")
    FAMILIES.forget("products")
    WINDOWS.forget("hop")


def test_every_kind_is_looked_at() -> None:
    assert set(SINKS.names()) == set(SINK_OPTIONS) | {"callable"}
    assert set(SOURCES.names()) == set(SOURCE_OPTIONS) | {"spark"}
    assert [name for name in arities() if name not in ARGUMENTS] == []


# -- sinks

SINK_OPTIONS: dict[str, dict[str, str]] = {
    "memory": {},
    "console": {"rows": "3"},
    "files": {"path": "{place}", "format": "csv"},
    "spark": {"format": "parquet", "path": "{place}"},
    "noop": {},
    "lines": {"path": "{place}"},
}
"""What SQL says of each."""
TO_PLACES = ("files", "lines")


def spec_of(kind: str, place: Path) -> SinkSpec:
    return parse_spec(kind, {name: value.format(place=place) for name, value in SINK_OPTIONS[kind].items()})


def opened(spec: SinkSpec, newest: int = 9) -> Sink:
    kind = SINKS.get(spec.kind)
    return kind.open(kind.options_of(spec), SinkContext("q", timeline="t", term="a", newest=newest, place="p"))


def seen(place: Path) -> list[str]:
    """What a reader of the place finds, whatever the files are called."""
    files = (file for file in sorted(place.rglob("*")) if file.is_file() and not file.name.startswith("."))
    return sorted(line for file in files for line in file.read_text().splitlines())


@pytest.mark.parametrize("kind", SINK_OPTIONS)
def test_a_sink_is_plain_data_from_sql_and_from_python(kind: str, tmp_path: Path) -> None:
    spec = spec_of(kind, tmp_path / "out")
    given = {name: value.format(place=tmp_path / "out") for name, value in SINK_OPTIONS[kind].items()}
    assert SINKS.get(kind).spec(**given) == spec
    kept = msgspec.json.decode(msgspec.json.encode(spec), type=SinkSpec)
    assert SINKS.get(kind).options_of(kept) == SINKS.get(kind).options_of(spec)
    assert delivery_of(spec) in ("exactly once", "at least once")


@pytest.mark.parametrize("kind", [kind for kind in SINK_OPTIONS if kind != "spark"])  # which hands on what it gets
def test_an_unknown_option_of_a_sink_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    given = {name: value.format(place=tmp_path / "out") for name, value in SINK_OPTIONS[kind].items()}
    with pytest.raises(SinkError, match=f"sink {kind}: option 'colour' is not known"):
        parse_spec(kind, {**given, "colour": "red"})
    for option in describe_options(SINKS.get(kind).options):
        assert option.meaning, f"{option.name} of {kind} does not say what it is"


@pytest.mark.parametrize("kind", TO_PLACES)
def test_a_batch_that_is_given_again_is_there_once(kind: str, tmp_path: Path) -> None:
    """By the same process, and by one that was started again. All kinds with a place can tell."""
    place = tmp_path / "out"
    spec = spec_of(kind, place)
    for _ in range(2):
        sink = opened(spec)
        for _ in range(2):
            sink.commit(3, sink.prepare(3, TABLE), TABLE)
    once = seen(place)
    assert len([line for line in once if line.startswith(("1", "2"))]) == 2
    sink.commit(4, sink.prepare(4, TABLE), TABLE)
    assert len(seen(place)) == 2 * len(once)


@pytest.mark.parametrize("kind", TO_PLACES)
def test_a_place_that_cannot_be_written_is_refused_when_the_query_is_created(
    kind: str, local: Local, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    session = local({"events": [{"ts": datetime(2026, 1, 1, tzinfo=UTC), "k": 1, "v": 1}]})
    with pytest.raises((ThalwegError, OSError), match="file"):
        session.create_query("q", "SELECT k FROM events", spec_of(kind, tmp_path / "file"))
    assert dict(session.queries) == {}


def test_damage_of_who_owns_a_place_is_noticed(tmp_path: Path) -> None:
    spec = spec_of("files", tmp_path / "out")
    sink = opened(spec)
    sink.commit(3, sink.prepare(3, TABLE), TABLE)
    (tmp_path / "out" / ".thalweg-owner.json").write_bytes(b"\xff{")
    with pytest.raises(SinkError, match="already holds the results"):
        opened(spec)


def test_what_is_said_of_delivery_is_said_of_all() -> None:
    assert {kind for kind in SINKS.names() if not SINKS.get(kind).is_delivered} == {"memory", "noop"}
    assert delivery_of(SinkSpec("memory")) == delivery_of(SinkSpec("noop")) == EXACTLY_ONCE


# -- sources


@dataclass(frozen=True)
class Offered:
    """How to make a source, and what becomes of damage."""

    options: Mapping[str, str]
    columns: str | None = None
    prepare: Callable[[Path], None] = lambda place: None
    feed: Callable[[Source, Storage], None] = lambda source, storage: None
    wrong: tuple[str, str] = ("", "")
    """An option with a value that it cannot have."""
    changed: Mapping[str, str] = field(default_factory=dict)
    """Options that may change after a restart."""
    damaged: str | None = None
    """Objects that are durable: damage of one must be noticed."""


def _write_files(place: Path) -> None:
    place.mkdir()
    for i in range(3):
        pq.write_table(pa.table({"n": range(i * 5, i * 5 + 5)}), place / f"{i}.parquet")


def _append(source: Source, storage: Storage) -> None:
    assert isinstance(source, Memory)
    source.attach(storage, "s")
    for i in range(3):
        source.append(pa.table({"n": pa.array(range(i * 5, i * 5 + 5), pa.int64())}))


SOURCE_OPTIONS: dict[str, Offered] = {
    "files": Offered(
        {"path": "{place}/*.parquet"}, prepare=_write_files, wrong=("max_files_per_batch", "0"),
        changed={"max_files_per_batch": "2"}, damaged="sources/s/files/*",
    ),
    "memory": Offered(
        {}, "n bigint", feed=_append, wrong=("max_files_per_batch", "few"), changed={"max_files_per_batch": "2"},
        damaged="sources/s/*",
    ),
    "generate": Offered(
        {"generator": "facts", "rows": "15"}, wrong=("rows", "-1"), changed={"rows_per_batch": "7"},
    ),
    "ticks": Offered({"rows": "15"}, wrong=("step", "0"), changed={"rows": "15"}),
}  # fmt: skip


@dataclass(frozen=True)
class World:
    place: Path
    offered: Offered
    kind: str

    def source(self, **changes: str) -> Source:
        given = {name: value.format(place=self.place / "in") for name, value in self.offered.options.items()}
        schema = None if self.offered.columns is None else thalweg.memory(self.offered.columns).schema()
        return make_source(self.kind, "s", {**given, **changes}, schema)

    @property
    def storage(self) -> LocalStorage:
        return LocalStorage(str(self.place / "state"))

    def stream(self, source: Source) -> Stream:
        schema = source.schema()
        assert isinstance(schema, Schema)
        return Stream("s", schema, schema.names[0], 0, source.spec())


@pytest.fixture(params=sorted(SOURCE_OPTIONS))
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    made = World(tmp_path, SOURCE_OPTIONS[request.param], request.param)
    made.offered.prepare(tmp_path / "in")
    return made


def rows_of(inventory: Inventory, storage: Storage, end: int, parts: int) -> list[dict[str, Any]]:
    names = inventory.stream.schema.names
    splits = inventory.splits(0, end, parts)
    return [
        row
        for split in msgspec.json.decode(msgspec.json.encode(splits), type=list[type(splits[0])])  # type: ignore[misc]
        for chunk in read(split, inventory.stream, names, storage)
        for row in chunk.table.to_pylist()
    ]


def test_units_mean_the_same_rows_however_they_are_cut_and_after_a_restart(world: World) -> None:
    source, storage = world.source(), world.storage
    stream = world.stream(source)
    world.offered.feed(source, storage)
    first = Inventory(stream, storage)
    end = first.available()
    rows = rows_of(first, storage, end, 1)
    assert len(rows) == 15
    assert rows_of(first, storage, end, 4) == rows
    mark = first.mark(end)
    again = Inventory(stream, world.storage, mark)
    assert again.available() == end
    assert rows_of(again, world.storage, end, 2) == rows
    again.release(0)
    assert first.limit(0, end) == end


def test_a_restart_may_change_what_does_not_change_rows(world: World) -> None:
    known = world.source().spec()
    assert is_same_source(known, world.source(**world.offered.changed).spec())
    assert msgspec.json.decode(msgspec.json.encode(known.options)) == known.options


def test_bad_options_of_a_source_are_refused_by_name(world: World) -> None:
    with pytest.raises(SourceError, match="option 'colour' is not known"):
        world.source(colour="red")
    option, value = world.offered.wrong
    with pytest.raises(SourceError, match=f"option '{option}' must be"):
        world.source(**{option: value})
    for struct in SOURCES.get(world.kind).structs().values():
        assert all(option.meaning for option in describe_options(struct))


def test_damage_of_what_a_source_keeps_is_noticed(world: World) -> None:
    if world.offered.damaged is None:
        pytest.skip("it keeps nothing")
    source, storage = world.source(), world.storage
    stream = world.stream(source)
    world.offered.feed(source, storage)
    first = Inventory(stream, storage)
    end = first.available()
    mark = first.mark(end)
    kept = [path for path in (world.place / "state").glob(world.offered.damaged) if path.is_file()]
    assert kept
    for path in kept:
        data = path.read_bytes()
        path.write_bytes(data[: len(data) // 2] + b"\x00\xff" + data[len(data) // 2 + 2 :])
        with pytest.raises(StateError):
            rows_of(Inventory(stream, world.storage, mark), world.storage, end, 1)
        path.write_bytes(data)
    assert len(rows_of(Inventory(stream, world.storage, mark), world.storage, end, 1)) == 15


# -- aggregates

ARGUMENTS = {
    **dict.fromkeys(arities(), "v"),
    "count_if": "v > 3",
    "percentile": "v, 0.3",
    "min_by": "v, k",
    "max_by": "v, k",
    **dict.fromkeys(("bool_and", "bool_or", "every", "some", "any"), "v > 3"),
    "product": "v",
}


def test_an_aggregate_has_one_family_that_takes_apart_what_it_gives() -> None:
    families = [FAMILIES.get(name) for name in FAMILIES.names()]
    functions = [function for family in families for function in family.functions]
    assert len(functions) == len(set(functions))
    assert len(arities()) == sum(len(family.names) for family in families)
    assert all(name == name.lower() and family_named(name) is not None for name in arities())


def test_results_do_not_depend_on_batches_and_tasks(local: Local) -> None:
    """Partials that are combined in pieces and merged give what one piece gives."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [{"ts": start + timedelta(seconds=i), "k": i * 7 % 11, "v": i * i % 13} for i in range(40)]
    rows.append({"ts": start + timedelta(minutes=5), "k": 0, "v": 0})
    calls = ", ".join(f"{name}({ARGUMENTS[name]}) AS `{name}`" for name in sorted(arities()))
    select = f"SELECT {calls} FROM events GROUP BY window(ts, '1 minute')"

    def results(pieces: int, **options: Any) -> list[dict[str, Any]]:
        session = local({"events": rows[:1]}, {"q": select}, **options)
        step = -(-40 // pieces)
        for i in range(1, 41, step):
            session.append("events", rows[i : i + step])
            session.run_available()
        return session.results("q").to_pylist()

    whole = results(1, tasks=1, slots=1)
    assert len(whole) == 1
    for one, other in zip(whole, results(7, tasks=3), strict=True):
        assert one == pytest.approx(other)
