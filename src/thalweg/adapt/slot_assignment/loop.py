"""Live re-partitioning: measures what is shipped, asks the optimiser beside the pipeline, proposes partitionings.

SASPAR stops a part of the running plan with markers, recompiles its operators and sends rows of open windows round
again. Here a batch boundary is the point of synchronisation, and state is read by ranges of key groups, so a switch
is one entry in the next batch's decisions. Everything in here may be lost in a crash: what was decided is in the
manifest, what was measured will be measured again.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from thalweg.adapt.routing_totals import Floats, RoutingTotals, Shipped
from thalweg.adapt.slot_assignment.drift import drift
from thalweg.adapt.slot_assignment.forest import Forest, can_grow, fill, train
from thalweg.adapt.slot_assignment.judge import Situation, Verdict, decide
from thalweg.adapt.slot_assignment.sharing import Shares, Sharing, gather
from thalweg.foreign import said_by
from thalweg.model.manifest import Manifest
from thalweg.model.measurements import Moves
from thalweg.model.partitioning import Partitioning, PartitioningReport, Replication
from thalweg.model.plan import Plan, route_key, route_keys
from thalweg.observe import log
from thalweg.optimize.deadline import SECONDS, Clock
from thalweg.optimize.slot_assignment import RouteKey
from thalweg.route.bucket import decode_offsets
from thalweg.route.table import routing_table

ENOUGH = 4096
"""Sampled rows of a stream before the optimiser looks at it."""
RECENT = 0.5
"""What a batch still counts in the recent statistics after the next one."""
SMOOTHING = 0.2
"""The weight of the newest batch in what is measured."""


@dataclass(frozen=True)
class Repartitioning:
    """When the optimiser is asked, and how long it may take."""

    interval_seconds: float = 240.0
    """SASPAR's best of a sweep from 1 to 16 minutes (Fig. 11)."""
    drift: float = 0.1
    """The share of rows that have moved between cells since the last optimisation, which asks for another one."""
    budget_seconds: float = 2.0
    """Of one optimisation, beside the batches: half of SASPAR's, which had cores to spare."""
    least_seconds: float = 10.0
    """Between two optimisations, whatever happens."""

    @property
    def pause_seconds(self) -> float:
        return min(self.least_seconds, self.interval_seconds)


