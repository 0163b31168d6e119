"""Property: whatever joins run together, over whatever rows, they give what batch Spark SQL gives, when it is due."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.join_randomly import Crowd, World, random_world
from tests.support.side import Side

import thalweg
from thalweg.source.memory import Memory
from thalweg.testing.compare import difference

pytestmark = pytest.mark.slow

SEEDS = [int(s) for s in os.environ.get("THALWEG_SEEDS", "1,2,3").split(",")]
Results = dict[str, pa.Table]


def open_streams(session: thalweg.Session, world: World) -> dict[str, Memory]:
    sources = {}
    for feed in world.feeds:
        sources[feed.stream] = thalweg.memory(feed.schema, max_files_per_batch=1)
        delay = f"{feed.delay_us} microseconds"
        session.create_stream(feed.stream, sources[feed.stream], time=feed.time, watermark=delay)
    return sources


def create(session: thalweg.Session, world: World) -> dict[str, thalweg.QueryHandle]:
    return {query.name: session.create_query(query.name, query.select) for query in world.queries}


def read(handles: dict[str, thalweg.QueryHandle]) -> Results:
    failed = {name: handle.status["error"] for name, handle in handles.items() if handle.status["state"] == "failed"}
    assert failed == {}
    return {name: handle.results() for name, handle in handles.items()}


def run_whole(session: thalweg.Session, world: World) -> Results:
    """All rows are there before the first batch; a batch for every table of the feeds."""
    sources, handles = open_streams(session, world), create(session, world)
    # A stream that no query reads is not fed: it has no part in the batches.
    for feed in world.feeds:
        for table in feed.batches:
            sources[feed.stream].append(table)
    session.run_available()
    return read(handles)


def run_step_by_step(session: thalweg.Session, world: World) -> Iterator[Results]:
    """What there is after every table: a batch that brings it and one that closes what it lets close."""
    sources, handles = open_streams(session, world), create(session, world)
    for tables in zip(*(feed.batches for feed in world.feeds), strict=True):
        for feed, table in zip(world.feeds, tables, strict=True):
            sources[feed.stream].append(table)
        session.run_available()
        yield read(handles)


def report(wrong: dict[str, str]) -> None:
    assert not wrong, "\n\n".join(f"{select}\n{message}" for select, message in wrong.items())


@pytest.mark.parametrize("seed", SEEDS)
def test_results_equal_batch_spark(side: Side, state_dir: Path, seed: int) -> None:
    world = random_world(seed)
    with side.connect(state_dir, slots=1 + seed % 3) as session:
        results = run_whole(session, world)
    wrong = {}
    for query in world.queries:
        message = difference(results[query.name], side.expected_of_joins(world.feeds, query.select))
        if message:
            wrong[query.select] = message
    report(wrong)


@pytest.mark.parametrize("seed", [seed + 1000 for seed in SEEDS[:2]])
def test_every_batch_emits_what_is_due(side: Side, state_dir: Path, seed: int) -> None:
    world = random_world(seed, Crowd(batches=5, rows=30), queries=6)
    with side.connect(state_dir) as session:
        snapshots = list(run_step_by_step(session, world))
    closed = world.closed()
    wrong = {}
    for query in world.queries:
        due = side.emissions(closed.feeds, query.select)
        for step, results in enumerate(snapshots):
            message = difference(results[query.name], due.through(2 * step + 1))
            if message:
                wrong.setdefault(query.select, f"after step {step}: {message}")
    report(wrong)


@pytest.mark.parametrize("seed", [seed + 2000 for seed in SEEDS[:1]])
def test_a_query_gives_the_same_alone(side: Side, tmp_path: Path, seed: int) -> None:
    """Differential: what is shared changes nothing. Each query alone, with other slots, against all together."""
    world = random_world(seed, Crowd(batches=3), queries=3, inner=True)
    with side.connect(tmp_path / "all", slots=2) as session:
        together = run_whole(session, world)
    wrong = {}
    for query in world.queries:
        alone = World(world.feeds, (query,))
        with side.connect(tmp_path / query.name, slots=5) as session:
            message = difference(run_whole(session, alone)[query.name], together[query.name])
        if message:
            wrong[query.select] = message
    report(wrong)
