"""What a frozen state directory was made from, and how a program opens it again.

    frozen/CASE.json                     streams with their rows, queries, and what every query must give in the end
    frozen/format-N-CASE-LIFE.tar.xz     a state directory that a release of format N left behind

`freeze.py` makes both, with the source of an older release; so this module uses only what those releases have.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import thalweg
from thalweg.model.types import from_arrow, to_arrow
from thalweg.testing.oracle import Feed

FROZEN = Path(__file__).with_name("frozen")
LIVES = {"stopped": 0, "killed": 2}
"""How each life ended -> how many batches of rows it had been given that no manifest knows."""
_ARCHIVE = re.compile(r"format-(\d+)-(\w+)-(\w+)\.tar\.xz")
_STATE = "state"
_GIVEN = "given"


@dataclass(frozen=True)
class Case:
    """Streams and queries that run before and after the freeze."""

    feeds: tuple[Feed, ...]
    queries: Mapping[str, str]
    fed: int
    """How many batches of rows run before the freeze. An empty batch follows them."""
    later: Mapping[str, str]
    """Queries that are created after these batches: no manifest knows them yet."""
    phase: str
    """The fault point at which a life that is killed ends."""
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    called: tuple[str, ...] = ()
    """Queries whose sink is a function."""
    expected: Mapping[str, pa.Table] = field(default_factory=dict)

    def lived(self) -> tuple[Feed, ...]:
        """The feeds as the pipeline sees them: the first run ends with a batch without rows."""
        return tuple(self._with_empty_batch(feed) for feed in self.feeds)

    def _with_empty_batch(self, feed: Feed) -> Feed:
        before, after = feed.batches[: self.fed], feed.batches[self.fed :]
        return replace(feed, batches=(*before, feed.schema.empty_table(), *after))


@dataclass(frozen=True)
class Archive:
    """One frozen directory."""

    path: Path
    format: int
    case: str
    life: str

    def unpack(self, place: Path) -> Path:
        """The state directory, in `place`."""
        with tarfile.open(self.path) as archive:
            archive.extractall(place, filter="data")
        return place / _STATE


def archives() -> list[Archive]:
    found = []
    for path in sorted(FROZEN.glob("*.tar.xz")):
        match = _ARCHIVE.fullmatch(path.name)
        assert match is not None, path
        found.append(Archive(path, int(match[1]), match[2], match[3]))
    return found


# opening


class Program:
    """Defines the streams, tables and queries of a case, as a program does at every start."""

    def __init__(self, session: Any, case: Case) -> None:
        define_aggregates()
        self.session, self.case = session, case
        self.sources: dict[str, Any] = {}
        self.handles: dict[str, Any] = {}
        for feed in case.feeds:
            source = self.sources[feed.stream] = thalweg.memory(feed.schema, max_files_per_batch=1)
            session.create_stream(feed.stream, source, time=feed.time, watermark=f"{feed.delay_us} microseconds")
        for name, table in case.tables.items():
            session.create_table(name, table)
        self.create(case.queries)

    def create(self, queries: Mapping[str, str]) -> None:
        for name, select in queries.items():
            sink = self._give if name in self.case.called else None
            self.handles[name] = self.session.create_query(name, select, sink)

    def append(self, start: int, end: int | None = None) -> None:
        """The rows of the batches from `start` on."""
        for feed in self.case.feeds:
            for table in feed.batches[start:end]:
                self.sources[feed.stream].append(table)

    def results(self) -> dict[str, pa.Table]:
        return {name: self._called() if name in self.case.called else h.results() for name, h in self.handles.items()}

    @property
    def _given(self) -> Path:
        """What the function was given lies beside the state directory, and is frozen with it."""
        return Path(self.session.state_dir).parent / _GIVEN

    def _give(self, table: pa.Table, batch: int) -> None:
        """A batch that is repeated replaces what it gave before."""
        self._given.mkdir(exist_ok=True)
        (self._given / f"{batch:04d}.json").write_text(json.dumps(table_to_json(table)))

    def _called(self) -> pa.Table:
        parts = [table_from_json(json.loads(path.read_text())) for path in sorted(self._given.glob("*.json"))]
        return pa.concat_tables(parts)


def _added(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else one + other


def _add_rows(state: int | None, batch: pa.RecordBatch) -> int | None:
    return _added(state, pc.sum(batch.column(0)).as_py())


def _mean_of(state: tuple[float, int], batch: pa.RecordBatch) -> tuple[float, int]:
    column = batch.column(0)
    return state[0] + (pc.sum(column).as_py() or 0.0), state[1] + len(column) - column.null_count


def _add_pairs(one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
    return one[0] + other[0], one[1] + other[1]


def _divide(state: tuple[float, int]) -> float | None:
    return state[0] / state[1] if state[1] else None


def _list_rows(state: list[float], batch: pa.RecordBatch) -> list[float]:
    return state + batch.column(0).drop_null().to_pylist()


def _middle(state: list[float]) -> float | None:
    return float(median(state)) if state else None


OWN = {"own_total(": "sum(", "own_mean(": "avg(", "own_median(": "median("}
"""Aggregates of the program -> what Spark calls the same."""


def define_aggregates() -> None:
    """A state of each kind: a number or nothing, a pair, and a list that grows."""
    thalweg.aggregate("own_total", lambda: None, _add_rows, _added, lambda state: state, returns="bigint")
    thalweg.aggregate("own_mean", lambda: (0.0, 0), _mean_of, _add_pairs, _divide, returns="double")
    thalweg.aggregate("own_median", list, _list_rows, lambda one, other: one + other, _middle, returns="double")


# reading and writing


def load_case(name: str) -> Case:
    value = json.loads((FROZEN / f"{name}.json").read_text())
    feeds = [
        Feed(stream, f["time"], f["delay_us"], tuple(table_from_json({**f, "rows": rows}) for rows in f["batches"]))
        for stream, f in value.pop("streams").items()
    ]
    for kind in ("tables", "expected"):
        value[kind] = {name: table_from_json(table) for name, table in value[kind].items()}
    return Case(tuple(feeds), **{**value, "called": tuple(value["called"])})


def save_case(name: str, case: Case) -> None:
    streams = {}
    for feed in case.feeds:
        batches = [table_to_json(table) for table in feed.batches]
        columns = batches[0]["columns"]
        rows = [batch["rows"] for batch in batches]
        streams[feed.stream] = {"time": feed.time, "delay_us": feed.delay_us, "columns": columns, "batches": rows}
    value = {
        "streams": streams,
        "tables": {name: table_to_json(table) for name, table in case.tables.items()},
        "queries": dict(case.queries),
        "later": dict(case.later),
        "called": list(case.called),
        "fed": case.fed,
        "phase": case.phase,
        "expected": {name: table_to_json(table) for name, table in case.expected.items()},
    }
    text = json.dumps(value, indent=1)
    # A column of a batch in one line.
    text = re.sub(r"\[[^\[\]{}]*\]", lambda found: " ".join(found[0].split()), text)
    (FROZEN / f"{name}.json").write_text(text + "\n")


def table_to_json(table: pa.Table) -> dict[str, Any]:
    return {
        "columns": {field.name: from_arrow(field.type) for field in table.schema},
        "rows": {name: _to_plain(table[name]) for name in table.column_names},
    }


def table_from_json(value: Mapping[str, Any]) -> pa.Table:
    types = {name: to_arrow(kind) for name, kind in value["columns"].items()}
    return pa.table({name: _from_plain(value["rows"][name], kind) for name, kind in types.items()})


def _to_plain(column: pa.ChunkedArray) -> list[Any]:
    """Times as microseconds, decimals as text."""
    if pa.types.is_timestamp(column.type):
        return list(column.cast(pa.int64()).to_pylist())
    if pa.types.is_decimal(column.type):
        return [None if value is None else str(value) for value in column.to_pylist()]
    return list(column.to_pylist())


def _from_plain(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).cast(kind)
    if pa.types.is_decimal(kind):
        return pa.array([None if value is None else Decimal(value) for value in values], kind)
    return pa.array(values, kind)
