"""Streams: created, and their watermarks."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from thalweg import errors
from thalweg.catalog import check_name
from thalweg.model.stream import Schema, Stream
from thalweg.observe import log
from thalweg.source.contract import Source
from thalweg.source.kinds import is_same_source
from thalweg.source.schema import as_schema
from thalweg.state.catalog import save_streams
from thalweg.state.requests import ResetWatermark
from thalweg.verbs.limits import (
    DEFAULT_AHEAD,
    DEFAULT_IDLE,
    DEFAULT_RETAINED,
    Limits,
    to_delay,
    with_limits,
    wrong_time,
)
from thalweg.verbs.parts import Parts

__all__ = ["DEFAULT_AHEAD", "DEFAULT_IDLE", "DEFAULT_RETAINED", "Limits", "create_stream", "reset_watermark"]


def create_stream(
    parts: Parts, name: str, source: Any, time: str, watermark: str | timedelta, schema: Any, limits: Limits
) -> Stream:
    with parts.mutex:
        parts.check_mine()
        check_name("stream", name)
        source = parts.engine.source(name, source, parts.storage)
        if not isinstance(source, Source):
            raise errors.wrong_source(name, source)
        stream = _defined(parts, name, source, time, watermark, schema)
        known = parts.catalog.streams.get(name)
        stream = with_limits(stream, known, limits)
        if (known is not None and name not in parts.catalog.restored) or name in parts.catalog.tables:
            raise errors.name_taken("stream", name)
        if known is not None and not _is_same(known, stream):
            raise errors.definition_differs("stream", name)
        # Before anything is kept: what the analyser refuses, no later session could open.
        parts.analyzer.register(stream)
        if parts.trial is None:
            _keep(parts, stream, source)
        else:
            parts.catalog = parts.catalog.with_stream(stream)
        return stream


def reset_watermark(parts: Parts, name: str) -> None:
    with parts.mutex:
        parts.check_mine()
        parts.catalog.stream(name)
        parts.requests.append(ResetWatermark(name))
        parts.wake()


def _keep(parts: Parts, stream: Stream, source: Source) -> None:
    name = stream.name
    is_new = name not in parts.catalog.streams
    parts.feeding.attach(name, source, parts.storage, parts.pipeline.wake)
    after = parts.catalog.with_stream(stream)
    save_streams(parts.storage, after.streams)
    parts.catalog = after
    if is_new:
        log.info("session", "stream_created", stream=name, source=stream.source.kind)
    parts.activate_streams()
    if parts.is_running and name in parts.feeding.active:
        parts.feeding.start([name])  # queries have waited for it


def _defined(parts: Parts, name: str, source: Source, time: str, watermark: str | timedelta, schema: Any) -> Stream:
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


def _columns(parts: Parts, name: str, source: Source, schema: Any) -> Schema:
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
    return same_source and replace(known, source=given.source, **limits) == given
