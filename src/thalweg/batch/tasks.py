"""The tasks of a batch: INGEST, and SLOT once or more. Functions of a plan, the batch's work, what came in and the
number of the task; who runs them is up to a runner (`engine/contract`).

Between two stages goes one shuffle of a few binary rows `(slot, kind, payload)`; after the last the driver
collects a few more. A task never fails for what a user did: it reports, and the driver decides.

| kind | payload | for |
|---|---|---|
| buckets | partials of groupings over streams | SLOT, first stage |
| stored | where INGEST has put rows that joins may need | SLOT, every stage |
| tuples | tuples of row numbers that look for further partners | SLOT, next stage |
| partials | partials of groupings over joined rows | SLOT, last stage |
| results, spill, ingested, slot | results and reports | the driver |
"""

from __future__ import annotations

import base64
import json
import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thalweg import faults
from thalweg.batch.stores import SlotJoins, open_tables, probing_rows, sampled, stage_plan, store_rows
from thalweg.errors import StateError, ThalwegError
from thalweg.model.canonical import named
from thalweg.model.plan import Grouping, Plan
from thalweg.observe.stopwatch import DECODE, OPERATE, READ, ROUTE, STATE_WRITE, Stopwatch
from thalweg.operate.columns import GROUP, START
from thalweg.operate.compute import Failures
from thalweg.operate.own import define
from thalweg.operate.partitioners import Partitioners
from thalweg.operate.shipment import Shipment
from thalweg.operate.shipping import unship
from thalweg.operate.slot import Clock, Held, Kept, SlotResult, run_slot
from thalweg.operate.source import Ingested, ingest_chunk
from thalweg.operate.windows import Stretch
from thalweg.partition.cooperative import Learned, Policy
from thalweg.route.bucket import decode_offsets, encode_offsets, order_by_group, pack, slice_groups, unpack
from thalweg.route.table import routing_table
from thalweg.sink.outlet import Results
from thalweg.source.read import read
from thalweg.source.split import parse_splits
from thalweg.state.collect import bucket_name, unique
from thalweg.state.container import ContainerWriter, Section, read_section
from thalweg.state.durable import make_directory
from thalweg.state.manifest import Bucket, StoreBucket

ROWS_AT_ONCE = 1_000_000
"""Rows that INGEST groups in one go: more per pass means fewer partials, this many bounds its memory."""
CELL_BYTES = 128 << 20
"""What goes into one cell of the shuffle at most: the JVM copies cells whole."""

CELLS = pa.schema([("slot", pa.int32()), ("kind", pa.string()), ("payload", pa.binary())])

Batches = Iterator[pa.RecordBatch]

faults.register("task.ingest", "task.stored", "task.slot", "task.bucket")


@dataclass(frozen=True)
class Work:
    """What differs from batch to batch under one plan."""

    state_dir: str
    clock: Clock
    buckets: Mapping[int, Sequence[Bucket]] = field(default_factory=dict)
    """slot -> live buckets with rows of that slot."""
    nodes: Mapping[str, frozenset[Stretch]] = field(default_factory=dict)
    """grouping -> the nodes that exist."""
    tasks: int = 1
    stores: Mapping[str, Sequence[StoreBucket]] = field(default_factory=dict)
    """stream -> live buckets of its store from the batches before."""
    tables: Mapping[str, Section] = field(default_factory=dict)
    """The static tables."""
    policies: Mapping[str, Policy] = field(default_factory=dict)
    """route key -> what the partitioners of all tasks have learned."""
    unheard: frozenset[str] = frozenset()
    """Queries whose results nobody takes: tasks count them."""
    stage: int = 1
    """Of SLOT, from 1."""
    stages: int = 1
    unique: Callable[[], str] = unique
    """What tells the files of two tasks, or of two attempts of one, apart."""
    now: Callable[[], int] = time.perf_counter_ns
    """What the time of tasks is measured by, in nanoseconds."""

    @property
    def is_last(self) -> bool:
        return self.stage == self.stages


def ingest(plan: Plan, work: Work, texts: Iterable[str], task: int) -> Batches:
    """Texts of splits -> one cell per slot that has rows, the results of plain queries, and a report."""
    done = Ingested(partitioners=Partitioners(work.policies, task), watch=Stopwatch(work.now))
    started = done.watch.read()
    report: dict[str, Any] = {"task": task, "rejected": {}}
    define(plan)
    try:
        for text in texts:
            with done.watch.during(READ):
                _ingest(plan, work, text, done, report)
    except ThalwegError as error:
        report["error"] = _error_json(error)
    faults.point("task.ingest")
    yield from _cells(plan, work, task, done, report, started)