class Repartitioner:
    """Keeps the statistics, runs the optimiser in a thread of its own, and holds what it proposes."""

    def __init__(self, settings: Repartitioning | None, tasks: int, clock: Clock = SECONDS) -> None:
        self.settings = settings
        self.clock = clock
        self.tasks = tasks
        self.replication: dict[str, Replication] = {}
        self.verdict: Verdict | None = None
        self.asked = ""
        """When and why the optimiser was asked the last time."""
        self.forests: dict[str, Forest] = {}
        """Of streams with more pairs of route keys than are counted."""
        self._asked = 0
        self._shared: dict[str, float] = {}
        """stream -> the share of its rows that several route keys need."""
        self._sharing: dict[str, Sharing] = {}
        self._recent: dict[str, Sharing] = {}
        """The same of the last few batches: what has drifted shows here first."""
        self._purity: dict[tuple[str, str], float] = {}
        self._probed: dict[RouteKey, Floats] = {}
        self._lat_proc = 1.0
        self._batch_seconds = 1.0
        self._fitted: dict[str, Shares] = {}
        self._known: set[RouteKey] = set()
        self._proposed: Partitioning | None = None
        self._thread: threading.Thread | None = None
        self._last = float("-inf")
        self._looked = float("-inf")
        """When drift was last worked out: with many route keys that takes a moment."""
        self._lock = threading.Lock()

    # -- what the batch loop calls

    def take_in(self, plan: Plan, manifest: Manifest, routing: RoutingTotals, seconds: float) -> None:
        """What a batch measured. The batch has happened: nothing that goes wrong here may end the pipeline."""
        try:
            self.observe(plan, manifest, routing, seconds)
        except Exception as error:
            log.warning("adapt", "measuring_failed", of="slot_assignment", batch=manifest.batch, error=error)
            self.verdict = Verdict(None, f"measuring failed: {said_by(error)}")

    def observe(self, plan: Plan, manifest: Manifest, routing: RoutingTotals, seconds: float) -> None:
        """Takes in what a batch measured, and asks the optimiser where that is due."""
        self._forget(plan)
        for stream, shipped in routing.shipped.items():
            self._learn(stream, shipped, plan.groups)
        for key, rows in routing.probing.items():
            if not _is_shipped(plan, key):
                self._probed[key] = rows + (1 - SMOOTHING) * (self._probed.get(key, rows) - rows)
        if routing.shipped:
            self._batch_seconds += SMOOTHING * (seconds - self._batch_seconds)
            self._lat_proc += SMOOTHING * (routing.lat_proc(min(self.tasks, plan.slots)) - self._lat_proc)
        why = self._due(plan)
        if why:
            self._ask(plan, manifest, why)

    def take(self) -> Partitioning | None:
        """What was proposed since the last call, for the batch that is about to begin."""
        with self._lock:
            proposed, self._proposed = self._proposed, None
            return proposed

    def propose(self, partitioning: Partitioning) -> None:
        """Puts a partitioning into force at the next batch boundary."""
        with self._lock:
            self._proposed = partitioning

    def wait(self, seconds: float | None = None) -> None:
        """Until the optimiser has answered, if it was asked."""
        thread = self._thread
        if thread is not None:
            thread.join(seconds)

    def report(self, manifest: Manifest) -> PartitioningReport:
        """For EXPLAIN and progress."""
        verdict, streams = self.verdict, {}
        for name, seen in self.replication.items():
            judged = verdict.streams.get(name) if verdict is not None else None
            if judged is not None:
                shared = self._shared.get(name, 1.0)  # the others are needed, and shipped, once
                hashed, bound = (1 + shared * (copies - 1) for copies in (judged.hashed, judged.bound))
                seen = replace(seen, hashed=hashed, bound=bound)
            streams[name] = seen
        answer = ""
        if verdict is not None:
            what = "left as it is" if verdict.partitioning is None else "a better one was found"
            answer = f"{what}: {verdict.reason}" + (f" ({verdict.method})" if verdict.method else "")
        for name, forest in sorted(self.forests.items()):
            used = "used" if forest.usable else "not used"
            answer += f"; pairs of {name} that are not counted: the forest is {used} (error {forest.error:.0%})"
        moves = manifest.measured.slot_assignment.moves
        return PartitioningReport(streams, self.asked, answer, moves.switches, moves.batch, moves.groups)

    # -- statistics

    def _forget(self, plan: Plan) -> None:
        """What is no longer shipped or probed."""
        streams = {name for name, stream in plan.streams.items() if stream.shipped}
        self._sharing = {name: sharing for name, sharing in self._sharing.items() if name in streams}
        self._recent = {name: sharing for name, sharing in self._recent.items() if name in streams}
        self.forests = {name: forest for name, forest in self.forests.items() if name in streams}
        self.replication = {name: seen for name, seen in self.replication.items() if name in streams}
        used = route_keys(plan)
        self._purity = {pair: pure for pair, pure in self._purity.items() if used.issuperset(pair)}
        self._probed = {
            key: rows for key, rows in self._probed.items() if key[1] in used and not _is_shipped(plan, key)
        }

    def _learn(self, stream: str, shipped: Shipped, groups: int) -> None:
        copies = int(shipped.copies.sum())
        shares = tuple((shipped.copies / copies).tolist()) if copies else ()
        seen = Replication(shipped.rows, copies / max(1, shipped.rows), shares)
        self.replication = {**self.replication, stream: seen}  # others read it at any time
        self._shared[stream] = shipped.shared / max(1, shipped.rows)
        if self.settings is None:
            return
        if shipped.samples:
            sample = gather(shipped.samples)
            self._sharing[stream] = self._sharing.get(stream, Sharing(groups)).after(sample)
            self._recent[stream] = self._recent.get(stream, Sharing(groups)).after(sample, decay=RECENT)
        for pair, (together, looked_at) in shipped.together.items():
            if looked_at:
                pure = together / looked_at
                self._purity[pair] = pure + (1 - SMOOTHING) * (self._purity.get(pair, pure) - pure)

    # -- when, and with what

    def _due(self, plan: Plan) -> str:
        """Why the optimiser should be asked now; empty where it should not."""
        settings = self.settings
        if settings is None or plan.slots < 2 or (self._thread is not None and self._thread.is_alive()):
            return ""
        keys = self._route_keys()
        passed = self.clock.now() - self._last
        if not keys or passed < settings.pause_seconds:
            return ""
        if keys != self._known:
            self.verdict = None
            return "route keys have come or gone"
        drifted = self._drifted(settings)
        if drifted:
            return drifted
        return f"{settings.interval_seconds:g} s have passed" if passed >= settings.interval_seconds else ""

    def _drifted(self, settings: Repartitioning) -> str:
        """Which streams are no longer what the partitioning was made for, and how much."""
        if self.clock.now() - self._looked < settings.pause_seconds:
            return ""
        self._looked = self.clock.now()
        known = [stream for stream in self._fitted if stream in self._recent]
        moved = {stream: drift(self._fitted[stream], self._recent[stream].fitting()) for stream in known}
        drifted = {stream: share for stream, share in moved.items() if share >= settings.drift}
        for stream in drifted:
            if self._recent[stream].sampled >= ENOUGH:
                self._sharing[stream] = self._recent[stream]  # what was before is no guide any more
        return ", ".join(f"{share:.0%} of the rows of {stream} have drifted" for stream, share in drifted.items())

    def _ready(self) -> dict[str, Sharing]:
        """Streams of which enough is known. A single route key has no pairs to be known."""
        return {name: s for name, s in self._sharing.items() if s.sampled >= ENOUGH or len(s.keys) == 1}

    def _route_keys(self) -> set[RouteKey]:
        return {(stream, key) for stream, s in self._ready().items() for key in s.keys} | set(self._probed)

    def _ask(self, plan: Plan, manifest: Manifest, why: str) -> None:
        self._last = self.clock.now()
        self._known = self._route_keys()
        self.asked = f"after batch {manifest.batch}, because {why}"
        arguments = (plan, manifest, self._ready(), dict(self._purity), dict(self._probed), self.clock.fork())
        # Not a daemon: a process that ends waits a moment for it, instead of tearing the solver down in mid-run.
        self._thread = threading.Thread(target=self._run, args=arguments, name="thalweg-partitioning")
        self._thread.start()

    # -- beside the batches

    def _run(
        self,
        plan: Plan,
        manifest: Manifest,
        ready: Mapping[str, Sharing],
        purity: Mapping[tuple[str, str], float],
        probed: Mapping[RouteKey, Floats],
        clock: Clock,
    ) -> None:
        assert self.settings is not None
        yield_to_batches()
        try:
            self._fitted = {name: sharing.fitting() for name, sharing in ready.items()}
            situation = Situation(
                slots=plan.slots,
                fitting=self._filled_in(),
                held_out={name: sharing.held_out() for name, sharing in ready.items()},
                current=Partitioning(plan.assignment, plan.follows, plan.slots),
                lat_proc=self._lat_proc,
                purity=purity,
                bound=frozenset(plan.groupings[m.main.grouping].route_key for m in plan.members if m.updates),
                probed=probed,
                equal=sorted(set(_joined_keys(plan))),
                held=_held_rows(plan, manifest),
                horizon=max(10.0, self.settings.interval_seconds / max(self._batch_seconds, 0.01)),
            )
            verdict = decide(situation, budget_seconds=self.settings.budget_seconds, clock=clock)
        except Exception as error:  # the pipeline goes on with the partitioning it has
            log.warning("adapt", "optimiser_failed", of="slot_assignment", error=error)
            verdict = Verdict(None, f"the optimiser failed: {said_by(error)}")
        self.verdict = verdict
        if verdict.partitioning is not None:
            self.propose(verdict.partitioning)

    def _filled_in(self) -> dict[str, Shares]:
        """With many route keys not all pairs are counted: the forest tells the others while it is good enough."""
        filled = dict(self._fitted)
        for stream, shares in self._fitted.items():
            n = len(shares.counts)
            if len(shares.joint) < n * (n - 1) // 2:
                if not self._asked and not can_grow():
                    log.warning("adapt", "no_forest", stream=stream, install="pip install 'thalweg[forest]'")
                self._asked += 1
                forest = train(shares, self._asked, self.forests.get(stream))
                self.forests = {**self.forests, stream: forest}
                filled[stream] = fill(shares, forest)
        return filled


