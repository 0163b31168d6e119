"""Rows of streams and their partners in static tables."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa

from thalweg.model.expr import Expr, quote
from thalweg.model.failure import Failures, OfQuery
from thalweg.model.join import TableJoin
from thalweg.model.plan import Plan
from thalweg.model.probe import Joined
from thalweg.operate import duck
from thalweg.operate.marks import predicate_index


def own_columns(info: Joined, columns: tuple[str, ...]) -> list[str]:
    """Of the columns, and of those that tables are looked up by, the ones that come from streams. Each once."""
    prefixes = tuple(f"{relation}." for relation, _ in info.relations)
    looked_up = (c for table in info.tables for e in _expressions(table) for c in e.columns)
    return [c for c in dict.fromkeys((*columns, *looked_up)) if c.startswith(prefixes)]


def alone(plan: Plan, joined: str, rows: pa.Table, tables: Mapping[str, pa.Table], failures: Failures) -> pa.Table:
    """The joined rows of one stream that is joined with tables only, from the rows of the stream."""
    info = plan.joins.joined[joined]
    ((relation, _),) = info.relations
    prefix = f"{relation}."
    predicates = tuple(dict.fromkeys(p for _, p in info.alone if p is not None))
    flags = {}
    if predicates:
        bits = predicate_index(predicates).evaluate(rows)
        for query, predicate in info.alone:
            if predicate is not None:
                bit = predicates.index(predicate)
                flags[query] = (bits[:, bit // 8] >> (bit % 8) & 1).astype(bool)
    arrays = {name: rows.column(name[len(prefix) :]) for name in own_columns(info, plan.streams[joined].columns)}
    every = np.ones(rows.num_rows, dtype=bool)
    for query, flag in info.flags:
        arrays[flag] = pa.array(flags.get(query, every))
    chunk = pa.table(arrays)
    if flags and all(query in flags for query, _ in info.alone):
        chunk = chunk.filter(pa.array(np.logical_or.reduce(list(flags.values()))))
    queries = [query for query, _ in info.alone]
    return look_up_apart(chunk, info, tables, plan.streams[joined].columns, queries, failures)


def look_up_apart(
    chunk: pa.Table,
    info: Joined,
    tables: Mapping[str, pa.Table],
    columns: tuple[str, ...],
    queries: Collection[str],
    failures: Failures,
) -> pa.Table:
    """The rows with their partners in static tables. Where a table's condition fails on some row, only the queries
    stop whose row it is."""
    try:
        return look_up(chunk, info.tables, tables, columns)
    except duck.Error:
        healthy = np.zeros(chunk.num_rows, dtype=bool)
    for flag, leader in info.leaders.items():
        if leader not in queries:
            continue
        mine = chunk.column(flag)
        try:
            look_up(chunk.filter(mine), info.tables, tables, columns)
            healthy |= mine.to_numpy()
        except duck.Error as error:
            for query in (q for q, f in info.flags if f == flag):
                failures.setdefault(OfQuery(query), duck.reason(error))
    return _look_up_in_parts(chunk.filter(pa.array(healthy)), info, tables, columns)


def _look_up_in_parts(
    chunk: pa.Table, info: Joined, tables: Mapping[str, pa.Table], columns: tuple[str, ...]
) -> pa.Table:
    """Rows of which each query's own can be looked up: where all together are too many, in halves."""
    try:
        return look_up(chunk, info.tables, tables, columns)
    except duck.Error:
        half = chunk.num_rows // 2
        if not half:
            raise
        parts = (chunk.slice(0, half), chunk.slice(half))
        return pa.concat_tables([_look_up_in_parts(part, info, tables, columns) for part in parts])


def look_up(
    chunk: pa.Table, joins: tuple[TableJoin, ...], tables: Mapping[str, pa.Table], columns: tuple[str, ...]
) -> pa.Table:
    """The rows with their partners in static tables."""
    for position, join in enumerate(joins):
        prefix = f"{join.name}."
        needed = {*columns, *(c for j in joins[position:] for e in _expressions(j) for c in e.columns)}
        wanted = [c for c in tables[join.table].column_names if prefix + c in needed]
        held = tables[join.table].select(wanted).rename_columns([prefix + c for c in wanted])
        on = [f"({ours.sql}) = ({theirs.sql})" for ours, theirs in join.keys]
        on += [join.on.sql] if join.on is not None else []
        fetched = ", ".join(["batch.*", *(f"held.{quote(prefix + c)}" for c in wanted)])
        kind = "LEFT JOIN" if join.outer else "JOIN"
        chunk = duck.run(f"SELECT {fetched} FROM batch {kind} held ON {' AND '.join(on)}", batch=chunk, held=held)
    return chunk


def _expressions(join: TableJoin) -> list[Expr]:
    found = [e for pair in join.keys for e in pair]
    return found if join.on is None else [*found, join.on]
