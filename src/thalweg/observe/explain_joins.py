"""EXPLAIN of joins: what is kept of each stream, who runs together, where an arriving row looks for partners."""

from __future__ import annotations

from collections.abc import Mapping

from thalweg.model.manifest import Manifest
from thalweg.model.plan import Plan, route_key
from thalweg.model.probe import Cohort, ProbeNode, Store
from thalweg.model.probe_order import OrderingReport
from thalweg.model.query import Query
from thalweg.model.spans import describe_span
from thalweg.observe.words import count, listed, name_of

SHOWN = 12
"""Changes of orders that are listed."""


def explain_joins(
    plan: Plan, queries: Mapping[str, Query], manifest: Manifest, ordering: OrderingReport
) -> list[str]:
    """All stores and all cohorts, and what was decided of their orders."""
    lines: list[str] = []
    for store in plan.joins.stores.values():
        lines += ["", *_explain_store(plan, store, queries, manifest)]
    for cohort in plan.joins.cohorts.values():
        lines += ["", *_explain_cohort(plan, cohort, queries, manifest), *_explain_cost(cohort, ordering)]
    if plan.joins.notes:
        lines += ["", *(_with_names(note, queries) for note in plan.joins.notes)]
    if any(plan.joins.ordered):
        lines += ["", *explain_ordering(ordering)]
    return lines


def _with_names(note: str, queries: Mapping[str, Query]) -> str:
    """A note of the planner, which knows queries by their ids."""
    for id_ in sorted(queries, key=len, reverse=True):
        note = note.replace(id_, queries[id_].name)
    return note


def explain_ordering(ordering: OrderingReport) -> list[str]:
    """What was decided of the orders of joins, and why."""
    running = f"epoch {ordering.epoch + 1} is running"
    if not ordering.asked and ordering.switched is None:
        return [f"join orders follow what was measured so far; {running}"]
    lines = [f"join orders were planned {ordering.asked or 'before this session'}; {running}"]
    if ordering.answer:
        lines.append(f"  {ordering.answer}")
    if ordering.switched is not None:
        lines.append(f"  last changed in batch {ordering.switched}: {ordering.reason}")
        lines += [f"    {change}" for change in ordering.changes[:SHOWN]]
        if len(ordering.changes) > SHOWN:
            lines.append(f"    and {len(ordering.changes) - SHOWN} more")
    return lines


def _explain_cost(cohort: Cohort, ordering: OrderingReport) -> list[str]:
    """Tuples sent, as measured and as expected, against each query planned by itself."""
    sent = ordering.sent.get(cohort.id)
    judged = next((cost for cost in ordering.groups if set(cost.queries) == set(cohort.queries)), None)
    lines = [f"  sends {sent:,.0f} tuples a batch"] if sent else []
    if judged is not None and judged.apart > 0:
        text = f"  expected: {judged.now:,.0f} tuples a batch"
        if len(judged.queries) > 1:
            saved = 1 - judged.now / judged.apart
            text += f"; each query planned by itself: {judged.apart:,.0f} ({saved:.0%} saved)"
        lines.append(text)
    return lines


def explain_join(
    plan: Plan, id_: str, queries: Mapping[str, Query], manifest: Manifest, ordering: OrderingReport
) -> list[str]:
    """What one query takes part in."""
    lines: list[str] = []
    for cohort in plan.joins.cohorts.values():
        if id_ in cohort.queries:
            lines += _explain_cohort(plan, cohort, queries, manifest, only=1 << cohort.bit(id_))
            lines += _explain_cost(cohort, ordering)
    for name, store in plan.joins.stores.items():
        if _uses_store(queries[id_], name):
            lines += _explain_store(plan, store, queries, manifest)
    join = queries[id_].join
    for table in join.tables if join is not None else ():
        lines.append(f"rows are looked up in the table {table.table}, as it is when they are joined")
    return lines


def _explain_store(plan: Plan, store: Store, queries: Mapping[str, Query], manifest: Manifest) -> list[str]:
    if store.stream in plan.joins.intermediates:
        return _explain_intermediate(plan, store, queries, manifest)
    stream = plan.streams[store.stream]
    users = sorted({q.name for q in queries.values() if _uses_store(q, store.stream)})
    lines = [f"store of {store.stream}: {listed(users)}"]
    kept = "every row"
    if not store.keeps_all:
        several = len(store.predicates) > 1
        kept = f"rows that satisfy {f'one of {len(store.predicates)} predicates' if several else 'a predicate'}"
    reach = max(us for _, us in store.needs)
    lines.append(f"  keeps {kept}, once, until the watermark is {describe_span(reach)} past it")
    keys = [", ".join(name_of(key, stream) for key in index.keys) for index in store.indexes]
    lines.append(f"  found by {'; by '.join(f'({key})' if ',' in key else key for key in sorted(keys))}")
    return lines + _spread(plan, store) + _holds(store, manifest)


def _uses_store(query: Query, stream: str) -> bool:
    """A stream that is joined with nothing but tables is not kept."""
    return query.join is not None and len(query.join.relations) > 1 and stream in query.streams


