"""What the partitioning benchmark sets beside what, as lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.result import Line, Measured, line, measured

LESS = 0.35
"""Asked of correlated keys: the share of the shuffled bytes that is saved."""
WORSE = 0.01
"""Allowed on independent keys."""
STRAGGLER = 1.5
"""A batch may take so much longer than its neighbours because of a switch."""
BUDGET = 4.0
"""Seconds that the optimiser is given, as in SASPAR's Fig. 8."""
OBJECTIVES = {"copies": "copies", "saspar": "SASPAR's cost"}

Sides = Mapping[str, Sequence[Mapping[str, Any]]]
"""hashed, optimised -> what each repetition measured of every batch"""
Work = Mapping[str, Any]
"""`work`, `meaning`, `result_rows` and `runs`, its sides."""


# --- the engine -----------------------------------------------------------------------------------------


def settled(run: Mapping[str, Any]) -> dict[str, float]:
    """One run in figures: the last third of the stream, where either side has settled, and its switches."""
    n = len(run["bytes"])
    last = slice(n - n // 3, n)
    seconds = float(np.mean(run["seconds"][last]))
    switched = [i for i in range(1, n) if run["switches"][i] > run["switches"][i - 1]]
    return {
        "shuffled_bytes_per_row": float(np.mean(run["bytes"][last])) / run["rows"],
        "copies_per_row": float(np.mean(run["copies"][last])),
        "batch_seconds": seconds,
        "rows_per_second": run["rows"] / seconds,
        "switches": float(len(switched)),
        "straggling": max((straggling(run["seconds"], i) for i in switched), default=0.0),
        "peak_mib": run["peak_mib"],
    }


def straggling(seconds: Sequence[float], batch: int) -> float:
    """How long a batch took against the slower of its neighbours: windows close in every second batch."""
    near = [seconds[i] for i in (batch - 2, batch - 1, batch + 1, batch + 2) if 2 <= i < len(seconds)]
    return seconds[batch] / max(near) if near else 1.0


def engine_lines(works: Sequence[Work]) -> Iterator[Line]:
    """Bytes, rows a second, and the batches in which a routing table was switched."""
    for work in works:
        asked = 1 + WORSE if work["work"] == "independent" else 1 - LESS
        ours, theirs = (side_of(work, side, "shuffled_bytes_per_row") for side in ("optimised", "hashed"))
        meaning = f"shuffled, {work['meaning']}"
        yield line(work["work"], meaning, ours, theirs, asked, unit="bytes/row", better="lower")
    for work in works:
        ours, theirs = (side_of(work, side, "rows_per_second") for side in ("optimised", "hashed"))
        yield line(f"{work['work']}-rate", f"rows a second, {work['meaning']}", ours, theirs)
    for work in works:
        ours = side_of(work, "optimised", "straggling")
        if ours.high:
            meaning = f"slowest batch with a switch, in times of its slower neighbour, {work['meaning']}"
            yield line(f"{work['work']}-switch", meaning, ours, None, STRAGGLER, unit="x", better="lower")


def side_of(work: Work, side: str, figure: str) -> Measured:
    system = "thalweg" if side == "optimised" else "thalweg, hashed"
    return measured(system, work["work"], [settled(run) for run in work["runs"][side]], figure)


# --- the optimiser alone --------------------------------------------------------------------------------


def grid_lines(grid: Sequence[Mapping[str, Any]]) -> Iterator[Line]:
    """Of every objective the slowest answer, and the cost at the largest input."""
    for objective, said in OBJECTIVES.items():
        found = [each for each in grid if each["objective"] == objective]
        if not found:
            continue
        slowest = max(found, key=lambda each: each["seconds"])
        meaning = f"slowest answer, {said}: {slowest['point']}"
        yield line(f"{objective}-seconds", meaning, _one(slowest, "seconds"), None, BUDGET, unit="s", better="lower")
        largest = found[-1]
        meaning = f"{said} of the answer against hashing, {largest['point']}"
        ours, theirs = _one(largest, "answer"), _one(largest, "hashed")
        yield line(f"{objective}-cost", meaning, ours, theirs, None, unit="", better="lower")
        worst = max(found, key=lambda each: each["answer"] / each["greedy"])
        meaning = f"{said} of the answer against a list scheduler, where it is nearest: {worst['point']}"
        ours, theirs = _one(worst, "answer"), _one(worst, "greedy")
        yield line(f"{objective}-greedy", meaning, ours, theirs, 1.0, unit="", better="lower")


def _one(found: Mapping[str, Any], figure: str) -> Measured:
    system = {"hashed": "hashing", "greedy": "list scheduling"}.get(figure, "thalweg")
    return measured(system, found["point"], [found], figure)
