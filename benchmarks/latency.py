"""How late results are at 70 % of the sustained rate: event-time latency, Thalweg against plain Spark.

    thalweg bench latency [--quick] [--json FILE] [--only WORKLOAD ...] [--repetitions N]

Every run first measures what its system sustains with all files there at once, then feeds it at 70 % of that: small
files appear one by one, each when its last event happens, so event time runs at the pace of rows. A result's latency
is the time from the newest event that it is about (the end of its window, the later row of a pair) until the sink has
it. Of windows the wait for the watermark is told apart: *beyond input* counts from when the event was there that let
the window go. Percentiles are by result rows. In full runs Thalweg is measured at plain Spark's pace, too.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import out
from benchmarks.paced.runs import Runs, Side, grouped
from benchmarks.result import Finding, Line, Result, Series, line, machine, measured
from benchmarks.workloads import named

ANSWERS = "AJoin Fig. 18a"
SHARE = 0.7


@dataclass(frozen=True)
class Sizes:
    """Of one system on one workload."""

    files: int
    """Of each stream, to measure what it sustains."""
    files_per_batch: int
    seconds: float
    most_rows: int
    """Of each stream."""

    def options(self) -> list[str]:
        given = {"files": self.files, "files-per-batch": self.files_per_batch, "seconds": self.seconds}
        given |= {"most-rows": self.most_rows, "share": SHARE}
        return [part for name, value in given.items() for part in (f"--{name}", str(value))]


@dataclass(frozen=True)
class Case:
    work: str
    meaning: str
    thalweg: Sizes
    spark: Sizes


CASES = (
    Case("facts/1", "1 aggregation", Sizes(12, 4, 20, 30_000_000), Sizes(6, 2, 30, 30_000_000)),
    Case("facts/8", "8 aggregations", Sizes(12, 4, 20, 30_000_000), Sizes(4, 1, 90, 30_000_000)),
    Case("interval", "1 interval join", Sizes(40, 10, 20, 10_000_000), Sizes(20, 5, 30, 10_000_000)),
    Case("ajoin-20", "20 joins of AJoin's template", Sizes(20, 5, 20, 10_000_000), Sizes(6, 2, 40, 10_000_000)),
)
QUICK_CASES = (
    Case("facts/1", "1 aggregation", Sizes(8, 4, 4, 8_000_000), Sizes(3, 1, 8, 6_000_000)),
    Case("interval", "1 interval join", Sizes(12, 4, 5, 2_000_000), Sizes(6, 2, 6, 2_000_000)),
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thalweg bench latency", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two workloads, once, a few seconds of pace each")
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    parser.add_argument("--only", nargs="*", help="some of: " + ", ".join(case.work for case in CASES))
    parser.add_argument("--repetitions", type=int, help="3 unless given, 1 with --quick")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    repetitions = options.repetitions or (1 if options.quick else 3)
    offered = QUICK_CASES if options.quick else CASES
    chosen = [case for case in offered if not options.only or case.work in options.only]
    runs = Runs("benchmarks.paced", (2 if options.quick else 3) * len(chosen) * repetitions)
    for _ in range(repetitions):
        for case in chosen:
            _measure(runs, case, options.quick)
    result = _result(runs, chosen, options.quick, repetitions, time.perf_counter() - began)
    _show(result)
    if options.json:
        result.write(options.json)
    return 0


def _measure(runs: Runs, case: Case, quick: bool) -> None:
    runs.run(("thalweg", case.work), case.thalweg.options())
    theirs = runs.run(("spark", case.work), case.spark.options())
    if theirs is not None and not quick:
        pace = ["--rate", str(theirs["rows_per_second"]), "--seconds", "30"]
        runs.run(("thalweg", f"{case.work} at Spark's pace"), [*case.thalweg.options(), *pace], work=case.work)


# -- what was found ----------------------------------------------------------------------------------------


def _result(runs: Runs, cases: Sequence[Case], quick: bool, repetitions: int, took: float) -> Result:
    found = runs.found
    return Result(
        experiment="latency",
        title="How late results are at 70 % of the sustained rate",
        machine=machine(),
        answers=ANSWERS,
        quick=quick,
        took_seconds=took,
        repetitions=repetitions,
        lines=tuple(line for case in cases for line in _lines(case, found)),
        series=tuple(_series(cases, found)),
        findings=tuple(_findings(cases, found)),
        equal=_equal(found),
        skipped=tuple(runs.skipped),
        notes=tuple(_notes(found)),
    )


def _lines(case: Case, found: Mapping[Side, Sequence[dict[str, Any]]]) -> list[Line]:
    """Whole latencies, and of windows also what is not the watermark's."""
    figures = [("p50", "p50", ""), ("p99", "p99", "")]
    if case.work.startswith("facts"):
        beyond = ", beyond the wait for the watermark"
        figures += [("beyond_p50", "beyond-p50", beyond), ("beyond_p99", "beyond-p99", beyond)]
    names = {
        case.work: "each at 70 % of its own rate, against plain Spark",
        f"{case.work} at Spark's pace": "at 70 % of plain Spark's rate, against plain Spark",
    }
    lines = []
    for work, how in names.items():
        ours, theirs = found.get(("thalweg", work)), found.get(("spark", case.work))
        for figure, label, told in figures:
            if ours is None:
                continue
            name = f"{case.work}{'-same-pace' if work != case.work else ''}-{label}"
            meaning = f"{case.meaning}: {label.split('-')[-1]} of event-time latency{told}; {how}"
            peer = None if theirs is None else measured("spark", case.work, theirs, figure)
            own = measured("thalweg", work, ours, figure)
            lines.append(line(name, meaning, own, peer, unit="s", better="lower"))
    return lines


