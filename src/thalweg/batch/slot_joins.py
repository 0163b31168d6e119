"""A slot's part of the joins in a stage of SLOT: stores are probed, and what is found becomes rows."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg.batch.inbox import Inbox
from thalweg.batch.stores import new_intermediates, open_tables, open_views
from thalweg.batch.work import Work
from thalweg.model.address import QueryRows, WholeRows
from thalweg.model.bucket import NewRows, RowBucket
from thalweg.model.plan import Plan
from thalweg.operate.consume import consume
from thalweg.operate.materialise import Materialising
from thalweg.operate.outbox import Outbox
from thalweg.operate.probe_tree import Probing
from thalweg.operate.store import Views
from thalweg.operate.takers import Takers
from thalweg.sink.outlet import Outlet


@dataclass(frozen=True)
class SlotJoins:
    """The joins of a plan, and the stores as one task sees them."""

    plan: Plan
    work: Work
    views: Views

    @classmethod
    def open(cls, plan: Plan, work: Work, inbox: Inbox) -> SlotJoins:
        return cls(plan, work, open_views(plan, work, [b for b in inbox.stored if isinstance(b, RowBucket)]))

    def run(self, slot: int, inbox: Inbox, outbox: Outbox, outlet: Outlet) -> list[NewRows]:
        """New rows of intermediates. Results leave as they are made: there can be more of them than fit in memory."""
        plan, work = self.plan, self.work
        if not plan.joins.cohorts or work.stage > plan.joins.stages:
            return []
        tables = open_tables(plan, work)
        takers = Takers(plan, outlet.uncollected)
        probing = Probing(plan, slot, self.views, outbox, takers)
        joined = Materialising(plan, self.views, tables, outbox.failures, takers)
        for address, table in joined.run(probing, work.clock, work.stage == 1, inbox.tuples.pop(slot, [])):
            match address:
                case QueryRows(query):
                    outlet.add(query, table)
                case WholeRows(stream):
                    consume(plan, stream, table, work.clock, outbox, tables)
            for query, emitted in outbox.emitted:
                outlet.add(query, emitted)
            outbox.emitted.clear()
        outlet.counted.update(joined.counted)
        return new_intermediates(plan, work, slot, probing)
