"""Windowed aggregations: Thalweg against N independent Structured Streaming queries, on the same rows.

    thalweg bench aggregates [--quick] [--json FILE] [--only NAME ...]

Every measurement is a process of its own, the two sides of a comparison one after the other. Results are
compared first, in full, over the first four million rows; then the time is taken without a sink that writes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.measure import DATA, Comparison, Side, check_equal, compare, machine, measure, out, show
from benchmarks.workload import make_files

COMPARISONS = (
    Comparison("1-query", ("thalweg", "1"), ("spark", "1"), 2, "1 query, against plain Spark"),
    Comparison("4-queries", ("thalweg", "4"), ("spark", "4"), 6, "4 queries, against plain Spark"),
    Comparison("8-queries", ("thalweg", "8"), ("spark", "8"), 12, "8 queries, against plain Spark"),
    Comparison("8-frame", ("thalweg-frame", "8"), ("spark", "8"), 5, "8 queries, rows from a streaming DataFrame"),
    Comparison("100-queries", ("thalweg", "20x5"), ("thalweg", "20x1"), 0.5, "100 queries, against 20"),
    Comparison(
        "100-wide",
        ("thalweg", "wide20x5"),
        ("thalweg", "wide20x1"),
        0.5,
        "100 queries, against 20, six key sets of 250,000 groups",
    ),
    Comparison(
        "sliding",
        ("thalweg", "window:'60 seconds', '1 second'"),
        ("thalweg", "window:'60 seconds'"),
        0.5,
        "60 s sliding by 1 s, against tumbling 60 s",
    ),
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thalweg bench aggregates", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="8M rows instead of 20M")
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    parser.add_argument("--only", nargs="*", help="some of: " + ", ".join(c.name for c in COMPARISONS))
    options = parser.parse_args(arguments)
    count = 8 if options.quick else 20
    out.print(f"making {count}M rows of Parquet (kept for the next time)")
    files = make_files(DATA / f"facts-{count}", count)
    small = make_files(DATA / "facts-4", 4)
    chosen = [c for c in COMPARISONS if not options.only or c.name in options.only]
    results: dict[str, Any] = {"machine": machine(), "rows": count * 1_000_000}
    if not options.only or any(c.theirs[0] == "spark" for c in chosen):
        results["equal"] = _check_equal(small)
    measured: dict[Side, dict[str, Any]] = {}
    for side in dict.fromkeys(side for comparison in chosen for side in comparison.sides):
        measured[side] = _measure(*side, files)
    results["comparisons"] = [compare(c, measured) for c in chosen]
    if not options.only:
        results["empty"] = _measure("empty", "", files)
    show(f"aggregates, {count}M rows, {results['machine']}", results["comparisons"])
    if "empty" in results:
        median, worst = results["empty"]["median_seconds"], results["empty"]["worst_seconds"]
        out.print(f"an empty batch: median {median:.3f} s, worst {worst:.3f} s (asked: under 0.5 s)")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 0


def _measure(side: str, work: str, files: Path, destination: Path | None = None) -> dict[str, Any]:
    options = ["--files", str(files), *(["--out", str(destination)] if destination else [])]
    return measure("benchmarks.sides", side, work, options)


def _check_equal(files: Path) -> dict[str, int]:
    """The results of all eight queries on both sides, compared row by row."""
    with tempfile.TemporaryDirectory() as directory:
        ours, theirs = Path(directory) / "ours", Path(directory) / "theirs"
        _measure("thalweg", "8", files, ours)
        _measure("spark", "8", files, theirs)
        counts = check_equal(ours, theirs, 8)
    out.print(f"  results of all eight queries are equal: {sum(counts.values()):,} rows")
    return counts
