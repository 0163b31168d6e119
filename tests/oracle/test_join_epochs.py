"""Oracle: joins that are ordered anew, epoch after epoch, while queries come and go, give what batch Spark gives."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.support.join_oracle import bag_difference
from tests.support.join_turning import Turning, turning_feeds, turning_queries
from tests.support.side import Side
from tests.support.unsettled import random_ordering

import thalweg
from thalweg.model.plan import Plan
from thalweg.model.probe_order import OrdersInForce
from thalweg.testing.compare import difference
from thalweg.testing.oracle import Feed

pytestmark = pytest.mark.slow

SEEDS = [int(s) for s in os.environ.get("THALWEG_SEEDS", "1").split(",")]
EPOCH = 2


@dataclass
class Life:
    """A query and the batches of its life."""

    select: str
    handle: thalweg.QueryHandle
    since: int
    until: int | None = None
    complete_from: datetime | None = None


@dataclass
class Seen:
    """What became of the orders."""

    switches: int = 0
    kept: list[frozenset[str]] = field(default_factory=list)
    """The intermediates of every batch."""
    used: set[str] = field(default_factory=set)
    """Those that rows have looked into."""
    attached: int = 0
    """Queries that were given an order beside others in their first batch."""

    def take_in(self, plan: Plan, ordering: OrdersInForce, first: set[str]) -> None:
        self.switches = ordering.switches
        self.kept.append(frozenset(plan.joins.intermediates))
        trees = [tree for cohort in plan.joins.cohorts.values() for tree in cohort.trees]
        self.used |= {node.relation for tree in trees for node in tree.nodes() if node.relation.startswith("+")}
        self.attached += sum(plan.joins.ordered[id_].decided for id_ in first & plan.joins.ordered.keys())

    @property
    def begun(self) -> set[str]:
        """The intermediates that came to be while others ran."""
        return set().union(*self.kept) - self.kept[0]


class Company:
    """Queries that come and go after every batch of one run."""

    def __init__(self, session: thalweg.Session, seed: int, batches: int) -> None:
        self.session: Any = session
        self.rng = random.Random(f"company {seed}")
        self.selects: Iterator[str] = turning_queries(seed)
        self.batches = batches
        self.lives: list[Life] = []
        self.seen = Seen()
        self.each: Callable[[Plan], None] = lambda plan: None
        after_batch = self.session._parts.pipeline.after_batch

        def and_change() -> None:
            after_batch()
            self.after_batch()

        self.session._parts.pipeline.after_batch = and_change

    @property
    def running(self) -> list[Life]:
        return [life for life in self.lives if life.until is None]

    def create(self, since: int, select: str | None = None) -> None:
        name = f"q{len(self.lives)}"
        select = select or next(self.selects)
        self.lives.append(Life(select, self.session.create_query(name, select), since))

    def after_batch(self) -> None:
        runner = self.session._parts.runner
        # Until the optimiser has answered: nothing here depends on the clock.
        runner.adaptations.wait()
        batch, plan = runner.manifest.batch, runner.plan
        first = [life for life in self.running if life.since == batch]
        for life in first:
            life.complete_from = life.handle.status["complete_from"]
        ordering = runner.manifest.measured.probe_orders.ordering
        self.seen.take_in(plan, ordering, {life.handle.id for life in first if batch})
        self.each(plan)
        if batch + 1 < self.batches:
            self._change(batch + 1)

    def _change(self, batch: int) -> None:
        """At the end of an epoch one comes and one goes; in between some do."""
        ended = batch % EPOCH == 0
        if (ended or self.rng.random() < 0.3) and len(self.running) > 3:
            # The oldest often: an intermediate is named after it.
            gone = self.running[0] if self.rng.random() < 0.2 else self.rng.choice(self.running)
            gone.handle.drop()
            gone.until = batch
            if self.rng.random() < 0.3:
                self.create(batch, gone.select)  # back at once: a query of its own
        if ended or self.rng.random() < 0.3:
            self.create(batch)

    def check(self, side: Side, feeds: list[Feed]) -> None:
        """Every query has given all that it must and nothing that it may not, whenever it lived."""
        wrong, rows = [], 0
        for life in self.lives:
            assert life.handle.status["state"] == ("idle" if life.until is None else "dropped"), life.handle.status
            results = life.handle.results()
            rows += results.num_rows
            before = side.emissions(feeds, life.select).before(life.until)
            if life.since == 0:
                problem = difference(results, before.through())
            else:
                problem = bag_difference(results, *before.of_later(life.since, life.complete_from))
            if problem:
                lived = f"batches {life.since} to {life.until}, complete from {life.complete_from}"
                wrong.append(f"{life.handle.name}: {life.select}\n{lived}\n{problem}")
        assert not wrong, "\n\n".join(wrong)
        assert rows > 500


def gather(
    session: thalweg.Session, seed: int, turning: Turning, inputs: Path, *, begin: int = 4
) -> tuple[Company, list[Feed]]:
    """Streams and the first queries; what is created after a batch takes part in the next."""
    feeds = turning_feeds(seed, turning)
    for feed in feeds:
        (inputs / feed.stream).mkdir(parents=True)
        for number, table in enumerate(feed.batches):
            pq.write_table(table, inputs / feed.stream / f"{number:04d}.parquet")
        source = thalweg.files(f"{inputs / feed.stream}/*.parquet", max_files_per_batch=1)
        session.create_stream(feed.stream, source, time=feed.time, watermark=f"{feed.delay_us} microseconds")
        # So that every stream is read from the first batch on.
        session.create_query(f"read_{feed.stream}", f"SELECT id FROM {feed.stream} WHERE id < 0")
    company = Company(session, seed, turning.batches)
    for _ in range(begin):
        company.create(0)
    return company, feeds


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_orders_follow_what_is_measured(side: Side, state_dir: Path, tmp_path: Path, seed: int) -> None:
    turning = Turning()
    with side.connect(state_dir, join_epoch=EPOCH) as session:
        company, feeds = gather(session, seed, turning, tmp_path / "inputs")
        session.run_available()
        company.check(side, feeds)
    seen = company.seen
    assert len(seen.kept) == turning.batches + 1
    assert seen.switches > 0
    assert seen.begun
    assert seen.used & seen.begun
    assert seen.attached > 0


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [seed + 100 for seed in SEEDS])
def test_orders_follow_nothing(side: Side, state_dir: Path, tmp_path: Path, seed: int) -> None:
    """At random at every batch boundary, intermediates included."""
    turning = Turning(batches=10)
    with side.connect(state_dir, join_epoch=EPOCH, slots=3) as session:
        company, feeds = gather(session, seed, turning, tmp_path / "inputs")
        adaptations: Any = session._parts.runner.adaptations
        rng = random.Random(seed)
        company.each = lambda plan: adaptations.change(
            "probe_orders", coming=((0, random_ordering(rng, plan.joins.ordered)),)
        )
        session.run_available()
        company.check(side, feeds)
    assert company.seen.used & company.seen.begun
