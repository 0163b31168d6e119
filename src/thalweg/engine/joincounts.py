"""What the probes of a batch counted, as statistics of the joins: rows, partners per row, tuples sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from thalweg.model.plan import Plan
from thalweg.optimize.ordering import pairs_key, rows_key
from thalweg.state.manifest import StoreBucket
from thalweg.stats.joining import JoinStatistics

Counts = dict[str, tuple[float, float]]
"""Key of an estimate -> looked at, found."""


def by_edge(probes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, int]]:
    """known | found | edge -> tuples that probed, pairs found, over all groups and steps."""
    added: dict[str, tuple[int, int]] = {}
    for name, (probing, found) in probes.items():
        _, known, other, edge, _ = name.split("|")
        before = added.get(f"{known}|{other}|{edge}", (0, 0))
        added[f"{known}|{other}|{edge}"] = before[0] + probing, before[1] + found
    return added


def next_statistics(
    value: Mapping[str, Any],
    plan: Plan,
    probes: Mapping[str, Sequence[int]],
    samples: Mapping[str, Any],
    epoch: int,
) -> JoinStatistics:
    known = JoinStatistics.from_json(value)
    edges = {edge for join in plan.joins.ordered.values() for edge in join.edges}
    current = {pairs_key(*edge) for edge in edges} | {pairs_key(b, a, key) for a, b, key in edges}
    streams = [name for name in plan.joins.stores if name not in plan.joins.intermediates]
    current |= {rows_key(name) for name in streams}
    known = known.only(current.__contains__)
    rows = {name: sample["rate"] for name, sample in samples.items() if name in streams}
    if not any(rows.values()):
        return known  # nothing came: a batch that only closes windows says nothing of the streams
    counts = {rows_key(name): (1.0, float(rows.get(name, 0))) for name in streams}
    counts = {key: of for key, of in {**counts, **_partners_found(plan, probes)}.items() if key in current}
    return known.after(counts, epoch)


def _partners_found(plan: Plan, probes: Mapping[str, Sequence[int]]) -> Counts:
    """Rows that looked for partners by an edge, and partners found; from first steps where there are some.

    A tuple of k rows finds what is earlier than its latest: k / (k + 1) of a window's partners, where a row alone
    finds half (CLASH Eq. 1). So what longer tuples found is brought down to what a row would have.
    """
    first: Counts = {}
    later: Counts = {}
    inside: list[tuple[str, str, str, int, int, int]] = []
    for name, (probing, found) in probes.items():
        _, known, other, edge, width = name.split("|")
        k = int(width)
        if k and other.startswith("+"):
            inside.append((known, other, edge, k, probing, found))
        elif k:
            _add(first if k == 1 else later, pairs_key(known, other, edge), probing, found * (k + 1) / (2 * k))
    return {**_found_inside(plan, first, inside), **later, **first}


def _found_inside(plan: Plan, first: Counts, inside: Sequence[tuple[str, str, str, int, int, int]]) -> Counts:
    """The same of edges into intermediates: of what was found, each row of the relation that the edge leads to is
    there with every partner that it has in the intermediate. How many those are is known from filling it."""
    found_inside: Counts = {}
    edges = {edge for join in plan.joins.ordered.values() for edge in join.edges}
    for known, intermediate, key, k, probing, found in inside:
        relations = plan.joins.intermediates[intermediate].relations
        ends = [(r, o) for r, o in permutations(relations) if {(known, r, key), (r, known, key)} & edges]
        inner = [edge for edge in edges if {*edge[:2]} == {*relations}]
        if len(ends) != 1 or len(inner) != 1:
            continue
        (member, other), own = ends[0], inner[0][2]
        looked, there = first.get(pairs_key(member, other, own), (0.0, 0.0))
        _, back = first.get(pairs_key(other, member, own), (0.0, 0.0))
        if looked and there + back:
            each = (there + back) / looked
            _add(found_inside, pairs_key(known, member, key), probing, found * (k + 2) / (2 * k) / each)
    return found_inside


def _add(counts: Counts, key: str, looked: float, found: float) -> None:
    before = counts.get(key, (0.0, 0.0))
    counts[key] = before[0] + looked, before[1] + found


def _sent(
    plan: Plan, batch: int, probes: Mapping[str, Sequence[int]], stores: Sequence[StoreBucket]
) -> dict[str, float]:
    """group -> tuples sent to probes and into intermediates in the batch."""
    sent = dict.fromkeys(plan.joins.groups, 0.0)
    for name, (probing, _) in probes.items():
        sent[name.split("|")[0]] += probing
    home = {m: id_ for id_, group in plan.joins.groups.items() for m in group.roles if m in plan.joins.intermediates}
    for bucket in stores:
        if bucket.stream in home and bucket.batch_from == bucket.batch_to == batch:
            sent[home[bucket.stream]] += bucket.section.rows
    return sent


def next_sent(
    known: Mapping[str, float],
    plan: Plan,
    batch: int,
    probes: Mapping[str, Sequence[int]],
    stores: Sequence[StoreBucket],
) -> dict[str, float]:
    """group -> tuples sent per batch, smoothed."""
    after = {id_: rows for id_, rows in known.items() if id_ in plan.joins.groups}
    for id_, rows in _sent(plan, batch, probes, stores).items():
        if rows:
            after[id_] = round(0.5 * after.get(id_, rows) + 0.5 * rows, 1)
    return after
