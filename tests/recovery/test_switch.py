"""Recovery: killed around the batches in which orders of joins and intermediates come into force, nothing is lost and
nothing comes twice, and what was decided before the kill is in force after it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.recovery import switching
from tests.support.clocks import CountingClock
from tests.support.disk import FaultyDisk
from tests.support.side import Side

from thalweg import faults
from thalweg.state import durable
from thalweg.state.local_storage import LocalStorage
from thalweg.state.manifest import latest_manifest
from thalweg.testing.compare import rows_equal
from thalweg.testing.faults import Death

SEED = 1
LIVES = (
    ("switch", "batch.prepared"),
    ("switch", "batch.start"),
    ("switch", "batch.manifest"),
    ("switch", "batch.sinks"),
    ("look", "batch.tasks"),
)
"""Which batch each life ends in, and where in it: with prepared results, before all, after the manifest, after sinks,
after the tasks."""
COMMITTED = ("batch.manifest", "batch.sinks")
"""The batch has happened."""


def live(side: Side, place: Path, moment: str = "", phase: str = "") -> None:
    """One life of the program, which ends by itself or dies: from then on nothing more reaches the disk."""
    disk, armed = FaultyDisk(place / "state"), []

    def passed(name: str) -> None:
        if name in armed:
            disk.die_at(disk.verbs)
            raise Death(name)

    session = None
    with durable.use(disk), faults.watch(passed):
        try:
            session = side.connect(place / "state", slots=2, join_epoch=1)
            session._parts.runner.adaptations.clock = CountingClock()
            switching.run(session, place / "out", SEED, moment, phase, armed.append)
            assert not phase, f"{moment} never came"
        except Death:
            assert phase
        finally:
            with contextlib.suppress(Death):
                session.stop()
            session._parts.hold.release()


def notes(place: Path) -> Iterator[dict[str, Any]]:
    with (place / "out" / "history.jsonl").open() as file:
        yield from map(json.loads, file)


def killed(side: Side, place: Path, moment: str, phase: str) -> int:
    """Lives until the moment and ends in the phase; the batch in which that was."""
    live(side, place, moment, phase)
    *_, last = notes(place)
    assert last["ends"] == phase
    batch: int = last["batch"]
    manifest = latest_manifest(LocalStorage(str(place / "state")))
    assert manifest is not None
    # The kill came where it was meant to.
    assert manifest.batch == (batch if phase in COMMITTED else batch - 1)
    shown = (place / "out" / "copy" / f"part-{batch:012d}.parquet").exists()
    assert not shown or phase == "batch.sinks"
    return batch


@pytest.mark.slow
def test_killed_around_a_switch(side: Side, tmp_path: Path) -> None:
    ends = {killed(side, tmp_path, *life): life for life in LIVES}
    assert len(ends) == len(LIVES)
    live(side, tmp_path)
    check_orders(tmp_path, ends)
    check_results(side, tmp_path)


def check_orders(place: Path, ends: Mapping[int, tuple[str, str]]) -> None:
    """An order that only the lost process knew of is not in force; one that the manifest had is."""
    ran = [note for note in notes(place) if "orders" in note]
    for batch, (moment, phase) in ends.items():
        before = next(note for note in reversed(ran) if note["batch"] < batch)
        after = next(note for note in ran if note["batch"] >= batch)
        if moment == "look":
            assert set(after["looks"]) - set(before["looks"]), (batch, phase)
        else:
            assert (after["switched"] == batch) == (phase in COMMITTED), (batch, phase, after)
            assert (after["orders"] == before["orders"]) == (phase not in COMMITTED), (batch, phase)
    # Those that were lost were decided for again.
    assert ran[-1]["switches"] > len([phase for _, phase in LIVES if phase in COMMITTED])


def check_results(side: Side, place: Path) -> None:
    feeds = switching.feeds(SEED)
    for name, select in switching.JOINS.items():
        wanted = side.expected_of_joins(feeds, select)
        assert wanted.num_rows > 5, name
        rows_equal(pq.read_table(place / "out" / f"{name}.parquet"), wanted)
        if name == "chain":
            parts = [pq.read_table(part) for part in sorted((place / "out" / "copy").glob("part-*.parquet"))]
            rows_equal(pa.concat_tables(parts), wanted)
