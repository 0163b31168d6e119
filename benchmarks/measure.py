"""Measuring sides, each in a process of its own, and setting what was asked beside what was measured."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

TREE = Path(__file__).resolve().parents[1]
DATA = TREE / "build" / "bench"
out = Console()

Side = tuple[str, str]
"""(side, work)"""


@dataclass(frozen=True)
class Comparison:
    """Two sides and the ratio that is asked for between them."""

    name: str
    ours: Side
    theirs: Side
    target: float
    """0: it is enough that ours runs."""
    meaning: str
    also: Side | None = None
    """Another setting of theirs: the faster of the two counts."""

    @property
    def sides(self) -> tuple[Side, ...]:
        return (self.ours, self.theirs) if self.also is None else (self.ours, self.theirs, self.also)


def measure(module: str, side: str, work: str, options: Iterable[str] = ()) -> dict[str, Any]:
    """Runs one side in a process of its own; what it measured, and the peak memory of its process tree."""
    command = [sys.executable, "-m", module, side, *options]
    if work:
        command += ["--work", work]
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
    costs = f"peak {memory:,.0f} MiB, {result['total_seconds']:.0f} s in all"
    out.print(f"  {side:14} {work:32} {rate:16} {costs}", soft_wrap=True)
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


def check_equal(ours: Path, theirs: Path, queries: int) -> dict[str, int]:
    """Results that both sides wrote to `q0`, `q1`, ... of a directory, compared row by row; rows of each."""
    import duckdb

    def count(rows: str) -> int:
        return int(duckdb.sql(f"SELECT count(*) FROM {rows}").fetchall()[0][0])

    counts = {}
    for name in (f"q{i}" for i in range(queries)):
        a, b = (f"read_parquet('{side / name}/*.parquet')" for side in (ours, theirs))
        # Without results there may be no file, and nothing to read a schema from.
        there = [any((side / name).glob("*.parquet")) for side in (ours, theirs)]
        if all(there):
            different = count(f"(FROM {a} EXCEPT ALL FROM {b})") + count(f"(FROM {b} EXCEPT ALL FROM {a})")
        else:
            different = sum(count(rows) for rows, is_there in zip((a, b), there, strict=True) if is_there)
        if different:
            raise SystemExit(f"query {name}: {different} rows differ")
        counts[name] = count(a) if there[0] else 0
    return counts


def compare(comparison: Comparison, measured: Mapping[Side, dict[str, Any]]) -> dict[str, Any]:
    ours = measured[comparison.ours]
    theirs = max((measured[side] for side in comparison.sides[1:]), key=lambda result: result["rows_per_second"])
    return {
        "name": comparison.name,
        "meaning": comparison.meaning,
        "target": comparison.target,
        "ratio": ours["rows_per_second"] / theirs["rows_per_second"],
        "ours": ours,
        "theirs": theirs,
    }


def show(title: str, comparisons: Iterable[Mapping[str, Any]]) -> None:
    table = Table(title=title)
    for name in ("comparison", "ours", "theirs", "ratio", "asked", "peak MiB ours", "theirs"):
        table.add_column(name, justify="left" if name == "comparison" else "right")
    for c in comparisons:
        good = "green" if c["ratio"] >= c["target"] else "red"
        table.add_row(
            c["meaning"],
            f"{c['ours']['rows_per_second'] / 1e6:.3f}M/s",
            f"{c['theirs']['rows_per_second'] / 1e6:.3f}M/s",
            f"[{good}]{c['ratio']:.2f}x[/]",
            f"{c['target']:.3g}x" if c["target"] else "runs",
            f"{c['ours']['peak_mib']:,.0f}",
            f"{c['theirs']['peak_mib']:,.0f}",
        )
    out.print(table)


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def new_table(title: str, first: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    return table


def add_columns(table: Table, *names: str) -> None:
    for name in names:
        table.add_column(name, justify="right")


def coloured(text: str, reached: bool | None) -> str:
    """Green where what was asked is reached; None: nothing is asked."""
    return text if reached is None else f"[{'green' if reached else 'red'}]{text}[/]"
