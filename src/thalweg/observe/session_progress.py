"""What `session.progress()` gives: types for those who read it here, and the dictionary that users see."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Protocol

from thalweg.model.explanation import AdaptationReport
from thalweg.model.manifest import Manifest, StreamProgress
from thalweg.model.partitioning import PartitioningReport
from thalweg.model.probe_order import OrderingReport
from thalweg.model.window import BEGINNING
from thalweg.observe.progress import BatchReport, Progress, as_time, progress_of
from thalweg.observe.stopwatch import mean, shares

_RECENT = 5
"""As many of the last batches are looked at for a rate."""


@dataclass(frozen=True)
class ResetStatus:
    """A watermark that began anew."""

    batch: int
    closed: datetime | None


@dataclass(frozen=True)
class StreamStatus:
    rows: int
    late: int
    rejected: int
    ahead: int
    untimed: int
    incomplete_files: int
    rejected_bytes: int
    watermark: datetime | None
    idle: bool
    reset: ResetStatus | None
    error: str | None = None
    """Why nothing can come from its source at the moment."""


@dataclass(frozen=True)
class StateSize:
    buckets: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class TimeSpent:
    cores: int
    last: Mapping[str, float]
    mean: Mapping[str, float]
    shares: Mapping[str, float]


@dataclass(frozen=True)
class Adapted:
    """What a feedback loop was asked, what it answered, and what it rejected."""

    asked: str
    answer: str
    saved: float
    """The share of the cost that its last decision saves."""
    rejected: str

    @classmethod
    def of(cls, said: AdaptationReport) -> Adapted:
        return cls(said.asked, said.answer, said.saved, said.rejected)


class QueryStatus(Protocol):
    """What is read here of `QueryHandle.status`, which users see as a dictionary."""

    @property
    def state(self) -> str: ...

    @property
    def emitted(self) -> int: ...


@dataclass(frozen=True)
class SessionProgress:
    batch: int
    rows: int
    rows_per_second: float
    batch_seconds: float
    phases: Mapping[str, float]
    time: TimeSpent
    state: StateSize
    sent_bytes: int
    slots: int
    partitioning: PartitioningReport
    join_orders: OrderingReport
    adaptations: Mapping[str, Adapted]
    queries: Mapping[str, QueryStatus]
    streams: Mapping[str, StreamStatus]
    last_progress: Progress | None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class BatchSpeed:
    """What the reports of the last batches say together."""

    rows_per_second: float
    batch_seconds: float
    phases: Mapping[str, float]
    time: TimeSpent
    sent_bytes: int
    last: Progress | None


def batch_speed(reports: Sequence[BatchReport], cores: int) -> BatchSpeed:
    recent = [r for r in reports[-_RECENT:] if r.rows]
    seconds = sum(r.seconds for r in recent)
    usual = mean([r.time for r in reports if r.rows])
    last = reports[-1] if reports else None
    return BatchSpeed(
        rows_per_second=sum(r.rows for r in recent) / seconds if seconds else 0.0,
        batch_seconds=last.seconds if last else 0.0,
        phases=dict(last.phases) if last else {},
        time=TimeSpent(cores, dict(last.time) if last else mean([]), usual, shares(usual)),
        sent_bytes=last.sent_bytes if last else 0,
        last=progress_of(last) if last else None,
    )


def state_size(manifest: Manifest) -> StateSize:
    kept = (*manifest.buckets, *manifest.stores)
    return StateSize(len(kept), sum(b.section.rows for b in kept), sum(b.nbytes for b in kept))


def stream_status(name: str, manifest: Manifest, is_idle: bool, error: str | None) -> StreamStatus:
    p, closed = manifest.streams.get(name, StreamProgress()), manifest.closed.get(name, BEGINNING)
    return StreamStatus(
        rows=p.rows,
        late=p.late,
        rejected=p.rejected,
        ahead=p.ahead,
        untimed=p.untimed,
        incomplete_files=p.incomplete,
        rejected_bytes=p.rejected_bytes,
        watermark=_time(closed),
        idle=is_idle,
        reset=None if p.reset is None else ResetStatus(p.reset.batch, _time(p.reset.closed_us)),
        error=error,
    )


def _time(us: int) -> datetime | None:
    return None if us <= BEGINNING else as_time(us)
