"""Stores between the tasks and the state: INGEST writes rows and indexes once, slots map them.

Rows do not travel with the shuffle: the task that read them leaves them in the state, where they have to be
anyway, and tells every slot where. What travels is the news, and row numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from thalweg.batch.work import Work
from thalweg.model.bucket import Layout, NewRows, RowBucket
from thalweg.model.plan import Plan, route_key
from thalweg.model.probe import Store
from thalweg.model.report import StreamSample
from thalweg.model.window import BEGINNING
from thalweg.operate.index import word_groups
from thalweg.operate.materialise import intermediate_rows
from thalweg.operate.outbox import Outbox
from thalweg.operate.pieces import new_buckets
from thalweg.operate.probe_tree import Probing
from thalweg.operate.store import Rows, View, Views, key_words, lay_out
from thalweg.operate.tuples import Tuples
from thalweg.state.compact import rows_to_merge
from thalweg.state.reader import StateReader

LOOKED_AT = 8192
"""Rows of a stream whose join keys an INGEST task counts by key group."""
MOST_PIECES = 1 << 20
"""Buckets of one stream that a task can write in a batch."""


# -- INGEST


def sampled(plan: Plan, outbox: Outbox, buckets: Sequence[RowBucket]) -> dict[str, StreamSample]:
    """What the task has seen of the streams that are joined: a sample of rows and the number of keys."""
    distinct = {b.relation: dict(b.distinct) for b in buckets}
    found = {}
    for name, sample in outbox.samples.items():
        predicates = tuple(p.id for p in plan.joins.stores[name].predicates)
        found[name] = StreamSample(predicates, tuple(sample.rows), sample.seen, distinct.get(name, {}))
    return found


def probing_rows(plan: Plan, stored: Mapping[str, Sequence[pa.Table]]) -> dict[str, dict[str, list[int]]]:
    """stream -> route key -> rows by key group, as a sample has them: which slot will probe how much."""
    found: dict[str, dict[str, list[int]]] = {}
    for name, tables in stored.items():
        rows = pa.concat_tables(tables)
        step = max(1, rows.num_rows // LOOKED_AT)
        some = rows.take(np.arange(0, rows.num_rows, step))
        for index in plan.joins.stores[name].indexes:
            complete = some.select(index.keys).drop_null()
            groups = word_groups(key_words(index, complete), plan.groups)
            counts = np.bincount(groups, minlength=plan.groups) * step
            found.setdefault(name, {})[route_key(name, index.keys)] = counts.tolist()
    return found


def new_rows(plan: Plan, work: Work, task: int, stored: Mapping[str, Sequence[pa.Table]]) -> Iterator[NewRows]:
    """The rows that joins may need, as buckets."""
    closed = {name: us for name, us in work.clock.closed_us.items() if name not in plan.joins.joined}
    batch = work.clock.batch
    for name, tables in sorted(stored.items()):
        store = plan.joins.stores[name]
        layout = Layout.of(store, closed)
        rows = pa.concat_tables(tables)
        delays = {stream: plan.streams[stream].stream.delay_us for streams, _ in store.needs for stream in streams}
        yield from new_buckets(store, rows, layout, delays, batch, task * MOST_PIECES)


# -- static tables


def open_tables(plan: Plan, work: Work) -> dict[str, pa.Table]:
    """The tables that the plan looks rows up in."""
    names = {t.table for joined in plan.joins.joined.values() for t in joined.tables}
    reader = StateReader(work.storage)
    return {name: reader.read(work.tables[name]) for name in sorted(names)}


# -- SLOT


def open_views(plan: Plan, work: Work, new: Sequence[RowBucket]) -> Views:
    """The stores as a task sees them. `new`: what came with the batch."""
    reader = StateReader(work.storage)

    def view(store: Store) -> View:
        """Old buckets as the manifest lists them, then those of the batch by the task that wrote them."""
        mine = sorted((b for b in new if b.relation == store.stream), key=lambda b: b.place)
        old = [Rows(store, b, reader, False) for b in work.stores.get(store.stream, ())]
        return View(store, [*old, *(Rows(store, b, reader, True) for b in mine)])

    streams = {r: role.stream for g in plan.joins.cohorts.values() for r, role in g.roles.items()}
    return Views({name: view(store) for name, store in plan.joins.stores.items()}, plan.joins.intermediates, streams)


def new_intermediates(plan: Plan, work: Work, slot: int, probing: Probing) -> list[NewRows]:
    """The new rows of the intermediates that the plan keeps."""
    batch, found = work.clock.batch, []
    for name, parts in sorted(probing.kept.items()):
        store, of = plan.joins.stores[name], plan.joins.intermediates[name]
        tuples = Tuples.concat([tuples for _, tuples in parts])
        rows = intermediate_rows(store, probing.views, of.relations, tuples)
        layout = Layout((), True, 0, 0, {}, plan.joins.cohorts[parts[0][0]].queries)
        found.append(lay_out(store, rows, layout, 0, (batch, batch), slot))
    return found


# -- compaction


def rows_to_compact(plan: Plan, work: Work, slot: int) -> list[tuple[Store, list[RowBucket]]]:
    """Small buckets of the stores that this slot looks after, in runs that become one each."""
    if work.stage > 1:
        return []
    mine = [s for name, s in plan.joins.stores.items() if zlib.crc32(name.encode()) % plan.slots == slot]
    return [(store, run) for store in mine for run in rows_to_merge(store, work.stores.get(store.stream, ()))]


def merged_rows(work: Work, store: Store, run: Sequence[RowBucket]) -> NewRows:
    reader = StateReader(work.storage)
    rows = pa.concat_tables([reader.read(bucket.section) for bucket in run])
    layout, batches = run[0].layout, (run[0].batch_from, max(b.batch_to for b in run))
    closed = {name: min(b.layout.closed_us.get(name, BEGINNING) for b in run) for name in layout.closed_us}
    layout = replace(layout, closed_us=closed)
    return lay_out(store, rows, layout, run[0].level + 1, batches, run[0].place)
