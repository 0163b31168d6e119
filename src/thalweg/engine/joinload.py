"""What batches measure of the joins, and what that leaves of the stores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import Any

from thalweg.engine.changelog import Moment
from thalweg.engine.stores import layout_from_json, layout_to_json
from thalweg.model.ordering import Ordering
from thalweg.model.plan import Plan
from thalweg.operate.slot import Clock
from thalweg.operate.store import Layout
from thalweg.operate.windows import BEGINNING
from thalweg.optimize.groups import Sample
from thalweg.optimize.joining import JoinLoad
from thalweg.optimize.ordering import pairs_key, partners, rows_key
from thalweg.optimize.orders import Sizes
from thalweg.state.manifest import Manifest, StoreBucket
from thalweg.stats.joining import JoinStatistics

EPOCH = 8
"""Batches of an epoch, unless the session says otherwise."""
REFRESHED = 16
"""Batches after which a sample of the same predicates is replaced."""


def next_stores(
    manifest: Manifest,
    plan: Plan,
    clock: Clock,
    made: Sequence[StoreBucket],
    replaced: set[str],
    moment: Moment,
) -> tuple[tuple[StoreBucket, ...], dict[str, int]]:
    """The live buckets after a batch, and from which event time on each store holds every row."""
    held_from: dict[str, int] = {}
    known = manifest.extra.get("held_from", {})
    for name in plan.joins.stores:
        held_from[name] = known.get(name, moment.unseen(name) - 1)
    live = []
    for bucket in (*(b for b in manifest.stores if b.name not in replaced), *made):
        store = plan.joins.stores.get(bucket.stream)
        if store is None:
            continue
        high = layout_from_json(bucket.layout).high_us
        if any(high + reach > min(clock.closing_us[s] for s in streams) for streams, reach in store.needs):
            live.append(bucket)
        else:
            held_from[bucket.stream] = max(held_from[bucket.stream], high)
    return tuple(live), {name: max(us, BEGINNING) for name, us in held_from.items()}


def stores_to_json(plan: Plan) -> dict[str, Any]:
    """Which rows of each stream the plan's stores want, and what of them."""
    return {
        name: {
            "layout": layout_to_json(Layout.of(store, {})),
            "columns": list(store.columns),
        }
        for name, store in plan.joins.stores.items()
        if name not in plan.joins.intermediates
    }


def running_stores(manifest: Manifest) -> dict[str, tuple[Layout, frozenset[str]]]:
    return {
        name: (layout_from_json(value["layout"]), frozenset(value["columns"]))
        for name, value in manifest.extra.get("stores", {}).items()
    }


def join_load(value: Mapping[str, Any], ordering: Ordering | None = None) -> JoinLoad:
    """The measurements and what was decided by them, as the planner takes them."""
    samples = {
        name: Sample(tuple(s["predicates"]), tuple(s["rows"]), s["rate"], s["distinct"])
        for name, s in value.get("samples", {}).items()
    }
    matches = {}
    for probe, ratio in value.get("matches", {}).items():
        known, found, edge = probe.split("|")
        matches[known, found, edge] = ratio
    estimates = JoinStatistics.from_json(value.get("statistics", {})).estimates
    return JoinLoad(
        samples,
        Sizes({}, {**matches, **partners(estimates)}),
        tuple(tuple(g) for g in value.get("groups", ())),
        value.get("ready", {}),
        value.get("held", {}),
        estimates,
        ordering.orders if ordering is not None else {},
    )


