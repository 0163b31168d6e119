"""Real batches in the calling process, over queries that are values: no SQL, no analyser, no JVM.

A test gives rows, says what the next batch decides by, runs it and reads results. All in between is the engine:
requests, splits, tasks, cells, buckets on disk, sinks and manifests are those of a session.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from tests.support.clocks import CountingClock

from thalweg.adapt.contract import Decided
from thalweg.adapt.settings import JoinPlanning, Repartitioning
from thalweg.batch.assemble import assemble
from thalweg.batch.cells import CellKind, cells_of
from thalweg.batch.local_runner import Cells, LocalRunner, Orderly
from thalweg.batch.loop import Loop
from thalweg.batch.pending import PendingRequests
from thalweg.batch.planning import Planning
from thalweg.batch.work import Work
from thalweg.engine.local_engine import LocalEngine
from thalweg.model.manifest import Manifest
from thalweg.model.measurements import Combining, Dealing, HotJoinKeys, Partitioners
from thalweg.model.message import decode
from thalweg.model.partitioning import Partitioning
from thalweg.model.plan import Plan
from thalweg.model.plan_input import KEY_GROUPS, GroupingLoad, PlanInput, PlanSettings, RunningQuery
from thalweg.model.probe_order import OrdersInForce
from thalweg.model.query import Query, query_id
from thalweg.model.report import IngestReport, SlotReport
from thalweg.model.stream import Stream
from thalweg.model.types import to_arrow
from thalweg.model.way import Way
from thalweg.optimize.planner import make_plan
from thalweg.route.hash import HASH_NAME
from thalweg.source.memory import memory
from thalweg.state.manifest import latest_manifest
from thalweg.state.places import open_storage
from thalweg.state.requests import CreateRequest, DropRequest, RequestLog
from thalweg.state.term import take_term


class Shuffled(Orderly):
    """Tasks run and cells arrive in any order."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def tasks(self, tasks: int) -> Sequence[int]:
        return self.rng.sample(range(tasks), tasks)

    def order(self, cells: Cells) -> Cells:
        return self.rng.sample(cells, len(cells))


class ReportingRunner(LocalRunner):
    """Keeps what the tasks of the last batch have told the driver."""

    cells: pa.Table

    def run(self, plan: Plan, work: Work, splits: Sequence[str], way: Way = Way.STAGES) -> pa.Table:
        self.cells = super().run(plan, work, splits, way)
        return self.cells

    def reports(self) -> list[IngestReport | SlotReport]:
        kinds: dict[CellKind, type[IngestReport | SlotReport]]
        kinds = {CellKind.INGESTED: IngestReport, CellKind.SLOT: SlotReport}
        told = ((kind, payload.as_py()) for _, kind, payload in cells_of(self.cells) if kind in kinds)
        return [decode(payload, kinds[kind]) for kind, payload in told]


