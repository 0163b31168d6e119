"""After trees, because an intermediate has a store too; before columns are counted, because stores read them: what is
kept of each stream for probes, and what joined rows are made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from thalweg.model.join import joined_column
from thalweg.model.probe import Index, Intermediate, Joined, JoinPlan, Predicate, Store
from thalweg.model.stream import Stream
from thalweg.model.types import to_arrow
from thalweg.optimize.derive_streams import limit_of
from thalweg.optimize.draft import Draft, JoinParts, StoreShare, again
from thalweg.optimize.order_probes import keys_of
from thalweg.optimize.split_joins import index_by

EMPTY = StoreShare()


def lay_out_stores(draft: Draft, last: Draft) -> Draft:
    streams = draft.given.streams
    asked, joined, limits = _laid_out(draft, last)
    draft = replace(
        draft,
        asked_stores=asked,
        stores={name: again(last.stores.get(name), _store, streams[name], asked[name]) for name in sorted(asked)},
        kept_stores={
            ids: again(last.kept_stores.get(ids), _kept_stores, joins, draft.kept[ids].value, streams)
            for ids, joins in draft.cohorts.items()
            if draft.kept[ids].value
        },
        joined=joined,
        limits=limits,
    )
    return replace(draft, join_plan=_join_plan(draft))


def _laid_out(draft: Draft, last: Draft) -> tuple[Mapping[str, StoreShare], Mapping[str, Joined], Mapping[str, int]]:
    """What is asked of stores and of joined rows, and how many a key may yield. Where a join has gone, what it asked
    of is gathered anew."""
    begun = draft.begun(last)
    asked, joined, limits = dict(begun.asked_stores), dict(begun.joined), dict(begun.limits)
    gone = [last.joins[running.id].value for running in draft.gone if running.id in last.joins]
    joins = [draft.joins[running.id].value for running in draft.new if running.id in draft.joins]
    anew = {stream for join in gone for stream in join.stores}
    rows_anew = {join.query.stream for join in (gone if draft.only_adds else [*gone, *joins])}
    for names, shares in ((anew, asked), (rows_anew, joined)):
        for name in names:
            shares.pop(name, None)
    if not draft.only_adds and (gone or joins):
        joins = [draft.joins[running.id].value for running in draft.given.queries if running.id in draft.joins]
    new = {running.id for running in draft.new}
    of_stores: dict[str, list[StoreShare]] = {}
    of_rows: dict[str, list[JoinParts]] = {}
    for join in joins:
        is_new, stream = join.id in new, join.query.stream
        if is_new or stream in rows_anew:
            of_rows.setdefault(stream, []).append(join)
        for name, share in join.stores.items():
            if is_new or name in anew:
                of_stores.setdefault(name, []).append(share)
    asked.update((name, _together((asked.get(name, EMPTY), *several))) for name, several in of_stores.items())
    joined.update((stream, _joined(several, joined.get(stream))) for stream, several in of_rows.items())
    limits.update((join.id, limit_of(join.query)) for join in joins if join.id in new)
    if draft.only_adds or not (gone or joins):
        return asked, joined, limits
    order = dict.fromkeys(join.query.stream for join in joins)
    return asked, {name: joined[name] for name in order}, {join.id: limits[join.id] for join in joins}


def _join_plan(draft: Draft) -> JoinPlan:
    grown = [draft.grown[ids].value for ids in draft.cohorts]
    kept = {m.id: m for ids in draft.cohorts for m in draft.kept[ids].value}
    kept_stores = {store.stream: store for part in draft.kept_stores.values() for store in part.value}
    ordered = {id_: of for cohort in grown for id_, of in cohort.ordered.items()}
    assert draft.formed is not None
    return JoinPlan(
        stores={
            **{name: part.value for name, part in draft.stores.items()},
            **{id_: kept_stores[id_] for id_ in sorted(kept_stores)},
        },
        cohorts={cohort.cohort.id: cohort.cohort for cohort in grown},
        joined=draft.joined,
        decisions=tuple(decision for cohort in grown for decision in cohort.decisions),
        intermediates=kept,
        stages=max((cohort.stages for cohort in grown), default=0),
        limits=draft.limits,
        notes=draft.formed.value.notes,
        ordered={id_: ordered[id_] for id_ in sorted(ordered)},
    )


# -- stores


def _together(shares: Sequence[StoreShare]) -> StoreShare:
    needs: dict[tuple[str, ...], int] = {}
    predicates: dict[str, Predicate] = {}
    indexes: dict[str, Index] = {}
    for share in shares:
        predicates.update(share.predicates)
        indexes.update(share.indexes)
        for streams, reach in share.needs.items():
            needs[streams] = max(needs.get(streams, 0), reach)
    columns = frozenset[str]().union(*(share.columns for share in shares))
    return StoreShare(needs, columns, predicates, indexes, any(share.keeps_all for share in shares))


def _store(stream: Stream, asked: StoreShare) -> Store:
    indexes = tuple(index for _, index in sorted(asked.indexes.items()))
    kept = {stream.time, *asked.columns, *(key for index in indexes for key in index.keys)}
    kept |= _worth_keeping(stream, asked, kept)
    own = [c for c in stream.schema.names if c in kept]
    return Store(
        stream.name,
        stream.time,
        (*own, *sorted(kept - set(own))),
        tuple(p for _, p in sorted(asked.predicates.items())),
        asked.keeps_all,
        indexes,
        tuple(sorted(asked.needs.items())),
    )


def _worth_keeping(stream: Stream, asked: StoreShare, kept: Collection[str]) -> set[str]:
    """Columns whose values take no more room than the bits of the predicates that they tell."""
    telling = [p for p in asked.predicates.values() if not p.computed]
    readers = Counter(column for p in telling for column in p.reads.difference(kept))
    return {c for c, predicates in readers.items() if predicates >= to_arrow(stream.schema.type_of(c)).bit_width}


def _kept_stores(
    joins: tuple[JoinParts, ...],
    kept: tuple[Intermediate, ...],
    streams: Mapping[str, Stream],
) -> tuple[Store, ...]:
    by_id = {join.id: join for join in joins}
    return tuple(_kept_store(m, [by_id[id_] for id_ in m.queries], streams) for m in kept)


def _kept_store(m: Intermediate, joins: list[JoinParts], streams: Mapping[str, Stream]) -> Store:
    def time_of(join: JoinParts, relation: str) -> str:
        return streams[join.join.relation(relation).stream].time

    needs: dict[tuple[str, ...], int] = {}
    columns: set[str] = set()
    for join in joins:
        on = tuple(sorted(join.join.streams))
        others = [r.name for r in join.join.relations if r.name not in m.relations]
        reach = max([0, *(join.far[m.anchor, other] for other in others)])
        needs[on] = max(needs.get(on, 0), reach)
        for name in m.relations:
            wanted = join.columns[name] | keys_of(join, name) | {time_of(join, name)}
            columns.update(joined_column(name, column) for column in wanted)
    indexes = {index.id: index for join in joins for index in _indexes(m, join)}
    time = joined_column(m.anchor, time_of(joins[0], m.anchor))
    found = tuple(index for _, index in sorted(indexes.items()))
    return Store(m.id, time, tuple(sorted(columns)), (), True, found, tuple(sorted(needs.items())))


def _indexes(m: Intermediate, join: JoinParts) -> Iterable[Index]:
    """One for each edge from its relations to others."""
    for edge, (left, right) in join.edges.items():
        for (name, keys), other in (((edge[0], left), edge[1]), ((edge[1], right), edge[0])):
            if name in m.relations and other not in m.relations:
                yield index_by(m.id, tuple(joined_column(name, key) for key in keys), join.types[edge])


# -- joined rows


def _joined(joins: Sequence[JoinParts], known: Joined | None) -> Joined:
    """`known`: of the joins before these."""
    query, of = joins[-1].query, joins[-1].join
    flags = [(join.id, join.flag) for join in joins if join.flag is not None]
    alone = [(join.id, join.predicates[join.join.relations[0].name]) for join in joins if not join.probes]
    reads = frozenset[str]().union(*(join.reads for join in joins))
    return Joined(
        query.stream,
        tuple((r.name, r.stream) for r in of.relations),
        tuple(sorted(of.streams)),
        of.lag_us(query.time) if query.time else 0,
        max([known.span_us if known else 0, *(far for join in joins for far in join.far.values())]),
        (*(known.flags if known else ()), *flags),
        of.kind,
        of.on,
        of.tables,
        (*(known.alone if known else ()), *alone),
        tuple(sorted(reads.union(known.reads if known else ()))),
    )


def read_by_joins(draft: Draft) -> dict[str, frozenset[str]]:
    """stream -> the columns that its store, its predicates and joins with tables read."""
    read: dict[str, set[str]] = {}
    for name, part in draft.stores.items():
        store = part.value
        found = read.setdefault(name, set(store.columns))
        for predicate in store.predicates:
            found.update(predicate.reads)
    for joined in (j for j in draft.joined.values() if j.alone):
        relation, stream = joined.relations[0]
        found = read.setdefault(stream, set())
        found.update(c[len(relation) + 1 :] for c in joined.reads if c.startswith(relation + "."))
        for predicate in (p for _, p in joined.alone if p is not None):
            found.update(predicate.reads)
    return {name: frozenset(columns) for name, columns in read.items()}
