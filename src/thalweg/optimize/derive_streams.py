"""First, because all others look streams up by name: rows that joins yield become streams.

What a join query wants of joined rows is then a WHERE over their stream: the flag that says which rows are its own.
It also finds out which queries are new, for all rules that add queries to what they have shared before.
"""

from __future__ import annotations

from dataclasses import replace

from thalweg.aggregates.contract import conjunction
from thalweg.model.canonical import named
from thalweg.model.expr import Expr, quote
from thalweg.model.join import Join, joined_column, joined_stream
from thalweg.model.query import Query
from thalweg.optimize.draft import Draft

JOIN_LIMIT = 20_000_000
"""Rows that one key may yield in one batch, unless the query says otherwise."""


def derive_streams(draft: Draft, last: Draft) -> Draft:
    given, before = draft.given, last.given
    known = len(before.queries)
    continues = (
        given.queries[:known] == before.queries and given.streams == before.streams and given.tables == before.tables
    )
    draft = replace(draft, new=tuple(given.queries[known:] if continues else given.queries), continues=continues)
    derived = dict(draft.begun(last).derived)
    for query in (running.query for running in draft.new):
        if query.join is not None and query.stream not in derived:
            first = query.join.relations[0]
            time = query.time or joined_column(first.name, given.streams[first.stream].time)
            derived[query.stream] = joined_stream(query.stream, query.join, time, given.streams, given.tables)
    return replace(draft, derived=derived)


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
