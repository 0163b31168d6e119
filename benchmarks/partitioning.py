"""Shared partitioning: how good and how fast the optimiser is, and what its routing tables save in the engine.

    thalweg bench partitioning [--quick] [--json FILE] [--only grid|engine] [--repetitions N] [--prove SECONDS]

`grid` asks the optimiser on the inputs of SASPAR's Fig. 8 and beyond, four seconds each, and compares with hashing, a
list scheduler, and the best that is known. `engine` runs medians by several keys of one stream through the whole
pipeline, hashed and optimised in turn, each in a process of its own: the results are compared row by row, then the
bytes that the shuffle carries, the time of a batch, and what happens when the stream changes its habits.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import partition_lines as compared
from benchmarks import partition_planning as planning
from benchmarks.equality import DifferenceError, compare_directories
from benchmarks.measure import Bench, measure, out
from benchmarks.partition_problems import FIG8, Point
from benchmarks.partition_sides import WORKS, queries
from benchmarks.process import SideFailedError
from benchmarks.remaining import Remaining

ANSWERS = "SASPAR Fig. 1, 8, 9"
MINUTES = (2, 27)
TITLE = "Shared partitioning: the optimiser alone, and what its routing tables save in the engine"
SIDES = ("hashed", "optimised")
QUICK_WORKS = ("packs",)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thalweg bench partitioning", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the small inputs and one of the streams")
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    parser.add_argument("--only", nargs="*", choices=["grid", "engine"])
    parser.add_argument("--repetitions", type=int, help="of each side in the engine; 3, with --quick 1")
    parser.add_argument(
        "--prove", type=float, metavar="SECONDS", help="let HiGHS prove the optimum of the whole problem"
    )
    options = parser.parse_args(arguments)
    bench = Bench("partitioning", TITLE, options, ANSWERS)
    sections = options.only or ["grid", "engine"]
    points = (FIG8[:4] if options.quick else FIG8) if "grid" in sections else ()
    works = (QUICK_WORKS if options.quick else tuple(WORKS)) if "engine" in sections else ()
    size = ["--rows", "100000", "--batches", "12"] if options.quick else []
    runs = [_point(point) for point in points]
    runs += [_side(side, work, size) for work in works for side in SIDES] * bench.repetitions
    grid: list[dict[str, Any]] = []
    ran: list[dict[str, Any]] = []
    bar = Remaining("partitioning", runs)
    for point in points:
        with bar.during(_point(point)):
            grid += planning.grid(compared.BUDGET, options.prove, [point])
    for work in works:
        try:
            ran.append(engine(work, size, bench.repetitions, bar))
        except (SideFailedError, DifferenceError) as error:
            bench.skip(work, str(error))
    if grid:
        out.print(planning.table(grid), soft_wrap=True, highlight=False)
    bench.equal |= {work["work"]: work["result_rows"] for work in ran}
    bench.result((*compared.engine_lines(ran), *compared.grid_lines(grid)), NOTES)
    return 0


NOTES = (
    "Medians by two or three keys of one stream on 4 slots, rows sent whole (`OPTIONS (partitioner = 'hash')`): by "
    "itself the engine would combine them or let them stay where they were read. Figures are of the last third of "
    "the batches, where both sides have settled.",
)


def _point(point: Point) -> str:
    return f"optimiser {point.name}"


def _side(side: str, work: str, size: Sequence[str]) -> str:
    return " ".join(["partition_sides", side, work, *size])


def engine(work: str, size: Sequence[str], repetitions: int, bar: Remaining) -> dict[str, Any]:
    """One workload, hashed and optimised in turn."""
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    rows = 0
    for _ in range(repetitions):
        with tempfile.TemporaryDirectory() as folder:
            for side, done in runs.items():
                options = [*size, "--results", f"{folder}/{side}"]
                with bar.during(_side(side, work, size)):
                    run = measure("benchmarks.partition_sides", side, work, options)
                done.append({name: value for name, value in run.items() if name != "explain"})
            equal = compare_directories(Path(folder, "hashed"), Path(folder, "optimised"), len(queries(work)))
            rows = sum(equal.values())
    return {"work": work, "meaning": WORKS[work], "result_rows": rows, "runs": runs}
