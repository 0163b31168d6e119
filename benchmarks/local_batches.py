"""Batches in one process, without Spark: all that the driver and its tasks do, one after the other."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from thalweg.batch.assemble import assemble
from thalweg.batch.cells import payload_size
from thalweg.batch.local_runner import Attempt, Cells, LocalRunner, Orderly, warm_up
from thalweg.batch.made import Made
from thalweg.batch.pending import PendingRequests
from thalweg.batch.planning import Planning
from thalweg.batch.prepare import Preparation, Preparing
from thalweg.engine.local_engine import LocalEngine
from thalweg.model.entry import Entry
from thalweg.model.manifest import Manifest
from thalweg.model.offsets import Offsets
from thalweg.model.query import Query
from thalweg.model.shown import shown, shown_schema
from thalweg.model.split import Split, dump_splits
from thalweg.model.stream import Stream
from thalweg.state.places import open_storage
from thalweg.state.reader import StateReader
from thalweg.state.requests import CreateRequest, RequestLog
from thalweg.state.storage import Storage
from thalweg.state.term import take_term

SLOTS = 2
Take = Callable[[int, Mapping[str, pa.Table]], None]
"""Is shown the results of a batch."""


@dataclass(frozen=True)
class Load:
    """Queries, and what comes in."""

    streams: Sequence[Stream]
    queries: Sequence[Query]
    splits: Callable[[Path, int], list[Split]]
    """Those of a batch, whose files it writes to a directory."""
    functions: Mapping[str, bytes] = field(default_factory=dict)
    """version -> code of users' aggregates."""
    slots: int = SLOTS
    tasks: int = 1
    """Of INGEST at most, and of SLOT."""


@dataclass
class Spent:
    """CPU seconds of one batch, until sinks have its results, and what it left."""

    total: float = 0.0
    ingest_tasks: list[float] = field(default_factory=list)
    slot_tasks: list[float] = field(default_factory=list)
    sent: int = 0
    """Bytes of cells that INGEST has made."""
    emitted: int = 0
    manifest: Manifest | None = None

    @property
    def ingest(self) -> float:
        return sum(self.ingest_tasks)

    @property
    def slots(self) -> float:
        return sum(self.slot_tasks)

    @property
    def busiest(self) -> float:
        """Of the busiest task of INGEST, and then of the busiest of SLOT: how long it takes where every task has a
        core of its own."""
        return max(self.ingest_tasks, default=0.0) + max(self.slot_tasks, default=0.0)

    @property
    def driver(self) -> float:
        return self.total - self.ingest - self.slots


def show_nobody(batch: int, results: Mapping[str, pa.Table]) -> None:
    """Results are only counted."""


def run_load(load: Load, batches: int, take: Take = show_nobody) -> Iterator[Spent]:
    """Every batch with rows, and one without."""
    warm_up()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        storage = open_storage(directory / "state")
        storage.claim()
        requests = RequestLog(storage, 0)
        for query in load.queries:
            requests.append(CreateRequest(query))
        watch = _Watch()
        tasks, term = LocalRunner(load.tasks, watch), take_term(storage)
        engine: Any = LocalEngine(None, tasks)  # type: ignore[arg-type]  # nothing is analysed
        planning = Planning(
            PendingRequests(requests, lambda: {s.name: s for s in load.streams}), dict, lambda _: load.functions
        )
        runner = assemble(tasks, engine, storage, term, planning, slots=load.slots)
        runner.results.preparing = _Shown(take, storage, runner.offers.delivery)
        runner.recover()  # as a loop begins: from then on sinks are given results
        for number in range(batches + 1):
            splits = load.splits(directory, number) if number < batches else []
            began = time.process_time()
            texts = [dump_splits(splits[i :: load.tasks]) for i in range(min(load.tasks, max(1, len(splits))))]
            runner.run(texts, Offsets(number))
            runner.flush()
            watch.spent.total = time.process_time() - began
            watch.spent.emitted = runner.reports[-1].emitted
            watch.spent.manifest = runner.manifest
            yield watch.spent
        requests.close()


class _Shown(Preparing):
    """Shows what it is given."""

    def __init__(self, take: Take, storage: Storage, *given: Any) -> None:
        super().__init__(storage, *given)
        self._take, self._reader = take, StateReader(storage)

    def prepare(self, batch: int, results: Mapping[str, Made], live: Mapping[str, Entry]) -> Preparation:
        if self._take is not show_nobody:
            self._take(batch, {query: self._whole(made) for query, made in results.items() if made.rows})
        return super().prepare(batch, results, live)

    def _whole(self, made: Made) -> pa.Table:
        """What came with reports, and what tasks have prepared."""
        schema = shown_schema(made.entry.query)
        prepared = [shown(self._reader.read(section), schema) for section in made.sections]
        return pa.concat_tables([*prepared, *([made.table] if made.table is not None else ())])


class _Watch(Orderly):
    """Measures the tasks of a batch: the first are INGEST, those after them are SLOT."""

    def __init__(self) -> None:
        self.spent = Spent()
        self._tasks = 0
        """Of INGEST, still to run."""

    def deal(self, splits: Sequence[str]) -> Sequence[str]:
        self.spent, self._tasks = Spent(), len(splits)
        return splits

    def attempt(self, begin: Attempt) -> Cells:
        began = time.process_time()
        made = list(begin())
        took = time.process_time() - began
        if self._tasks > 0:
            self.spent.ingest_tasks.append(took)
            self.spent.sent += sum(map(payload_size, made))
        else:
            self.spent.slot_tasks.append(took)
        self._tasks -= 1
        return made
