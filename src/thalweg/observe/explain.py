"""EXPLAIN: the plan in words that a person enjoys reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from thalweg.model.plan import Grouping, Plan, StreamPlan
from thalweg.model.query import Query, Window
from thalweg.state.manifest import Manifest


def explain_plan(plan: Plan, queries: Mapping[str, Query], manifest: Manifest) -> str:
    """All queries: what is read once, who shares what, what is rolled up from what, what is kept."""
    if not queries:
        return "No queries."
    lines = [_headline(plan, queries)]
    for name, stream in plan.streams.items():
        lines += ["", *_explain_stream(plan, name, stream, queries, manifest)]
    return "\n".join(lines)


def explain_query(plan: Plan, queries: Mapping[str, Query], id_: str, manifest: Manifest) -> str:
    """One query: its text, the passes it takes part in and with whom."""
    query = queries[id_]
    stream = plan.streams.get(query.stream)
    lines = [f"query {query.name}: {' '.join(query.text.split())}"]
    if stream is None:
        return "\n".join([*lines, "  is not running"])
    lines.append(
        f"  reads {query.stream} with {_count(_queries_of(plan, query.stream, queries), 'query', 'queries')}"
    )
    if query.window is None:
        lines.append("  every row that passes its WHERE is emitted in the batch that brings it")
        return "\n".join(lines)
    lines.append(f"  {describe_window(query.window)}, emitted {_when(query)}")
    if query.where is not None:
        lines.append(f"  its WHERE is a filter inside the shared pass: {query.where.sql}")
    for grouping in _groupings_of(plan, id_):
        lines += [f"  {line}" for line in _explain_grouping(plan, grouping, stream, queries, manifest)]
    return "\n".join(lines)


def describe_window(window: Window) -> str:
    if window.range_us == window.slide_us:
        text = f"windows of {describe_span(window.range_us)}"
    else:
        text = f"windows of {describe_span(window.range_us)} sliding by {describe_span(window.slide_us)}"
    return text if window.start_us == 0 else f"{text}, shifted by {describe_span(window.start_us)}"


def describe_span(us: int) -> str:
    """A span of time in the largest unit that divides it."""
    for name, size in (
        ("day", 86_400_000_000),
        ("hour", 3_600_000_000),
        ("minute", 60_000_000),
        ("second", 10**6),
    ):
        if us >= size and us % size == 0:
            n = us // size
            return f"{n} {name}" if n == 1 else f"{n} {name}s"
    return f"{us // 1000} ms" if us % 1000 == 0 else f"{us} µs"


def _headline(plan: Plan, queries: Mapping[str, Query]) -> str:
    passes = [g for g in plan.groupings.values() if g.finer is None]
    rolled = len(plan.groupings) - len(passes)
    text = (
        f"{_count(queries, 'query', 'queries')} over {_count(plan.streams, 'stream')}: "
        f"{_count(plan.streams, 'read')}, {_count(passes, 'pass', 'passes')} over the rows"
    )
    if rolled:
        text += f" and {rolled} rolled up from finer ones"
    return f"{text}, 1 shuffle into {_count(range(plan.slots), 'slot')}."


def _explain_stream(
    plan: Plan, name: str, stream: StreamPlan, queries: Mapping[str, Query], manifest: Manifest
) -> list[str]:
    lines = [f"stream {name}", f"  reads {', '.join(stream.columns)}"]
    plain = [c for c in stream.computed if c.kind == "sql"]
    if plain:
        lines.append(f"  computes {_count(plain, 'expression')} once per row")
    for selection in stream.selections:
        lines.append(f"  selects rows for {queries[selection.query].name}")
    for i, id_ in enumerate(stream.groupings):
        last = i == len(stream.groupings) - 1
        body = _explain_grouping(plan, plan.groupings[id_], stream, queries, manifest)
        lines.append(f"  {'└─' if last else '├─'} {body[0]}")
        lines += [f"  {'  ' if last else '│ '} {line}" for line in body[1:]]
    return lines


def _explain_grouping(
    plan: Plan, grouping: Grouping, stream: StreamPlan, queries: Mapping[str, Query], manifest: Manifest
) -> list[str]:
    by = ", ".join(_name(c, stream) for c in grouping.keys) or "nothing (one group)"
    if grouping.values:
        by += " with values of " + ", ".join(_name(c, stream) for c in grouping.values)
    users = sorted(
        {
            queries[q].name
            for p in grouping.partials
            for q in stream.users.get(p.name, ())
            if q in queries and grouping in _groupings_of(plan, q)
        }
    )
    head = f"by {by}: {_list(users)}"
    lines = [head]
    if grouping.kind == "rows":
        lines.append(f"raw rows are shipped ({', '.join(_name(c, stream) for c in grouping.carried)}): no partials")
    elif grouping.finer is not None:
        finer = plan.groupings[grouping.finer]
        lines.append(f"rolled up from the pass by {', '.join(_name(c, stream) for c in finer.keys)}")
    else:
        filters = {p.filter for p in grouping.partials if p.filter is not None}
        text = f"combined at the source into {_count(grouping.partials, 'partial')}"
        lines.append(text + (f" under {_count(filters, 'filter')}" if filters else ""))
    ratio = manifest.extra.get("loads", {}).get(grouping.id)
    if ratio is not None and grouping.kind == "combine":
        lines[-1] += f", measured {ratio:.3g} groups per row"
    windows = "; ".join(describe_window(w) for w in grouping.windows)
    lines.append(f"{windows}: slices of {describe_span(grouping.slice_us)}")
    held = [b for b in manifest.buckets if b.grouping == grouping.id]
    if held:
        lines.append(f"keeps {sum(b.rows for b in held):,} rows in {_count(held, 'bucket')}")
    return lines


def _groupings_of(plan: Plan, id_: str) -> list[Grouping]:
    found = []
    for member in plan.members:
        if member.query == id_:
            found += [plan.groupings[p.grouping] for p in (member.main, *member.further)]
    return found


def _name(column: str, stream: StreamPlan) -> str:
    """A computed column by what it computes."""
    for c in stream.computed:
        if c.name == column:
            return c.expr.sql if c.kind == "sql" else f"{c.kind} of {c.expr.sql}"
    return column


def _queries_of(plan: Plan, stream: str, queries: Mapping[str, Query]) -> list[str]:
    return [q.name for q in queries.values() if q.stream == stream]


def _when(query: Query) -> str:
    return "when they change" if query.emit == "updates" else "once, when they have closed"


def _list(names: Sequence[str]) -> str:
    if len(names) <= 8:
        return ", ".join(names)
    return f"{', '.join(names[:8])} and {len(names) - 8} more"


def _count(things: Iterable[object], one: str, many: str | None = None) -> str:
    n = len(list(things))
    return f"{n} {one if n == 1 else many or one + 's'}"
