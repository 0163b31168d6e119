"""Queries that come and go while the streams run: how fast they are deployed, and what the others notice of it.

    thalweg bench adhoc [--quick] [--json FILE] [--only NAME ...] [--repetitions N]

AJoin's two scenarios over its generated joins, 50 % similar: SC1, so many queries a second until there are N (`1qs
20qp`); SC2, so many queries created and those of the round before dropped every few seconds. A session is fed at
70 % of what it sustains with all N queries. Measured are the steps of a request: until it is durable, until the first
batch begins that runs with it, until that batch is over, until its first result; of a drop, until the manifest no
longer has it. And meanwhile the event-time latency of results, and the slowest batch against the median.

The peer for a few queries is plain Spark: a query is a StreamingQuery of its own, which shares nothing; it reads what
comes after its start, and the time is until its first batch is over.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.measure import out
from benchmarks.paced.runs import Runs, grouped
from benchmarks.result import Finding, Line, Result, Series, line, machine, measured

ANSWERS = "AJoin Fig. 15, 16, 18, 20"
SHARE = 0.7


@dataclass(frozen=True)
class Case:
    name: str
    work: str
    scenario: str
    """As `python -m benchmarks.paced` reads it."""
    meaning: str
    files: int = 15
    """Of each stream, to measure what is sustained."""
    pace_of: str = ""
    """The case whose pace is taken over; else it is measured."""
    system: str = "thalweg"

    def options(self, rate: float | None) -> list[str]:
        given = {"scenario": self.scenario, "files": self.files, "files-per-batch": 5, "share": SHARE}
        given |= {} if rate is None else {"rate": rate}
        return [part for name, value in given.items() for part in (f"--{name}", str(value))]


CASES = (
    Case("sc1-20", "ajoin-20", "sc1:1:20:10", "SC1: 1 query a second until there are 20"),
    Case("front-20", "ajoin-20", "all:20:20", "the same 20 queries, there from the beginning", pace_of="sc1-20"),
    Case("sc1-100", "ajoin-100", "sc1:10:100:10", "SC1: 10 queries a second until there are 100"),
    Case("front-100", "ajoin-100", "all:100:15", "the same 100 queries, there from the beginning", pace_of="sc1-100"),
    Case("sc2-5", "ajoin-100", "sc2:5:5:5:5", "SC2: 5 queries created and dropped every 5 s", pace_of="sc1-100"),
    Case("sc2-20", "ajoin-100", "sc2:20:5:4:5", "SC2: 20 queries created and dropped every 5 s", pace_of="sc1-100"),
    Case("sc1-20x3", "ajoin-20@50x3", "sc1:1:20:10", "SC1: 1 join of three streams a second until there are 20"),
    Case("spark-sc1-4", "ajoin-20", "sc1:0.2:4:20", "1 query in 5 s until there are 4", 6, system="spark"),
    Case("sc1-4", "ajoin-20", "sc1:0.2:4:20", "1 query in 5 s until there are 4", pace_of="spark-sc1-4"),
)
QUICK_CASES = (
    Case("sc1-10", "ajoin-20", "sc1:2:10:4", "SC1: 2 queries a second until there are 10", 6),
    Case("sc2-4", "ajoin-20", "sc2:4:2:4:2", "SC2: 4 queries created and dropped every 2 s", pace_of="sc1-10"),
    Case("spark-sc1-3", "ajoin-20", "sc1:0.5:3:4", "1 query in 2 s until there are 3", 2, system="spark"),
    Case("sc1-3", "ajoin-20", "sc1:0.5:3:4", "1 query in 2 s until there are 3", pace_of="spark-sc1-3"),
)
SPARK_RATE = 10_000.0
"""Rows/s of both streams together: a pace that plain Spark keeps up with a few of the queries."""

Found = dict[str, list[dict[str, Any]]]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thalweg bench adhoc", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="four small scenarios, once")
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    parser.add_argument("--only", nargs="*", help="some of: " + ", ".join(case.name for case in CASES))
    parser.add_argument("--repetitions", type=int, help="3 unless given, 1 with --quick")
    parser.add_argument("--rate", type=float, help="rows/s of all streams, instead of 70 %% of what is sustained")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    repetitions = options.repetitions or (1 if options.quick else 3)
    offered = QUICK_CASES if options.quick else CASES
    chosen = [case for case in offered if not options.only or case.name in options.only]
    runs = Runs("benchmarks.paced", len(chosen) * repetitions)
    for _ in range(repetitions):
        for case in chosen:
            runs.run((case.system, case.name), case.options(_rate(case, runs, options.rate)), work=case.work)
    found = {name: measured_runs for (_, name), measured_runs in runs.found.items()}
    result = _result(chosen, found, runs.skipped, options.quick, repetitions, time.perf_counter() - began)
    _show(chosen, found, result)
    if options.json:
        result.write(options.json)
    return 0


def _rate(case: Case, runs: Runs, given: float | None) -> float | None:
    """Cases that are compared run at one pace; plain Spark at one that it keeps up."""
    if case.system == "spark" or case.pace_of.startswith("spark"):
        return SPARK_RATE
    same = runs.found.get(("thalweg", case.pace_of))
    return given if not same or given is not None else float(same[-1]["rows_per_second"])


# -- what was found ----------------------------------------------------------------------------------------


def _result(
    cases: Sequence[Case], found: Found, skipped: Sequence[str], quick: bool, repetitions: int, took: float
) -> Result:
    return Result(
        experiment="adhoc",
        title="Queries that come and go while the streams run",
        machine=machine(),
        answers=ANSWERS,
        quick=quick,
        took_seconds=took,
        repetitions=repetitions,
        lines=tuple(line for case in cases if case.name in found for line in _lines(case, cases, found)),
        series=tuple(_series(cases, found)),
        findings=tuple(_findings(cases, found)),
        skipped=tuple(skipped),
        notes=tuple(_notes(cases, found)),
        extra={name: _last(runs) for name, runs in found.items()},
    )


def _flat(run: dict[str, Any], step: str, part: str = "median") -> dict[str, Any]:
    """The run with one figure of a step as `figure`."""
    return {**run, "figure": run[step][part]}


def _lines(case: Case, cases: Sequence[Case], found: Found) -> list[Line]:
    """Requests, then what results notice; beside it, at the same pace, plain Spark or all queries up front."""
    if case.system == "spark":
        return []
    runs = found[case.name]
    spark = next((c for c in cases if c.name == case.pace_of and c.system == "spark" and c.name in found), None)
    lines = []
    for step, meaning in STEPS.items():
        if all(step in run for run in runs):
            ours = measured("thalweg", case.name, [_flat(run, step) for run in runs], "figure")
            theirs = None
            if spark is not None and all(step in run for run in found[spark.name]):
                peers = [_flat(run, step) for run in found[spark.name]]
                theirs = measured("spark", spark.name, peers, "figure")
            lines.append(_line(f"{case.name}-{step.replace('_', '-')}", f"{case.meaning}: {meaning}", ours, theirs))
    front = next(
        (c for c in cases if c.pace_of == case.name and c.scenario.startswith("all") and c.name in found), None
    )
    for figure in ("p50", "p99"):
        ours = measured("thalweg", case.name, runs, figure)
        theirs = None if front is None else measured("thalweg", front.name, found[front.name], figure)
        against = "" if front is None else ", against all queries up front"
        meaning = f"{case.meaning}: {figure} of event-time latency{against}"
        lines.append(_line(f"{case.name}-{figure}", meaning, ours, theirs))
    ours = measured("thalweg", case.name, [_slowest(run) for run in runs], "figure")
    meaning = f"{case.meaning}: slowest batch, as a multiple of the median"
    lines.append(line(f"{case.name}-slowest-batch", meaning, ours, unit="x", better="lower"))
    return lines


STEPS = {
    "create_acked": "create until it is durable, median",
    "create_began": "create until a batch begins with it, median",
    "create_done": "create until its first batch is over, median",
    "create_first_result": "create until its first result, median",
    "drop_acked": "drop until it is durable, median",
    "drop_done": "drop until it is gone from the manifest, median",
}


def _line(name: str, meaning: str, ours: Any, theirs: Any) -> Line:
    return line(name, meaning, ours, theirs, unit="s", better="lower")


def _slowest(run: dict[str, Any]) -> dict[str, Any]:
    return {**run, "figure": run["slowest_batch_seconds"] / run["batch_seconds"]}


def _last(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return runs[-1]


def _series(cases: Sequence[Case], found: Found) -> list[Series]:
    ours = [case for case in cases if case.system == "thalweg" and case.name in found]
    series = []
    for case in ours:
        points = _last(found[case.name])["over_time"]
        curves = {name: [(p[0], p[i]) for p in points] for i, name in ((1, "least"), (2, "mean"), (3, "most"))}
        series.append(Series(f"latency-{case.name}", f"Latency, {case.meaning}", "seconds", "s", curves))
    for figure, place, title, y in (
        ("throughput", 1, "Rows a second while a batch runs", "rows/s"),
        ("state", 2, "State held", "bytes"),
    ):
        counted = {case.name: [(p[0], p[place]) for p in _last(found[case.name])["by_queries"]] for case in ours}
        curves = {name: points for name, points in counted.items() if len(points) > 1}
        if curves:
            series.append(Series(figure, f"{title}, by queries that run", "queries", y, curves))
    return series


def _findings(cases: Sequence[Case], found: Found) -> list[Finding]:
    ours = [case for case in cases if case.system == "thalweg" and case.name in found]
    first = [case for case in ours if case.scenario.startswith("sc1") and not case.pace_of]
    second = [case for case in ours if case.scenario.startswith("sc2")]
    findings = []
    if first:
        theirs = "the more queries come per second, the farther least and greatest latency are apart; the mean is low"
        findings.append(Finding("AJoin, Fig. 18a (SC1)", theirs, _all(first, found, _latency)))
    if second:
        theirs = "in SC2 the mean latency is lower than in SC1 and fluctuates more"
        findings.append(Finding("AJoin, Fig. 18a (SC2)", theirs, _all([*first[:1], *second], found, _latency)))
    if first:
        theirs = "deployment takes longer at 1qs 20qp than at 10qs 100qp: requests are gathered for a second"
        findings.append(Finding("AJoin, Fig. 18b", theirs, _all(first, found, _deployment)))
        theirs = "more parallel queries raise the overall throughput (the sum over queries): more is shared"
        findings.append(Finding("AJoin, Fig. 15", theirs, _all(first, found, _overall)))
        theirs = "with more queries more is kept, of indexes more than of rows, which are shared"
        findings.append(Finding("AJoin, Fig. 16", theirs, _all(first, found, _held)))
    for case in first:
        front = next((c for c in ours if c.pace_of == case.name and c.scenario.startswith("all")), None)
        if front is not None:
            theirs = "the same queries reach less throughput ad hoc than at compile time, more so the more there are"
            findings.append(Finding("AJoin, Fig. 20a", theirs, _all([case, front], found, _ad_hoc)))
    return findings


def _all(cases: Sequence[Case], found: Found, told: Any) -> str:
    return "; ".join(f"{_last(found[case.name])['scenario']}: {told(_last(found[case.name]))}" for case in cases)


def _latency(run: dict[str, Any]) -> str:
    return f"mean {run['mean']:.2f} s, from {run['least']:.2f} to {run['most']:.2f} s"


def _deployment(run: dict[str, Any]) -> str:
    acked, began, done = (run[f"create_{step}"] for step in ("acked", "began", "done"))
    return (
        f"durable after {acked['median']:.2f} s, in a batch after {began['median']:.2f} s "
        f"(at most {began['most']:.2f}), which is over after {done['median']:.2f} s"
    )


def _overall(run: dict[str, Any]) -> str:
    if run["sustained_rows_per_second"] is None:
        return f"fed at {run['rows_per_second'] / 1e6:.3f}M rows/s"
    queries, rate = run["by_queries"][-1][0], run["sustained_rows_per_second"]
    return f"{rate / 1e6:.3f}M rows/s sustained, times {queries} queries {rate * queries / 1e6:.1f}M"


def _held(run: dict[str, Any]) -> str:
    (least, _, small), (most, _, large) = run["by_queries"][0], run["by_queries"][-1]
    return f"{small / 2**20:.1f} MiB with {least}, {large / 2**20:.1f} MiB with {most}"


def _ad_hoc(run: dict[str, Any]) -> str:
    busy, latency = (
        f"busy {run['busy_share']:.0%} of the time",
        f"latency p50 {run['p50']:.2f} s, p99 {run['p99']:.2f} s",
    )
    return f"{busy}, {latency} at {run['rows_per_second'] / 1e6:.3f}M rows/s"


def _notes(cases: Sequence[Case], found: Found) -> list[str]:
    notes = [
        "a query is created by a call that returns when it is durable; the next batch runs with it",
        "plain Spark: a query is started as a StreamingQuery of its own and shares nothing",
    ]
    for case in cases:
        for run in found.get(case.name, []):
            if run["behind_seconds"] > 5:
                notes.append(f"{case.name}: did not keep up, {run['behind_seconds']:.1f} s behind at the end")
            if run.get("late_most", 0.0) > 1:
                notes.append(
                    f"{case.name}: requests were up to {run['late_most']:.1f} s late, those before took too long"
                )
            if run.get("failed"):
                notes.append(f"{case.name}: queries failed: {run['failed']}")
    return notes


def _show(cases: Sequence[Case], found: Found, result: Result) -> None:
    columns = (
        "rows/s",
        "durable",
        "batch begins",
        "batch over",
        "first result",
        "gone",
        "p50",
        "p99",
        "slowest / median batch",
    )
    table = grouped(f"queries that come and go, seconds, {result.machine}", "scenario", columns)
    for case in cases:
        if case.name in found:
            run = _last(found[case.name])
            steps = ("create_acked", "create_began", "create_done", "create_first_result", "drop_done")
            told = [f"{run[step]['median']:.2f}" if step in run else "" for step in steps]
            batches = f"{run['slowest_batch_seconds'] / run['batch_seconds']:.1f}x" if "batch_seconds" in run else ""
            latencies = [f"{run[figure]:.2f}" if figure in run else "" for figure in ("p50", "p99")]
            table.add_row(
                f"{case.system}: {case.meaning}", f"{run['rows_per_second']:,.0f}", *told, *latencies, batches
            )
    out.print(table)
    for note in (*result.notes, *result.skipped):
        out.print(note)
