"""What a task of a stage starts with and leaves by: allowances and functions, an outbox, an outlet for results."""

from __future__ import annotations

from thalweg.batch.cells import CellKind, Cells, make_cell
from thalweg.batch.work import Work
from thalweg.model.address import QueryRows
from thalweg.model.message import encode
from thalweg.model.plan import Plan
from thalweg.observe.stopwatch import Stopwatch
from thalweg.operate import duck
from thalweg.operate.outbox import Outbox
from thalweg.operate.own import define
from thalweg.operate.partitioners import TaskPartitioners
from thalweg.route.bucket import pack
from thalweg.sink.outlet import Outlet


def start_task(plan: Plan, work: Work) -> None:
    duck.allow(work.budget)
    if plan.functions:
        define(plan)


def open_outbox(work: Work, member: int, watch: Stopwatch) -> Outbox:
    """`member`: which of those that deal rows out this is."""
    return Outbox(partitioners=TaskPartitioners(work.policies, member), watch=watch)


def open_outlet(work: Work, place: int, watch: Stopwatch) -> Outlet:
    return Outlet(work.storage, work.clock.batch, place, watch, work.unique, work.uncollected, work.sinks)


def result_cells(slot: int, outlet: Outlet) -> Cells:
    """The cell of a task's results; none where there are none."""
    left = outlet.close()
    if left is not None:
        yield make_cell(slot, CellKind.PREPARED, encode(left))
    elif outlet.held:
        yield make_cell(slot, CellKind.RESULTS, pack([(QueryRows(query), table) for query, table in outlet.held]))
