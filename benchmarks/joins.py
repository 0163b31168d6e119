"""Windowed joins: Thalweg against plain Structured Streaming, on the same streams.

    thalweg bench joins [--quick] [--json FILE] [--only NAME ...]

Every measurement is a process of its own, the two sides of a comparison one after the other. Results are
compared first, in full, over the first rows of the streams; then the time is taken without a sink that writes.
Both sides read the same streams, plain Spark less of them where many queries or streams make it slow. With
`--quick` the time is that of the runs whose results are compared.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.join_workload import MAX_OUTPUT, make_files, named
from benchmarks.measure import DATA, Comparison, Side, check_equal, compare, machine, measure, out, show

STATE_TARGET = 1.5
"""State held at most, against the Arrow size of the rows inside the windows."""


def _ours(name: str) -> Side:
    return ("thalweg", name)


def _theirs(name: str) -> Side:
    return ("spark", name)


COMPARISONS = (
    Comparison(
        "interval",
        _ours("interval"),
        _theirs("interval"),
        15,
        "1 interval join, against the faster of plain Spark's two settings",
        also=("spark-rocksdb", "interval"),
    ),
    Comparison("ajoin-1", _ours("ajoin-1"), _theirs("ajoin-1"), 0, "AJoin, 1 query, against plain Spark"),
    Comparison("ajoin-20", _ours("ajoin-20"), _theirs("ajoin-20"), 50, "AJoin, 20 queries, against plain Spark"),
    Comparison("ajoin1-20", _ours("ajoin1-20"), _theirs("ajoin1-20"), 50, "the same with 1 row out per row in"),
    Comparison("ajoin-100", _ours("ajoin-100"), _ours("ajoin-20"), 1 / 3, "AJoin, 100 queries, against 20"),
    Comparison("ajoin-500", _ours("ajoin-500"), _ours("ajoin-20"), 0, "AJoin, 500 queries, against 20"),
    *(
        Comparison(f"nway-{n}", _ours(f"nway-{n}"), _theirs(f"nway-{n}"), 15, f"join of {n} streams, against Spark's")
        for n in (3, 4, 5)
    ),
)
QUICK_COMPARISONS = (
    Comparison("interval", _ours("interval"), _theirs("interval"), 15, "1 interval join, against plain Spark"),
    Comparison("ajoin-3", _ours("ajoin-3"), _theirs("ajoin-3"), 0, "AJoin, 3 queries, against plain Spark"),
    Comparison("nway-3", _ours("nway-3"), _theirs("nway-3"), 15, "join of 3 streams, against Spark's"),
)


@dataclass(frozen=True)
class Size:
    """Rows of each stream, in all and in a batch."""

    rows: int
    batch: int


SIZES = {
    "quick interval": Size(300_000, 100_000),
    "quick ajoin": Size(100_000, 50_000),
    "quick nway": Size(100_000, 50_000),
    "equal interval": Size(300_000, 100_000),
    "equal ajoin": Size(200_000, 100_000),
    "equal nway": Size(150_000, 50_000),
    "thalweg interval": Size(6_000_000, 500_000),
    "spark interval": Size(2_000_000, 250_000),
    "spark-rocksdb interval": Size(500_000, 250_000),
    "thalweg ajoin": Size(2_000_000, 250_000),
    "spark ajoin": Size(300_000, 100_000),
    "thalweg nway": Size(2_000_000, 500_000),
    "spark nway": Size(300_000, 100_000),
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thalweg bench joins", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="three small comparisons, in two minutes")
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    parser.add_argument("--only", nargs="*", help="some of: " + ", ".join(c.name for c in COMPARISONS))
    options = parser.parse_args(arguments)
    offered = QUICK_COMPARISONS if options.quick else COMPARISONS
    chosen = [c for c in offered if not options.only or c.name in options.only]
    sides = list(dict.fromkeys(side for c in chosen for side in c.sides))
    _say_sizes(work for _, work in sides)
    results: dict[str, Any] = {"machine": machine(), "sizes": {k: vars(s) for k, s in SIZES.items()}, "equal": {}}
    measured: dict[Side, dict[str, Any]] = {}
    for work in dict.fromkeys(work for side, work in sides if side == "spark"):
        size = _size(("quick" if options.quick else "equal", work))
        results["equal"][work], both = _check_equal(work, size)
        if options.quick:
            measured |= both
    measured |= {side: _measure(side, _size(side)) for side in sides if side not in measured}
    results["comparisons"] = [compare(c, measured) for c in chosen]
    show(f"joins, rows of all streams, {results['machine']}", results["comparisons"])
    _show_state({work: result for (side, work), result in measured.items() if side == "thalweg"})
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 0


def _say_sizes(works: Iterable[str]) -> None:
    for work in dict.fromkeys(w for w in works if w.startswith("ajoin")):
        size = named(work).data.values
        most = work.split("-")[0].removeprefix("ajoin") or MAX_OUTPUT
        out.print(f"{work}: ATR_MAX {size:,}, for at most {most} rows out per row in")


def _size(side: Side) -> Size:
    """Each side at the size that suits it; steady rates do not depend on how many rows come after."""
    return SIZES[f"{side[0]} {side[1].split('-')[0].rstrip('1')}"]


def _measure(side: Side, size: Size, destination: Path | None = None) -> dict[str, Any]:
    files = make_files(named(side[1]).data, size.rows, DATA)
    options = ["--files", str(files), "--rows-per-batch", str(size.batch)]
    return measure("benchmarks.join_sides", *side, [*options, *(["--out", str(destination)] if destination else [])])


def _check_equal(work: str, size: Size) -> tuple[int, dict[Side, dict[str, Any]]]:
    """The results of a workload on both sides, compared row by row: how many, and what was measured meanwhile."""
    with tempfile.TemporaryDirectory() as directory:
        ours, theirs = Path(directory) / "ours", Path(directory) / "theirs"
        measured = {
            _ours(work): _measure(_ours(work), size, ours),
            _theirs(work): _measure(_theirs(work), size, theirs),
        }
        rows = sum(check_equal(ours, theirs, len(named(work).queries)).values())
    out.print(f"  results of {work} are equal: {rows:,} rows")
    return rows, measured


def _show_state(ours: dict[str, dict[str, Any]]) -> None:
    table = Table(title="state held, at its largest, against the Arrow size of the rows inside the windows")
    for name in ("workload", "held MiB", "windows MiB", "ratio", "asked", "rows out per row in"):
        table.add_column(name, justify="left" if name == "workload" else "right")
    for work, result in ours.items():
        good = "green" if result["state_ratio"] <= STATE_TARGET else "red"
        table.add_row(
            work,
            f"{result['state_bytes'] / 2**20:,.1f}",
            f"{result['window_bytes'] / 2**20:,.1f}",
            f"[{good}]{result['state_ratio']:.2f}x[/]",
            f"{STATE_TARGET:g}x",
            f"{result['output_per_row']:.2f}",
        )
    out.print(table)
