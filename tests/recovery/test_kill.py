"""Recovery: killed by SIGKILL, Spark and all, the pipeline ends with the undisturbed result.

Three lives: in the middle of a task, with results that no manifest has, and with a manifest that sinks have nothing
of. Every other phase is died in by `test_chaos`, in this process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.recovery import program
from tests.support.side import Side

from thalweg import faults
from thalweg.testing.compare import rows_equal

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
SEED = 5
PHASES = ("task.bucket", "batch.prepared", "batch.manifest")


def run(state_dir: Path, out_dir: Path, fault: str | None) -> int:
    """The exit code of one life of the program."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    environment.pop(faults.VARIABLE, None)
    if fault is not None:
        environment[faults.VARIABLE] = fault
    command = [sys.executable, "-m", "tests.recovery.program", str(state_dir), str(out_dir), str(SEED)]
    finished = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=400, check=False
    )
    if fault is None and finished.returncode:
        raise AssertionError(finished.stderr[-4000:])
    return finished.returncode


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_three_times(side: Side, tmp_path: Path) -> None:
    state_dir, out_dir = tmp_path / "state", tmp_path / "out"
    for phase in PHASES:
        # The second passage: the first batch of this life is complete, the next one dies half way.
        assert run(state_dir, out_dir, f"{phase}:2") != 0, f"{phase} was never reached"
    run(state_dir, out_dir, None)
    feeds = program.feeds(SEED)
    for query in program.queries(SEED):
        wanted = side.expected(feeds[0], query.select)
        rows_equal(pq.read_table(out_dir / f"{query.name}.parquet"), wanted, approximate=query.approximate)
    for name, select in {**program.RAW, **program.OWN}.items():
        wanted = side.expected(feeds[0], select.replace("own_total(", "sum("))
        assert wanted.num_rows > 20
        rows_equal(pq.read_table(out_dir / f"{name}.parquet"), wanted)
    for name, select in program.JOINS.items():
        wanted = side.expected_of_joins(feeds, select)
        assert wanted.num_rows > 20
        rows_equal(pq.read_table(out_dir / f"{name}.parquet"), wanted)
    for name in program.COPIED:
        copy, original = (pq.read_table(out_dir / f"{n}{name}.parquet") for n in ("copy_", ""))
        rows_equal(copy, original)
