"""The pipeline's input as Spark sees it: one streaming source for all native streams.

Spark keeps an offset `{"tick": n, "streams": {stream: units consumed}}` and hands out split descriptors; the
rows themselves never pass through the JVM. The reader lives in a Python process of its own and knows nothing
but the state directory, so a stream that is registered there while the pipeline runs is simply there in the
next batch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from thalweg.errors import SourceError
from thalweg.ingest.inventory import ENDLESS, Inventory
from thalweg.ingest.registry import load_streams, load_tick, recall_stream, remember_stream, streams_path
from thalweg.ingest.split import Split, dump_splits, pack
from thalweg.model.stream import Stream

Offset = dict[str, Any]

NOTHING: Offset = {"tick": 0, "streams": {}}
_RAISED = re.compile(r"thalweg\.errors\.SourceError: (.*?)(?:\n\s*\n|\n\tat |\nTraceback|\Z)", re.DOTALL)


class Planner:
    """Says how far the next batch may go and what it consists of, from the state directory alone."""

    def __init__(self, state_dir: str | Path) -> None:
        self._state_dir = Path(state_dir)
        self._stamp: tuple[int, ...] | None = None
        self._inventories: dict[str, Inventory] = {}
        self._resting: dict[str, Inventory] = {}
        """Of streams that are not registered now, but were when a batch was planned."""

    def inventories(self) -> Mapping[str, Inventory]:
        """One per registered stream; the registry is read again when the driver has replaced it."""
        stamp = _stamp_of(streams_path(self._state_dir))
        if stamp != self._stamp:
            streams = load_streams(self._state_dir)
            before = self._resting | self._inventories
            self._inventories = {
                name: before[name] if name in before and before[name].stream == stream else self._open(stream)
                for name, stream in sorted(streams.items())
            }
            self._resting = {name: before[name] for name in before if name not in streams}
            self._stamp = stamp
        return self._inventories

    def _open(self, stream: Stream) -> Inventory:
        """Its definition is kept with the source: a batch may be run again after the stream has gone."""
        remember_stream(self._state_dir, stream)
        return Inventory(stream, self._state_dir)

    def _inventory(self, name: str) -> Inventory | None:
        """Of a stream that a planned batch reads, whether it is registered any more or not."""
        known = self.inventories().get(name) or self._resting.get(name)
        if known is None and (stream := recall_stream(self._state_dir, name)) is not None:
            known = self._resting[name] = Inventory(stream, self._state_dir)
        return known

    def available(self) -> dict[str, int]:
        return {name: inventory.available() for name, inventory in self.inventories().items()}

    def tick(self) -> int:
        return load_tick(self._state_dir)

    def advance(self, start: Offset, available: Mapping[str, int]) -> tuple[dict[str, int], bool]:
        """Units consumed after the next batch, and whether that leaves nothing behind.

        A stream that nothing was ever read from is not mentioned: its mere existence is no reason for a
        batch. One that is not registered now keeps its place, and goes on from there when it comes back.
        """
        ends = {name: units for name, units in start["streams"].items() if name not in self.inventories()}
        is_all = True
        for name, inventory in self.inventories().items():
            begin = start["streams"].get(name, 0)
            most = max(begin, available.get(name, 0))
            end = inventory.limit(begin, most)
            # There is always more of an endless generator: it must not keep ticks waiting for ever.
            is_all = is_all and (end == most or most == ENDLESS)
            if end:
                ends[name] = end
        return ends, is_all

    def splits(self, start: Offset, end: Offset, tasks: int) -> list[list[Split]]:
        found: list[Split] = []
        for name, high in sorted(end["streams"].items()):
            low = start["streams"].get(name, 0)
            inventory = self._inventory(name) if high > low else None
            if inventory is not None:
                found += inventory.splits(low, high, tasks)
        return pack(found, tasks)

    def release(self, end: Offset) -> None:
        for name, inventory in self.inventories().items():
            inventory.release(end["streams"].get(name, 0))


def plan_splits(state_dir: str | Path, start_offset: Offset, end_offset: Offset, tasks: int) -> list[list[Split]]:
    """The input between two offsets, as `tasks` lists of splits; some may be empty."""
    return Planner(state_dir).splits(start_offset, end_offset, tasks)


class ThalwegSource(DataSource):  # type: ignore[misc]
    """`spark.readStream.format("thalweg").option("dir", state_dir).option("tasks", n)`."""

    @classmethod
    def name(cls) -> str:
        return "thalweg"

    def schema(self) -> str:
        return "splits string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        missing = [name for name in ("dir", "tasks") if name not in self.options]
        if missing:
            raise SourceError(f"the thalweg source needs the option {missing[0]!r}")
        return ThalwegReader(self.options["dir"], int(self.options["tasks"]))


class SplitsPartition(InputPartition):  # type: ignore[misc]
    """The splits of one task."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class ThalwegReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Spark's view of the planner. Method names are Spark's."""

    def __init__(self, state_dir: str, tasks: int) -> None:
        self._state_dir = state_dir
        self._tasks = max(1, tasks)
        self._planner: Planner | None = None
        self._target: dict[str, int] | None = None
        """AvailableNow: the units that were there when the query started."""
        self._target_tick: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"tick": 0, "streams": {}}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        # The limits are the streams' own: Spark's would be one for all of them together.
        return self._latest_now(start) if self._target is not None else self._latest(start)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._open().available()
        self._target_tick = None

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Always as many as there are tasks, so that a batch without data runs like any other."""
        return [SplitsPartition(dump_splits(task)) for task in self._open().splits(start, end, self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"splits": [partition.value]})

    def commit(self, end: Offset) -> None:
        self._open().release(end)

    def _open(self) -> Planner:
        """Made where it is used: this object travels to executors, open files do not."""
        if self._planner is None:
            self._planner = Planner(self._state_dir)
        return self._planner

    def _latest(self, start: Offset) -> Offset:
        planner = self._open()
        # The tick first: what was there when it was asked for must not be left behind.
        wanted = planner.tick()
        streams, is_all = planner.advance(start, planner.available())
        tick = max(start["tick"], wanted) if is_all else start["tick"]
        return _offset(start, tick, streams)

    def _latest_now(self, start: Offset) -> Offset:
        """All data up to the target, then one batch without data that closes what can be closed."""
        planner = self._open()
        target = self._target or {}
        if self._target_tick is None:
            self._target_tick = max(start["tick"] + 1, planner.tick())
            # Of an endless generator, one batch: something finite has to be called available.
            self._target = target = {
                name: planner.inventories()[name].limit(start["streams"].get(name, 0), units)
                if units == ENDLESS
                else units
                for name, units in target.items()
            }
        streams, _ = planner.advance(start, target)
        before = {name: start["streams"].get(name, 0) for name in streams}
        tick = start["tick"] if streams != before else max(start["tick"], self._target_tick)
        return _offset(start, tick, streams)


def _offset(start: Offset, tick: int, streams: dict[str, int]) -> Offset:
    """`start` itself, to the letter, if there is nothing new: Spark compares texts."""
    grown = any(units > start["streams"].get(name, 0) for name, units in streams.items())
    # A stream that no query reads at the moment is not in the registry, but its place is remembered.
    after = {"tick": tick, "streams": {**start["streams"], **streams}}
    return after if grown or tick > start["tick"] else start


def _stamp_of(path: Path) -> tuple[int, ...]:
    """Changes whenever the file is replaced."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return ()
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def source_error_in(text: str) -> SourceError | None:
    """The error that was raised in the reader's process, found again in what Spark makes of it."""
    match = _RAISED.search(text)
    if match is None:
        return None
    lines = match[1].strip().splitlines()
    marked = {"detail": None, "hint": None} | {
        key: line.strip().removeprefix(f"{key}: ")
        for line in lines[1:]
        for key in ("detail", "hint")
        if line.strip().startswith(f"{key}: ")
    }
    return SourceError(lines[0], detail=marked["detail"], hint=marked["hint"])
