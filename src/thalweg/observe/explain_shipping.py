"""EXPLAIN of rows that are shipped whole: how many copies, to whom, and why the partitioning is as it is."""

from __future__ import annotations

from thalweg.model.measurements import Dealing
from thalweg.model.partitioning import COMBINE, HASH, LOCAL, AggregationReport, PartitioningReport, Replication
from thalweg.model.plan import Grouping, Plan, StreamPlan, shipped_keys
from thalweg.observe.words import count, name_of


def explain_shipping(plan: Plan, stream: StreamPlan, seen: Replication | None) -> list[str]:
    """What is shipped of a stream."""
    keys = shipped_keys(plan, stream)
    if not keys:
        return []
    columns = ", ".join(name_of(c, stream) for c in stream.shipped_columns)
    what = "one copy for every slot that needs the row" if len(keys) > 1 else "one copy"
    lines = [f"ships rows whole for {count(keys, 'route key')}, {what} ({columns})"]
    if seen is None:
        return lines
    text = f"  {seen.copies:.2f} copies per row in the last batch"
    if seen.hashed is not None and seen.bound is not None:
        text += f"; {seen.hashed:.2f} if all were hashed, {seen.bound:.2f} by the bound of the model"
    lines.append(text)
    if len(seen.slots) > 1:
        shares = ", ".join(f"{share:.0%}" for share in seen.slots[:16])
        lines.append(f"  slots get {shares}{', ...' if len(seen.slots) > 16 else ''} of them")
    return lines


def shipped_line(plan: Plan, grouping: Grouping, stream: StreamPlan) -> str:
    """Of one grouping: where it is made, and where its rows go."""
    what = "rows are kept as they are" if grouping.rows_are_partials else "combined in the slots"
    if plan.partitioners.get(grouping.route_key) == LOCAL and not grouping.rows_are_partials:
        what = "combined by the tasks that read them"
    if grouping.route_key not in plan.pinned:  # else it is so because a query asks for it
        what = f"{'values hardly come again' if grouping.rows_are_partials else 'groups are many'}: {what}"
    if grouping.route_key in plan.partitioners:
        return what
    leader = plan.co_located_with.get(grouping.route_key)
    if leader is not None:
        led = shipped_keys(plan, stream)[leader][0]
        by = ", ".join(name_of(c, stream) for c in led.keys)
        return f"{what}; its rows follow those by {by}, inside whose keys its own lie"
    moved = plan.assignment.get(grouping.route_key)
    return f"{what}; {'key groups are placed by the optimiser' if moved else 'key groups are hashed to slots'}"


def explain_dealing(
    plan: Plan, grouping: Grouping, stream: StreamPlan, chosen: Dealing | None, seen: AggregationReport | None
) -> list[str]:
    """Of one grouping: what deals its rows out and why, and what that cost in the last batch."""
    lines = []
    if grouping.id in stream.shipped:
        name = plan.partitioners.get(grouping.route_key, HASH)
        pinned = plan.pinned.get(grouping.route_key)
        why = "as a query asks" if pinned else chosen.reason if chosen is not None else ""
        wanted = pinned or (chosen.partitioner if chosen is not None else name)
        if wanted != name:
            why = f"{wanted} {'is asked for' if pinned else 'would be chosen'}, but here rows of a key stay together"
        if why:
            lines.append(f"{'stays at the source (local)' if name == LOCAL else f'dealt out by {name}'}: {why}")
    if seen is not None and seen.aggregation:
        workers = count(seen.loads, "task" if seen.partitioner in (COMBINE, LOCAL) else "slot")
        lines.append(
            f"last batch: {sum(seen.loads):,} rows over {workers}, the busiest {seen.above_even:.0%} above even; "
            f"{seen.aggregation:,} partial results to merge, at most {seen.reducer:,} in a slot"
        )
    return lines


def explain_partitioning(report: PartitioningReport) -> list[str]:
    """What the optimiser was asked and said."""
    if not report.asked and not report.switches:
        return []
    lines = ["", "partitioning"]
    if report.asked:
        lines.append(f"  last optimised {report.asked}")
        lines.append(f"  {report.answer or 'no answer yet'}")
    if report.switches:
        switches = count(range(report.switches), "switch", "switches")
        moved = f"{report.moved} key groups moved" if report.moved else "no key group moved"
        lines.append(f"  {switches}, the last in batch {report.switched_in}: {moved}")
    return lines
