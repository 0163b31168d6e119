"""What a batch did, for `session.progress()`, and for listeners in the words of Spark's
StreamingQueryProgress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypedDict

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = (
    (end.replace(tzinfo=UTC) - _EPOCH) // timedelta(microseconds=1) for end in (datetime.min, datetime.max)
)


@dataclass(frozen=True)
class StreamReport:
    """What one stream brought."""

    source: str
    """Kind of its source."""
    start: int
    """Units consumed before the batch."""
    end: int
    rows: int = 0
    late: int = 0
    rejected: int = 0
    max_time_us: int | None = None
    """Of the rows of this batch."""
    watermark_us: int | None = None
    """By which windows were closed."""


@dataclass(frozen=True)
class BatchReport:
    """What one batch did."""

    batch: int
    rows: int
    emitted: int
    seconds: float
    ended: float
    """When, in seconds since the epoch."""
    phases: Mapping[str, float]
    """Step -> seconds, one step after the other; and of the tasks, what the slowest took."""
    time: Mapping[str, float]
    """Phase -> seconds, which add up to the batch: see `stopwatch`."""
    sent_bytes: int
    streams: Mapping[str, StreamReport] = field(default_factory=dict)
    sinks: Mapping[str, int] = field(default_factory=dict)
    """query -> rows that it gave."""
    choosing_seconds: float = 0.0
    """What it took before the batch to find out how far it goes."""
    since_last: float | None = None
    """Seconds from the end of the batch before; None for the first of a session."""
    way: str = "stages"
    """How its stages were run."""
    written_bytes: int = 0
    """Of the buckets that its tasks made of rows."""


class EventTimeProgress(TypedDict):
    max: str | None
    watermark: str | None


class SourceProgress(TypedDict):
    stream: str
    description: str
    startOffset: int
    endOffset: int
    numInputRows: int
    inputRowsPerSecond: float
    processedRowsPerSecond: float
    numLateRows: int
    numRejectedRows: int


class SinkProgress(TypedDict):
    query: str
    numOutputRows: int


class Progress(TypedDict):
    """One batch. Times are ISO-8601 in UTC, durations whole milliseconds."""

    batchId: int
    timestamp: str
    batchDuration: int
    numInputRows: int
    inputRowsPerSecond: float
    processedRowsPerSecond: float
    durationMs: dict[str, int]
    eventTime: dict[str, EventTimeProgress]
    sources: list[SourceProgress]
    sinks: list[SinkProgress]
    numOutputRows: int


def progress_of(report: BatchReport) -> Progress:
    whole = report.seconds + report.choosing_seconds
    between = None if report.since_last is None else max(report.since_last, 0.0) + whole
    steps = {
        "latestOffset": report.choosing_seconds,
        "queryPlanning": report.phases.get("plan", 0.0),
        "addBatch": report.phases.get("tasks", 0.0) + report.phases.get("sink", 0.0),
        "commitOffsets": report.phases.get("manifest", 0.0),
        "triggerExecution": whole,
    }
    return {
        "batchId": report.batch,
        "timestamp": _text(round((report.ended - whole) * 1e6)),
        "batchDuration": _milliseconds(whole),
        "numInputRows": report.rows,
        "inputRowsPerSecond": _rate(report.rows, between),
        "processedRowsPerSecond": _rate(report.rows, whole),
        "durationMs": {step: _milliseconds(seconds) for step, seconds in steps.items()},
        "eventTime": {
            name: {"max": _time(stream.max_time_us), "watermark": _time(stream.watermark_us)}
            for name, stream in report.streams.items()
        },
        "sources": [_source(name, stream, between, whole) for name, stream in report.streams.items()],
        "sinks": [{"query": query, "numOutputRows": rows} for query, rows in report.sinks.items()],
        "numOutputRows": report.emitted,
    }


def _source(name: str, stream: StreamReport, between: float | None, whole: float) -> SourceProgress:
    return {
        "stream": name,
        "description": stream.source,
        "startOffset": stream.start,
        "endOffset": stream.end,
        "numInputRows": stream.rows,
        "inputRowsPerSecond": _rate(stream.rows, between),
        "processedRowsPerSecond": _rate(stream.rows, whole),
        "numLateRows": stream.late,
        "numRejectedRows": stream.rejected,
    }


def _rate(rows: int, seconds: float | None) -> float:
    return rows / seconds if seconds else 0.0


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _time(us: int | None) -> str | None:
    return None if us is None else _text(us)


def as_time(us: int) -> datetime:
    """An event time, as near as Python's times come to it: rows may be of years that those do not reach."""
    return _EPOCH + timedelta(microseconds=min(max(us, _FIRST), _LAST))


def _text(us: int) -> str:
    """As near as Python's times come to it: rows may be of years that those do not reach."""
    instant = as_time(us)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
