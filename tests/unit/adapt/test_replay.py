"""Unit: the same batches lead to the same proposals: a random run is recorded, and replayed without the pipeline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.golden.cases.orders import CHAIN
from tests.golden.cases.partitioning import QUERIES
from tests.golden.cases.streams import SALES, joined
from tests.support.clocks import CountingClock

from thalweg.adapt import slot_count
from thalweg.adapt.contract import Decided, SeenBatch
from thalweg.adapt.loop import AdaptLoop
from thalweg.adapt.settings import AdaptSettings, JoinPlanning, Repartitioning
from thalweg.model.measurements import Measurements
from thalweg.testing import LocalSession

BATCHES = 20
TASKS = 2


class Recording:
    """What adaptations saw, and what they decided and kept."""

    def __init__(self, loop: AdaptLoop) -> None:
        self.seen: list[SeenBatch] = []
        self.decided: list[Decided] = []
        self.kept: list[Measurements] = []
        observe, commit = loop.observe, loop.commit

        def record(seen: SeenBatch) -> Any:
            learned = observe(seen)
            self.seen.append(seen)
            self.decided.append(seen.decided)
            self.kept.append(learned.measured)
            return learned

        def commit_and_wait(learned: Any) -> None:
            commit(learned)
            loop.wait()  # which batch an answer comes to is not the machine's to say

        loop.observe, loop.commit = record, commit_and_wait  # type: ignore[method-assign]


def random_rows(rng: np.random.Generator, batch: int) -> dict[str, pa.Table]:
    """Almost every row a group of its own; joins whose selectivities turn, and a key that is hot at times."""

    def times(count: int) -> pa.Array:
        return pa.array(np.sort(batch * 5_000_000 + rng.integers(0, 5_000_000, count))).cast(
            pa.timestamp("us", "UTC")
        )

    many, few = (300, 4) if batch // 6 % 2 else (4, 300)
    rows = {}
    for name in "abc":
        n = int(rng.integers(60, 200))
        x = np.where(rng.random(n) < 0.3, 0, rng.integers(0, many, n))
        rows[name] = pa.table(
            {"ts": times(n), "x": x, "y": rng.integers(0, few, n), "z": np.arange(n), "v": rng.integers(0, 9, n)}
        )
    n = int(rng.integers(6000, 9000))
    customer = rng.integers(0, 1_000_000, n)
    columns = {"customer": customer, "shop": customer % (5 + batch), "price": rng.random(n)}
    filling = {"item": pa.array(["i"] * n), "pieces": pa.array(np.zeros(n), pa.int32())}
    rows["sales"] = pa.table({"ts": times(n), **columns, **filling})
    return rows


def in_order(decided: Decided) -> tuple[object, ...]:
    """Without what partitioners have learned, of which this run has nothing."""
    assert not decided.policies
    return decided.batch, decided.slots, decided.measurements, decided.ordering, decided.placement


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "slots"), [(1, 4), (2, "auto")])
def test_recorded_batches_give_the_same_proposals(
    local: Callable[..., LocalSession], monkeypatch: pytest.MonkeyPatch, seed: int, slots: int | str
) -> None:
    monkeypatch.setattr(slot_count, "IDLE", 1e3)  # one slot has time for all of it
    monkeypatch.setattr(slot_count, "BUSY", 1e9)
    repartitioning, planning = Repartitioning(1.0), JoinPlanning(2)
    session = local(tasks=TASKS, slots=slots, repartition="1 second", join_epoch=2)
    runner = session._parts.runner
    runner.adaptations.clock = CountingClock(20.0)
    recorded = Recording(runner.adaptations)
    for text in (SALES, joined(3), QUERIES, CHAIN):
        session.sql(dedent(text).strip())
    rng = np.random.default_rng(seed)
    for batch in range(BATCHES):
        for name, rows in random_rows(rng, batch).items():
            session._parts.feeding.sources[name].append(rows)
        session.run_available()
    told: Any = session.progress()["adaptations"]
    assert {name: one["answer"] for name, one in told.items()} == {
        name: one.answer for name, one in runner.adaptations.explain(recorded.kept[-1]).items()
    }
    settings = AdaptSettings(TASKS, None if slots == "auto" else int(slots), repartitioning, planning)
    loop = AdaptLoop(settings, CountingClock(20.0))
    for seen, decided, kept in zip(recorded.seen, recorded.decided, recorded.kept, strict=True):
        again = loop.decide(seen.measured, seen.batch)
        assert in_order(again) == in_order(decided)
        learned = loop.observe(replace(seen, decided=again))
        assert learned.measured == kept
        loop.commit(learned)
        loop.wait()
    # The run has put all of them to use.
    last = recorded.kept[-1]
    said = loop.explain(last)
    assert any(kept.combining.shipped for kept in recorded.kept)
    assert any(kept.partitioners.dealing for kept in recorded.kept)
    assert last.probe_orders.ordering.switches > 0
    assert said["slot_assignment"].asked
    assert said["probe_orders"].asked
    assert len({one.slots for one in recorded.decided}) == (2 if slots == "auto" else 1)
