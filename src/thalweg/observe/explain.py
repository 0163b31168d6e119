"""EXPLAIN: the plan in words that a person enjoys reading."""

from __future__ import annotations

from collections.abc import Mapping

from thalweg.model.manifest import Manifest
from thalweg.model.partitioning import PartitioningReport
from thalweg.model.plan import Grouping, Plan, StreamPlan, slot_stages
from thalweg.model.probe_order import OrderingReport
from thalweg.model.query import Query
from thalweg.model.spans import describe_span
from thalweg.observe.explain_joins import explain_join, explain_joins
from thalweg.observe.explain_shipping import explain_dealing, explain_partitioning, explain_shipping, shipped_line
from thalweg.observe.words import count, listed, name_of


def explain_plan(
    plan: Plan,
    queries: Mapping[str, Query],
    manifest: Manifest,
    partitioning: PartitioningReport,
    ordering: OrderingReport,
    failures: Mapping[str, str],
) -> str:
    """All queries: what is read once, who shares what, what is rolled up from what, what is kept.

    `failures`: name -> error, of queries that are out of the plan."""
    failed = [f"{name} has failed and is not running: {error}" for name, error in failures.items()]
    if not queries:
        return "\n".join(failed) or "No queries."
    lines = [_headline(plan, queries), *failed]
    for name, stream in plan.streams.items():
        if name not in plan.joins.joined or stream.groupings or plan.joins.joined[name].alone:
            lines += ["", *_explain_stream(plan, name, stream, queries, manifest, partitioning)]
    lines += explain_joins(plan, queries, manifest, ordering)
    lines += explain_partitioning(partitioning)
    return "\n".join(lines)


def explain_query(
    plan: Plan,
    queries: Mapping[str, Query],
    id_: str,
    manifest: Manifest,
    partitioning: PartitioningReport,
    ordering: OrderingReport,
) -> str:
    """One query: its text, the passes it takes part in and with whom."""
    query = queries[id_]
    stream = plan.streams[query.stream]
    lines = [_title(query)]
    for name in query.streams:
        lines.append(f"  reads {name} with {count(_queries_of(name, queries), 'query', 'queries')}")
    if query.join is not None:
        lines += [f"  {line}" for line in explain_join(plan, id_, queries, manifest, ordering)]
    if query.window is None:
        return "\n".join([*lines, f"  {_at_once(query)}"])
    lines.append(f"  {query.window.describe()}, emitted {_when(query)}")
    if query.where is not None:
        lines.append(f"  its WHERE is a filter inside the shared pass: {query.where.sql}")
    for grouping in _groupings_of(plan, id_):
        lines += [f"  {line}" for line in _explain_grouping(plan, grouping, stream, queries, manifest, partitioning)]
    return "\n".join(lines)


def explain_failed(query: Query, error: str) -> str:
    """One query that is out of the plan."""
    return f"{_title(query)}\n  has failed and is not running: {error}"


def _title(query: Query) -> str:
    return f"query {query.name}: {' '.join(query.text.split())}"


def _headline(plan: Plan, queries: Mapping[str, Query]) -> str:
    passes = [g for g in plan.groupings.values() if g.rolled_up_from is None]
    rolled = len(plan.groupings) - len(passes)
    streams = [name for name in plan.streams if name not in plan.joins.joined]
    text = (
        f"{count(queries, 'query', 'queries')} over {count(streams, 'stream')}: "
        f"{count(streams, 'read')}, {count(passes, 'pass', 'passes')} over the rows"
    )
    if rolled:
        text += f" and {rolled} rolled up from finer ones"
    stages = range(slot_stages(plan))
    return f"{text}, {count(stages, 'shuffle')} into {count(range(plan.slots), 'slot')}."


