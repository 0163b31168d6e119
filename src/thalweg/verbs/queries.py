"""Continuous queries: created, dropped, paused and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thalweg import errors
from thalweg.catalog import check_name
from thalweg.frontend.delivery_options import normal_options
from thalweg.handle import QueryHandle
from thalweg.model.if_there import IfThere
from thalweg.model.query import Query, SinkSpec, is_same_query, query_id
from thalweg.observe import log
from thalweg.sink.callables import check_callback, to_callable
from thalweg.sink.kinds import is_delivered
from thalweg.state.requests import CreateQuery, DropQuery, PauseQuery, ReplaceQuery, ResumeQuery
from thalweg.verbs.binding import Wanted, bind_query, known_to
from thalweg.verbs.parts import Parts


def create_query(
    parts: Parts,
    name: str,
    select: str,
    sink: Any,
    emit: str,
    options: Mapping[str, str] | None,
    if_there: IfThere,
) -> QueryHandle:
    parts.check_mine()
    check_name("query", name)
    handle = parts.catalog.queries.get(name)
    if handle is not None and if_there.keep and not handle.restored:
        return handle
    spec = _spec(name, sink)
    pairs = tuple(sorted(normal_options(name, options or {}).items()))
    wanted = Wanted(name, select, spec, pairs, emit)
    # Not under the mutex, which every batch needs to end: Spark's analyser may take its time.
    known = known_to(parts)
    query = bind_query(parts, wanted, known)
    with parts.mutex:
        parts.check_mine()
        if known_to(parts) != known:
            known = known_to(parts)
            query = bind_query(parts, wanted, known)
        handle = parts.catalog.queries.get(name)
        is_same = handle is not None and is_same_query(handle.definition, query)
        if handle is not None and if_there.keep and not (is_same and handle.restored):
            return handle
        _check(parts, query, handle, is_same, if_there.replace)
        if parts.trial is not None:
            handle = QueryHandle(parts.owner, query_id(name, 0), query)
            parts.catalog = parts.catalog.with_queries([handle])
            return handle
        parts.aggregates.take(handle.definition if handle is not None and is_same else query, known.own)
        if parts.is_running:
            parts.feeding.start(query.streams)  # before it is durable: a DataFrame that cannot run is refused here
        if handle is None or not is_same:
            handle = _append(parts, query, handle)
        handle.restored = False
        if callable(sink):
            parts.delivery.callbacks[handle.id] = sink
            parts.delivery.queues.wake(handle.id)
        parts.catalog = parts.catalog.with_queries([handle])
        parts.activate_streams()
        parts.wake()
        parts.tell(handle, ("failed", "stopped", "paused"))
        return handle


def _spec(name: str, sink: Any) -> SinkSpec:
    if isinstance(sink, SinkSpec):
        return sink
    if callable(sink):
        check_callback(name, sink)
        return to_callable()
    if sink is not None:
        raise errors.wrong_sink(name, sink)
    return SinkSpec()


def _check(parts: Parts, query: Query, known: QueryHandle | None, is_same: bool, may_replace: bool) -> None:
    """`known`: the query of that name that there is; `is_same`: it says the same."""
    if known is not None and not known.restored and not may_replace:
        raise errors.name_taken("query", query.name)
    if known is not None and not is_same and not may_replace:
        raise errors.definition_differs("query", query.name)
    if known is None:
        parts.catalog.check_case(query.name)
    if query.emit == "updates" and (query.order or query.limit is not None):
        raise errors.updates_are_unordered(query.name)
    parts.delivery.check(query, opening=not parts.rehearses, trying=parts.trial is not None)


def _append(parts: Parts, query: Query, known: QueryHandle | None) -> QueryHandle:
    """`known`: one that it replaces, in the same request: there is no moment without the one and the other."""
    number = parts.requests.append(CreateQuery(query) if known is None else ReplaceQuery(query))
    handle = QueryHandle(parts.owner, query_id(query.name, number), query)
    parts.alive.add(handle)
    if known is not None:
        parts.delivery.queues.discard(known.id)
        known.dropped = True
        log.info("session", "query_replaced", query=query.name, streams=query.streams, sink=query.sink.kind)
    else:
        log.info("session", "query_created", query=query.name, streams=query.streams, sink=query.sink.kind)
    return handle


def drop_query(parts: Parts, name: str, if_exists: bool) -> None:
    with parts.mutex:
        parts.check_mine()
        if if_exists and name not in parts.catalog.queries:
            return
        handle = parts.catalog.query(name)
        if parts.trial is None:
            parts.requests.append(DropQuery(name))
            parts.delivery.queues.discard(handle.id)
            log.info("session", "query_dropped", query=name)
            handle.dropped = True
        parts.catalog = parts.catalog.without_query(name)
        if parts.trial is None:
            parts.activate_streams()
            parts.wake()


def pause_query(parts: Parts, name: str) -> None:
    with parts.mutex:
        parts.check_mine()
        handle, queues = parts.catalog.query(name), parts.delivery.queues
        if not is_delivered(handle.definition.sink):
            raise errors.nothing_to_pause(name, handle.definition.sink.kind)
        entry, known = parts.entry_of(handle), queues.look(handle.id)
        if known.state == "paused" and known.reason is None:  # somebody said so before
            return
        queues.pause(entry)  # first: a batch that sees the request finds it so
        try:
            parts.requests.append(PauseQuery(name))
        except BaseException:
            if known.state == "paused":
                queues.pause(entry, known.reason or "")
            else:
                queues.resume(handle.id)
            raise
        log.info("delivery", "paused_by_hand", query=name)
        parts.wake()


def resume_query(parts: Parts, name: str) -> None:
    with parts.mutex:
        parts.check_mine()
        handle, queues = parts.catalog.query(name), parts.delivery.queues
        entry, known = parts.entry_of(handle), queues.look(handle.id)
        if entry.runs and known.state != "paused":
            queues.resume(handle.id)  # its next try is now
            return
        queues.resume(handle.id)
        try:
            parts.requests.append(ResumeQuery(name))
        except BaseException:
            if known.state == "paused":
                queues.pause(entry, known.reason or "")
            raise
        log.info("delivery", "query_resumed", query=name, batches_kept=known.batches)
        parts.activate_streams()
        parts.wake()