def _ingest(plan: Plan, work: Work, text: str, done: Ingested, report: dict[str, Any]) -> None:
    waiting: dict[str, list[pa.Table]] = {}
    for split in parse_splits(text):
        stream = plan.streams.get(split.stream)
        if stream is None:
            continue
        for number, chunk in enumerate(read(split, stream.stream, stream.columns)):
            if chunk.rejected is not None and chunk.rejected.num_rows:
                place = named("part", split.path, split.start, split.end, number)
                _set_aside(work, split.stream, place, chunk.rejected, report)
            tables = waiting.setdefault(split.stream, [])
            tables.append(chunk.table)
            if sum(t.num_rows for t in tables) >= ROWS_AT_ONCE:
                _flush(plan, work, split.stream, waiting.pop(split.stream), done)
    for name, tables in waiting.items():
        _flush(plan, work, name, tables, done)


def _flush(plan: Plan, work: Work, name: str, tables: Sequence[pa.Table], done: Ingested) -> None:
    ingest_chunk(plan, name, pa.concat_tables(tables), work.clock, done, open_tables(plan, work))


def _set_aside(work: Work, stream: str, name: str, rejected: pa.Table, report: dict[str, Any]) -> None:
    """Rows that cannot be read are kept with their reasons, under a name that a repeat writes again."""
    file = f"{work.clock.batch:012d}-{name}.arrow"
    directory = make_directory(Path(work.state_dir) / "rejected" / stream)
    with ContainerWriter(directory / file) as writer:
        writer.add(stream, rejected, {"batch": work.clock.batch})
        writer.close()
    report["rejected"][stream] = report["rejected"].get(stream, 0) + rejected.num_rows


def _cells(plan: Plan, work: Work, task: int, done: Ingested, report: dict[str, Any], started: float) -> Batches:
    watch, sent = done.watch, 0
    began = watch.read()
    for slot in range(plan.slots):
        for tables in _cut(done.cells.pop(slot, [])):
            with watch.during(ROUTE):
                payload = pack(tables)
                cell = _cell(slot, "buckets", payload)
            sent += len(payload)
            yield cell
    report |= {"sent_bytes": sent, "ship_seconds": done.ship_seconds + watch.read() - began}
    results = Results(work.state_dir, work.clock.batch, 0, watch, work.unheard, work.unique)
    for query, table in done.results:
        results.add(query, table)
    yield from _results(0, results)
    report["counted"] = results.counted
    with watch.during(STATE_WRITE):
        buckets = store_rows(plan, work, task, done.stored)
        stored = [bucket.to_json() for bucket in buckets]
        staying = _kept(plan, work, [done.staying, *_staying(done.shipments)])
        report["kept"] = [bucket.to_json() for bucket in _write(plan, work, task % plan.slots, staying)]
    faults.point("task.stored")
    if plan.joins.stores:
        for other in range(work.tasks):
            yield _cell(other, "stored", json.dumps(stored).encode())
    with watch.during(ROUTE):
        report |= {
            "samples": sampled(plan, done, buckets),
            "probing": probing_rows(plan, done.stored),
            "stayed": {id_: by_slot.tolist() for id_, by_slot in done.stayed.items()},
            "shipped": _shipped(done.shipments),
            "learned": _learned(done.partitioners.learned()),
        }
    report |= {
        "stored": stored,
        "rows": done.rows,
        "late": done.late,
        "max_time_us": done.max_time_us,
        "groups": done.groups,
        "passed": done.passed,
        "failures": done.failures,
        "seconds": watch.read() - started,
        "time": watch.take(),
    }
    yield _cell(0, "ingested", json.dumps(report).encode())


def _shipped(shipments: Mapping[str, Shipment]) -> dict[str, Any]:
    return {name: shipment.to_json() for name, shipment in shipments.items() if shipment.rows or shipment.stayed}


def _learned(learned: Mapping[str, Learned]) -> dict[str, str]:
    return {key: base64.b85encode(pickle.dumps(value)).decode() for key, value in learned.items()}


