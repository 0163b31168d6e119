"""Windowed aggregations: Thalweg against N independent Structured Streaming queries, on the same rows.

    thalweg bench aggregates [--quick] [--json FILE] [--only NAME ...] [--repetitions N]

Every measurement is a process of its own, all sides in turn, as often as there are repetitions. Results are compared
first, in full, over the first rows; then they are made and dropped where they were made (`noop`). Plain Spark reads
fewer rows of the same stream where it is slow.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import measure
from benchmarks.measure import Bench, Check, Comparison, Side, side
from benchmarks.result import Line
from benchmarks.result import line as make_line
from benchmarks.workloads import named
from benchmarks.workloads.facts import EIGHT

ANSWERS = "SASPAR Fig. 6"
MINUTES = (2, 40)
TITLE = "Windowed aggregations"
NOTES = (
    "SASPAR's figure is over TPC-H on a cluster; this is another workload on one machine",
    "Where a streaming DataFrame brings the rows, Spark reads them, in a JVM that has its optimising compiler back "
    "as the guide says; elsewhere it has not",
)
EMPTY_TARGET = 0.5
"""Seconds that a batch without rows may take."""
EMPTY = side("thalweg", "facts/8", 0, empty=25)

SIZES = {
    "thalweg facts/wide20x1": 12,
    "thalweg facts/wide20x5": 12,
    "thalweg": 48,
    "thalweg-frame": 40,
    "spark facts/1": 48,
    "spark facts/4": 24,
    "spark": 12,
}
"""Millions of rows; a batch is four. What a DataFrame brings before the first batch begins is all in that one."""
QUICK = {"files": 3, "files_per_batch": 1}
CHECK = QUICK
"""The fewest rows with which a window closes."""
CHECK_LONGER = {"files": 8, "files_per_batch": 2}
"""With which one of a minute does."""


def _side(system: str, work: str) -> Side:
    return side(system, work, SIZES.get(f"{system} {work}", SIZES[system]))


def _against(name: str, ours: str, theirs: str, asked: float, meaning: str) -> Comparison:
    """`ours` and `theirs`: system and workload."""
    return Comparison(name, meaning, _side(*ours.split(" ", 1)), _side(*theirs.split(" ", 1)), asked)


COMPARISONS = (
    _against("1-query", "thalweg facts/1", "spark facts/1", 2, "1 query (500 groups), against plain Spark"),
    _against("4-queries", "thalweg facts/4", "spark facts/4", 6, "4 queries (500 groups each), against plain Spark"),
    _against("8-queries", "thalweg facts/8", "spark facts/8", 12, f"{EIGHT}, against plain Spark"),
    _against(
        "8-frame",
        "thalweg-frame facts/8",
        "spark facts/8",
        5,
        f"{EIGHT}, rows from a streaming DataFrame, against plain Spark",
    ),
    _against(
        "100-queries",
        "thalweg facts/20x5",
        "thalweg facts/20x1",
        0.5,
        "100 queries (50 to 2,500 groups each), against 20",
    ),
    _against(
        "100-wide",
        "thalweg facts/wide20x5",
        "thalweg facts/wide20x1",
        0.5,
        "100 queries, against 20, six of 20 key sets of 250,000 groups",
    ),
    _against(
        "sliding",
        "thalweg facts/window=60 seconds,1 second",
        "thalweg facts/window=60 seconds",
        0.5,
        "60 s sliding by 1 s, against tumbling 60 s",
    ),
)
QUICK_COMPARISONS = tuple(c.resized(**QUICK) for c in COMPARISONS if c.name == "4-queries")


def main(arguments: list[str]) -> int:
    parser = measure.parser("aggregates", __doc__, (*(c.name for c in COMPARISONS), "empty"))
    options = parser.parse_args(arguments)
    bench = Bench("aggregates", TITLE, options, ANSWERS)
    comparisons = bench.chosen(QUICK_COMPARISONS if options.quick else COMPARISONS, also=("empty",))
    sides = [s for c in comparisons for s in c.sides]
    if not options.quick and (not options.only or "empty" in options.only):
        sides.append(EMPTY)
    bench.run(_checks(sides), sides, once=[EMPTY])
    lines = bench.with_older([*bench.lines(comparisons), *measure.shuffle_lines(bench), *_empty(bench)])
    bench.result(lines, NOTES)
    return 0


def _checks(sides: Sequence[Side]) -> list[Check]:
    """What plain Spark runs, the most queries, since they are those of fewer, too; the rest against DuckDB, of those
    over the same keys or windows one."""
    peers: dict[str, list[str]] = {}
    for one in sides:
        if one.system != "thalweg":
            peers.setdefault(one.work, []).append(one.system)
    most = max(peers, key=lambda work: len(named(work).queries), default="")
    alone = [s.work for s in sides if s.system == "thalweg" and s.work not in peers and s != EMPTY]
    wanted = {most: peers[most]} if peers else {}
    wanted |= {work: ["duckdb"] for work in alone if not work.endswith(("20x1", "=60 seconds"))}
    return [
        Check(side("thalweg", work, **size), tuple(side(system, work, **size) for system in dict.fromkeys(systems)))
        for work, systems in wanted.items()
        for size in [CHECK_LONGER if "=60 seconds" in work else CHECK]
    ]


def _empty(bench: Bench) -> list[Line]:
    found = bench.measured(EMPTY, "empty_seconds")
    if found is None:
        return []
    meaning = "an empty batch, 8 queries running"
    return [make_line("empty-batch", meaning, found, asked=EMPTY_TARGET, unit="s", better="lower")]