def _is_shipped(plan: Plan, key: RouteKey) -> bool:
    stream = plan.streams.get(key[0])
    return stream is not None and any(plan.groupings[id_].route_key == key[1] for id_ in stream.shipped)


def _joined_keys(plan: Plan) -> Iterator[tuple[RouteKey, RouteKey]]:
    """The two sides of every first probe: SASPAR assigns them alike (Eq. 3)."""
    for group in plan.joins.groups.values():
        for tree in group.trees:
            for child in tree.children:
                own = plan.joins.stores[tree.stream].index(child.own)
                other = plan.joins.stores[child.stream].index(child.index)
                sides = (
                    (tree.stream, route_key(tree.stream, own.keys)),
                    (child.stream, route_key(child.stream, other.keys)),
                )
                if sides[0] != sides[1]:
                    yield (sides[0], sides[1]) if sides[0] < sides[1] else (sides[1], sides[0])


def _held_rows(plan: Plan, manifest: Manifest) -> dict[str, Floats]:
    """Rows in the state by route key and key group."""
    held: dict[str, Floats] = {}
    for bucket in manifest.buckets:
        grouping = plan.groupings.get(bucket.relation)
        if grouping is not None:
            rows = np.diff(decode_offsets(bucket.offsets)).astype(np.float64)
            held[grouping.route_key] = held.get(grouping.route_key, 0.0) + rows
    return held


def yield_to_batches() -> None:
    """On Linux a thread has a priority of its own: batches go first."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def next_moves(before: Manifest, plan: Plan) -> Moves:
    """The last switch: in which batch, and how many key groups it moved; and how many switches there have been."""
    decided = before.measured.slot_assignment
    if decided.slots != plan.slots:
        return decided.moves
    old, follows = decided.assignment, decided.follows
    used = route_keys(plan)
    moved = 0
    for name in sorted({*old, *plan.assignment} & used):
        then = np.array(old[name]) if name in old else routing_table(plan, "").owners
        moved += int(np.count_nonzero(routing_table(plan, name).owners != then))
    still = {key: leader for key, leader in follows.items() if key in used and leader in used}
    if not moved and still == plan.follows:
        return decided.moves
    return Moves(before.batch + 1, moved, decided.moves.switches + 1)
