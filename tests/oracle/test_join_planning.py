"""Oracle: a join is ordered anew while it runs, and gives what batch Spark SQL gives."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.side import Side

import thalweg
from thalweg.model.manifest import Manifest
from thalweg.model.plan import Plan
from thalweg.model.probe_order import OrdersInForce
from thalweg.testing.compare import difference
from thalweg.testing.oracle import Feed

pytestmark = pytest.mark.slow

SECOND = 1_000_000
EPOCH = 2
FLIP = 3 * EPOCH
BATCHES = FLIP + 3 * EPOCH
MANY, FEW = 600, 24
"""Different values of a key: rows seldom find a partner, or find several."""
CHAIN = (
    "SELECT r.id AS i, s.id AS j, t.id AS k, u.id AS l FROM r JOIN s ON r.a = s.a WITHIN 2 SECONDS "
    "JOIN t ON s.b = t.b WITHIN 2 SECONDS JOIN u ON t.c = u.c WITHIN 2 SECONDS"
)
PART = "SELECT r.id AS i, t.id AS k FROM r JOIN s ON r.a = s.a WITHIN 1 SECOND JOIN t ON s.b = t.b WITHIN 2 SECONDS"


def feed(stream: str, seed: int) -> Feed:
    """Up to the flip r and s seldom match and s and t often; from then on it is the other way round."""
    rng = random.Random(seed)
    tables = []
    for batch in range(BATCHES):
        a, b = (MANY, FEW) if batch < FLIP else (FEW, MANY)
        columns: dict[str, pa.Array] = {"id": pa.array(range(batch * 60, batch * 60 + 60), pa.int64())}
        for name, values in (("a", a), ("b", b), ("c", 100)):
            columns[name] = pa.array([rng.randrange(values) for _ in range(60)], pa.int64())
        times = sorted(batch * SECOND + rng.randrange(SECOND) for _ in range(60))
        columns["ts"] = pa.array(times, pa.timestamp("us", "UTC"))
        tables.append(pa.table(columns))
    return Feed(stream, "ts", 10 * SECOND, tuple(tables))


def open_streams(session: thalweg.Session, feeds: list[Feed], inputs: Path) -> None:
    for one in feeds:
        (inputs / one.stream).mkdir(parents=True)
        for number, table in enumerate(one.batches):
            pq.write_table(table, inputs / one.stream / f"{number:04d}.parquet")
        source = thalweg.files(f"{inputs / one.stream}/*.parquet", max_files_per_batch=1)
        session.create_stream(one.stream, source, time="ts", watermark="10 seconds")


def watch(session: thalweg.Session, see: Callable[[Plan, Manifest], None]) -> None:
    """After every batch: waits until the optimiser has answered, so that the test does not depend on the clock."""
    runner: Any = session._parts.runner
    commit = runner.adaptations.commit

    def commit_and_wait(learned: Any) -> None:
        commit(learned)
        runner.adaptations.wait()
        see(runner.plan, runner.manifest)

    runner.adaptations.commit = commit_and_wait


def test_a_flip_of_selectivities_turns_the_order_within_two_epochs(
    side: Side, state_dir: Path, tmp_path: Path
) -> None:
    feeds = [feed(stream, place) for place, stream in enumerate("rstu")]
    first_of_s: list[str] = []
    orderings: list[OrdersInForce] = []
    with side.connect(state_dir, join_epoch=EPOCH) as session:
        open_streams(session, feeds, tmp_path / "inputs")
        queries = {name: session.create_query(name, text) for name, text in (("chain", CHAIN), ("part", PART))}

        def see(plan: Plan, manifest: Manifest) -> None:
            (whole,) = (join for id_, join in plan.joins.ordered.items() if id_.startswith("chain"))
            first_of_s.append(whole.orders["s"][0][0])
            orderings.append(manifest.measured.probe_orders.ordering)

        watch(session, see)
        session.run_available()
        explained, picture = session.explain(), session.sql("EXPLAIN MERMAID chain")
        for name, text in (("chain", CHAIN), ("part", PART)):
            assert queries[name].results().num_rows > 100
            assert not difference(queries[name].results(), side.expected_of_joins(feeds, text)), name
    assert set(first_of_s[2 * EPOCH : FLIP]) == {"r"}, first_of_s
    assert set(first_of_s[FLIP + 2 * EPOCH : BATCHES]) == {"t"}, first_of_s
    assert "each query planned by itself" in explained
    assert "join orders were planned after batch" in explained
    assert picture.startswith("flowchart LR")
    turned = orderings[FLIP + 2 * EPOCH]
    assert turned.switched == FLIP + 2 * EPOCH
    assert any(change.startswith("chain: rows of s look into t") for change in turned.changes), turned.changes
