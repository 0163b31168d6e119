"""How long after its last event a result row reached the sink.

Two figures for every row. *Latency*: since the newest event that it is about happened (the end of its window, the
later of the two rows of a pair). *Beyond input*: since the last input that it needs was released; for a window that
is the file with the event that moves the watermark past its end, so what the watermark's delay asks for is not in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.paced.schedule import Numbers, Schedule
from benchmarks.workloads.model import Query, Workload

_WINDOW = re.compile(r"window\((?:\w+\.)?\w+,\s*'(\d+) (second|minute)s?'", re.IGNORECASE)
_SLIDE = re.compile(r"window\([^)]*'(\d+) (second|minute)s?'\s*\)", re.IGNORECASE)
_START = re.compile(r"window\.start AS (\w+)", re.IGNORECASE)
_SECONDS = {"second": 1, "minute": 60}
_BINS = 5_000_000


@dataclass(frozen=True)
class Newest:
    """Where a query's result rows say which event they had to wait for."""

    columns: tuple[str, ...]
    """Timestamps; the latest of them counts."""
    plus_us: int = 0
    """From there to the end of the window."""
    delay_us: int = 0
    """By how much the newest event must be past it before the result is due."""

    def of(self, table: pa.Table) -> Numbers:
        """Event times in microseconds, one for each row."""
        times = [table.column(c).cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() for c in self.columns]
        newest: Numbers = np.maximum.reduce(times) + self.plus_us
        return newest

    @property
    def spark(self) -> str:
        """The same as Spark's SQL."""
        times = [f"unix_micros({column})" for column in self.columns]
        newest = times[0] if len(times) == 1 else f"greatest({', '.join(times)})"
        return f"{newest} + {self.plus_us}"


def newest_of(query: Query, work: Workload) -> Newest:
    """From the query's text: a windowed aggregation that selects `window.start`, or a join that selects all."""
    window, start = _WINDOW.search(query.text), _START.search(query.text)
    if window and start:
        delay = max(s.delay_seconds for s in work.streams if re.search(rf"\b{s.name}\b", query.text))
        span = int(window[1]) * _SECONDS[window[2].lower()]
        return Newest((start[1],), span * 1_000_000, round(delay * 1_000_000))
    times = tuple(s.time for s in work.streams if re.search(rf"\b{s.name}\b", query.text))
    if not times or window:
        raise ValueError(f"{query.name}: its result does not say which event it waited for")
    return Newest(times)


def reach_seconds(work: Workload) -> float:
    """The event time after which windows are full and close as fast as they open: the longest span in any query and
    the delay of the watermark."""
    texts = " ".join(query.text for query in work.queries)
    spans = [int(n) * _SECONDS[unit.lower()] for n, unit in re.findall(r"(\d+) (second|minute)s?\b", texts, re.I)]
    return max(spans, default=0) + max(s.delay_seconds for s in work.streams)


def closing_seconds(work: Workload, ends: int) -> float:
    """The event time in which so many ends of every query's windows come by and the watermark passes them; without
    windows none."""
    slides = [int(n) * _SECONDS[unit.lower()] for query in work.queries for n, unit in _SLIDE.findall(query.text)]
    return ends * max(slides) + max(s.delay_seconds for s in work.streams) if slides else 0.0


@dataclass(frozen=True, eq=False)
class Arrived:
    """Result rows that a sink got at one moment, counted by the event they had to wait for."""

    at: float
    """Seconds since the epoch."""
    events_us: Numbers
    rows: Numbers
    delay_us: int = 0


def counted(events_us: Numbers) -> tuple[Numbers, Numbers]:
    """Event times in whole milliseconds and how many there are of each."""
    if not len(events_us):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    milliseconds = events_us // 1000
    low = int(milliseconds.min())
    if int(milliseconds.max()) - low > _BINS:
        values, rows = np.unique(milliseconds, return_counts=True)
        return values * 1000, rows
    rows = np.bincount(milliseconds - low)
    (places,) = np.nonzero(rows)
    return (places + low) * 1000, rows[places]


@dataclass(frozen=True, eq=False)
class Latencies:
    """One entry for rows that waited alike."""

    happened: Numbers
    """The moment of the event, from the beginning of the pace."""
    whole: Numbers
    beyond: Numbers
    rows: Numbers

    def between(self, start: float, end: float) -> Latencies:
        inside = (self.happened >= start) & (self.happened < end)
        return Latencies(self.happened[inside], self.whole[inside], self.beyond[inside], self.rows[inside])


def latencies(arrivals: Sequence[Arrived], schedule: Schedule, began: float) -> Latencies:
    """Of results about events from the beginning of the pace on, which was at `began` (seconds since the epoch)."""
    if not arrivals:
        empty = np.empty(0)
        return Latencies(empty, empty, empty, np.empty(0, np.int64))
    events = np.concatenate([a.events_us for a in arrivals])
    needed = events + np.repeat([a.delay_us for a in arrivals], [len(a.events_us) for a in arrivals])
    at = np.repeat([a.at - began for a in arrivals], [len(a.events_us) for a in arrivals])
    rows = np.concatenate([a.rows for a in arrivals])
    kept = (events > schedule.first_us) & (rows > 0)
    events, needed, at, rows = events[kept], needed[kept], at[kept], rows[kept]
    happened = schedule.happened(events)
    return Latencies(happened, at - happened, at - schedule.released(needed), rows)


def quantiles(values: Numbers, rows: Numbers, shares: Sequence[float]) -> list[float]:
    """The least value that at least this share of the rows does not exceed."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(rows[order])
    places = np.searchsorted(total, np.asarray(shares) * total[-1], side="left")
    return [float(v) for v in values[order][np.minimum(places, len(values) - 1)]]


@dataclass(frozen=True)
class Summary:
    """Seconds, by result rows."""

    rows: int
    mean: float
    least: float
    p50: float
    p99: float
    most: float
    beyond_mean: float
    beyond_p50: float
    beyond_p99: float
    moments: int
    """Of event time that results are about: of windows, how many ends."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def summary(found: Latencies) -> Summary | None:
    """None: no result."""
    total = int(found.rows.sum())
    if not total:
        return None
    p50, p99 = quantiles(found.whole, found.rows, (0.5, 0.99))
    own50, own99 = quantiles(found.beyond, found.rows, (0.5, 0.99))
    means = [float(np.average(values, weights=found.rows)) for values in (found.whole, found.beyond)]
    least, most = float(found.whole.min()), float(found.whole.max())
    moments = len(np.unique(found.happened))
    return Summary(total, means[0], least, p50, p99, most, means[1], own50, own99, moments)


def over_time(found: Latencies, seconds: float, step: float = 1.0) -> list[tuple[float, float, float, float]]:
    """(moment, least, mean, most) of the results about events of each step; steps without results are left out."""
    points = []
    for start in np.arange(0.0, seconds, step):
        part = summary(found.between(start, start + step))
        if part is not None:
            points.append((float(start), part.least, part.mean, part.most))
    return points
