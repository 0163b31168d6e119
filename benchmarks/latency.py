"""How late results are at 70 % of the sustained rate: event-time latency, Thalweg against plain Spark.

    thalweg bench latency [--quick] [--json FILE] [--only WORKLOAD ...] [--repetitions N]

What each system sustains with all files there at once is measured first, in a process of its own; then it is fed at
70 % of that, as often as there are repetitions: small files appear one by one, each when its last event happens, so
event time runs at the pace of rows. A result's latency is the time from the newest event that it is about (the end of
its window, the later row of a pair) until the sink has it. Of windows the wait for the watermark is told apart:
*beyond input* counts from when the event was there that let the window go. Percentiles are by result rows. Who does
not keep up is fed at half the pace, and so on, until it does; where it never does, that is told. However slow the
pace is, it goes on until two ends of windows have come by and closed. Eight aggregations and the interval join are
also measured at plain Spark's pace. With --quick both are fed at a given pace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import Bench, parser
from benchmarks.paced.runs import Runs, Side
from benchmarks.result import Line, line

ANSWERS = "AJoin Fig. 18a"
MINUTES = (2, 60)
SHARE = 0.7
KEPT = 0.25
"""Of the time for which it was fed: who is farther behind at the end has not kept up."""
HALVINGS = 3
MOMENTS = 20
"""Percentiles over fewer windows are told as such."""
LATE_SECONDS = 0.2
"""By which a file may be released late without a word."""


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
    at_their_pace: bool = False
    """Whether ours is measured at plain Spark's pace, too."""
    rate: float | None = None
    """Rows/s of all streams together at which both are fed; else each at 70 % of what it sustains."""

    @property
    def ours(self) -> Side:
        return ("thalweg", self.work)

    @property
    def theirs(self) -> Side:
        return ("spark", self.work)

    @property
    def same_pace(self) -> Side:
        return ("thalweg", f"{self.work} at Spark's pace")

    @property
    def has_windows(self) -> bool:
        return self.work.startswith("facts")

    @property
    def sides(self) -> list[Side]:
        return [self.ours, self.theirs, *([self.same_pace] if self.at_their_pace else [])]


CASES = (
    Case("facts/1", "1 aggregation", Sizes(12, 4, 15, 30_000_000), Sizes(6, 2, 20, 30_000_000)),
    Case("facts/8", "8 aggregations", Sizes(12, 4, 15, 30_000_000), Sizes(4, 1, 60, 30_000_000), True),
    Case("interval", "1 interval join", Sizes(40, 10, 15, 10_000_000), Sizes(15, 5, 20, 10_000_000), True),
    Case("ajoin-20", "20 joins of AJoin's template", Sizes(20, 5, 15, 10_000_000), Sizes(6, 2, 30, 10_000_000)),
)
QUICK_RATE = 40_000.0
"""What both sustain: to find out how much more they do takes a run of its own for each."""
QUICK_SIZES = Sizes(12, 4, 6, 2_000_000)
QUICK_CASES = (Case("interval", "1 interval join", QUICK_SIZES, QUICK_SIZES, rate=QUICK_RATE),)


def main(arguments: list[str]) -> int:
    options = parser("latency", __doc__, [case.work for case in CASES]).parse_args(arguments)
    bench = Bench("latency", "How late results are at 70 % of the sustained rate", options, ANSWERS)
    offered = QUICK_CASES if bench.quick else CASES
    chosen = [case for case in offered if not options.only or case.work in options.only]
    planned = [side for case in chosen for side in case.sides] * bench.repetitions
    runs = Runs(bench, planned)
    for _ in range(bench.repetitions):
        for case in chosen:
            _measure(runs, case)
    lines = [line for case in chosen for line in _lines(case, runs)]
    bench.result(lines, _notes(chosen, runs))
    return 0


def _measure(runs: Runs, case: Case) -> None:
    """All repetitions are fed at the pace that was kept in the first."""
    for side, sizes in ((case.ours, case.thalweg), (case.theirs, case.spark)):
        _feed(runs, side, sizes, case.rate)
    if case.at_their_pace and case.theirs in runs.found:
        pace = [*_pace(case.theirs, runs), "--seconds", str(case.spark.seconds)]
        runs.run(case.same_pace, [*case.thalweg.options(), *pace], work=case.work)


