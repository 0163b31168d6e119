"""Property: whatever the queries, the data and the sharing, results equal batch Spark SQL over the same rows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.randomly import RandomQuery, Shape, random_feed, random_queries
from tests.support.side import Side

import thalweg
from thalweg.testing.compare import difference
from thalweg.testing.oracle import Feed

pytestmark = pytest.mark.slow

SEEDS = [int(s) for s in os.environ.get("THALWEG_SEEDS", "1,2,3").split(",")]


def run(state_dir: Path, side: Side, feed: Feed, queries: tuple[RandomQuery, ...]) -> dict[str, object]:
    """One session over the whole feed, a batch for every table."""
    with side.connect(state_dir) as session:
        source = thalweg.memory(feed.schema, max_files_per_batch=1)
        session.create_stream(feed.stream, source, time=feed.time, watermark=f"{feed.delay_us} microseconds")
        handles = {q.name: session.create_query(q.name, q.select) for q in queries}
        for table in feed.batches:
            source.append(table)
        session.run_available()
        assert {n: h.status["error"] for n, h in handles.items() if h.status["state"] != "idle"} == {}
        return {name: handle.results() for name, handle in handles.items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_results_equal_batch_spark(side: Side, state_dir: Path, seed: int) -> None:
    feed = random_feed(seed, Shape())
    queries = random_queries(seed, feed, 12)
    results = run(state_dir, side, feed, queries)
    wrong = {}
    for query in queries:
        message = difference(results[query.name], side.expected(feed, query.select), approximate=query.approximate)
        if message:
            wrong[query.select] = message
    assert not wrong, "\n\n".join(f"{select}\n{message}" for select, message in wrong.items())
