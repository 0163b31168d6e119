"""What tasks have made becomes results: put together, prepared, counted; and what that means for their queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from thalweg.batch.blame import blame
from thalweg.batch.delivery import Delivery
from thalweg.batch.made import Made, made_of
from thalweg.batch.planning import PlannedBatch
from thalweg.batch.prepare import Preparing
from thalweg.batch.totals import BatchTotals
from thalweg.errors import no_place_left
from thalweg.foreign import brief
from thalweg.model.entry import Entry, Gap
from thalweg.model.manifest import Prepared, ResultFile
from thalweg.model.patience import Patience
from thalweg.observe import log
from thalweg.operate import duck
from thalweg.state.storage import Storage


@dataclass(frozen=True)
class PreparedResults:
    """What the manifest of a batch will say of its results."""

    entries: Mapping[str, Entry]
    """The queries after the batch."""
    given: Mapping[str, int]
    """Query id -> rows of results."""
    files: tuple[ResultFile, ...]
    """Of queries that keep their results in memory."""
    undelivered: tuple[Prepared, ...]
    """What sinks are to be given."""


class BatchResults:
    def __init__(self, storage: Storage, delivery: Delivery) -> None:
        self.preparing = Preparing(storage, delivery)
        self._storage = storage
        self._queues = delivery.queues

    def prepare(self, planned: PlannedBatch, totals: BatchTotals) -> PreparedResults:
        """Makes results durable, and says how many there are. A query that failed gives none; it is stopped, the
        others go on."""
        failed = blame(planned.plan, totals.failures)
        results = _put_together(planned, totals, self._storage, failed)
        self._queues.forget(planned.before.queries.keys() - planned.entries.keys())
        ready = self.preparing.prepare(planned.batch, results, planned.entries)
        made = Counter({id_: result.rows for id_, result in results.items() if id_ not in ready.unkept})
        made.update({id_: n for id_, n in totals.counted.items() if id_ not in failed})
        paused, after = self._queues.paused(), {}
        for id_, entry in planned.entries.items():
            if entry.paused != paused.get(id_):
                entry = replace(entry, paused=paused.get(id_))
            if id_ in failed:
                entry = replace(entry, state="failed", error=failed[id_], gap=Gap(planned.batch))
            elif id_ in ready.unkept:
                entry = _stopped(entry, planned.batch, ready.unkept[id_])
            elif made[id_]:
                entry = replace(entry, emitted=entry.emitted + made[id_])
            after[id_] = entry
        given = {id_: n for id_, n in made.items() if id_ in after and id_ not in failed}
        return PreparedResults(after, given, ready.results, tuple(ready.undelivered))


def _put_together(
    planned: PlannedBatch, totals: BatchTotals, storage: Storage, failed: dict[str, str]
) -> dict[str, Made]:
    """Of queries that have not failed; one with which it cannot be done fails now."""
    members = {m.query: m for m in planned.plan.members}
    results = {}
    for id_ in {**totals.results, **totals.sections, **totals.parts}:
        if id_ in planned.entries and id_ not in failed:
            try:
                results[id_] = made_of(planned.entries[id_], members.get(id_), totals, storage)
            except (pa.ArrowException, duck.Error) as error:
                failed[id_] = brief(str(error))
    return results


def _stopped(entry: Entry, batch: int, rows: int) -> Entry:
    """A query whose results found no more place."""
    limit = Patience.of(entry.query).undelivered_bytes
    error = str(no_place_left(entry.query.name, batch, rows, limit))
    log.error("delivery", "query_stopped", query=entry.query.name, batch=batch, rows_not_kept=rows)
    return replace(entry, state="stopped", error=error, gap=Gap(batch, rows))
