"""Which input the next batch has: how far each stream may go, and the splits between two offsets.

An offset is `{"tick": n, "streams": {stream: units consumed}}`. The planner knows nothing but the state directory, so
a stream that is registered there while the pipeline runs is simply there in the next batch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thalweg.model.stream import Stream
from thalweg.source.inventory import ENDLESS, Inventory
from thalweg.source.registry import load_streams, recall_stream, remember_stream, streams_path
from thalweg.source.split import Split, pack

Offset = dict[str, Any]

NOTHING: Offset = {"tick": 0, "streams": {}}


@dataclass
class Target:
    """The units that were there when a run began that is to end with them, and the tick of its last batch."""

    units: dict[str, int]
    tick: int | None = None
    """None until the first batch is planned."""


class SplitPlanner:
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
        """Also of streams that nobody reads any more: the batch that has just happened may have read them, or a power
        cut have brought units back."""
        for name, units in end["streams"].items():
            inventory = self._inventory(name)
            if inventory is not None:
                inventory.release(units)

    def latest(self, start: Offset, tick: int) -> Offset:
        """How far the next batch goes; `start` itself where there is no reason for one. `tick` must have been read
        before this is called: what was there when it was asked for must not be left behind."""
        streams, is_all = self.advance(start, self.available())
        return _offset(start, max(start["tick"], tick) if is_all else start["tick"], streams)

    def target(self) -> Target:
        """What is there now, for a run that ends."""
        return Target(self.available())

    def until(self, start: Offset, target: Target, tick: int) -> Offset:
        """How far the next batch of such a run goes: all data up to the target, then one batch without data that
        closes what can be closed."""
        if target.tick is None:
            target.tick = max(start["tick"] + 1, tick)
            # Of an endless generator, one batch: something finite has to be called available.
            target.units = {
                name: self.inventories()[name].limit(start["streams"].get(name, 0), units)
                if units == ENDLESS
                else units
                for name, units in target.units.items()
            }
        streams, _ = self.advance(start, target.units)
        before = {name: start["streams"].get(name, 0) for name in streams}
        reached = start["tick"] if streams != before else max(start["tick"], target.tick)
        return _offset(start, reached, streams)


def plan_splits(state_dir: str | Path, start_offset: Offset, end_offset: Offset, tasks: int) -> list[list[Split]]:
    """The input between two offsets, as `tasks` lists of splits; some may be empty."""
    return SplitPlanner(state_dir).splits(start_offset, end_offset, tasks)


def _offset(start: Offset, tick: int, streams: dict[str, int]) -> Offset:
    """`start` itself, if there is nothing new."""
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
