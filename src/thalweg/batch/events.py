"""What of a batch is worth a line in the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from thalweg.model.entry import Entry
from thalweg.model.manifest import Manifest, Prepared
from thalweg.model.plan import Plan
from thalweg.observe import log
from thalweg.observe.progress import BatchReport

_BATCH = "batch"


def tell_batch(before: Manifest, after: Manifest, report: BatchReport) -> None:
    """A batch that has happened: itself, queries that it took in, let go of or stopped, decisions that changed."""
    batch = after.batch
    for name, entry in _by_name(after).items():
        known = before.queries.get(entry.id)
        if known is None:
            log.info(_BATCH, "query_runs", query=name, batch=batch)
        if entry.state == "failed" and (known is None or known.state != "failed"):
            tell_failed(entry, batch)
    for entry in before.queries.values():
        if entry.id not in after.queries:
            log.info(_BATCH, "query_gone", query=entry.query.name, batch=batch)
    moves = after.measured.slot_assignment.moves
    if moves != before.measured.slot_assignment.moves:
        log.info(_BATCH, "key_groups_moved", batch=batch, moved=moves.groups, switches=moves.switches)
    if after.measured.probe_orders.ordering != before.measured.probe_orders.ordering:
        log.info(_BATCH, "join_orders_changed", batch=batch)
    streams = {name: s for name, s in report.streams.items() if s.late or s.rejected}
    for name, stream in streams.items():
        log.debug(_BATCH, "rows_left_out", stream=name, batch=batch, late=stream.late, rejected=stream.rejected)
    log.debug(
        _BATCH,
        "batch_done",
        batch=batch,
        rows=report.rows,
        emitted=report.emitted,
        seconds=report.seconds,
        way=report.way,
    )


def tell_plan(before: Plan | None, plan: Plan, batch: int) -> None:
    """If it is another one than that of the batch before."""
    if before is not None and before.id != plan.id:
        log.info(_BATCH, "plan_changed", batch=batch, plan=plan.id[:12], before=before.id[:12], slots=plan.slots)


def tell_failed(entry: Entry, batch: int) -> None:
    log.error(_BATCH, "query_failed", query=entry.query.name, batch=batch, error=entry.error)


def tell_recovery(manifest: Manifest, undelivered: Sequence[Prepared], entries: Mapping[str, Entry]) -> None:
    """What is done again after a death or a commit of which nobody knew: nothing is computed twice."""
    for prepared in undelivered:
        entry = entries.get(prepared.query)
        name = prepared.query if entry is None else entry.query.name
        log.info("pipeline", "results_given_again", query=name, batch=prepared.batch, rows=prepared.rows)


def tell_begin(manifest: Manifest, repeats: bool) -> None:
    """Where a session takes up a state that has been run before."""
    if manifest.batch < 0:
        return
    log.info(
        "pipeline",
        "state_taken_up",
        batch=manifest.batch,
        queries=len(manifest.queries),
        undelivered=len(manifest.undelivered),
        repeats=manifest.batch + 1 if repeats else None,
    )


def _by_name(manifest: Manifest) -> dict[str, Entry]:
    return {entry.query.name: entry for entry in manifest.queries.values()}
