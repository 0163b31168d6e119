"""The plan that batches run under: made from what there is, and kept where the next one is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from thalweg.batch.decisions import Decisions
from thalweg.batch.requests import running_queries
from thalweg.model.entry import Entry
from thalweg.model.manifest import Manifest
from thalweg.model.plan import ROWS, Plan
from thalweg.model.plan_input import PlanInput, PlanSettings
from thalweg.model.query import Query
from thalweg.model.stream import Schema, Stream
from thalweg.observe import log
from thalweg.optimize.planner import NOTHING, Draft, plan_next


class PlanInForce:
    def __init__(self, functions: Callable[[Iterable[Query]], dict[str, bytes]]) -> None:
        self._functions = functions
        self._draft: Draft = NOTHING
        """The last plan, in parts: most batches ask for the same again, and others for almost the same."""
        self.decisions: Decisions | None = None
        """That it was made by."""
        self.refused = 0
        """The last request that a refused plan would have taken in. It waits until others come."""

    def make(
        self,
        manifest: Manifest,
        entries: Mapping[str, Entry],
        decisions: Decisions,
        schemas: Mapping[str, Schema],
        streams: Mapping[str, Stream],
    ) -> Plan:
        running, decided = running_queries(entries.values()), decisions.decided
        settings = PlanSettings(decided.slots, manifest.groups)
        given = PlanInput(running, streams, schemas, decided.measurements, decided.placement, settings)
        held = frozenset(b.relation.removeprefix(ROWS) for b in manifest.buckets if b.relation.startswith(ROWS))
        given = replace(given, held_rows=held)
        self._draft = plan_next(given, self._draft)
        return replace(self._draft.plan, functions=self._functions(entry.query for entry in running))

    def without(self, refused: Decisions, manifest: Manifest, error: Exception) -> Decisions | None:
        """What to go on by where a plan was refused: as if nothing had been asked or decided since the last batch.
        None before the first."""
        if self.decisions is None:
            return None
        log.error("batch", "plan_refused", batch=manifest.batch + 1, error=error)
        self.refused = refused.through
        decided = replace(self.decisions.decided, batch=manifest.batch + 1)
        return replace(self.decisions, through=manifest.through, reached=refused.reached, decided=decided)
