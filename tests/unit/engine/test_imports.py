"""Unit: what a process imports that needs no optimiser."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import sys
import thalweg.batch.ingest_stage, thalweg.batch.slot_stage
print(*sorted(sys.modules), sep=',')
import thalweg.session
print(*sorted(sys.modules), sep=',')
"""
LIBRARIES = ("scipy.optimize", "scipy.sparse", "highspy", "sklearn")
PLANNERS = ("thalweg.optimize.slot_assignment.cascade", "thalweg.optimize.probe_orders.optimizer")


@pytest.fixture(scope="module")
def imported() -> list[set[str]]:
    """By workers, and by a session."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    return [set(line.split(",")) for line in done.stdout.splitlines()]


def test_workers_import_nothing_that_plans(imported: list[set[str]]) -> None:
    assert "thalweg.operate.slot" in imported[0]
    assert not {name for name in imported[0] if name.startswith(("thalweg.optimize", "thalweg.frontend", *LIBRARIES))}


def test_a_session_imports_optimisers_when_it_asks_them(imported: list[set[str]]) -> None:
    assert "thalweg.optimize.planner" in imported[1]
    assert not {name for name in imported[1] if name.startswith((*LIBRARIES, *PLANNERS))}
