"""Chaos: what streams are given, in which form, and with how much poison in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.recovery.chaos_world import FRAIL_KEY, World

import thalweg
from thalweg.sink.text import csv_lines, json_lines
from thalweg.testing import LocalSession
from thalweg.testing.oracle import Feed

_SECOND = 1_000_000
_AHEAD = 40 * 86_400 * _SECOND
"""Of the clock: more than a stream allows."""
_STEP = 60 * _SECOND
"""What passes between two runs."""
IDLE = "60 seconds"
"""A stream that is silent from one run to the next is idle."""


@dataclass(frozen=True)
class Count:
    """What a stream was given."""

    units: int = 0
    rows: int = 0
    """Rows, lines and files that have to be accounted for."""
    untimed: int = 0
    ahead: int = 0

    def __add__(self, other: Count) -> Count:
        rows, untimed = self.rows + other.rows, self.untimed + other.untimed
        return Count(self.units + other.units, rows, untimed, self.ahead + other.ahead)


class Inputs:
    """Of the streams of a world, below a directory that no disk fault reaches."""

    def __init__(self, world: World, place: Path) -> None:
        self._world = world
        self._place = place
        self._sources: dict[str, Any] = {}
        self._growing: list[Path] = []
        """Files that grow when the next batch begins: they have been seen by then."""
        times = [_newest(feed) for feed in world.feeds]
        self._began = max(times) + 7200 * _SECOND

    def clock(self, runs: int) -> int:
        """The wall clock in the run of that number: of the world, and of no life of it."""
        return self._began + runs * _STEP

    def open_stream(self, session: LocalSession, feed: Feed) -> None:
        kind = self._world.formats.get(feed.stream)
        if kind is not None:
            self._directory(feed).mkdir(parents=True, exist_ok=True)
            source: Any = thalweg.files(f"{self._directory(feed)}/*.{kind}", max_files_per_batch=1)
        else:
            source = thalweg.memory(feed.schema, max_files_per_batch=1)
        self._sources[feed.stream] = source
        session.create_stream(
            feed.stream,
            source,
            time=feed.time,
            watermark=f"{feed.delay_us} microseconds",
            schema=feed.schema,
            idle_timeout=IDLE if feed.stream in self._world.idle else None,
        )

    def give(self, number: int) -> None:
        """The batch of that number to every stream; of one that was silent, all that it has held back."""
        for feed in self._world.feeds:
            for due in self._world.due(feed.stream, number):
                self._give(feed, due)

    def grow(self) -> None:
        while self._growing:
            with self._growing.pop().open("ab") as file:
                file.write(b"more\n" * 3)

    def given(self, steps: Sequence[tuple[str, Any]]) -> dict[str, Count]:
        """Stream -> what these steps have given it."""
        numbers = [number for kind, number in steps if kind == "feed"]
        return {
            feed.stream: sum(
                (self._count(feed, due) for n in numbers for due in self._world.due(feed.stream, n)), Count()
            )
            for feed in self._world.feeds
        }

    def _count(self, feed: Feed, number: int) -> Count:
        poison, table = self._world.poison_of(feed.stream, number), self._rows(feed, number)
        files = sum(kind in ("damaged", "header", "array") for kind in poison)
        lines = ("utf8" in poison) + ((feed.stream, number) in self._world.spoiled)
        if self._world.formats.get(feed.stream) == "json" and not table.num_rows + lines:
            lines = 1  # the file is empty
        count = table.num_rows + files + lines + ("grown" in poison)
        return Count(1 + files, count, table.column(feed.time).null_count, int("ahead" in poison))

    # -- one stream --------------------------------------------------------------------------------------------

    def _directory(self, feed: Feed) -> Path:
        return self._place / "inputs" / feed.stream

    def _give(self, feed: Feed, number: int) -> None:
        if feed.stream in self._world.formats:
            self._write(feed, number)
        elif self._sources[feed.stream]._next <= number:
            table = self._rows(feed, number)
            rows = table.num_rows
            self._sources[feed.stream].append(pa.concat_tables([table.slice(0, rows // 2), table.slice(rows // 2)]))

    def _rows(self, feed: Feed, number: int) -> pa.Table:
        """With those that are not let in, or make a query fail."""
        table, poison = feed.batches[number], self._world.poison_of(feed.stream, number)
        last = table.slice(max(0, table.num_rows - 1))
        more = []
        if "untimed" in poison:
            more.append(_with(last, feed.time, None))
        if "ahead" in poison:
            more.append(_with(last, feed.time, self._began + _AHEAD))
        if "frail" in poison:
            more.append(_with(last, "k", FRAIL_KEY))
        return pa.concat_tables([table, *more])

    def _write(self, feed: Feed, number: int) -> None:
        kind, poison = self._world.formats[feed.stream], self._world.poison_of(feed.stream, number)
        path, beside = (self._directory(feed) / f"{number:04d}{name}.{kind}" for name in ("", "-bad"))
        table = self._rows(feed, number)
        if not path.exists():
            if kind == "parquet":
                pq.write_table(table, path, row_group_size=7)
            else:
                path.write_bytes(self._text(feed, number, table))
            os.utime(path, ns=(10 * number + 1, 10 * number + 1))
            if "grown" in poison:
                self._growing.append(path)
        if not beside.exists() and (bad := _bad_file(table, poison)) is not None:
            beside.write_bytes(bad)
            os.utime(beside, ns=(10 * number + 5, 10 * number + 5))

    def _text(self, feed: Feed, number: int, table: pa.Table) -> bytes:
        """Made once for all lives and seeds of a world."""
        texts, key = self._world.texts, (feed.stream, number)
        if key not in texts:
            kind, is_foreign = self._world.formats[feed.stream], "utf8" in self._world.poison_of(*key)
            texts[key] = _text(table, kind, key in self._world.spoiled, is_foreign, number % 2 == 0)
        return texts[key]


def _newest(feed: Feed) -> int:
    times = pa.concat_tables(feed.batches).column(feed.time).cast(pa.int64())
    return int(pc.max(times).as_py() or 0)


def _with(row: pa.Table, column: str, value: int | None) -> pa.Table:
    place, field = row.schema.get_field_index(column), row.schema.field(column)
    return row.set_column(place, field, pa.array([value] * row.num_rows, pa.int64()).cast(field.type))


def _bad_file(table: pa.Table, poison: Sequence[str]) -> bytes | None:
    """A file of which nothing can be read."""
    if "damaged" in poison:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        return bytes(sink.getvalue().to_pybytes()[:-9])
    if "header" in poison:
        return b"Ident,Wert\n1,2\n3,4\n"
    return b'[\n{"k": 1},\n{"k": 2}\n]\n' if "array" in poison else None


def _text(table: pa.Table, kind: str, is_spoiled: bool, is_foreign: bool, is_ended: bool) -> bytes:
    """`is_spoiled`: with a line in the middle that is not a row; `is_foreign`: with one that is not UTF-8;
    `is_ended`: the last line has its end."""
    data = csv_lines(table) if kind == "csv" else json_lines(table)
    lines = data.splitlines(keepends=True)
    if is_foreign:
        lines.insert(1 + len(lines) // 3, b'"\xff\xfe"\n' if kind == "csv" else b'{"k": 1, "\xff\xfe": 2}\n')
    if is_spoiled:
        lines.insert(1 + len(lines) // 2, b"broken\n" if kind == "csv" else b'{"k": 1, "nam\n')
    data = b"".join(lines)
    return data if is_ended else data.removesuffix(b"\n")
