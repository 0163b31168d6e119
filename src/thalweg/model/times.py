"""Where streams stand in event time: when a batch begins, and how far it closes windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from thalweg.model.probe import JoinPlan
from thalweg.model.window import BEGINNING


def joint_name(streams: Iterable[str]) -> str:
    """Under which is kept how far streams have closed together, where that is further than the least of them: one of
    them was idle, or its watermark has begun anew."""
    return "".join(f"+{stream}" for stream in sorted(set(streams)))


def joint_time(times: Mapping[str, int], streams: Iterable[str]) -> int:
    """How far streams have closed together."""
    streams = [*streams]
    return max(times.get(joint_name(streams), BEGINNING), min(times.get(s, BEGINNING) for s in streams))


@dataclass(frozen=True)
class StreamTimes:
    """Where the streams stand when a batch begins."""

    batch: int
    max_time_us: Mapping[str, int | None]
    closed_us: Mapping[str, int] = field(default_factory=dict)

    def unseen(self, stream: str) -> int:
        """The event time from which on no row has been read before this batch."""
        seen = self.max_time_us.get(stream)
        return BEGINNING if seen is None else seen + 1


def with_joined(times: StreamTimes, joins: JoinPlan) -> StreamTimes:
    """The times with the streams of joined rows in it. What is joined later has no row older than `unseen`."""
    latest, closed = dict(times.max_time_us), dict(times.closed_us)
    for name, joined in joins.joined.items():
        seen = [t for s in joined.streams if (t := times.max_time_us.get(s)) is not None]
        latest[name] = max(seen) + joined.span_us if seen else None
        closed.setdefault(name, max(BEGINNING, joint_time(times.closed_us, joined.streams) - joined.lag_us))
    return StreamTimes(times.batch, latest, closed)


@dataclass(frozen=True)
class BatchTimes:
    """Per stream: windows up to `closed_us` had closed before the batch, those up to `closing_us` close in it."""

    batch: int
    closed_us: Mapping[str, int]
    closing_us: Mapping[str, int]
    wall_us: int = 0
    """The wall clock when the batch began."""
    fences: tuple[int, ...] = ()
    """Batches at which some query began to see rows; buckets are not merged across them."""
