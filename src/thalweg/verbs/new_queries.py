"""Queries that come: bound, checked against what there is, and created together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa

from thalweg import errors
from thalweg.catalog import check_name
from thalweg.frontend.delivery_options import normal_options
from thalweg.handle import QueryHandle
from thalweg.model.if_there import IfThere
from thalweg.model.own import Definition
from thalweg.model.query import Query, SinkSpec, is_same_query, query_id
from thalweg.observe import log
from thalweg.sink.callables import check_callback, to_callable
from thalweg.state.requests import CreateRequest, ReplaceRequest
from thalweg.verbs.binding import Bound, GivenQuery, Known, bind_query, known_to
from thalweg.verbs.parts import SessionParts

_POSITIONAL = ("name", "select", "sink")
_BY_NAME = (*_POSITIONAL, "emit", "options")
_NOTHING_BOUND: Bound = MappingProxyType({})

Sink: TypeAlias = SinkSpec | Callable[[pa.Table, int], Any]
"""Where results go: what `thalweg.sinks` makes, or a function of results and batch."""
Listed: TypeAlias = Sequence[Any] | Mapping[str, object]
"""A query in a list: (name, select), (name, select, sink), or arguments by name."""
Told: TypeAlias = Callable[[int, errors.ThalwegError], errors.ThalwegError]
"""(which of the queries, what is wrong with it) -> how that is said."""


@dataclass(frozen=True)
class Given:
    """A query as a program gives it."""

    name: str
    select: str
    sink: Any = None
    emit: str = "final"
    options: Mapping[str, str] | None = None
    if_there: IfThere = field(default_factory=IfThere)


def _read(place: int, one: Any, if_there: IfThere) -> Given:
    """One of a list, as it comes from outside."""
    if isinstance(one, Mapping):
        values = dict(one)
    elif isinstance(one, Sequence) and not isinstance(one, str) and 2 <= len(one) <= len(_POSITIONAL):
        values = dict(zip(_POSITIONAL, one, strict=False))
    else:
        raise errors.wrong_query(place, one, "it is neither a tuple of two or three nor a dictionary")
    for name in _POSITIONAL[:2]:
        if not isinstance(values.get(name), str):
            raise errors.wrong_query(place, one, f"its {name} is missing, or no text")
    for name in values:
        if name not in _BY_NAME:
            raise errors.wrong_query(place, one, f"there is no argument {name!r}")
    return Given(**values, if_there=if_there)


@dataclass(frozen=True)
class _Decided:
    """What becomes of a query that is given."""

    given: Given
    query: Query
    known: QueryHandle | None
    """The query of that name that there is."""
    is_same: bool = False
    """That one says the same."""
    is_kept: bool = False
    """That one stays as it is, whatever this one says."""

    @property
    def is_new(self) -> bool:
        return not self.is_kept and not self.is_same


def create_list(parts: SessionParts, listed: Iterable[Any], if_there: IfThere) -> list[QueryHandle]:
    """All of them or none; what is wrong with one is told with its place."""
    given = [_read(place, one, if_there) for place, one in enumerate(listed)]

    def told(place: int, error: errors.ThalwegError) -> errors.ThalwegError:
        return errors.of_queries(error, place, given[place].name, len(given))

    if not given:
        return []
    with parts.tried() as (trying, trial):
        create_queries(trying, given, told)  # no sink is opened for one where another is refused
    return create_queries(parts, given, told, trial.bound)


def create_queries(
    parts: SessionParts,
    given: Sequence[Given],
    told: Told = lambda place, error: error,
    bound: Bound = _NOTHING_BOUND,
) -> list[QueryHandle]:
    """All of them, in one request. `bound`: what was bound before, as `bind_query` takes it."""
    parts.check_mine()
    # Not under the mutex, which every batch needs to end: Spark's analyser may take its time.
    known = known_to(parts)
    queries = _bind_all(parts, given, known, told, bound)
    with parts.mutex:
        parts.check_mine()
        gone = any(q is None and one.name not in parts.catalog.queries for one, q in zip(given, queries, strict=True))
        if gone or known_to(parts) != known:
            known = known_to(parts)
            queries = _bind_all(parts, given, known, told, bound)
        decided = _decide_all(parts, given, queries, told)
        if parts.trial is not None:
            return _try(parts, decided)
        return _carry_out(parts, decided, known.own, told)


@contextmanager
def _of(place: int, told: Told) -> Iterator[None]:
    try:
        yield
    except errors.ThalwegError as error:
        raise told(place, error) from error.__cause__


# -- what is meant


def _bind_all(
    parts: SessionParts, given: Sequence[Given], known: Known, told: Told, bound: Bound
) -> list[Query | None]:
    queries = []
    for place, one in enumerate(given):
        with _of(place, told):
            queries.append(_bind(parts, one, known, bound))
    return queries


def _bind(parts: SessionParts, given: Given, known: Known, bound: Bound) -> Query | None:
    """None: there is one of the name that stays, whatever this one says."""
    check_name("query", given.name)
    handle = parts.catalog.queries.get(given.name)
    if handle is not None and given.if_there.keep and not handle.restored:
        return None
    pairs = tuple(sorted(normal_options(given.name, given.options or {}).items()))
    wanted = GivenQuery(given.name, given.select, _spec(given.name, given.sink), pairs, given.emit)
    return bind_query(parts, wanted, known, bound)


def _spec(name: str, sink: Any) -> SinkSpec:
    if isinstance(sink, SinkSpec):
        return sink
    if callable(sink):
        check_callback(name, sink)
        return to_callable()
    if sink is not None:
        raise errors.wrong_sink(name, sink)
    return SinkSpec()


# -- what becomes of it


def _decide_all(
    parts: SessionParts, given: Sequence[Given], queries: Sequence[Query | None], told: Told
) -> list[_Decided]:
    decided: list[_Decided] = []
    spelled: dict[str, str] = {}
    for place, (one, query) in enumerate(zip(given, queries, strict=True)):
        with _of(place, told):
            before = spelled.get(one.name.lower())
            if before is not None:
                taken = errors.name_taken if before == one.name else errors.name_differs_by_case
                raise taken("query", before)
            spelled[one.name.lower()] = one.name
            decided.append(_decide(parts, one, query))
    return decided


def _decide(parts: SessionParts, given: Given, query: Query | None) -> _Decided:
    if query is None:
        known = parts.catalog.query(given.name)
        return _Decided(given, known.definition, known, is_kept=True)
    there = parts.catalog.queries.get(given.name)
    is_same = there is not None and is_same_query(there.definition, query)
    if there is not None and given.if_there.keep and not (is_same and there.restored):
        return _Decided(given, query, there, is_kept=True)
    _check(parts, query, there, is_same, given.if_there.replace)
    return _Decided(given, query, there, is_same)


def _check(parts: SessionParts, query: Query, known: QueryHandle | None, is_same: bool, may_replace: bool) -> None:
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


# -- carried out


def _try(parts: SessionParts, decided: Sequence[_Decided]) -> list[QueryHandle]:
    handles = [
        one.known if one.is_kept and one.known else QueryHandle(parts.owner, query_id(one.given.name, 0), one.query)
        for one in decided
    ]
    parts.catalog = parts.catalog.with_queries(handles)
    return handles


def _carry_out(
    parts: SessionParts, decided: Sequence[_Decided], own: Mapping[str, Definition], told: Told
) -> list[QueryHandle]:
    for place, one in enumerate(decided):
        with _of(place, told):
            if not one.is_kept:
                parts.aggregates.take(one.known.definition if one.known and one.is_same else one.query, own)
    begun = [one for one in decided if not one.is_kept]
    streams = {stream for one in begun for stream in one.query.streams}
    if parts.is_running:
        parts.feeding.start(streams)  # before it is durable: a DataFrame that cannot run is refused here
    made = _append(parts, [one for one in decided if one.is_new])
    handles = {one.given.name: made.get(one.given.name) or one.known for one in decided}
    found = [handle for handle in handles.values() if handle is not None]
    _begin(parts, begun, [handle for one, handle in zip(decided, found, strict=True) if not one.is_kept], streams)
    return found


def _append(parts: SessionParts, new: Sequence[_Decided]) -> dict[str, QueryHandle]:
    """One that replaces another does it in the same request: there is no moment without the one and the other."""
    if not new:
        return {}
    number = parts.requests.append_all(
        [CreateRequest(one.query) if one.known is None else ReplaceRequest(one.query) for one in new]
    )
    handles = {one.query.name: QueryHandle(parts.owner, query_id(one.query.name, number), one.query) for one in new}
    parts.alive.update(handles.values())
    for one in new:
        if one.known is not None:
            parts.delivery.queues.discard(one.known.id)
            one.known.dropped = True
        event = "query_created" if one.known is None else "query_replaced"
        log.info("session", event, query=one.query.name, streams=one.query.streams, sink=one.query.sink.kind)
    return handles


def _begin(
    parts: SessionParts, begun: Sequence[_Decided], handles: Sequence[QueryHandle], streams: Collection[str]
) -> None:
    """The queries are durable, and run from now on."""
    if not begun:
        return
    for one, handle in zip(begun, handles, strict=True):
        handle.restored = False
        if callable(one.given.sink):
            parts.delivery.callbacks[handle.id] = one.given.sink
            parts.delivery.queues.wake(handle.id)
    parts.catalog = parts.catalog.with_queries(handles)
    if all(one.known is None for one in begun):
        parts.read_too(streams)
    else:
        parts.activate_streams()
    parts.wake()
    for one, handle in zip(begun, handles, strict=True):
        if one.is_same:
            parts.tell(handle, ("failed", "stopped", "paused"))