def _feed(runs: Runs, side: Side, sizes: Sizes, given: float | None) -> None:
    """The first repetition goes slower until the side keeps up."""
    is_first = side not in runs.found
    found = runs.run(side, [*sizes.options(), *_pace(side, runs, given)])
    for _ in range(HALVINGS if is_first else 0):
        if found is None or _kept(found):
            return
        slower = runs.run(side, [*sizes.options(), "--rate", str(found["rows_per_second"] / 2)])
        if slower is not None:
            slower["sustained_rows_per_second"] = found["sustained_rows_per_second"]
            runs.found[side] = [slower]
        found = slower


def _kept(run: Mapping[str, Any]) -> bool:
    """Whether a side has kept up with its pace."""
    return bool(run["behind_seconds"] <= KEPT * run["seconds"])


def _pace(side: Side, runs: Runs, given: float | None = None) -> list[str]:
    known = runs.found.get(side)
    rate = known[0]["rows_per_second"] if known else given
    return [] if rate is None else ["--rate", str(rate)]


# -- what was found ----------------------------------------------------------------------------------------


def _lines(case: Case, runs: Runs) -> list[Line]:
    """Whole latencies, and of windows also what is not the watermark's."""
    beyond = ", beyond the wait for the watermark"
    figures = {"p50": "", "p99": ""} | ({"beyond_p50": beyond, "beyond_p99": beyond} if case.has_windows else {})
    sides = {
        case.ours: ("", f"{_paces(case, runs)}, against plain Spark"),
        case.same_pace: ("-same-pace", f"both at {_share(case.theirs, runs)} of plain Spark's rate"),
    }
    lines = []
    for side, (suffix, how) in sides.items():
        for figure, told in figures.items():
            ours, theirs = runs.measured(side, figure), runs.measured(case.theirs, figure)
            if ours is not None:
                name = f"{case.work}{suffix}-{figure.replace('_', '-')}"
                meaning = f"{case.meaning}: {figure[-3:]} of latency{told}; {how}"
                lines.append(line(name, meaning, ours, theirs, unit="s", better="lower"))
    return lines


def _paces(case: Case, runs: Runs) -> str:
    """As they were in the end: who does not keep up is fed more slowly."""
    if case.rate is not None:
        return f"both at {case.rate:,.0f} rows/s"
    ours, theirs = (_share(side, runs) for side in (case.ours, case.theirs))
    return f"each at {ours} of its own rate" if ours == theirs else f"at {ours} and {theirs} of its own rate"


def _share(side: Side, runs: Runs) -> str:
    """Of what it sustains."""
    first = runs.found[side][0] if side in runs.found else {}
    sustained = first.get("sustained_rows_per_second")
    share = first["rows_per_second"] / sustained if sustained else SHARE
    return f"{share:.0%}".replace("%", " %")


def _notes(cases: Sequence[Case], runs: Runs) -> list[str]:
    first = "What a system sustains is measured first, in a process of its own, with all files there at once."
    notes = [
        *([first] if any(case.rate is None for case in cases) else []),
        "Results were counted: as many as DuckDB finds in the same files. Row by row they are compared by the "
        "experiments aggregates and joins.",
    ]
    for (system, work), found in runs.found.items():
        behind, late = (max(run[name] for run in found) for name in ("behind_seconds", "feeder_late_seconds"))
        sustained = found[0].get("sustained_rows_per_second")
        if sustained and found[0]["rows_per_second"] < 0.99 * SHARE * sustained:
            share = found[0]["rows_per_second"] / sustained
            notes.append(f"{system} {work} did not keep up with {SHARE:.0%} of its rate: it was fed at {share:.0%}.")
        if not all(map(_kept, found)):
            notes.append(
                f"{system} {work} did not keep up: {behind:.1f} s behind after {found[0]['seconds']:.0f} s. Its "
                "latency says how long it was fed, and no more."
            )
        moments = min(run["moments"] for run in found)
        if moments < MOMENTS:
            notes.append(f"{system} {work}: its percentiles are over {moments} window ends.")
        if late > LATE_SECONDS:
            notes.append(f"{system} {work}: a file came {late:.1f} s after its moment, from which latencies count.")
    return notes
