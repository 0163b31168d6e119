"""Queries that come and go while the streams run: how fast they are deployed, and what the others notice of it.

    thalweg bench adhoc [--quick] [--json FILE] [--only NAME ...] [--repetitions N]

AJoin's two scenarios over its generated joins, 50 % similar: SC1, so many queries a second until there are N (`1qs
20qp`); SC2, so many queries created and those of the round before dropped every few seconds. A session is fed at
70 % of what it sustains with all N queries, which the first repetition finds out. Measured are the steps of a
request: until it is durable, until the first batch begins that runs with it, until that batch is over, until its
first result; of a drop, until the manifest no longer has it. And meanwhile the event-time latency of results, and the
slowest batch against the median.

The peer for a few queries is plain Spark: a query is a StreamingQuery of its own, which shares nothing; it reads what
comes after its start, and the time is until its first batch is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.measure import Bench, parser
from benchmarks.paced.runs import Runs, Side, scalars
from benchmarks.result import Line, Measured, line, measured

ANSWERS = "AJoin Fig. 15, 16, 18, 20"
MINUTES = (2, 30)
SHARE = 0.7
BEHIND_SECONDS = 5
LATE_SECONDS = 1
FILES = 15
"""Of each stream, to measure what is sustained."""
SPARK_RATE = 3_000.0
"""Rows/s of both streams together, for plain Spark and ours beside it: at 10,000 it fell 14 to 20 s behind."""
QUICK_RATE = 50_000.0
"""Far below what is sustained, which takes a run of its own to find out."""


@dataclass(frozen=True)
class Case:
    name: str
    work: str
    scenario: str
    """As `python -m benchmarks.paced` reads it."""
    meaning: str
    pace_of: str = ""
    """The case that it is compared with, at the same pace."""
    system: str = "thalweg"
    rate: float | None = None
    """Rows/s of all streams together; else as much as the other case's, or 70 % of what is sustained."""

    @property
    def side(self) -> Side:
        return (self.system, self.name)

    @property
    def kind(self) -> str:
        """`sc1`, `sc2` or `all`."""
        return self.scenario.split(":")[0]

    def options(self, rate: float | None) -> list[str]:
        given = {"scenario": self.scenario, "files": FILES, "files-per-batch": 5, "share": SHARE}
        given |= {} if rate is None else {"rate": rate}
        return [part for name, value in given.items() for part in (f"--{name}", str(value))]


CASES = (
    Case("sc1-20", "ajoin-20", "sc1:1:20:10", "SC1: 1 query a second until there are 20"),
    Case("front-20", "ajoin-20", "all:20:20", "the same 20 queries, there from the beginning", pace_of="sc1-20"),
    Case("sc1-100", "ajoin-100", "sc1:10:100:10", "SC1: 10 queries a second until there are 100"),
    Case("front-100", "ajoin-100", "all:100:15", "the same 100 queries, there from the beginning", pace_of="sc1-100"),
    Case("sc1-500", "ajoin-500", "sc1:50:500:10", "SC1: 50 queries a second until there are 500"),
    Case("sc2-5", "ajoin-100", "sc2:5:5:5:5", "SC2: 5 queries created and dropped every 5 s", pace_of="sc1-100"),
    Case("sc2-20", "ajoin-100", "sc2:20:5:4:5", "SC2: 20 queries created and dropped every 5 s", pace_of="sc1-100"),
    Case("sc1-20x3", "ajoin-20@50x3", "sc1:1:20:10", "SC1: 1 join of three streams a second until there are 20"),
    Case(
        "spark-sc1-4", "ajoin-20", "sc1:0.2:4:20", "1 query in 5 s until there are 4", system="spark", rate=SPARK_RATE
    ),
    Case(
        "sc1-4",
        "ajoin-20",
        "sc1:0.2:4:20",
        "1 query in 5 s until there are 4",
        pace_of="spark-sc1-4",
        rate=SPARK_RATE,
    ),
)
QUICK_CASES = (
    Case("sc2-4", "ajoin-20", "sc2:4:2:3:1", "SC2: 4 queries created and dropped every 2 s", rate=QUICK_RATE),
    Case(
        "spark-sc1-3", "ajoin-20", "sc1:0.5:3:2", "1 query in 2 s until there are 3", system="spark", rate=SPARK_RATE
    ),
    Case(
        "sc1-3", "ajoin-20", "sc1:0.5:3:2", "1 query in 2 s until there are 3", pace_of="spark-sc1-3", rate=SPARK_RATE
    ),
)


