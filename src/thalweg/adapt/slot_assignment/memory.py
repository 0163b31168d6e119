"""What is remembered of rows that are sent whole, and what a batch adds to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct, structs

from thalweg.adapt.contract import SeenBatch, SolverCall
from thalweg.adapt.routing_totals import Floats, Shipped
from thalweg.adapt.slot_assignment.forest import CellForest
from thalweg.adapt.slot_assignment.judge import Proposal
from thalweg.adapt.slot_assignment.retreat import Above
from thalweg.adapt.slot_assignment.sharing import Shares, Sharing, gather
from thalweg.model.bucket import SliceBucket
from thalweg.model.measurements import SlotAssignment
from thalweg.model.partitioning import Partitioning, Replication
from thalweg.model.plan import Plan, route_keys
from thalweg.optimize.slot_assignment import RouteKey

ENOUGH = 4096
"""Sampled rows of a stream before the optimiser looks at it."""
RECENT = 0.5
"""What a batch still counts in the recent statistics after the next one."""
SMOOTHING = 0.2
"""The weight of the newest batch in what is measured."""


class SlotMemory(Struct, frozen=True):
    assigned: SlotAssignment = SlotAssignment()
    """As the last batch ran. In the manifest."""
    batch: int = -1
    """The last that was seen."""
    plan: Plan | None = None
    """Its plan."""
    buckets: Sequence[SliceBucket] = ()
    """The state after it."""
    replication: Mapping[str, Replication] = {}
    """By stream, as all of these but for those by route key."""
    shared: Mapping[str, float] = {}
    """The share of its rows that several route keys need."""
    sharing: Mapping[str, Sharing] = {}
    recent: Mapping[str, Sharing] = {}
    """The same of the last few batches: what has drifted shows here first."""
    above: Mapping[str, Above] = {}
    """Streams of which more was sent than hashing would send."""
    purity: Mapping[tuple[str, str], float] = {}
    """(route key, other) -> the share of the one's rows whose key lies in one key group of the other."""
    probed: Mapping[RouteKey, Floats] = {}
    """Route keys of joins alone -> rows by key group."""
    lat_proc: float = 1.0
    """What a slot's work on a row costs, in units of what shipping a copy costs."""
    batch_seconds: float = 1.0

    # What the optimiser was asked and has answered.
    known: frozenset[RouteKey] = frozenset()
    """The route keys that it was asked about the last time."""
    fitted: Mapping[str, Shares] = {}
    """What its answer was fitted to."""
    forests: Mapping[str, CellForest] = {}
    """Of streams with more pairs of route keys than are counted."""
    trainings: int = 0
    asked: SolverCall | None = None
    proposal: Proposal | None = None
    looked: tuple[int, float] = (-1, float("-inf"))
    """After which batch and when it was last asked, or looked whether it should be."""

    # What the next batch changes.
    proposed: Partitioning | None = None
    retreat: frozenset[str] = frozenset()
    """Route keys that go back to hashing."""
    given_up: tuple[int, str] | None = None
    """The batch after which they did, and why, until the optimiser was asked."""

    @property
    def ready(self) -> dict[str, Sharing]:
        """Streams of which enough is known. A single route key has no pairs to be known."""
        return {name: s for name, s in self.sharing.items() if s.sampled >= ENOUGH or len(s.keys) == 1}

    @property
    def route_keys(self) -> frozenset[RouteKey]:
        return frozenset({(stream, key) for stream, s in self.ready.items() for key in s.keys} | set(self.probed))


def forget(memory: SlotMemory, plan: Plan) -> SlotMemory:
    """Without what is no longer shipped or probed."""
    streams = {name for name, stream in plan.streams.items() if stream.shipped}
    used = route_keys(plan)
    return structs.replace(
        memory,
        sharing={name: sharing for name, sharing in memory.sharing.items() if name in streams},
        recent={name: sharing for name, sharing in memory.recent.items() if name in streams},
        above={name: above for name, above in memory.above.items() if name in streams},
        forests={name: forest for name, forest in memory.forests.items() if name in streams},
        replication={name: seen for name, seen in memory.replication.items() if name in streams},
        purity={pair: pure for pair, pure in memory.purity.items() if used.issuperset(pair)},
        probed={key: rows for key, rows in memory.probed.items() if key[1] in used and not _is_shipped(plan, key)},
    )


def count(memory: SlotMemory, seen: SeenBatch, tasks: int) -> SlotMemory:
    """With how much was sent, probed and worked on, and how long that took."""
    routing, plan = seen.routing, seen.plan
    replication, shared, probed = dict(memory.replication), dict(memory.shared), dict(memory.probed)
    for stream, shipped in routing.shipped.items():
        copies = int(shipped.copies.sum())
        shares = tuple((shipped.copies / copies).tolist()) if copies else ()
        replication[stream] = Replication(shipped.rows, copies / max(1, shipped.rows), shares)
        shared[stream] = shipped.shared / max(1, shipped.rows)
    for key, rows in routing.probing.items():
        if not _is_shipped(plan, key):
            probed[key] = rows + (1 - SMOOTHING) * (probed.get(key, rows) - rows)
    memory = structs.replace(memory, replication=replication, shared=shared, probed=probed)
    if not routing.shipped:
        return memory
    lat_proc = routing.lat_proc(min(tasks, plan.slots))
    return structs.replace(
        memory,
        batch_seconds=_towards(memory.batch_seconds, seen.seconds),
        lat_proc=_towards(memory.lat_proc, lat_proc),
    )


def learn(memory: SlotMemory, shipped: Mapping[str, Shipped], groups: int) -> SlotMemory:
    """With what the rows that were sent have in common."""
    sharing, recent, purity = dict(memory.sharing), dict(memory.recent), dict(memory.purity)
    for stream, sent in shipped.items():
        if sent.samples:
            sample = gather(sent.samples)
            sharing[stream] = sharing.get(stream, Sharing(groups)).after(sample)
            recent[stream] = recent.get(stream, Sharing(groups)).after(sample, decay=RECENT)
        for pair, (together, looked_at) in sent.together.items():
            if looked_at:
                pure = together / looked_at
                purity[pair] = pure + (1 - SMOOTHING) * (purity.get(pair, pure) - pure)
    return structs.replace(memory, sharing=sharing, recent=recent, purity=purity)


def _towards(known: float, new: float) -> float:
    return known + SMOOTHING * (new - known)


def _is_shipped(plan: Plan, key: RouteKey) -> bool:
    stream = plan.streams.get(key[0])
    return stream is not None and any(plan.groupings[id_].route_key == key[1] for id_ in stream.shipped)