def _cut(tables: Sequence[tuple[str, pa.Table]]) -> Iterator[list[tuple[str, pa.Table]]]:
    """The tables in portions that a cell can hold; one portion at least, so that every slot hears of the batch."""
    portion: list[tuple[str, pa.Table]] = []
    size = 0
    for name, table in tables:
        if portion and size + table.nbytes > CELL_BYTES:
            yield portion
            portion, size = [], 0
        portion.append((name, table))
        size += table.nbytes
    yield portion


def _cell(slot: int, kind: str, payload: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([slot], pa.int32()), pa.array([kind]), pa.array([payload], pa.binary())], schema=CELLS
    )


def run_slots(plan: Plan, work: Work, batches: Iterable[pa.RecordBatch], task: int) -> Batches:
    """Cells of this task's slots -> results, cells for the next stage, and reports. Other cells pass through."""
    inbox, watch = _Inbox(), Stopwatch(work.now)
    define(plan)
    for batch in batches:
        for slot, kind, payload in zip(*(batch.column(i) for i in range(3)), strict=True):
            with watch.during(DECODE):
                taken = inbox.put(slot.as_py(), kind.as_py(), payload, work.is_last)
            if not taken:
                yield _cell(slot.as_py(), kind.as_py(), payload.as_py())
    if inbox.stored and not work.is_last:
        yield _cell(task, "stored", json.dumps(inbox.stored).encode())
    with watch.during(OPERATE):
        joining = SlotJoins(plan, work, [StoreBucket.from_json(b) for b in inbox.stored], watch)
    for slot in range(task, plan.slots, work.tasks):
        yield from _run_slot(plan, work, slot, inbox, joining, watch)


@dataclass
class _Inbox:
    """What has come for the slots of one task."""

    partials: dict[int, dict[str, list[pa.Table]]] = field(default_factory=dict)
    tuples: dict[int, list[tuple[str, pa.Table]]] = field(default_factory=dict)
    stored: list[dict[str, Any]] = field(default_factory=list)

    def put(self, slot: int, kind: str, payload: pa.Scalar, is_last: bool) -> bool:
        """False for what is not for this stage."""
        if kind == "buckets" or (kind == "partials" and is_last):
            tables = self.partials.setdefault(slot, {})
            for name, table in unpack(payload.as_buffer()):
                tables.setdefault(name, []).append(table)
        elif kind == "tuples":
            self.tuples.setdefault(slot, []).extend(unpack(payload.as_buffer()))
        elif kind == "stored":
            self.stored += json.loads(payload.as_py())
        else:
            return False
        return True


def _run_slot(plan: Plan, work: Work, slot: int, inbox: _Inbox, joining: SlotJoins, watch: Stopwatch) -> Batches:
    began = watch.read()
    report: dict[str, Any] = {"slot": slot, "stage": work.stage, "task": slot % work.tasks}
    results = Results(work.state_dir, work.clock.batch, slot, watch, work.unheard, work.unique)
    try:
        with watch.during(OPERATE):
            joined = joining.run(slot, inbox.tuples.pop(slot, []), results.add)
            probed = watch.read()
            result = _aggregate(plan, work, slot, inbox, report)
        faults.point("task.slot")
        with watch.during(STATE_WRITE):
            staying = _kept(plan, work, _staying(joined.shipments))
            report["kept"] = [bucket.to_json() for bucket in _write(plan, work, slot, [*result.kept, *staying])]
            report |= joining.keep(slot)
        kept = [bucket.to_json() for bucket in joined.kept]
        report["stores"] += kept
        faults.point("task.bucket")
        report |= {
            "replaced": result.replaced,
            "failures": {**result.failures, **joined.failures},
            "probes": joined.counts,
            "shipped": _shipped(joined.shipments),
            "learned": _learned(joined.learned),
            "work_seconds": watch.read() - probed,
        }
        for query, table in result.results:
            results.add(query, table)
        yield from _results(slot, results)
        report["counted"] = results.counted
        for task in range(work.tasks) if kept and not work.is_last else ():
            yield _cell(task, "stored", json.dumps(kept).encode())
        for kind, cells in (("tuples", joined.tuples), ("partials", joined.partials)):
            for to, tables in cells.items():
                for portion in _cut(tables):
                    if portion:
                        with watch.during(ROUTE):
                            cell = _cell(to, kind, pack(portion, compressed=kind == "partials"))
                        yield cell
    except ThalwegError as error:
        report["error"] = _error_json(error)
    finally:
        results.abandon()
    report |= {"seconds": watch.read() - began, "time": watch.take()}
    yield _cell(slot, "slot", json.dumps(report).encode())


