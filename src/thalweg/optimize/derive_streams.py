"""First, because all others look streams up by name: rows that joins yield become streams.

What a join query wants of joined rows is then a WHERE over their stream: the flag that says which rows are its own.
It also finds out which queries have come and gone, for all rules that go on from what queries have shared before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import compress, count
from operator import itemgetter, ne

from thalweg.aggregates.contract import conjunction
from thalweg.model.canonical import named
from thalweg.model.expr import Expr, quote
from thalweg.model.join import Join, joined_column, joined_stream
from thalweg.model.plan_input import PlanInput, RunningQuery
from thalweg.model.query import Query
from thalweg.optimize.draft import Draft

JOIN_LIMIT = 20_000_000
"""Rows that one key may yield in one batch, unless the query says otherwise."""


def derive_streams(draft: Draft, last: Draft) -> Draft:
    draft = _ranked(_compared(draft, last.given))
    streams, tables = draft.given.streams, draft.given.tables
    derived = {name: stream for name, stream in draft.begun(last).derived.items() if not _is_gone(name, draft)}
    for query in (running.query for running in draft.new):
        if query.join is not None and query.stream not in derived:
            first = query.join.relations[0]
            time = query.time or joined_column(first.name, streams[first.stream].time)
            derived[query.stream] = joined_stream(query.stream, query.join, time, streams, tables)
    return replace(draft, derived=derived)


def _compared(draft: Draft, before: PlanInput) -> Draft:
    """With what has come and gone since the last time. Queries that have changed have gone, and come."""
    given = draft.given
    if given.streams != before.streams or given.tables != before.tables:
        return replace(draft, new=tuple(given.queries))
    start, end = _alike(before.queries, given.queries)
    was, now = before.queries[start : len(before.queries) - end], given.queries[start : len(given.queries) - end]
    there, here = {running.id: running for running in was}, {running.id for running in now}
    same = {running.id for running in now if there.get(running.id) == running}
    if [running.id for running in was if running.id in here] != [r.id for r in now if r.id in there]:
        return replace(draft, new=tuple(given.queries))  # they are in another order
    new = tuple(running for running in now if running.id not in same)
    gone = tuple(running for running in was if running.id not in same)
    tail = len(given.queries)
    if not end:
        tail -= next((i for i, running in enumerate(reversed(now)) if running.id in there), len(now))
    return replace(draft, new=new, gone=gone, tail=tail, continues=True)


def _ranked(draft: Draft) -> Draft:
    start = draft.tail if draft.only_adds else 0
    ids = map(itemgetter(0), draft.given.queries[start:] if start else draft.given.queries)
    return replace(draft, ranks=dict(zip(ids, count(start))))


def _alike(one: Sequence[RunningQuery], other: Sequence[RunningQuery]) -> tuple[int, int]:
    """How many are the same at the beginning, and of the rest at the end."""
    least = min(len(one), len(other))
    if one[:least] == other[:least]:
        return least, 0
    start = next(compress(count(), map(ne, one, other)))
    end = next(compress(count(), map(ne, reversed(one), reversed(other))), least)
    return start, min(end, least - start)


def _is_gone(stream: str, draft: Draft) -> bool:
    """Whether rows of a join are asked for no more."""
    if all(running.query.stream != stream for running in draft.gone):
        return False
    return all(running.query.stream != stream for running in draft.given.queries)


# -- a join query as the other rules see it


def flag(query: Query) -> Expr:
    """The column of joined rows that says which are the query's. Named by what it asks, not by the query.

    What it reads is part of that: rows from before a column was wanted serve only those who do not want it. So is
    its limit: a key may be too frequent for one query and not for another.
    """
    asked = [(r.name, r.atoms, r.where, sorted(columns_of(query, r.name))) for r in join_of(query).relations]
    name = named(".f", asked, join_of(query).bounds, limit_of(query))
    return Expr(quote(name), "boolean", (name,))


def needs_flag(query: Query) -> bool:
    """Whether the query is more than some columns of its rows."""
    join = join_of(query)
    plain = query.window is None and query.where is None and join.kind == "inner" and not join.tables
    return not (plain and all(o.expr.is_column for o in query.outputs))


def over_joined(query: Query) -> Query:
    """The query over the stream of joined rows: its own rows there are those with its flag."""
    if query.join is None or not needs_flag(query):
        return query
    return replace(query, where=conjunction(flag(query), query.where))


def join_of(query: Query) -> Join:
    assert query.join is not None
    return query.join


def limit_of(query: Query) -> int:
    return int(dict(query.options).get("join_limit", JOIN_LIMIT))


def columns_of(query: Query, relation: str) -> set[str]:
    """The relation's columns that joined rows of the query must have."""
    prefix = relation + "."
    return {name[len(prefix) :] for name in reads_of(query) if name.startswith(prefix)}


def reads_of(query: Query) -> set[str]:
    """The joined columns that the query reads."""
    join = join_of(query)
    exprs = [o.expr for o in query.outputs] if query.window is None else []
    exprs += [e for e in (query.where, join.on) if e is not None]
    exprs += query.keys
    exprs += [a for aggregate in query.aggregates for a in aggregate.args]
    exprs += [a.filter for a in query.aggregates if a.filter is not None]
    for table in join.tables:
        exprs += [key for key, _ in table.keys]
        exprs += [table.on] if table.on is not None else []
    return {column for e in exprs for column in e.columns} | ({query.time} if query.time else set())