def main(arguments: list[str]) -> int:
    options = parser("adhoc", __doc__, [case.name for case in CASES]).parse_args(arguments)
    bench = Bench("adhoc", "Queries that come and go while the streams run", options, ANSWERS)
    offered = QUICK_CASES if bench.quick else CASES
    chosen = [case for case in offered if not options.only or case.name in options.only]
    runs = Runs(bench, [case.side for case in chosen] * bench.repetitions)
    for _ in range(bench.repetitions):
        for case in chosen:
            runs.run(case.side, case.options(_rate(case, runs)), work=case.work)
    there = [case for case in chosen if case.side in runs.found]
    lines = [line for case in there if case.system == "thalweg" for line in _lines(case, there, runs)]
    bench.result(lines, _notes(there, runs))
    return 0


def _rate(case: Case, runs: Runs) -> float | None:
    """Cases that are compared run at one pace, and all repetitions at that of the first."""
    if case.rate is not None:
        return case.rate
    known = runs.found.get(("thalweg", case.pace_of)) or runs.found.get(case.side)
    return float(known[0]["rows_per_second"]) if known else None


# -- what was found ----------------------------------------------------------------------------------------


def _lines(case: Case, cases: Sequence[Case], runs: Runs) -> list[Line]:
    """Requests, then what results notice; beside it, at the same pace, plain Spark or all queries up front."""
    spark = next((c for c in cases if c.name == case.pace_of and c.system == "spark"), None)
    lines = []
    for step, meaning in STEPS.items():
        ours = _step(case, step, runs)
        if ours is not None:
            theirs = None if spark is None else _step(spark, step, runs)
            against = ", against plain Spark" if theirs is not None else ""
            name = f"{case.name}-{step.replace('_', '-')}"
            lines.append(line(name, f"{case.meaning}: {meaning}{against}", ours, theirs, unit="s", better="lower"))
    for figure in ("p50", "p99"):
        ours = runs.measured(case.side, figure)
        if ours is not None:
            meaning = f"{case.meaning}: {figure} of latency meanwhile"
            lines.append(line(f"{case.name}-{figure}", meaning, ours, unit="s", better="lower"))
    lines += _afterwards(case, cases, runs)
    slowest = [
        {**scalars(run), "figure": run["slowest_batch_seconds"] / run["batch_seconds"]}
        for run in runs.found[case.side]
    ]
    meaning = f"{case.meaning}: slowest batch, as a multiple of the median"
    ours = measured(*case.side, slowest, "figure")
    return [*lines, line(f"{case.name}-slowest-batch", meaning, ours, unit="x", better="lower")]


def _afterwards(case: Case, cases: Sequence[Case], runs: Runs) -> list[Line]:
    lines = []
    for front in (c for c in cases if c.pace_of == case.name and c.kind == "all"):
        for figure, (meaning, unit, better) in AFTERWARDS.items():
            ours, theirs = runs.measured(case.side, figure), runs.measured(front.side, figure)
            if ours is not None and theirs is not None:
                name = f"{case.name}-{figure.replace('_', '-')}"
                lines.append(line(name, f"{case.meaning}: {meaning}", ours, theirs, unit=unit, better=better))
    return lines


def _step(case: Case, step: str, runs: Runs) -> Measured | None:
    """The median over requests of how long a step took."""
    found = [{**scalars(run), "figure": run[step]["median"]} for run in runs.found[case.side] if step in run]
    return measured(*case.side, found, "figure") if found else None


STEPS = {
    "create_acked": "create until it is durable, median",
    "create_began": "create until a batch begins with it, median",
    "create_done": "create until its first batch is over, median",
    "create_first_result": "create until its first result, median",
    "drop_acked": "drop until it is durable, median",
    "drop_done": "drop until it is gone from the manifest, median",
}


AFTERWARDS = {
    "after_p50": ("p50 of latency once all are there, against all up front", "s", "lower"),
    "after_p99": ("p99 of latency once all are there, against all up front", "s", "lower"),
    "after_busy_rows_per_second": ("rows a busy second once all are there, against all up front", "rows/s", "higher"),
}


def _notes(cases: Sequence[Case], runs: Runs) -> list[str]:
    notes = [
        "A query is created by a call that returns when it is durable; the next batch runs with it.",
        "Results of the queries that are there all the time were counted: as many as DuckDB finds in the same files.",
        "Plain Spark: a query is started as a StreamingQuery of its own and shares nothing; it is fed with "
        f"{SPARK_RATE:,.0f} rows/s from its start on, and so is Thalweg beside it.",
    ]
    for case in cases:
        found = runs.found[case.side]
        behind, late = (max(run[name] for run in found) for name in ("behind_seconds", "late_most"))
        if behind > BEHIND_SECONDS:
            notes.append(f"{case.name} did not keep up: up to {behind:.1f} s behind at the end.")
        if late > LATE_SECONDS:
            notes.append(f"{case.name}: requests came up to {late:.1f} s late: those before took long.")
        notes += [f"{case.name}: queries failed: {run['failed']}" for run in found if run.get("failed")]
    return notes