def _aggregate(plan: Plan, work: Work, slot: int, inbox: _Inbox, report: dict[str, Any]) -> SlotResult:
    part = stage_plan(plan, work.stage, work.stages)
    if not part.groupings:
        return SlotResult()
    unshipped: Failures = {}
    came = inbox.partials.pop(slot, {})
    arrived, served = unship(part, came, unshipped)
    report["served"] = {id_: asdict(made) for id_, made in served.items()}
    report["merged"] = {id_: sum(t.num_rows for t in tables) for id_, tables in came.items()}
    result = run_slot(part, work.clock, arrived, _held(part, work, slot), work.nodes)
    result.failures.update(unshipped)
    return result


def _held(plan: Plan, work: Work, slot: int) -> dict[str, list[Held]]:
    held: dict[str, list[Held]] = {}
    for bucket in work.buckets.get(slot, ()):
        grouping = plan.groupings.get(bucket.grouping)
        if grouping is not None:
            held.setdefault(grouping.id, []).append(_hold(plan, work, slot, grouping, bucket))
    return held


def _hold(plan: Plan, work: Work, slot: int, grouping: Grouping, bucket: Bucket) -> Held:
    routing = routing_table(plan, grouping.route_key)
    offsets = decode_offsets(bucket.section.meta["offsets"])
    owners = np.unique(routing.owners[np.diff(offsets) > 0])

    def load_whole() -> pa.Table:
        return read_section(work.state_dir, bucket.section)

    def load() -> pa.Table:
        return slice_groups(load_whole(), offsets, routing.slot_ranges(slot))

    return Held(
        name=f"{bucket.section.file}#{bucket.section.offset}",
        level=bucket.level,
        span=bucket.spans[0][1],
        starts=tuple(start for start, _ in bucket.spans),
        batch_from=bucket.batch_from,
        # Rows of several slots: the one that wrote them may merge them, whoever finishes their windows.
        whole=slot == (owners[0] if len(owners) == 1 else bucket.slot % plan.slots),
        load=load,
        load_whole=load_whole,
    )


def _staying(shipments: Mapping[str, Shipment]) -> list[Mapping[str, Sequence[pa.Table]]]:
    """What became of rows that were not shipped."""
    return [shipment.staying for shipment in shipments.values()]


def _kept(plan: Plan, work: Work, staying: Sequence[Mapping[str, Sequence[pa.Table]]]) -> list[Kept]:
    """What stays with the task (grouping -> tables), as buckets."""
    found = []
    for of_groupings in staying:
        for id_, tables in of_groupings.items():
            grouping, table = plan.groupings[id_], pa.concat_tables(tables, promote_options="default")
            starts = tuple(pc.unique(table.column(START)).to_pylist())
            found.append(Kept(id_, 0, grouping.slice_us, starts, work.clock.batch, table))
    return found


def _write(plan: Plan, work: Work, slot: int, kept: Sequence[Kept]) -> list[Bucket]:
    """All that a slot keeps of a batch goes into one file, each bucket ordered by key group."""
    if not kept:
        return []
    path = Path(work.state_dir) / bucket_name(work.clock.batch, slot, work.unique)
    make_directory(path.parent)
    buckets = []
    with ContainerWriter(path, root=work.state_dir) as writer:
        for k in kept:
            groups = k.table.column(GROUP).to_numpy().astype(np.uint16, copy=False)
            table, offsets = order_by_group(k.table, groups, plan.groups)
            section = writer.add(k.grouping, table, {"offsets": encode_offsets(offsets)})
            spans = tuple((start, k.span) for start in k.starts)
            buckets.append(
                Bucket(section, k.grouping, slot, k.level, k.batch_from, work.clock.batch, spans, table.num_rows)
            )
        writer.close()
    return buckets


def _results(slot: int, results: Results) -> Batches:
    told = results.close()
    if told is not None:
        yield _cell(slot, *told)


def _error_json(error: ThalwegError) -> dict[str, Any]:
    kind = "state" if isinstance(error, StateError) else "source"
    return {"kind": kind, "message": error.message, "detail": error.detail, "hint": error.hint}