def _spread(plan: Plan, store: Store) -> list[str]:
    """Keys that are too much for one slot."""
    lines = []
    for index in store.indexes:
        hot = plan.spread.get(route_key(store.stream, index.keys), ())
        if hot:
            by = ", ".join(name_of(key, plan.streams[store.stream]) for key in index.keys)
            lines.append(f"  new rows of {count(hot, 'hot key group')} by {by} are probed by all slots in turn")
    return lines


def _explain_intermediate(plan: Plan, store: Store, queries: Mapping[str, Query], manifest: Manifest) -> list[str]:
    m = plan.joins.intermediates[store.stream]
    ready = manifest.measured.probe_orders.joins.ready.get(m.id, ())
    users = [queries[id_].name for id_ in m.queries if id_ in queries]
    waiting = [queries[id_].name for id_ in m.queries if id_ in queries and id_ not in ready]
    lines = [f"store of {title_of(plan, m.id)}, joined: {listed(sorted(users))}"]
    lines.append(f"  found by {'; by '.join(sorted(', '.join(index.keys) for index in store.indexes))}")
    if waiting:
        lines.append(f"  being filled: not yet looked at for {listed(sorted(waiting))}")
    return lines + _holds(store, manifest)


def _holds(store: Store, manifest: Manifest) -> list[str]:
    held = [b for b in manifest.stores if b.relation == store.stream]
    if not held:
        return []
    rows, size = sum(b.section.rows for b in held), sum(b.nbytes for b in held)
    return [f"  holds {rows:,} rows in {count(held, 'bucket')}, {size / 2**20:.1f} MiB with all indexes"]


def title_of(plan: Plan, relation: str) -> str:
    """A relation by its name, an intermediate by what is joined in it."""
    m = plan.joins.intermediates.get(relation)
    return relation if m is None else "(" + " ⋈ ".join(m.relations) + ")"


def _explain_cohort(
    plan: Plan, cohort: Cohort, queries: Mapping[str, Query], manifest: Manifest, only: int | None = None
) -> list[str]:
    names = [queries[id_].name for id_ in cohort.queries if id_ in queries]
    together = "runs alone" if len(names) == 1 else "run together, one probe serves all"
    lines = [f"{listed(names)}: {together}"]
    for tree in cohort.trees:
        body = [line for node in tree.children for line in _explain_node(plan, cohort, node, queries, manifest, only)]
        if body:
            lines.append(f"  a row of {tree.relation}")
            lines += [f"    {line}" for line in body]
    for decision in plan.joins.decisions:
        if decision.cohort == cohort.id:
            span = describe_span(max(0, decision.reach_us))
            lines.append(f"  a row of {decision.relation} is decided when the watermark is {span} past it")
    return lines


def _explain_node(
    plan: Plan,
    cohort: Cohort,
    node: ProbeNode,
    queries: Mapping[str, Query],
    manifest: Manifest,
    only: int | None,
) -> list[str]:
    if only is not None and not node.queries & only:
        return []
    relation = node.key[0][0]
    equal = equal_columns(plan, cohort, node)
    text = f"─▶ {title_of(plan, node.relation)} where {' and '.join(equal)}, {_within(node)}"
    if node.moves:
        text += ", in the slot of that key"
    ratio = manifest.measured.probe_orders.joins.average.get(f"{relation}|{node.relation}|{node.edge}")
    if ratio is not None:
        text += f" (finds {ratio:.3g} a row)"
    lines = [text]
    for kept, _ in node.keeps:
        lines.append(f"   ▪ kept as {title_of(plan, kept)}")
    for joined, mask in node.complete:
        ended = [queries[q].name for b, q in enumerate(cohort.queries) if mask >> b & 1 and q in queries]
        fed = any(g.stream == joined for g in plan.groupings.values())
        lines.append(f"   ■ {listed(ended)}{': into windows' if fed else ''}")
    for child in node.children:
        lines += [f"   {line}" for line in _explain_node(plan, cohort, child, queries, manifest, only)]
    return lines


def equal_columns(plan: Plan, cohort: Cohort, node: ProbeNode) -> list[str]:
    """What must be equal between what is known and what a node finds."""
    relation = node.key[0][0]
    own = plan.streams[_stream(cohort, relation)]
    index = plan.joins.stores[node.stream].index(node.index)
    equal = [
        f"{relation}.{name_of(column, own)} = {_found(plan, node, key)}"
        for (_, column), key in zip(node.key, index.keys, strict=True)
    ]
    return equal + [f"{r}.{c} = {_found(plan, node, k)}" for r, c, k in node.equal]


def _found(plan: Plan, node: ProbeNode, key: str) -> str:
    """A column of what a node finds."""
    if node.relation in plan.joins.intermediates:
        return key
    return f"{node.relation}.{name_of(key, plan.streams[node.stream])}"


def _within(node: ProbeNode) -> str:
    """How far apart the found row may be from those that are known, by the tightest of the bounds."""
    known, low, high = min(node.bounds, key=lambda b: b[2] - b[1])
    text = f"within {describe_span(high)}" if low == -high else f"{_signed(low)} to {_signed(high)}"
    return text if len(node.bounds) == 1 else f"{text} of {known}"


def _signed(us: int) -> str:
    return f"-{describe_span(-us)}" if us < 0 else f"+{describe_span(us)}"


def _stream(cohort: Cohort, relation: str) -> str:
    return cohort.roles[relation].stream
