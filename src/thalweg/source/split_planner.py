"""Which input the next batch has: how far each stream may go, and the splits between two offsets.

A stream that is registered while the pipeline runs is simply there in the next batch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from thalweg.model.offsets import Offsets, SourceMark
from thalweg.model.split import Split
from thalweg.model.stream import Stream
from thalweg.source.contract import ENDLESS
from thalweg.source.inventory import Inventory
from thalweg.state.storage import Storage

Streams = Callable[[], Mapping[str, Stream]]


@dataclass
class Target:
    """The units that were there when a run began that is to end with them, and the tick of its last batch."""

    units: dict[str, int]
    tick: int | None = None
    """None until the first batch is planned."""


class SplitPlanner:
    """Says how far the next batch may go and what it consists of. Only the thread of the loop uses it."""

    def __init__(
        self, storage: Storage, streams: Streams, known: Streams, marks: Mapping[str, SourceMark] | None = None
    ) -> None:
        """`streams`: those that batches read now; `known`: all that the catalog holds; `marks`: what the newest
        manifest says of their sources."""
        self._storage = storage
        self._streams = streams
        self._known = known
        self._marks = dict(marks or {})
        self._registered: dict[str, Stream] = {}
        self._inventories: dict[str, Inventory] = {}
        self._resting: dict[str, Inventory] = {}
        """Of streams that are not registered now, but were when a batch was planned."""
        self.has_left = False
        """Whether `latest` has just left something that no limit of a user's forbade."""

    def inventories(self) -> Mapping[str, Inventory]:
        """One per registered stream."""
        streams = self._streams()
        if streams != self._registered:
            before = self._resting | self._inventories
            self._inventories = {
                name: before[name] if name in before and before[name].stream == stream else self._open(stream)
                for name, stream in sorted(streams.items())
            }
            self._resting = {name: before[name] for name in before if name not in streams}
            self._registered = dict(streams)
        return self._inventories

    def _open(self, stream: Stream) -> Inventory:
        return Inventory(stream, self._storage, self._marks.get(stream.name))

    def forget_marks(self, but: Collection[str]) -> None:
        """Of streams of which nothing was read: one of the same name that is gone may have left them."""
        self._marks = {name: mark for name, mark in self._marks.items() if name in but}

    def _inventory(self, name: str) -> Inventory | None:
        """Of a stream that a planned batch reads, whether it is registered any more or not."""
        found = self.inventories().get(name) or self._resting.get(name)
        if found is None and (stream := self._known().get(name)) is not None:
            found = self._resting[name] = self._open(stream)
        return found

    def available(self) -> dict[str, int]:
        return {name: inventory.available() for name, inventory in self.inventories().items()}

    def advance(
        self, start: Offsets, available: Mapping[str, int], most_rows: int | None = None
    ) -> tuple[dict[str, int], bool]:
        """Units consumed after the next batch, and whether that leaves nothing behind. `most_rows`: about so many.

        A stream that nothing was ever read from is not mentioned: its mere existence is no reason for a
        batch. One that is not registered now keeps its place, and goes on from there when it comes back.
        """
        ends = {name: units for name, units in start.streams.items() if name not in self.inventories()}
        is_all = True
        allowed = {
            name: inventory.limit(begin, max(begin, available.get(name, 0)))
            for name, inventory in self.inventories().items()
            for begin in [start.streams.get(name, 0)]
        }
        reached = allowed if most_rows is None else self._share_out(start, allowed, most_rows)
        self.has_left = reached != allowed
        for name, end in reached.items():
            most = max(start.streams.get(name, 0), available.get(name, 0))
            # There is always more of an endless generator: it must not keep ticks waiting for ever.
            is_all = is_all and (end == most or most == ENDLESS)
            if end:
                ends[name] = end
        return ends, is_all

    def _share_out(self, start: Offsets, ends: Mapping[str, int], most_rows: int) -> dict[str, int]:
        begins = {name: start.streams.get(name, 0) for name in ends}
        found = {name: self.inventories()[name].weights(begins[name], end) for name, end in ends.items()}
        weights = {name: known for name, known in found.items() if known}
        return {**ends, **{name: begins[name] + n for name, n in share_out(weights, most_rows).items()}}

    def splits(self, start: Offsets, end: Offsets, tasks: int) -> list[list[Split]]:
        """The input between two offsets, as `tasks` lists of splits; some may be empty."""
        found: list[Split] = []
        for name, high in sorted(end.streams.items()):
            low = start.streams.get(name, 0)
            inventory = self._inventory(name) if high > low else None
            if inventory is not None:
                found += inventory.splits(low, high, tasks)
        return pack(found, tasks)

    def marks(self, end: Offsets) -> dict[str, SourceMark]:
        """What to keep with a batch that ends there, and to give to the planner of the next run. Of a stream that
        nobody has looked at in this run it is what was known before."""
        for name, inventory in (self._resting | dict(self.inventories())).items():
            if name in end.streams:
                self._marks[name] = inventory.mark(end.streams[name])
        return {name: mark for name, mark in self._marks.items() if name in end.streams}

    def release(self, end: Offsets) -> None:
        """Also of streams that nobody reads any more: the batch that has just happened may have read them, or a power
        cut have brought units back."""
        for name, units in end.streams.items():
            inventory = self._inventory(name)
            if inventory is not None:
                inventory.release(units)

    def latest(self, start: Offsets, tick: int, most_rows: int | None = None) -> Offsets:
        """How far the next batch goes; `start` itself where there is no reason for one. `tick` must have been read
        before this is called: what was there when it was asked for must not be left behind. `most_rows`: of a backlog
        it takes about so many, and at least a unit of each stream."""
        streams, is_all = self.advance(start, self.available(), most_rows)
        return _offsets(start, max(start.tick, tick) if is_all else start.tick, streams)

    def target(self) -> Target:
        """What is there now, for a run that ends."""
        return Target(self.available())

    def until(self, start: Offsets, target: Target, tick: int) -> Offsets:
        """How far the next batch of such a run goes: all data up to the target, then one batch without data that
        closes what can be closed."""
        if target.tick is None:
            target.tick = max(start.tick + 1, tick)
            # Of an endless generator, one batch: something finite has to be called available.
            target.units = {
                name: self.inventories()[name].limit(start.streams.get(name, 0), units) if units == ENDLESS else units
                for name, units in target.units.items()
            }
        streams, _ = self.advance(start, target.units)
        before = {name: start.streams.get(name, 0) for name in streams}
        reached = start.tick if streams != before else max(start.tick, target.tick)
        return _offsets(start, reached, streams)


