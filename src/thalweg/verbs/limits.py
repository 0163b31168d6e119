"""The limits of a stream, as users give them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from thalweg import errors
from thalweg.frontend.intervals import parse_interval
from thalweg.model.size import parse_size
from thalweg.model.stream import Schema, Stream
from thalweg.source.contract import Source
from thalweg.source.kinds import kind_of
from thalweg.source.schema import to_ddl


class _Default(str):
    """What holds for a new stream, unless something is given; one that is known keeps its own."""


DEFAULT_AHEAD = _Default("1 day")
DEFAULT_IDLE = DEFAULT_RETAINED = _Default("none")


def to_microseconds(span: str | timedelta) -> int:
    """A length of time as the interfaces take it."""
    if not isinstance(span, str | timedelta):
        raise errors.not_a_span(span)
    text = span if isinstance(span, str) else f"{span // timedelta(microseconds=1)} microseconds"
    return parse_interval(text)


def to_delay(stream: str, given: object) -> int:
    """The delay of a watermark."""
    if not isinstance(given, str | timedelta):
        raise errors.bad_limit(stream, "watermark", given, "a length of time, such as '10 seconds'")
    return to_microseconds(given)


def wrong_time(stream: str, columns: Schema, time: str, source: Source | None) -> errors.ThalwegError | None:
    """Why the column cannot be the event time. `source`: of which the columns were inferred."""
    if time not in columns:
        return errors.missing_time_column(stream, time, columns.names)
    found = columns.type_of(time)
    if found in ("timestamp", "timestamp_ntz"):
        return None
    if found != "string":
        return errors.bad_time_column(stream, time, found)
    meant = Schema(tuple(replace(f, type="timestamp") if f.name == time else f for f in columns.fields))
    because = None if source is None else source.first_misfit(meant, time)
    return errors.bad_time_column(stream, time, found, because, to_ddl(meant))


@dataclass(frozen=True)
class Limits:
    """As a user gives them."""

    max_ahead: Any = DEFAULT_AHEAD
    idle_timeout: Any = DEFAULT_IDLE
    retain_rejected: Any = DEFAULT_RETAINED


def with_limits(stream: Stream, known: Stream | None, given: Limits) -> Stream:
    """`known`: the stream of that name that the state holds."""
    max_ahead, idle_timeout, retain_rejected = given.max_ahead, given.idle_timeout, given.retain_rejected
    ahead = _span(stream.name, "max_ahead", max_ahead)
    if isinstance(max_ahead, _Default) and (known is not None or kind_of(stream).makes_up_times):
        ahead = None if known is None else known.max_ahead_us  # the times of a generator are made up
    idle = _span(stream.name, "idle_timeout", idle_timeout)
    if isinstance(idle_timeout, _Default) and known is not None:
        idle = known.idle_us
    retained = _bytes(stream.name, retain_rejected)
    if isinstance(retain_rejected, _Default) and known is not None:
        retained = known.retain_rejected
    return replace(stream, max_ahead_us=ahead, idle_us=idle, retain_rejected=retained)


KEPT = _Default("as it is")
"""What an alteration leaves as it is."""


@dataclass(frozen=True)
class Changes:
    """What is altered of a stream, as a user gives it."""

    watermark: Any = KEPT
    idle_timeout: Any = KEPT
    max_ahead: Any = KEPT


def changed(stream: Stream, given: Changes) -> Stream:
    name, delay, ahead, idle = stream.name, stream.delay_us, stream.max_ahead_us, stream.idle_us
    if given.watermark is not KEPT:
        delay = to_delay(name, given.watermark)
        if delay < 0:
            raise errors.bad_limit(name, "watermark", given.watermark, "a length of time from 0 on")
    if given.max_ahead is not KEPT:
        ahead = _span(name, "max_ahead", given.max_ahead)
    if given.idle_timeout is not KEPT:
        idle = _span(name, "idle_timeout", given.idle_timeout)
    return replace(stream, delay_us=delay, max_ahead_us=ahead, idle_us=idle)


def _span(stream: str, option: str, given: Any) -> int | None:
    if given is None or (isinstance(given, str) and given.strip().lower() == "none"):
        return None
    if not isinstance(given, str | timedelta):
        raise errors.bad_limit(stream, option, given, "a length of time, such as '1 day', or None")
    us = to_microseconds(given)
    if us < 0 or (option == "idle_timeout" and us == 0):
        raise errors.bad_limit(stream, option, given, "a length of time above 0")
    return us


def _bytes(stream: str, given: Any) -> int | None:
    if given is None or (isinstance(given, str) and given.strip().lower() == "none"):
        return None
    size = parse_size(given) if isinstance(given, int | str) else None
    if size is None:
        raise errors.bad_limit(stream, "retain_rejected", given, "a number of bytes, such as '100 MB', or None")
    return size
