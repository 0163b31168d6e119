"""Recovery: killed around the batches in which orders of joins and intermediates come into force, nothing is lost and
nothing comes twice, and what was decided before the kill is in force after it."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from thalweg.state.manifest import latest_manifest, read_intent
from thalweg.testing import faults
from thalweg.testing.compare import rows_equal
from thalweg.testing.join_oracle import expected

PROGRAM = Path(__file__).with_name("switching.py")
SEED = 1
LIVES = (
    ("switch", "batch.intent"),
    ("switch", "batch.start"),
    ("switch", "batch.sinks"),
    ("switch", "batch.manifest"),
    ("look", "batch.tasks"),
)
"""Which batch each life ends in, and where in it: before the intent, after it, after sinks, after the manifest."""


def live(place: Path, *end: str) -> None:
    """One life of the program, which ends by itself or is killed."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    environment.pop(faults.VARIABLE, None)
    command = [sys.executable, str(PROGRAM), str(place / "state"), str(place / "out"), str(SEED), *end]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    if finished.returncode != (-signal.SIGKILL if end else 0):
        raise AssertionError(f"{end} ended with {finished.returncode}\n{finished.stderr[-4000:]}")


def notes(place: Path) -> Iterator[dict[str, Any]]:
    with (place / "out" / "history.jsonl").open() as file:
        yield from map(json.loads, file)


def killed(place: Path, moment: str, phase: str) -> int:
    """Lives until the moment and ends in the phase; the batch in which that was."""
    live(place, moment, phase)
    *_, last = notes(place)
    assert last["ends"] == phase
    batch: int = last["batch"]
    manifest, intent = latest_manifest(place / "state"), read_intent(place / "state", batch)
    assert manifest is not None
    # The kill came where it was meant to.
    assert manifest.batch == (batch if phase == "batch.manifest" else batch - 1)
    assert (intent is None) == (phase in ("batch.start", "batch.tasks"))
    return batch


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_around_a_switch(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    ends = {killed(tmp_path, *life): life for life in LIVES}
    assert len(ends) == len(LIVES)
    live(tmp_path)
    check_orders(tmp_path, ends)
    # Not before: two Sparks side by side are slow.
    check_results(request.getfixturevalue("spark"), tmp_path)


def check_orders(place: Path, ends: Mapping[int, tuple[str, str]]) -> None:
    """An order that only the lost process knew of is not in force; one that the intent or the manifest had is."""
    ran = [note for note in notes(place) if "orders" in note]
    for batch, (moment, phase) in ends.items():
        before = next(note for note in reversed(ran) if note["batch"] < batch)
        after = next(note for note in ran if note["batch"] >= batch)
        if moment == "look":
            assert set(after["looks"]) - set(before["looks"]), (batch, phase)
        else:
            assert (after["switched"] == batch) == (phase != "batch.start"), (batch, phase, after)
            assert (after["orders"] == before["orders"]) == (phase == "batch.start"), (batch, phase)
    # The one that was lost was decided for again.
    assert ran[-1]["switches"] >= len(LIVES) - 1


def check_results(spark: SparkSession, place: Path) -> None:
    program = runpy.run_path(str(PROGRAM))
    feeds = program["feeds"](SEED)
    for name, select in program["JOINS"].items():
        wanted = expected(spark, feeds, select)
        assert wanted.num_rows > 5, name
        rows_equal(pq.read_table(place / "out" / f"{name}.parquet"), wanted)
        if name == "chain":
            parts = [pq.read_table(part) for part in sorted((place / "out" / "copy").glob("part-*.parquet"))]
            rows_equal(pa.concat_tables(parts), wanted)