def next_join_load(
    value: Mapping[str, Any],
    plan: Plan,
    batch: int,
    probes: Mapping[str, Sequence[int]],
    samples: Mapping[str, Any],
    stores: Sequence[StoreBucket],
    epoch: int = EPOCH,
) -> dict[str, Any]:
    """Averages over recent batches, and statistics over epochs of so many batches.

    Until an epoch has ended, orders follow the averages, kept to powers of two: noise does not make a new plan.
    """
    if not plan.joins.groups:
        return {}
    average = {
        probe: ratio
        for probe, ratio in value.get("average", {}).items()
        if _is_current(probe, plan.joins.intermediates)
    }
    since = _next_since(value.get("since", {}), plan, batch)
    for probe, (probing, found) in _by_edge(probes).items():
        if probing:
            average[probe] = round(0.5 * average.get(probe, found / probing) + 0.5 * found / probing, 6)
    return {
        "average": average,
        "matches": {probe: _power_of_two(ratio) for probe, ratio in average.items()},
        "samples": _next_samples(value.get("samples", {}), plan, batch, samples),
        "groups": [list(group.queries) for group in plan.joins.groups.values()],
        "since": since,
        "ready": _ready(since, plan, stores),
        "held": _next_held(stores, samples, value.get("held", {})),
        "statistics": _next_statistics(value.get("statistics", {}), plan, probes, samples, epoch).to_json(),
        "sent": _next_sent(value.get("sent", {}), plan, _sent(plan, batch, probes, stores)),
    }


def _by_edge(probes: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, int]]:
    """known | found | edge -> tuples that probed, pairs found, over all groups and steps."""
    added: dict[str, tuple[int, int]] = {}
    for name, (probing, found) in probes.items():
        _, known, other, edge, _ = name.split("|")
        before = added.get(f"{known}|{other}|{edge}", (0, 0))
        added[f"{known}|{other}|{edge}"] = before[0] + probing, before[1] + found
    return added


def _next_statistics(
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


Counts = dict[str, tuple[float, float]]


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
        if there + back:
            each = (there + back) / looked if looked else 1.0
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


def _next_sent(known: Mapping[str, float], plan: Plan, fresh: Mapping[str, float]) -> dict[str, float]:
    after = {id_: rows for id_, rows in known.items() if id_ in plan.joins.groups}
    for id_, rows in fresh.items():
        if rows:
            after[id_] = round(0.5 * after.get(id_, rows) + 0.5 * rows, 1)
    return after


def _next_since(known: Mapping[str, Any], plan: Plan, batch: int) -> dict[str, dict[str, int]]:
    """intermediate -> query -> the batch since which it is kept for the query, without a gap."""
    return {
        id_: {query: known.get(id_, {}).get(query, batch) for query in m.queries}
        for id_, m in plan.joins.intermediates.items()
    }


def _ready(since: Mapping[str, Mapping[str, int]], plan: Plan, stores: Sequence[StoreBucket]) -> dict[str, list[str]]:
    """An intermediate is complete for a query once every row that its relations still hold came after it began."""
    found = {}
    for id_, queries in since.items():
        streams = {
            role.stream
            for group in plan.joins.groups.values()
            for name, role in group.roles.items()
            if name in plan.joins.intermediates[id_].relations
        }
        oldest = min((b.batch_from for b in stores if b.stream in streams), default=None)
        found[id_] = [query for query, began in queries.items() if oldest is None or oldest >= began]
    return found


def _next_samples(known: Mapping[str, Any], plan: Plan, batch: int, fresh: Mapping[str, Any]) -> dict[str, Any]:
    after = {name: sample for name, sample in known.items() if name in plan.joins.stores}
    for name, sample in fresh.items():
        same = name in after and after[name]["predicates"] == sample["predicates"]
        if sample["rate"] and (not same or batch % REFRESHED == 0):
            after[name] = sample
    return after


def _next_held(
    stores: Sequence[StoreBucket], fresh: Mapping[str, Any], known: Mapping[str, float]
) -> dict[str, float]:
    """How many batches' rows each store holds, to a power of two."""
    after = dict(known)
    for name, sample in fresh.items():
        came = sum(
            b.section.rows for b in stores if b.stream == name and b.batch_from == b.batch_to == _newest(stores)
        )
        if came and sample["rate"]:
            after[name] = _power_of_two(sum(b.section.rows for b in stores if b.stream == name) / came)
    return after


def _newest(stores: Sequence[StoreBucket]) -> int:
    return max(b.batch_to for b in stores)


def _is_current(probe: str, intermediates: Mapping[str, Any]) -> bool:
    """Intermediates come and go; what was measured of those that have gone says nothing any more."""
    return all(not name.startswith("+") or name in intermediates for name in probe.split("|"))


def _power_of_two(ratio: float) -> float:
    return 0.0 if ratio <= 0 else float(2.0 ** round(math.log2(ratio)))
