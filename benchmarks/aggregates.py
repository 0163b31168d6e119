"""Windowed aggregations: Thalweg against N independent Structured Streaming queries, on the same rows.

    thalweg bench aggregates [--quick] [--json FILE] [--only NAME ...]

Every measurement is a process of its own, the two sides of a comparison one after the other. Results are
compared first, in full, over the first four million rows; then the time is taken without a sink that writes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.workload import make_files

TREE = Path(__file__).resolve().parents[1]
DATA = TREE / "build" / "bench" / "facts"
out = Console()


@dataclass(frozen=True)
class Comparison:
    """Two sides and the ratio that is asked for between them."""

    name: str
    ours: tuple[str, str]
    """(side, work)"""
    theirs: tuple[str, str]
    target: float
    meaning: str


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
    files = make_files(DATA.with_name(f"facts-{count}"), count)
    small = make_files(DATA.with_name("facts-4"), 4)
    chosen = [c for c in COMPARISONS if not options.only or c.name in options.only]
    results: dict[str, Any] = {"machine": machine(), "rows": count * 1_000_000}
    if not options.only or any(c.theirs[0] == "spark" for c in chosen):
        results["equal"] = check_equal(small)
    measured: dict[tuple[str, str], dict[str, Any]] = {}
    for comparison in chosen:
        for side in (comparison.ours, comparison.theirs):
            if side not in measured:
                measured[side] = measure(*side, files)
    results["comparisons"] = [compare(c, measured) for c in chosen]
    if not options.only:
        results["empty"] = measure("empty", "", files)
    show(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 0


def measure(side: str, work: str, files: Path, destination: Path | None = None) -> dict[str, Any]:
    """Runs one side in a process of its own; what it measured, and the peak memory of its process tree."""
    command = [sys.executable, "-m", "benchmarks.sides", side, "--files", str(files)]
    if work:
        command += ["--work", work]
    if destination:
        command += ["--out", str(destination)]
    with out.status(f"{side} {work}"), tempfile.TemporaryFile("w+") as log:
        began = time.perf_counter()
        process = subprocess.Popen(command, cwd=TREE, stdout=subprocess.PIPE, stderr=log, text=True)
        peak = _PeakMemory(process.pid)
        text, _ = process.communicate()
        memory = peak.stop()
        if process.returncode:
            log.seek(0)
            raise SystemExit(f"{side} {work} failed:\n{log.read()[-4000:]}")
    line = next(line for line in text.splitlines() if line.startswith("RESULT "))
    result: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    result |= {"peak_mib": memory, "total_seconds": time.perf_counter() - began}
    rate = f"{result['rows_per_second'] / 1e6:.3f}M rows/s" if "rows_per_second" in result else ""
    out.print(f"  {side:14} {work:32} {rate:16} peak {memory:,.0f} MiB, {result['total_seconds']:.0f} s in all")
    return result


class _PeakMemory:
    """Samples the proportional set size of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peak = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        self._done.set()
        self._thread.join()
        return self.peak

    def _watch(self) -> None:
        while not self._done.wait(0.5):
            self.peak = max(self.peak, sum(_pss(pid) for pid in _tree(self.pid)) / 1024)


def _tree(root: int) -> Iterator[int]:
    yield root
    try:
        for task in os.listdir(f"/proc/{root}/task"):
            for child in Path(f"/proc/{root}/task/{task}/children").read_text().split():
                yield from _tree(int(child))
    except OSError:
        return


def _pss(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0


def check_equal(files: Path) -> dict[str, int]:
    """The results of all eight queries on both sides, compared row by row."""
    import duckdb

    with tempfile.TemporaryDirectory() as directory:
        ours, theirs = Path(directory) / "ours", Path(directory) / "theirs"
        measure("thalweg", "8", files, ours)
        measure("spark", "8", files, theirs)
        counts = {}
        for i in range(8):
            a, b = (f"(SELECT * FROM read_parquet('{side}/q{i}/*.parquet'))" for side in (ours, theirs))
            different = duckdb.sql(
                f"SELECT (SELECT count(*) FROM ({a} EXCEPT ALL {b})) + (SELECT count(*) FROM ({b} EXCEPT ALL {a}))"
            ).fetchall()[0][0]
            if different:
                raise SystemExit(f"query q{i}: {different} rows differ")
            counts[f"q{i}"] = duckdb.sql(f"SELECT count(*) FROM {a}").fetchall()[0][0]
    out.print(f"  results of all eight queries are equal: {sum(counts.values()):,} rows")
    return counts


def compare(comparison: Comparison, measured: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    ours, theirs = measured[comparison.ours], measured[comparison.theirs]
    return {
        "name": comparison.name,
        "meaning": comparison.meaning,
        "target": comparison.target,
        "ratio": ours["rows_per_second"] / theirs["rows_per_second"],
        "ours": ours,
        "theirs": theirs,
    }


def show(results: dict[str, Any]) -> None:
    table = Table(title=f"aggregates, {results['rows'] / 1e6:.0f}M rows, {results['machine']}")
    for name in ("comparison", "ours", "theirs", "ratio", "asked", "peak MiB ours", "theirs"):
        table.add_column(name, justify="left" if name == "comparison" else "right")
    for c in results["comparisons"]:
        good = "green" if c["ratio"] >= c["target"] else "red"
        table.add_row(
            c["meaning"],
            f"{c['ours']['rows_per_second'] / 1e6:.3f}M/s",
            f"{c['theirs']['rows_per_second'] / 1e6:.3f}M/s",
            f"[{good}]{c['ratio']:.2f}x[/]",
            f"{c['target']:g}x",
            f"{c['ours']['peak_mib']:,.0f}",
            f"{c['theirs']['peak_mib']:,.0f}",
        )
    out.print(table)
    if "empty" in results:
        empty = results["empty"]
        median, worst = empty["median_seconds"], empty["worst_seconds"]
        out.print(f"an empty batch: median {median:.3f} s, worst {worst:.3f} s (asked: under 0.5 s)")


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
