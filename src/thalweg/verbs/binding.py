"""A SELECT and what was said with it, as the query that it means; refused where it cannot run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thalweg import errors, partition
from thalweg.frontend.bind import bind
from thalweg.model.own import Definition
from thalweg.model.partitioning import AUTO, COMBINE, HASH, LOCAL
from thalweg.model.plan_input import PlanInput, RunningQuery
from thalweg.model.query import Query, SinkSpec
from thalweg.model.stream import Schema, Stream
from thalweg.observe import log
from thalweg.optimize.planner import make_plan
from thalweg.verbs.parts import SessionParts


@dataclass(frozen=True)
class GivenQuery:
    """A query as a user gives it."""

    name: str
    select: str
    sink: SinkSpec
    options: tuple[tuple[str, str], ...]
    emit: str


@dataclass(frozen=True)
class Known:
    """What a SELECT may name."""

    streams: Mapping[str, Stream]
    tables: Mapping[str, Schema]
    own: Mapping[str, Definition]


Bound = Mapping[str, tuple[object, Query]]
"""Name -> what a query was bound from, and the query."""


def known_to(parts: SessionParts) -> Known:
    tables = {table.name: table.schema for table in parts.catalog.tables.values()}
    return Known(parts.catalog.streams, tables, parts.aggregates.offered())


def bind_query(parts: SessionParts, wanted: GivenQuery, known: Known, bound: Bound) -> Query:
    """`bound`: what was bound before. It holds with the same streams, tables and aggregates."""
    before = bound.get(wanted.name)
    if before is not None and before[0] == (wanted, known):
        return before[1]
    query = bind(
        wanted.name, wanted.select, known.streams, parts.analyzer,
        sink=wanted.sink, options=wanted.options, emit=wanted.emit, tables=known.tables, own=known.own,
        queries=parts.catalog.queries,
    )  # fmt: skip
    _tell_summed_text(query, known.streams)
    _check_join_limit(query)
    _check_partitioner(query)
    # Alone, for what can go wrong in it: what is durable, every batch plans.
    make_plan(PlanInput((RunningQuery(wanted.name, query),), known.streams, known.tables))
    if parts.trial is not None:
        parts.trial.bound[wanted.name] = (wanted, known), query
    return query


def _tell_summed_text(query: Query, streams: Mapping[str, Stream]) -> None:
    """As in Spark, a text is added up as a number: rows whose text is none end the query."""
    texts = {f.name for s in query.streams for f in streams[s].schema.fields if f.type == "string"}
    for aggregate in query.aggregates:
        columns = {column for arg in aggregate.args for column in arg.columns}
        if aggregate.function in ("sum", "avg") and columns and columns <= texts:
            log.warning("session", "text_as_number", query=query.name, function=aggregate.function, columns=columns)


def _check_join_limit(query: Query) -> None:
    given = dict(query.options).get("join_limit")
    if given is not None and not (given.isdecimal() and int(given) > 0):
        raise errors.bad_option(query.name, "join_limit", given, "the most rows that one key may yield in one batch")


def _check_partitioner(query: Query) -> None:
    given = dict(query.options).get("partitioner", AUTO)
    known = (AUTO, COMBINE, LOCAL, *partition.names())
    if given not in known:
        raise errors.partitioner_unknown(given, known)
    if given in (AUTO, COMBINE):
        return
    if query.window is None or not query.keys:
        raise errors.nothing_to_partition(query.name, given)
    if query.emit == "updates" and given != HASH:
        raise errors.updates_stay_whole(query.name, given)
