"""The program that tests of join planning end: fixed joins over streams that turn, planned as they run.

MOMENT is the batch in which the program ends: the next one that is a `switch` of orders, or the next in which rows
`look` into an intermediate for the first time. PHASE is the fault point in that batch. What every batch ran with is
written to OUT_DIR/history.jsonl.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from tests.support.join_turning import Turning, turning_feeds

import thalweg
from thalweg.model.plan import Plan
from thalweg.testing.oracle import Feed

TURNING = Turning(batches=26, stretch=4, rows=30)
_PART = "FROM r JOIN s ON r.a = s.a WITHIN 1 SECOND JOIN t ON s.b = t.b WITHIN 1 SECOND"
JOINS = {
    "chain": f"SELECT r.id AS i, s.id AS j, t.id AS k, u.id AS l {_PART} JOIN u ON t.c = u.c WITHIN 1 SECOND",
    "part": f"SELECT r.id AS i, t.id AS k {_PART} WHERE r.x > -20",
    "cycle": f"SELECT r.id AS i, s.id AS j, t.id AS k {_PART} WHERE r.d = t.d",
    "other": "SELECT s.id AS i, u.id AS j, v.id AS k FROM s JOIN u ON s.a = u.a WITHIN 1 SECOND "
    "JOIN v ON u.d = v.d WITHIN 500 MILLISECONDS",
}


def feeds(seed: int) -> list[Feed]:
    return turning_feeds(seed, TURNING)


def looked_into(plan: Plan) -> list[str]:
    """The intermediates that some probe finds rows in."""
    trees = [tree for cohort in plan.joins.cohorts.values() for tree in cohort.trees]
    return sorted({node.relation for tree in trees for node in tree.nodes() if node.relation.startswith("+")})


class Watch:
    """Notes every batch, and ends the program in the one that was asked for."""

    def __init__(
        self, session: thalweg.Session, history: Path, moment: str, phase: str, arm: Callable[[str], None]
    ) -> None:
        self.session: Any = session
        self.history = history
        self.moment, self.phase, self.arm = moment, phase, arm
        self.ready = self._ready()
        after_batch = self.session._parts.pipeline.after_batch

        def and_watch() -> None:
            after_batch()
            self.after_batch()

        self.session._parts.pipeline.after_batch = and_watch

    def after_batch(self) -> None:
        runner = self.session._parts.runner
        if runner.plan is None:
            return  # the batch had happened before this life
        # Until the optimiser has answered: which batch is which does not depend on the clock.
        runner.adaptations.wait()
        manifest = runner.manifest
        ordering = manifest.measured.probe_orders.ordering
        self.note(
            batch=manifest.batch,
            switched=ordering.switched,
            switches=ordering.switches,
            orders=ordering.orders,
            looks=looked_into(runner.plan),
        )
        ready, self.ready = self.ready, self._ready()
        next_is = {"switch": self._switches(), "look": bool(self.ready - ready)}
        if next_is.get(self.moment):
            self.note(ends=self.phase, batch=manifest.batch + 1)
            self.arm(self.phase)

    def _switches(self) -> bool:
        """Whether another order that was proposed is due in the next batch."""
        runner = self.session._parts.runner
        memory = runner.adaptations.memories(runner.manifest.measured)["probe_orders"]
        epoch = memory.joins.statistics.epoch
        return any(since <= epoch and proposed.changes for since, proposed in memory.coming)

    def _ready(self) -> set[tuple[str, str]]:
        ready = self.session._parts.runner.manifest.measured.probe_orders.joins.ready
        return {(id_, query) for id_, queries in ready.items() for query in queries}

    def note(self, **what: Any) -> None:
        with self.history.open("a") as file:
            file.write(json.dumps(what) + "\n")
            file.flush()
            os.fsync(file.fileno())


def run(
    session: thalweg.Session, out_dir: Path, seed: int, moment: str, phase: str, arm: Callable[[str], None]
) -> None:
    """`arm` is called with the phase in which the next batch is to end."""
    state_dir = session.state_dir
    out_dir.mkdir(exist_ok=True)
    for feed in feeds(seed):
        inputs = state_dir.parent / f"input-{feed.stream}"
        inputs.mkdir(exist_ok=True)
        for number, table in enumerate(feed.batches):
            path = inputs / f"{number:04d}.parquet"
            if not path.exists():
                pq.write_table(table, path.with_name(f".{path.name}"))
                path.with_name(f".{path.name}").rename(path)
        source = thalweg.files(f"{inputs}/*.parquet", max_files_per_batch=1)
        session.create_stream(feed.stream, source, time=feed.time, watermark=f"{feed.delay_us} microseconds")
    handles = {name: session.create_query(name, select) for name, select in JOINS.items()}
    copy = thalweg.to_files(out_dir / "copy")
    session.create_query("copy", JOINS["chain"], copy)
    Watch(session, out_dir / "history.jsonl", moment, phase, arm)
    session.run_available()
    for name, handle in handles.items():
        pq.write_table(handle.results(), out_dir / f"{name}.parquet")