def _offsets(start: Offsets, tick: int, streams: Mapping[str, int]) -> Offsets:
    """`start` itself, if there is nothing new."""
    grown = any(units > start.streams.get(name, 0) for name, units in streams.items())
    # A stream that no query reads at the moment is not registered, but its place is remembered.
    after = Offsets(tick, {**start.streams, **streams})
    return after if grown or tick > start.tick else start


def share_out(waiting: Mapping[str, Sequence[int]], most_rows: int) -> dict[str, int]:
    """Stream -> how many of the units that wait make up about so many rows, if it gives them in proportion to what
    waits of it: streams that are joined should not run away from each other. `waiting`: the rows of each unit."""
    share = most_rows / max(1, sum(map(sum, waiting.values())))
    if share >= 1:
        return {name: len(rows) for name, rows in waiting.items()}
    return {
        name: max(1, bisect_right([*accumulate(rows)], share * sum(rows))) for name, rows in waiting.items() if rows
    }


def pack(splits: Sequence[Split], parts: int) -> list[list[Split]]:
    """Cut the list into `parts` contiguous runs of about the same weight.

    Contiguous, because neighbours in the list are neighbours in event time: a task then sees few slices
    and its partial aggregates stay small. A split goes where its middle falls on the line of all weights.
    """
    tasks: list[list[Split]] = [[] for _ in range(max(1, parts))]
    total = sum(split.weight for split in splits)
    before = 0
    for split in splits:
        middle = before + split.weight / 2
        tasks[min(len(tasks) - 1, int(middle * len(tasks) / total))].append(split)
        before += split.weight
    return tasks
