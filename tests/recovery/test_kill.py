"""Recovery: killed at every phase of a batch, one after another, the pipeline ends with the undisturbed result."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import thalweg.engine.batch
import thalweg.engine.tasks  # noqa: F401 - registers its fault points
from thalweg.testing import faults
from thalweg.testing.compare import rows_equal
from thalweg.testing.join_oracle import expected as expected_of_joins
from thalweg.testing.oracle import expected

PROGRAM = Path(__file__).with_name("program.py")
SEED = 5


def run(state_dir: Path, out_dir: Path, fault: str | None) -> int:
    """The exit code of one life of the program."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    environment.pop(faults.VARIABLE, None)
    if fault is not None:
        environment[faults.VARIABLE] = fault
    command = [sys.executable, str(PROGRAM), str(state_dir), str(out_dir), str(SEED)]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
    if fault is None and finished.returncode:
        raise AssertionError(finished.stderr[-4000:])
    return finished.returncode


def killed_and_killed_again(place: Path, phases: list[str]) -> Path:
    """One state directory through many lives, each but the last ended at one of the phases; its results."""
    place.mkdir()
    state_dir, out_dir = place / "state", place / "out"
    for phase in phases:
        # The second passage: the first batch of this life is complete, the next one dies half way.
        assert run(state_dir, out_dir, f"{phase}:2") != 0, f"{phase} was never reached"
    run(state_dir, out_dir, None)
    return out_dir


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_every_phase(spark: SparkSession, tmp_path: Path) -> None:
    """Two pipelines side by side, half of the phases each: starting a JVM is what takes the time."""
    assert len(faults.PHASES) >= 9
    halves = {tmp_path / "even": faults.PHASES[::2], tmp_path / "odd": faults.PHASES[1::2]}
    with ThreadPoolExecutor(2) as pool:
        places = list(pool.map(killed_and_killed_again, halves, halves.values()))
    program = runpy.run_path(str(PROGRAM))
    feeds = program["feeds"](SEED)
    for query in program["queries"](SEED):
        wanted = expected(spark, feeds[0], query.select)
        for out_dir in places:
            rows_equal(pq.read_table(out_dir / f"{query.name}.parquet"), wanted, approximate=query.approximate)
    for name, select in {**program["RAW"], **program["OWN"]}.items():
        wanted = expected(spark, feeds[0], select.replace("own_total(", "sum("))
        assert wanted.num_rows > 20
        for out_dir in places:
            rows_equal(pq.read_table(out_dir / f"{name}.parquet"), wanted)
    for name, select in program["JOINS"].items():
        wanted = expected_of_joins(spark, feeds, select)
        assert wanted.num_rows > 20
        for out_dir in places:
            rows_equal(pq.read_table(out_dir / f"{name}.parquet"), wanted)
    for name in program["COPIED"]:
        for out_dir in places:
            copy, original = (pq.read_table(out_dir / f"{n}{name}.parquet") for n in ("copy_", ""))
            rows_equal(copy, original)
