"""Property: rows that are the state of their groupings, against one grouping over all rows, and against partials.

A stream goes over from partials to rows and back in any batch, while windows are open that have some of both.
"""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from tests.property import test_data_path as data_path
from tests.property.test_data_path import (
    STREAM,
    WINDOWS,
    History,
    assert_same,
    expected_rows,
    query,
    random_aggregates,
    random_assignment,
    random_batch,
)
from tests.support.local_pipeline import LocalPipeline

from thalweg.model.partitioning import Partitioning
from thalweg.model.plan_input import GroupingLoad
from thalweg.model.query import Query
from thalweg.optimize import keep_rows

pytestmark = pytest.mark.slow

KEPT, MADE = 0.5, 0.001
"""Groups per row, of which the tests say that rows are kept, or that groupings are made of them at once."""


@pytest.fixture(autouse=True)
def _as_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep_rows, "MOST_OVERLAP", 1000)
    monkeypatch.setattr(keep_rows, "UNMEASURED", 0.0)
    for name in ("WORTH", "STILL_WORTH"):
        monkeypatch.setattr(keep_rows, name, 0.03)


def decide(rng: random.Random, pipeline: LocalPipeline, kept: bool) -> None:
    """Rows or partials; and another number of slots, and other key groups in them."""
    if rng.random() < 0.5:
        pipeline.batches.adaptations.change("slot_count", slots=rng.choice([1, 2, 3]))
    groupings = sorted(pipeline.preview({}).groupings)
    loads = {id_: GroupingLoad(KEPT if kept else MADE) for id_ in groupings}
    plan = pipeline.preview(loads)
    pipeline.decide(loads=loads, partitioning=Partitioning(random_assignment(rng, plan), {}, plan.slots))


def random_query(rng: random.Random, name: str) -> Query:
    keys = rng.choice([(), ("a",), ("a", "b"), ("a", "v")])
    return query(name, keys, rng.choice(WINDOWS), rng.choice([None, 20, 50, 45]), random_aggregates(rng))


@pytest.mark.parametrize("seed", range(12))
def test_windows_of_rows_and_partials_equal_one_grouping_over_all_rows(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    queries = [random_query(rng, f"q{i}") for i in range(rng.choice([1, 2, 3, 5]))]
    history, changes = History(), rng.choice([0.0, 0.3, 0.6])
    kept, times = True, 0
    with closing(LocalPipeline(tmp_path, [STREAM], queries, tasks=rng.choice([1, 2, 3]), groups=16)) as pipeline:
        for number in range(data_path.BATCHES):
            batch = random_batch(rng, number, seed % 2 == 0, rng.choice([4, 8, 12]))
            kept = kept != (rng.random() < changes)
            if rng.random() < 0.1:
                pipeline.reopen()
            decide(rng, pipeline, kept)
            history.run(pipeline, batch.slice(0, None if number < data_path.BATCHES - 1 else 0), rng.randint(1, 4))
            assert pipeline.plan.streams["s"].keeps_rows == kept
            times += kept
        assert times
        assert not pipeline.failures()
        for q in queries:
            assert_same(q, pipeline.rows(q.name), expected_rows(q, history.batches, history.marks))


@pytest.mark.parametrize("seed", range(100, 108))
def test_queries_that_come_and_go_see_of_rows_what_they_see_of_partials(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    first = [random_query(rng, f"q{i}") for i in range(2)]
    twins = [
        LocalPipeline(tmp_path / name, [STREAM], first, tasks=2, groups=16) for name in ("rows", "partials", "both")
    ]
    for number in range(14):
        batch, coming = random_batch(rng, number, nulls=seed % 2 == 0), random_query(rng, f"q{number + 2}")
        goes = rng.choice(sorted(twins[0].queries)) if rng.random() < 0.3 and len(twins[0].queries) > 1 else None
        comes, flip = rng.random() < 0.5, rng.random() < 0.5
        for twin, kept in zip(twins, (True, False, flip), strict=True):
            if goes is not None:
                twin.drop(goes)
            if comes:
                twin.create(coming)
            decide(random.Random(number), twin, kept)
            twin.append("s", batch, 2)
            assert twin.run()
    assert twins[0].plan.streams["s"].keeps_rows
    assert not twins[1].plan.streams["s"].keeps_rows
    for name, q in twins[0].known.items():
        wanted = twins[1].rows(name)
        for twin in (twins[0], twins[2]):
            assert_same(q, twin.rows(name), wanted)
    for twin in twins:
        assert not twin.failures()
        twin.close()


def test_rows_are_kept_once_for_all_groupings(tmp_path: Path) -> None:
    rng = random.Random(5)
    queries = [
        query(f"q{i}", keys, WINDOWS[0], None, data_path.SIMPLE) for i, keys in enumerate([("a",), ("a", "v")])
    ]
    with closing(LocalPipeline(tmp_path, [STREAM], queries, tasks=2, groups=16)) as pipeline:
        decide(rng, pipeline, kept=True)
        pipeline.append("s", random_batch(rng, 0, nulls=False))
        pipeline.append("s", pa.concat_tables([random_batch(rng, 0, nulls=False) for _ in range(3)]))
        pipeline.run()
        assert {bucket.relation for bucket in pipeline.manifest.buckets} == {"rows of s"}