class LocalPipeline:
    """One batch at a time. Queries are known by their names, each of which is used once."""

    def __init__(
        self,
        state_dir: Path,
        streams: Iterable[Stream],
        queries: Iterable[Query] = (),
        *,
        slots: int = 2,
        tasks: int = 2,
        groups: int = KEY_GROUPS,
        join_planning: JoinPlanning | None = None,
        repartitioning: Repartitioning | None = None,
        functions: Mapping[str, bytes] | None = None,
        shuffled: random.Random | None = None,
    ) -> None:
        """`functions`: version -> code of users' aggregates. `shuffled`: decides on the order of tasks and cells."""
        self.storage = open_storage(state_dir)
        self.streams = {stream.name: stream for stream in streams}
        self.queries: dict[str, Query] = {}
        """Those that run or will: name -> query."""
        self.known: dict[str, Query] = {}
        """All that ever were."""
        self.ids: dict[str, str] = {}
        self.functions = dict(functions or {})
        self.runner = ReportingRunner(tasks, None if shuffled is None else Shuffled(shuffled))
        self._join_planning, self._repartitioning = join_planning, repartitioning
        self._sources = {name: memory(stream.schema) for name, stream in self.streams.items()}
        for name, source in self._sources.items():
            source.attach(self.storage, name)
        self._open(slots)
        self.batches.manifest = Manifest(-1, groups, HASH_NAME)
        self.create(*queries)

    def _open(self, slots: int) -> None:
        engine: Any = LocalEngine(None, self.runner)  # type: ignore[arg-type]  # nothing is analysed
        term, newest = take_term(self.storage), latest_manifest(self.storage)
        self._requests = RequestLog(self.storage, 0 if newest is None else newest.through)
        self.batches = assemble(
            self.runner,
            engine,
            self.storage,
            term,
            Planning(PendingRequests(self._requests, lambda: self.streams), dict, lambda queries: self.functions),
            slots=slots,
            join_planning=self._join_planning,
            repartitioning=self._repartitioning,
        )
        self._delivery = self.batches.offers.delivery
        self._delivery.kept = {*self.ids.values()}
        # What the optimiser finds in its time is the same on every machine.
        self.batches.adaptations.clock = CountingClock()
        self._loop = Loop(self.batches, lambda: self.streams, self._used, lambda: None)

    def close(self) -> None:
        self.batches.adaptations.wait()
        self._requests.close()

    def reopen(self) -> None:
        """As after a restart: all that is known is what the state directory holds."""
        self.close()
        self._open(self.decided.slots)

    # -- queries and rows

    def create(self, *queries: Query) -> None:
        for query in queries:
            assert query.name not in self.known
            sequence = self._requests.append(CreateRequest(query))
            self.ids[query.name] = query_id(query.name, sequence)
            self._delivery.kept.add(self.ids[query.name])  # a test may ask for what dropped ones have given
            self.queries[query.name] = self.known[query.name] = query

    def drop(self, name: str) -> None:
        self._requests.append(DropRequest(name))
        del self.queries[name]

    def _used(self) -> dict[str, Stream]:
        """Only streams that some query reads are read; the others wait."""
        return {name: self.streams[name] for name in sorted(self.used_streams())}

    def used_streams(self) -> set[str]:
        return {stream for query in self.queries.values() for stream in query.streams}

    def append(self, stream: str, table: pa.Table, pieces: int = 2) -> None:
        """Tasks read whole pieces; without rows there is one all the same."""
        for piece in cut(table, pieces):
            self._sources[stream].append(piece)

    # -- one batch

    def run(self) -> bool:
        """One batch over all that was appended; False where there was nothing to do."""
        self._loop.tick()
        ran = self._loop._next(None)
        if failed := self.failures().keys() & self.queries.keys():
            self.queries = {name: query for name, query in self.queries.items() if name not in failed}
        return ran

    @property
    def decided(self) -> Decided:
        """What the next batch would run with."""
        return self.batches.adaptations.decided(self.manifest.measured, self.manifest.batch + 1)

    def preview(self, loads: Mapping[str, GroupingLoad] | None = None) -> Plan:
        """What the next batch would run, were nothing else decided: for those who decide."""
        measured = self.decided.measurements
        given = PlanInput(
            [RunningQuery(self.ids[name], query) for name, query in self.queries.items()],
            self.streams,
            measurements=measured if loads is None else dataclasses.replace(measured, groupings=loads),
            settings=PlanSettings(self.decided.slots, self.manifest.groups),
        )
        return make_plan(given)

    def decide(
        self,
        *,
        partitioning: Partitioning | None = None,
        loads: Mapping[str, GroupingLoad] | None = None,
        partitioners: Mapping[str, str] | None = None,
        spread: Mapping[str, Sequence[int]] | None = None,
        ordering: OrdersInForce | None = None,
    ) -> None:
        """What the next batch decides by, as if planners had proposed it or batches measured it."""
        measured = self.manifest.measured
        if partitioning is not None:
            self.batches.adaptations.change("slot_assignment", proposed=partitioning)
        if ordering is not None:
            self.batches.adaptations.change("probe_orders", coming=((0, ordering),))
        if loads is not None:
            shipped = tuple(id_ for id_, load in loads.items() if load.in_slots)
            ratios = {id_: load.groups_per_row for id_, load in loads.items()}
            measured = replace(measured, combining=Combining(loads=ratios, shipped=shipped))
        if partitioners is not None:
            dealing = {key: dealt_by(name) for key, name in partitioners.items()}
            measured = replace(measured, partitioners=Partitioners(dealing=dealing))
        if spread is not None:
            lists = {key: list(groups) for key, groups in spread.items()}
            measured = replace(measured, hot_join_keys=HotJoinKeys(spread=lists))
        self.batches.manifest = dataclasses.replace(self.manifest, measured=measured)

    # -- what came of it

    @property
    def manifest(self) -> Manifest:
        return self.batches.manifest

    @property
    def plan(self) -> Plan:
        """Of the last batch."""
        assert self.batches.plan is not None
        return self.batches.plan

    def results(self, name: str) -> pa.Table:
        outputs = self.known[name].outputs
        schema = pa.schema([(output.name, to_arrow(output.expr.type)) for output in outputs])
        return self._delivery.results.read(self.ids[name], schema)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        """The results; times in microseconds."""
        columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in self.results(name).columns]
        return list(zip(*(c.to_pylist() for c in columns), strict=True))

    def failures(self) -> dict[str, str]:
        """name -> why the query was stopped."""
        return {e.query.name: e.error or "" for e in self.batches.entries.values() if e.state == "failed"}

    def reports(self) -> list[IngestReport | SlotReport]:
        """What the tasks of the last batch told the driver."""
        return self.runner.reports()


def cut(table: pa.Table, pieces: int) -> list[pa.Table]:
    edges = [i * table.num_rows // pieces for i in range(pieces + 1)]
    found = [table.slice(a, b - a) for a, b in pairwise(edges) if a < b]
    return found or [table]


def dealt_by(partitioner: str) -> Dealing:
    return Dealing(rows=1, groups=1, top=0.5, busiest=0.5, partitioner=partitioner, reason="by the test")
