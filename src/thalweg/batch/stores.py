"""Stores between the tasks and the state: INGEST writes rows and indexes once, slots map them.

Rows do not travel with the shuffle: the task that read them leaves them in the state, where they have to be
anyway, and tells every slot where. What travels is the news, and row numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import structs

from thalweg.batch.work import Work
from thalweg.model.bucket import Layout, RowBucket, StoredIndex
from thalweg.model.plan import Plan, route_key
from thalweg.model.probe import Store
from thalweg.model.report import StreamSample
from thalweg.model.windows import BEGINNING
from thalweg.operate.index import SMALL, word_groups
from thalweg.operate.materialise import intermediate_rows
from thalweg.operate.outbox import Outbox
from thalweg.operate.probe_tree import Probing, Tuples
from thalweg.operate.store import (
    Rows,
    View,
    Views,
    add_words,
    distinct_keys,
    in_key_order,
    index_to_table,
    key_words,
    make_indexes,
    numbers,
)
from thalweg.state.collect import bucket_name
from thalweg.state.container import ContainerWriter, read_section
from thalweg.state.reader import StateReader

LOOKED_AT = 8192
"""Rows of a stream whose join keys an INGEST task counts by key group."""
MOST_PIECES = 1 << 20
"""Buckets of one stream that a task can write in a batch."""
FANOUT = 8
"""Buckets of one level that are merged into one of the next."""
WIDEST = 4
"""A merged bucket spans at most this fraction of the time that rows are kept: it goes when its last row goes."""


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


def store_rows(plan: Plan, work: Work, task: int, stored: Mapping[str, Sequence[pa.Table]]) -> list[RowBucket]:
    """Writes the rows that joins may need into one file. Small buckets have small indexes, and expire sooner."""
    if not stored:
        return []
    closed = {name: us for name, us in work.clock.closed_us.items() if name not in plan.joins.joined}
    batch = work.clock.batch
    buckets = []
    with _new_file(work, 0) as writer:
        for name, tables in sorted(stored.items()):
            store = plan.joins.stores[name]
            layout = Layout.of(store, closed)
            rows = pa.concat_tables(tables)
            for number, at in enumerate(range(0, rows.num_rows, SMALL)):
                piece = rows.slice(at, SMALL)
                place = task * MOST_PIECES + number
                buckets.append(_write_bucket(writer, store, piece, layout, 0, (batch, batch), place))
        writer.close()
    return buckets


def _new_file(work: Work, slot: int) -> ContainerWriter:
    return ContainerWriter(work.storage, bucket_name(work.clock.batch, slot, work.unique))


def _write_bucket(
    writer: ContainerWriter,
    store: Store,
    rows: pa.Table,
    layout: Layout,
    level: int,
    batches: tuple[int, int],
    place: int,
) -> RowBucket:
    table = in_key_order(store, add_words(store, rows))
    times = numbers(table.column(store.time))
    layout = structs.replace(layout, low_us=int(times.min()), high_us=int(times.max()))
    made = make_indexes(store, table)
    indexes = {id_: StoredIndex(writer.add(id_, index_to_table(index)), index.bits) for id_, index in made.items()}
    return RowBucket(
        section=writer.add(store.stream, table),
        relation=store.stream,
        level=level,
        batch_from=batches[0],
        batch_to=batches[1],
        place=place,
        indexes=indexes,
        layout=layout,
        columns=tuple(table.column_names),
        distinct={id_: round(distinct_keys(index)) for id_, index in made.items()},
    )


# -- static tables


def open_tables(plan: Plan, work: Work) -> dict[str, pa.Table]:
    """The tables that the plan looks rows up in."""
    names = {t.table for joined in plan.joins.joined.values() for t in joined.tables}
    return {name: read_section(work.storage, work.tables[name]) for name in sorted(names)}


# -- SLOT


def stage_plan(plan: Plan, stage: int, stages: int) -> Plan:
    """The groupings that a stage serves: over streams in the first, over joined rows in the last."""
    late = {name for name, joined in plan.joins.joined.items() if not joined.alone}
    chosen = {id_: g for id_, g in plan.groupings.items() if (stage == stages if g.stream in late else stage == 1)}
    return replace(plan, groupings=chosen, members=tuple(m for m in plan.members if m.main.grouping in chosen))


def open_views(plan: Plan, work: Work, new: Sequence[RowBucket]) -> Views:
    """The stores as a task sees them. `new`: what came with the batch."""
    reader = StateReader(work.storage)

    def view(store: Store) -> View:
        """Old buckets as the manifest lists them, then those of the batch by the task that wrote them."""
        mine = sorted((b for b in new if b.relation == store.stream), key=lambda b: b.place)
        old = [Rows(store, b, reader, False) for b in work.stores.get(store.stream, ())]
        return View(store, [*old, *(Rows(store, b, reader, True) for b in mine)])

    streams = {r: role.stream for g in plan.joins.groups.values() for r, role in g.roles.items()}
    return Views({name: view(store) for name, store in plan.joins.stores.items()}, plan.joins.intermediates, streams)


def keep_intermediates(plan: Plan, work: Work, slot: int, probing: Probing) -> list[RowBucket]:
    """Writes the new rows of the intermediates that the plan keeps."""
    if not probing.kept:
        return []
    batch, buckets = work.clock.batch, []
    with _new_file(work, slot) as writer:
        for name, parts in sorted(probing.kept.items()):
            store, of = plan.joins.stores[name], plan.joins.intermediates[name]
            tuples = Tuples.concat([tuples for _, tuples in parts])
            rows = intermediate_rows(store, probing.views, of.relations, tuples)
            layout = Layout((), True, 0, 0, {}, plan.joins.groups[parts[0][0]].queries)
            buckets.append(_write_bucket(writer, store, rows, layout, 0, (batch, batch), slot))
        writer.close()
    return buckets


# -- compaction


def compact_stores(plan: Plan, work: Work, slot: int) -> tuple[list[RowBucket], list[str]]:
    """Merges small buckets of the stores that this slot looks after: what is new, and what it replaces."""
    merged: list[RowBucket] = []
    replaced: list[str] = []
    for name, store in plan.joins.stores.items() if work.stage == 1 else ():
        if zlib.crc32(name.encode()) % plan.slots != slot:
            continue
        for group in _to_merge(store, work.stores.get(store.stream, ())):
            merged.append(_merge(work, store, group, slot))
            replaced += [bucket.name for bucket in group]
    return merged, replaced


def _to_merge(store: Store, held: Sequence[RowBucket]) -> list[list[RowBucket]]:
    """Runs of buckets alike in all but their rows, none of which was late for anyone."""
    reach = max(us for _, us in store.needs)
    alike: dict[Any, list[RowBucket]] = {}
    for bucket in held:
        layout = bucket.layout
        late = max(layout.threshold(streams) for streams, _ in store.needs)
        current = {index.id for index in store.indexes} == set(bucket.indexes)
        if layout.low_us > late and current:
            key = (bucket.level, layout.predicates, layout.keeps_all, layout.queries, bucket.columns)
            alike.setdefault(key, []).append(bucket)
    found = []
    for buckets in alike.values():
        buckets = sorted(buckets, key=lambda b: (b.batch_from, b.place))
        for at in range(0, len(buckets) - FANOUT + 1, FANOUT):
            group = buckets[at : at + FANOUT]
            layouts = [b.layout for b in group]
            span = max(x.high_us for x in layouts) - min(x.low_us for x in layouts)
            if span * WIDEST <= reach:
                found.append(group)
    return found


def _merge(work: Work, store: Store, group: Sequence[RowBucket], slot: int) -> RowBucket:
    rows = pa.concat_tables([read_section(work.storage, b.section) for b in group])
    layout = group[0].layout
    closed = {name: min(b.layout.closed_us.get(name, BEGINNING) for b in group) for name in layout.closed_us}
    with _new_file(work, slot) as writer:
        batches = (group[0].batch_from, max(b.batch_to for b in group))
        level = group[0].level + 1
        layout = structs.replace(layout, closed_us=closed)
        merged = _write_bucket(writer, store, rows, layout, level, batches, group[0].place)
        writer.close()
    return merged