def _explain_stream(
    plan: Plan,
    name: str,
    stream: StreamPlan,
    queries: Mapping[str, Query],
    manifest: Manifest,
    partitioning: PartitioningReport,
) -> list[str]:
    joined = plan.joins.joined.get(name)
    title = name if joined is None else f"of joined rows of {' and '.join(r for r, _ in joined.relations)}"
    lines = [f"stream {title}", f"  reads {', '.join(stream.columns)}"]
    plain = [c for c in stream.computed if c.kind == "sql"]
    if plain:
        lines.append(f"  computes {count(plain, 'expression')} once per row")
    for selection in stream.selections:
        lines.append(f"  selects rows for {queries[selection.query].name}")
    lines += [f"  {line}" for line in _explain_kept_rows(stream, manifest)]
    lines += [f"  {line}" for line in explain_shipping(plan, stream, partitioning.streams.get(name))]
    for i, id_ in enumerate(stream.groupings):
        last = i == len(stream.groupings) - 1
        body = _explain_grouping(plan, plan.groupings[id_], stream, queries, manifest, partitioning)
        lines.append(f"  {'└─' if last else '├─'} {body[0]}")
        lines += [f"  {'  ' if last else '│ '} {line}" for line in body[1:]]
    return lines


def _explain_kept_rows(stream: StreamPlan, manifest: Manifest) -> list[str]:
    if stream.rows is None:
        return []
    lines = []
    if stream.keeps_rows:
        columns = ", ".join(stream.rows.values)
        lines.append(f"keeps rows as they are ({columns}), which are fewer bytes than partials of all groupings")
    held = [b for b in manifest.buckets if b.relation == stream.rows.id]
    if held:
        lines.append(f"holds {sum(b.section.rows for b in held):,} rows in {count(held, 'bucket')}")
    return lines


def _explain_grouping(
    plan: Plan,
    grouping: Grouping,
    stream: StreamPlan,
    queries: Mapping[str, Query],
    manifest: Manifest,
    partitioning: PartitioningReport,
) -> list[str]:
    by = ", ".join(name_of(c, stream) for c in grouping.keys) or "nothing (one group)"
    if grouping.values:
        by += " with values of " + ", ".join(name_of(c, stream) for c in grouping.values)
    users = sorted(
        {
            queries[q].name
            for p in grouping.partials
            for q in stream.users.get(p.name, ())
            if q in queries and grouping in _groupings_of(plan, q)
        }
    )
    head = f"by {by}: {listed(users)}"
    lines = [head]
    if grouping.id in stream.shipped:
        lines.append(shipped_line(plan, grouping, stream))
    elif stream.keeps_rows:
        lines.append(f"{count(grouping.partials, 'aggregate')} made of the rows when windows close")
    elif grouping.rolled_up_from is not None:
        finer = plan.groupings[grouping.rolled_up_from]
        lines.append(f"rolled up from the partials by {', '.join(name_of(c, stream) for c in finer.keys)}")
    else:
        partials = (*grouping.partials, *grouping.partials_for_others)
        filters = {p.filter for p in partials if p.filter is not None}
        text = f"combined at the source into {count(partials, 'partial')}"
        lines.append(text + (f" under {count(filters, 'filter')}" if filters else ""))
    ratio = manifest.measured.combining.loads.get(grouping.id)
    if ratio is not None:
        lines[-1] += f", measured {ratio:.3g} groups per row"
    chosen = manifest.measured.partitioners.dealing.get(grouping.route_key)
    lines += explain_dealing(plan, grouping, stream, chosen, partitioning.aggregations.get(grouping.id))
    windows = "; ".join(w.describe() for w in grouping.windows)
    lines.append(f"{windows}: slices of {describe_span(grouping.slice_us)}")
    held = [b for b in manifest.buckets if b.relation == grouping.id]
    if held:
        lines.append(f"keeps {sum(b.section.rows for b in held):,} rows in {count(held, 'bucket')}")
    return lines


def _groupings_of(plan: Plan, id_: str) -> list[Grouping]:
    found = []
    for member in plan.members:
        if member.query == id_:
            found += [plan.groupings[p.grouping] for p in (member.main, *member.further)]
    return found


def _queries_of(stream: str, queries: Mapping[str, Query]) -> list[str]:
    return [q.name for q in queries.values() if stream in q.streams]


def _at_once(query: Query) -> str:
    """When a query without windows answers."""
    if query.join is None:
        return "every row that passes its WHERE is emitted in the batch that brings it"
    if query.join.kind in ("semi", "anti"):
        return "a row is emitted in the batch that decides it"
    return "what is joined is emitted in the batch that completes it"


def _when(query: Query) -> str:
    return "when they change" if query.emit == "updates" else "once, when they have closed"
