"""Shared partitioning: how good and how fast the optimiser is, and what its routing tables save in the engine.

    thalweg bench partitioning [--quick] [--json FILE] [--only grid|engine] [--prove SECONDS]

`grid` asks the optimiser on the inputs of SASPAR's Fig. 8 and beyond, four seconds each, and compares with hashing, a
list scheduler, and the best that is known. `engine` runs medians by several keys of one stream through the whole
pipeline, hashed and optimised, each in a process of its own: equal results first, then the bytes that the shuffle
carries, and what happens when the stream changes its habits.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks import partition_planning as planning
from benchmarks.measure import check_equal, machine, measure, out
from benchmarks.partition_problems import FIG8
from benchmarks.partition_sides import WORKS, queries

LESS = 0.35
"""Asked of correlated keys: the share of the shuffled bytes that is saved."""
WORSE = 0.01
"""Allowed on independent keys."""
STRAGGLER = 1.5
"""A batch may take so much longer than its neighbours because of a switch."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thalweg bench partitioning", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the small inputs only")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=["grid", "engine"])
    parser.add_argument(
        "--prove", type=float, metavar="SECONDS", help="let HiGHS prove the optimum of the whole problem"
    )
    options = parser.parse_args(arguments)
    found: dict[str, Any] = {"machine": machine()}
    if options.only != "engine":
        points = FIG8[:4] if options.quick else FIG8
        found["grid"] = planning.grid(4.0, options.prove, points)
        out.print(planning.table(found["grid"]), soft_wrap=True, highlight=False)
    if options.only != "grid":
        size = ["--rows", "100000", "--batches", "12"] if options.quick else []
        found["engine"] = [engine(work, size) for work in WORKS]
        show(found["engine"])
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


def engine(work: str, size: list[str]) -> dict[str, Any]:
    """One workload, hashed and optimised."""
    with tempfile.TemporaryDirectory() as folder:
        sides = {}
        for side in ("hashed", "optimised"):
            sides[side] = measure("benchmarks.partition_sides", side, work, [*size, "--results", f"{folder}/{side}"])
        rows = check_equal(Path(folder, "hashed"), Path(folder, "optimised"), len(queries(work)))
    return {"work": work, "meaning": WORKS[work], "result_rows": sum(rows.values()), **compared(sides)}


def compared(sides: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The last third of the stream, where either side has settled; and the batches in which one switched."""
    hashed, optimised = sides["hashed"], sides["optimised"]
    n = len(hashed["bytes"])
    settled = slice(n - n // 3, n)
    switched = [i for i in range(1, n) if optimised["switches"][i] > optimised["switches"][i - 1]]
    return {
        "bytes_hashed": float(np.mean(hashed["bytes"][settled])),
        "bytes_optimised": float(np.mean(optimised["bytes"][settled])),
        "copies_hashed": float(np.mean(hashed["copies"][settled])),
        "copies_optimised": float(np.mean(optimised["copies"][settled])),
        "seconds_hashed": float(np.median(hashed["seconds"][settled])),
        "seconds_optimised": float(np.median(optimised["seconds"][settled])),
        "switched_in": switched,
        "straggling": max((straggling(optimised["seconds"], i) for i in switched), default=0.0),
        "sides": {side: {k: v for k, v in m.items() if k != "explain"} for side, m in sides.items()},
        "explain": optimised["explain"],
    }


def straggling(seconds: list[float], batch: int) -> float:
    """How long a batch took against the slower of its neighbours: windows close in every second batch."""
    near = [seconds[i] for i in (batch - 2, batch - 1, batch + 1, batch + 2) if 2 <= i < len(seconds)]
    return seconds[batch] / max(near) if near else 1.0


def show(lines: list[dict[str, Any]]) -> None:
    table = Table(title="rows shipped whole: hashed against optimised, the last third of the batches")
    for name in (
        "stream",
        "copies per row",
        "MB shuffled",
        "saved",
        "asked",
        "seconds a batch",
        "switches",
        "slowest switch",
    ):
        table.add_column(name, justify="left" if name == "stream" else "right")
    for line in lines:
        saved = 1 - line["bytes_optimised"] / line["bytes_hashed"]
        asked = -WORSE if line["work"] == "independent" else LESS
        table.add_row(
            line["meaning"],
            f"{line['copies_hashed']:.2f} → {line['copies_optimised']:.2f}",
            f"{line['bytes_hashed'] / 1e6:.1f} → {line['bytes_optimised'] / 1e6:.1f}",
            f"[{'green' if saved >= asked else 'red'}]{saved:.1%}[/]",
            f"{asked:.0%}",
            f"{line['seconds_hashed']:.2f} → {line['seconds_optimised']:.2f}",
            str(len(line["switched_in"])),
            f"[{'green' if line['straggling'] <= STRAGGLER else 'red'}]{line['straggling']:.2f}x[/]",
        )
    out.print(table)
