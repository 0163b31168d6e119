"""What the partitioning benchmark found, as lines, plots and answers to SASPAR's figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.quantities import compact
from benchmarks.result import Finding, Line, Measured, Series, line, measured

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


def engine_series(works: Sequence[Work]) -> Iterator[Series]:
    copies: dict[str, list[tuple[float | str, float]]] = {
        side: [(w["meaning"], side_of(w, side, "copies_per_row").median) for w in works]
        for side in ("hashed", "optimised")
    }
    yield Series("replication", "Copies of a row that the shuffle carries", "stream", "copies per row", copies)
    for work in works:
        if work["work"] == "shift":
            over_time = {side: list(enumerate(work["runs"][side][0]["copies"])) for side in ("optimised", "hashed")}
            title = "Half way, the shops move to other cities"
            yield Series("shift", title, "batch", "copies per row, first repetition", over_time)


def engine_findings(works: Sequence[Work]) -> Iterator[Finding]:
    by_name = {work["work"]: work for work in works}
    if "packs" in by_name:
        copies = [side_of(by_name["packs"], side, "copies_per_row").median for side in ("hashed", "optimised")]
        even = [by_name[name] for name in ("independent",) if name in by_name]
        other = "".join(f"; with two independent keys {_less(work)}" for work in even)
        yield Finding(
            "SASPAR, Fig. 1 and 6",
            "queries that partition one stream by different keys send 10 copies instead of 16 in its example, and "
            "throughput grows with the number of queries instead of falling",
            f"{compact(copies[0])} → {compact(copies[1])} copies of a row and {_less(by_name['packs'])} where one "
            f"key lies inside the other{other}; on {_rates(works)}",
            "replication",
        )
    if "shift" in by_name:
        over_time = by_name["shift"]["runs"]["optimised"][0]["copies"]
        half = len(over_time) // 2
        back = next((i for i in range(half + 1, len(over_time)) if over_time[i] < 0.9 * over_time[half]), None)
        said = "does not come down in this run" if back is None else f"is down again {_batches(back - half)} later"
        yield Finding(
            "SASPAR, Fig. 9 and 11",
            "a new assignment sends some rows back to be partitioned again; an optimiser run every 4 minutes is best",
            f"no row is sent twice, tables switch between batches; replication rises to {over_time[half]:.2f} when "
            f"the stream changes and {said}",
            "shift",
        )


def _batches(count: int) -> str:
    return f"{count} batches" if count != 1 else "one batch"


def _less(work: Work) -> str:
    found = [side_of(work, side, "shuffled_bytes_per_row").median for side in ("optimised", "hashed")]
    return f"{(found[0] / found[1] - 1) * 100:+.0f} % shuffled bytes".replace("-", "−").replace("+0", "0")


def _rates(works: Sequence[Work]) -> str:
    """Fewer bytes are not always less time: said as measured."""
    ratios = []
    for work in works:
        ours, theirs = (side_of(work, side, "rows_per_second").median for side in ("optimised", "hashed"))
        ratios.append(ours / theirs)
    return f"one machine that makes {min(ratios):.2f}x to {max(ratios):.2f}x the rows a second of hashing"


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


def grid_series(grid: Sequence[Mapping[str, Any]]) -> Iterator[Series]:
    seconds: dict[str, list[tuple[float | str, float]]] = {}
    shares: dict[str, list[tuple[float | str, float]]] = {}
    for each in grid:
        said = OBJECTIVES[each["objective"]]
        seconds.setdefault(said, []).append((each["point"], each["seconds"]))
        shares.setdefault(f"{said}, proven", []).append((each["point"], 100 * each["at least"]))
        shares.setdefault(f"{said}, of best known", []).append((each["point"], 100 * each["of best known"]))
    inputs = "route keys (q), slots (p), key groups (g)"
    yield Series("optimiser-time", "The optimiser's time, of a budget of 4 s", inputs, "seconds", seconds)
    yield Series("optimiser-quality", "What can be saved over hashing, and is", inputs, "% of it", shares)


def grid_findings(grid: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    seconds = [each["seconds"] for each in grid]
    yield Finding(
        "SASPAR, Fig. 8a",
        "the MIP alone was given up after 4q 16p 64g; with the heuristics every input is answered, in 4 s",
        f"every input from {grid[0]['point']} to {grid[-1]['point']} is answered in {min(seconds):.1f} to "
        f"{max(seconds):.1f} s",
        "optimiser-time",
    )
    copies = [each for each in grid if each["objective"] == "copies"]
    least = min(copies, key=lambda each: each["at least"])
    proven = sum(each["saving"] is not None for each in copies)
    yield Finding(
        "SASPAR, Fig. 8b",
        "the five smallest inputs are solved to the optimum, then accuracy falls, at first abruptly",
        f"the optimum is proven on {proven} of {len(copies)} inputs; by the bound at least {least['at least']:.0%} "
        f"of what can be saved is saved everywhere (least at {least['point']})",
        "optimiser-quality",
    )
