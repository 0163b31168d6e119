"""Streams: created, altered and dropped."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from thalweg import errors
from thalweg.catalog import Catalog, check_name
from thalweg.model.if_there import IfThere
from thalweg.model.stream import Schema, Stream
from thalweg.observe import log
from thalweg.source.contract import Source
from thalweg.source.kinds import is_same_source
from thalweg.source.schema import as_schema
from thalweg.state.catalog import save_streams
from thalweg.state.requests import ResetRequest, StreamRequest
from thalweg.state.stream_changes import last_drop, note_drop
from thalweg.verbs.limits import (
    DEFAULT_AHEAD,
    DEFAULT_IDLE,
    DEFAULT_RETAINED,
    KEPT,
    Changes,
    Limits,
    changed,
    to_delay,
    with_limits,
    wrong_time,
)
from thalweg.verbs.parts import SessionParts

__all__ = [
    "DEFAULT_AHEAD",
    "DEFAULT_IDLE",
    "DEFAULT_RETAINED",
    "KEPT",
    "Changes",
    "Limits",
    "alter_stream",
    "create_stream",
    "drop_stream",
    "reset_watermark",
]


def create_stream(
    parts: SessionParts,
    name: str,
    given: Any,
    time: str | None,
    watermark: str | timedelta | None,
    schema: Any,
    limits: Limits,
    if_there: IfThere,
) -> Stream:
    if time is None or watermark is None:
        given = {"time": time, "watermark": watermark}
        raise errors.stream_incomplete(name, [what for what, value in given.items() if value is None])
    with parts.mutex:
        parts.check_mine()
        check_name("stream", name)
        catalog = parts.catalog
        known, is_restored = catalog.streams.get(name), name in catalog.restored
        if known is not None and if_there.keep and not is_restored:
            return known
        if name in catalog.tables or (known is not None and not if_there.replace and not is_restored):
            raise errors.name_taken("stream", name)
        place = known.place if known is not None else _place(parts, name)
        source = parts.engine.source(name, given, parts.storage, place)
        if not isinstance(source, Source):
            raise errors.wrong_source(name, source)
        stream = _defined(parts, name, source, time, watermark, schema)
        stream = with_limits(stream, known, limits)
        if known is None:
            return _create(parts, replace(stream, incarnation=_incarnation(place)), source)
        if _is_same(known, stream):
            return _take_up(parts, known, replace(stream, incarnation=known.incarnation), source)
        if if_there.replace:
            return _replace(parts, known, stream, given)
        if if_there.keep:
            return known
        raise errors.definition_differs("stream", name)


def drop_stream(parts: SessionParts, name: str, if_exists: bool) -> None:
    with parts.mutex:
        parts.check_mine()
        if if_exists and name not in parts.catalog.streams:
            return
        stream = parts.catalog.stream(name)
        _check_unread(parts, name, "it cannot be dropped")
        after = parts.catalog.without_stream(name)
        if parts.trial is None:
            _request(parts, StreamRequest(name, stream, None), after)
            parts.feeding.detach_from(name)
            log.info("session", "stream_dropped", stream=name)
        parts.catalog = after
        parts.analyzer.unregister(name)
        _tell_pipeline(parts)


def alter_stream(parts: SessionParts, name: str, changes: Changes) -> Stream:
    with parts.mutex:
        parts.check_mine()
        was = parts.catalog.stream(name)
        now = changed(was, changes)
        if now == was:
            return was
        after = parts.catalog.with_altered(now)
        if parts.trial is None:
            _request(parts, StreamRequest(name, was, now), after)
            log.info("session", "stream_altered", stream=name)
        parts.catalog = after
        _tell_pipeline(parts)
        return now


def reset_watermark(parts: SessionParts, name: str) -> None:
    with parts.mutex:
        parts.check_mine()
        parts.catalog.stream(name)
        parts.requests.append(ResetRequest(name))
        parts.wake()


# -- a stream of a definition ------------------------------------------------------------------------------


def _create(parts: SessionParts, stream: Stream, source: Source) -> Stream:
    source.check_there()
    # Before anything is kept: what the analyser refuses, no later session could open.
    parts.analyzer.register(stream)
    after = parts.catalog.with_stream(stream)
    if parts.trial is None:
        parts.feeding.attach(stream, source, parts.storage, parts.pipeline.wake)
        if stream.incarnation:  # the batch that drops the one before may not have been
            _request(parts, StreamRequest(stream.name, None, stream), after)
        else:
            save_streams(parts.storage, after.streams)
        log.info("session", "stream_created", stream=stream.name, source=stream.source.kind)
    parts.catalog = after
    _feed(parts, stream.name)
    return stream


def _take_up(parts: SessionParts, known: Stream, stream: Stream, source: Source) -> Stream:
    """The one that is there goes on, with the source that the program has given now."""
    parts.analyzer.register(stream)
    after = parts.catalog.with_stream(stream)
    if parts.trial is None:
        parts.feeding.detach_from(stream.name, but=source)
        parts.feeding.attach(stream, source, parts.storage, parts.pipeline.wake)
        waiting = parts.requests.read_after(parts.runner.manifest.through)
        if stream != known and any(isinstance(r, StreamRequest) and r.name == stream.name for _, r in waiting):
            _request(parts, StreamRequest(stream.name, known, stream), after)  # or that one would have the last word
        else:
            save_streams(parts.storage, after.streams)
    parts.catalog = after
    _feed(parts, stream.name)
    return stream


def _replace(parts: SessionParts, known: Stream, stream: Stream, given: Any) -> Stream:
    """Another one begins with nothing. What the one that was has kept goes with the batch that knows of it."""
    _check_unread(parts, stream.name, "it cannot be replaced by a different one")
    number = parts.requests.last + 1
    stream = replace(stream, incarnation=number)
    source = parts.engine.source(stream.name, given, parts.storage, stream.place)
    source.check_there()
    parts.analyzer.register(stream)
    after = parts.catalog.with_stream(stream)
    if parts.trial is None:
        parts.feeding.detach_from(stream.name, but=source)
        parts.feeding.attach(stream, source, parts.storage, parts.pipeline.wake)
        _request(parts, StreamRequest(stream.name, known, stream), after)
        log.info("session", "stream_replaced", stream=stream.name, source=stream.source.kind)
    parts.catalog = after
    _feed(parts, stream.name)
    return stream


def _request(parts: SessionParts, change: StreamRequest, after: Catalog) -> None:
    def keep(number: int) -> None:
        if change.is_drop:
            note_drop(parts.storage, change.name, number)
        save_streams(parts.storage, after.streams)

    parts.requests.append(change, keep)


def _feed(parts: SessionParts, name: str) -> None:
    if parts.trial is None:
        parts.activate_streams()
        if parts.is_running and name in parts.feeding.active:
            parts.feeding.start([name])  # queries have waited for it


def _tell_pipeline(parts: SessionParts) -> None:
    if parts.trial is None:
        parts.activate_streams()
        parts.wake()


def _check_unread(parts: SessionParts, name: str, what: str) -> None:
    if readers := parts.catalog.readers_of(name):
        raise errors.stream_in_use(name, readers, what)


def _place(parts: SessionParts, name: str) -> str:
    """Of a stream that is new."""
    dropped = last_drop(parts.storage, name)
    return f"{name}@{dropped}" if dropped else name


def _incarnation(place: str) -> int:
    return int(place.partition("@")[2] or 0)


def _defined(
    parts: SessionParts, name: str, source: Source, time: str, watermark: str | timedelta, schema: Any
) -> Stream:
    columns = _columns(parts, name, source, schema)
    wrong = wrong_time(name, columns, time, source if schema is None else None)
    try:
        delay_us = to_delay(name, watermark)
    except errors.ThalwegError as error:
        raise error if wrong is None else errors.also(wrong, error) from None
    if wrong is not None:
        raise wrong
    for column in columns.names:
        if column.startswith("."):
            raise errors.reserved_column(name, column)
    return Stream(name, columns, time, delay_us, source.spec())


def _columns(parts: SessionParts, name: str, source: Source, schema: Any) -> Schema:
    if schema is not None:
        return as_schema(schema)
    known = parts.catalog.streams.get(name) if name in parts.catalog.restored else None
    columns = known.schema if known is not None and source.recall(known.source) else source.schema()
    if columns is None:
        raise errors.unknown_schema(name)
    return columns


def _is_same(known: Stream, given: Stream) -> bool:
    """Whether a program that starts again means the stream that the state holds."""
    same_source = is_same_source(known.source, given.source)
    limits = {name: getattr(given, name) for name in ("max_ahead_us", "idle_us", "retain_rejected")}
    return same_source and replace(known, source=given.source, incarnation=0, **limits) == given
