"""What runs, why, and how far it has come."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pyarrow as pa

from thalweg import errors
from thalweg.handle import Fare, QueryHandle, Status
from thalweg.model.manifest import Manifest, StreamProgress
from thalweg.model.types import to_arrow
from thalweg.observe.session_progress import Adapted, batch_speed, state_size, stream_status
from thalweg.observe.session_progress import SessionProgress as SessionProgress
from thalweg.sink.kinds import keeps_results
from thalweg.source.kinds import trouble_of
from thalweg.state.rejected import read_rejected
from thalweg.state.stream_changes import dropped_streams
from thalweg.verbs.parts import SessionParts


def progress(parts: SessionParts) -> SessionProgress:
    parts.check_alive()
    runner, catalog = parts.runner, parts.catalog
    manifest, said = _foreseen(parts), runner.adaptations.explain(runner.manifest.measured)
    marks = replace(runner.planning.watermarks(manifest), streams=catalog.streams)
    speed = batch_speed(runner.reports, runner.tasks)
    streams = {
        name: stream_status(name, manifest, marks.is_idle(name), trouble_of(stream))
        for name, stream in catalog.streams.items()
    }
    return SessionProgress(
        batch=manifest.batch,
        rows=sum(stream.rows for stream in streams.values()),
        rows_per_second=speed.rows_per_second,
        batch_seconds=speed.batch_seconds,
        phases=speed.phases,
        time=speed.time,
        state=state_size(manifest),
        sent_bytes=speed.sent_bytes,
        slots=runner.adaptations.decided(manifest.measured, manifest.batch + 1).slots,
        partitioning=runner.adaptations.partitioning_report(manifest.measured),
        join_orders=runner.adaptations.ordering_report(manifest.measured),
        adaptations={name: Adapted.of(one) for name, one in said.items()},
        queries={
            name: Status(h.status, held_by=marks.held_by(h.definition.streams)) for name, h in catalog.queries.items()
        },
        streams=streams,
        last_progress=speed.last,
    )


def _foreseen(parts: SessionParts) -> Manifest:
    """Of a stream that was dropped nothing counts for the next one of its name, whether or not a batch knows yet."""
    manifest = parts.runner.manifest
    gone = dropped_streams(parts.requests.read_after(manifest.through))
    return replace(
        manifest,
        streams={name: p for name, p in manifest.streams.items() if name not in gone},
        closed={name: us for name, us in manifest.closed.items() if name not in gone},
    )


def rejected(parts: SessionParts, stream: str) -> pa.Table:
    manifest, known = _foreseen(parts), parts.catalog.streams.get(stream)
    p = manifest.streams.get(stream, StreamProgress())
    kept = p.rejected - p.forgotten
    return read_rejected(parts.storage, known.place if known else stream, manifest.batch, kept, p.rejected_from)


def status(parts: SessionParts) -> Status:
    failure = parts.pipeline.failure
    counts = Counter(handle.status.state for handle in parts.catalog.queries.values())
    error = None if failure is None else str(failure)
    return Status(state=parts.state, error=error, batch=parts.runner.manifest.batch, queries=dict(counts))


def fare_of(parts: SessionParts, handle: QueryHandle) -> Fare:
    entry, known = parts.entry_of(handle), parts.delivery.queues.look(handle.id)
    size = known.batches, known.rows, known.nbytes
    failure, state = parts.pipeline.failure, parts.state
    if not entry.runs or state == "stopped":
        return Fare(entry, entry.state if not entry.runs else state, entry.error, *size)
    if state == "failed":
        return Fare(entry, "stopped", str(failure), *size)
    missing = parts.missing(handle)
    if missing is not None and known.state != "paused":
        return Fare(entry, "waiting", str(missing), *size)
    if known.is_troubled:
        return Fare(entry, known.state, known.reason, *size)
    return Fare(entry, "pending" if entry.state == "pending" else state, None, *size)


def results_of(parts: SessionParts, handle: QueryHandle) -> pa.Table:
    query = handle.definition
    if not keeps_results(query.sink):
        raise errors.not_in_memory(query.name, query.sink.kind)
    schema = pa.schema([pa.field(o.name, to_arrow(o.expr.type)) for o in query.outputs])
    return parts.delivery.results.read(handle.id, schema)


def kept_of(parts: SessionParts, handle: QueryHandle) -> tuple[int, int] | None:
    """Rows and bytes that `results()` has; None: its sink has them. A copy of a state's definitions has none."""
    if parts.rehearses or not keeps_results(handle.definition.sink):
        return None
    return parts.delivery.results.size(handle.id)
