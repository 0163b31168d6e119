"""Rows that were set aside, each with its reason, the file and line that it came from, and when.

rejected/<place of the stream>/<batch>-<part of the input>.arrow

An object says file, line, reason, row and time; stream and batch are its name. Those of earlier releases say reason
and row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from thalweg.errors import missing_rejected
from thalweg.model.stream import name_in
from thalweg.state.container import ContainerWriter, delete_container, read_footer, read_section
from thalweg.state.storage import Storage

_TIME = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("line", pa.int64()),
        ("batch", pa.int64()),
        ("reason", pa.string()),
        ("row", pa.string()),
        ("time", _TIME),
        ("stream", pa.string()),
    ]
)


@dataclass(frozen=True)
class Batched:
    """What a batch has set aside of a stream."""

    batch: int
    rows: int
    bytes: int


def folder_of_rejected(place: str) -> str:
    """Of the stream that has this place."""
    return f"rejected/{place}/"


def rejected_name(place: str, batch: int, part: str) -> str:
    return f"{folder_of_rejected(place)}{batch:012d}-{part}.arrow"


def keep_rejected(storage: Storage, name: str, stream: str, rows: pa.Table, file: str | None, clock_us: int) -> int:
    """Under a name that a repeat writes again; how many bytes it takes. `rows`: reason, line and row."""
    count = rows.num_rows
    stored = pa.table(
        {
            "file": pa.array([file] * count, pa.string()),
            "line": rows.column("line"),
            "reason": rows.column("reason"),
            "row": rows.column("row"),
            "time": pa.array([clock_us] * count, pa.int64()).cast(_TIME),
        }
    )
    with ContainerWriter(storage, name) as writer:
        writer.add(stream, stored)
        return sum(section.length for section in writer.close())


def read_rejected(storage: Storage, place: str, through: int, rows: int, first: int = 0) -> pa.Table:
    """Those of the batches `first` to `through`, which have happened: `rows` in all, as the manifest says."""
    tables = [
        _whole(read_section(storage, section), name_in(place), batch)
        for name in storage.names(folder_of_rejected(place))
        if first <= (batch := _batch_of(name)) <= through
        for section in read_footer(storage, name)
    ]
    tables = _once(tables, max(0, sum(table.num_rows for table in tables) - rows))
    found = pa.concat_tables([SCHEMA.empty_table(), *tables])
    if found.num_rows < rows:
        raise missing_rejected(storage.locate(folder_of_rejected(place).rstrip("/")), rows, found.num_rows)
    return found


def _once(tables: Sequence[pa.Table], more: int) -> list[pa.Table]:
    """Without what another object says already, `more` rows in all: a task of an attempt that did not count may have
    written its own late, when nobody looked for them any more. The same rows may have been cut otherwise then."""
    if not more:
        return [*tables]
    seen: set[tuple[object, ...]] = set()
    kept = []
    for table in tables:
        told = [*zip(*(table[name].to_pylist() for name in ("batch", "file", "line", "reason", "row")), strict=True)]
        is_new = []
        for row in told:
            is_new.append(row not in seen or more == 0)
            more -= not is_new[-1]
        kept.append(table.filter(pa.array(is_new, pa.bool_())))
        seen.update(told)
    return kept


def _whole(rows: pa.Table, stream: str, batch: float) -> pa.Table:
    """With the columns that the object's name says, and without those that an earlier release did not know."""
    count = rows.num_rows
    said = {"batch": pa.array([int(batch)] * count, pa.int64()), "stream": pa.array([stream] * count, pa.string())}
    for name in rows.column_names:
        said[name] = rows[name]
    return pa.table({f.name: said[f.name] if f.name in said else pa.nulls(count, f.type) for f in SCHEMA}, SCHEMA)


def kept_rejected(storage: Storage, place: str, through: int) -> list[Batched]:
    """What there is of batches that have happened, the oldest first."""
    found: dict[int, Batched] = {}
    for name in storage.names(folder_of_rejected(place)):
        batch = _batch_of(name)
        if batch <= through:
            sections = read_footer(storage, name)
            known = found.get(int(batch), Batched(int(batch), 0, 0))
            rows, size = sum(s.rows for s in sections), sum(s.length for s in sections)
            found[int(batch)] = Batched(known.batch, known.rows + rows, known.bytes + size)
    return [found[batch] for batch in sorted(found)]


def delete_rejected(storage: Storage, place: str, before: int) -> None:
    """Of batches before that one."""
    for name in storage.names(folder_of_rejected(place)):
        if _batch_of(name) < before:
            delete_container(storage, name)


def forget_rejected(storage: Storage, batch: int) -> None:
    """An earlier attempt at the batch may have read other columns, and set rows aside that this one can read."""
    for name in storage.names("rejected/"):
        if _batch_of(name) == batch:
            delete_container(storage, name)


def _batch_of(name: str) -> float:
    """The batch that set the rows aside; a name that is not ours is of none."""
    number = name.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdigit() else float("inf")