def _series(cases: Sequence[Case], found: Mapping[Side, Sequence[dict[str, Any]]]) -> list[Series]:
    series = []
    by_queries: dict[str, list[tuple[float, float]]] = {}
    for case in cases:
        sides = {"Thalweg": found.get(("thalweg", case.work)), "Spark": found.get(("spark", case.work))}
        curves = {
            name: [(point[0], point[2]) for point in runs[-1]["over_time"]] for name, runs in sides.items() if runs
        }
        title = f"Latency while it runs: {case.meaning}"
        series.append(Series(f"time-{case.work}", title, "seconds", "mean latency, s", curves, log=True))
        for name, runs in sides.items():
            if runs and case.work.startswith("facts"):
                for figure in ("p50", "p99"):
                    point = (float(len(named(case.work).queries)), measured(name, case.work, runs, figure).median)
                    by_queries.setdefault(f"{name} {figure}", []).append(point)
    if by_queries:
        series.append(Series("queries", "Latency by number of aggregations", "queries", "s", by_queries, log=True))
    return series


def _findings(cases: Sequence[Case], found: Mapping[Side, Sequence[dict[str, Any]]]) -> list[Finding]:
    told = []
    for case in cases:
        ours, theirs = found.get(("thalweg", case.work)), found.get(("spark", case.work))
        if ours and theirs:
            told.append(f"{case.meaning}: {_brief('thalweg', ours)} against Spark's {_brief('spark', theirs)}")
    if not told:
        return []
    paper = "AJoin's event-time latency is like that of Flink with one query, at many times Flink's throughput"
    return [Finding("AJoin, Fig. 18a", paper, "; ".join(told))]


def _brief(system: str, runs: Sequence[dict[str, Any]]) -> str:
    p50, p99, pace = (measured(system, "", runs, figure).median for figure in ("p50", "p99", "rows_per_second"))
    return f"p50 {p50:.2f} s, p99 {p99:.2f} s at {pace / 1e6:.3f}M rows/s"


def _equal(found: Mapping[Side, Sequence[dict[str, Any]]]) -> dict[str, int]:
    """Result rows of all runs that were counted against DuckDB's over the same files."""
    return {f"{system} {work}": sum(run["output_rows"] for run in runs) for (system, work), runs in found.items()}


def _notes(found: Mapping[Side, Sequence[dict[str, Any]]]) -> list[str]:
    notes = [
        "what a system sustains is measured in the same process just before, with all files there at once",
        "results were counted and are as many as DuckDB finds in the same files; row by row they are compared by "
        "the experiments aggregates and joins",
    ]
    for (system, work), runs in found.items():
        behind = max(run["behind_seconds"] for run in runs)
        worst = max(run["p99"] for run in runs)
        if behind > 2 * worst:
            notes.append(f"{system} {work}: did not keep up, {behind:.1f} s behind at the end")
        late = max(run["feeder_late_seconds"] for run in runs)
        if late > 0.2:
            notes.append(
                f"{system} {work}: a file came up to {late:.1f} s after its moment; latencies count from that"
            )
    return notes


def _show(result: Result) -> None:
    columns = ("system", "rows/s", "event s per s", "p50", "p99", "beyond p50", "p99", "slowest batch", "median")
    table = grouped(f"event-time latency in seconds, {result.machine}", "workload", columns)
    seen = set()
    for found in result.lines:
        for side in (found.ours, found.theirs):
            if side is not None and (side.system, side.work) not in seen:
                seen.add((side.system, side.work))
                m = side.measures
                paced = (f"{m['rows_per_second']:,.0f}", f"{m['event_seconds_per_second']:.2f}")
                figures = ("p50", "p99", "beyond_p50", "beyond_p99", "slowest_batch_seconds", "batch_seconds")
                table.add_row(side.work, side.system, *paced, *(f"{m[figure]:.3f}" for figure in figures))
    out.print(table)
    for note in (*result.notes, *result.skipped):
        out.print(note)
