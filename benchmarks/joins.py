"""Windowed joins: Thalweg against plain Structured Streaming, on the same streams.

    thalweg bench joins [--quick] [--json FILE] [--only NAME ...] [--repetitions N]

Every measurement is a process of its own, all sides in turn, as often as there are repetitions. Results are compared
first, in full, over the first rows of the streams; then they are made and dropped where they were made (`noop`). Both
sides read the same streams, plain Spark less of them where many queries or streams make it slow. Rows are those of
all streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks import measure
from benchmarks.measure import Bench, Check, Comparison, Side, side
from benchmarks.result import Line, Measured
from benchmarks.workloads.joins import MAX_OUTPUT, joins_named

ANSWERS = "AJoin Fig. 15, 16, 20"
MINUTES = (2, 50)
TITLE = "Windowed joins"
STATE_TARGET = 1.5
"""State held at most, against the Arrow size of the rows inside the windows."""

SETTINGS = (
    "spark: 2 shuffle partitions, 12 GiB heap, parallel collector, its default state store: with RocksDB (the side "
    "`spark-rocksdb`) one interval join is slower by far",
    "a batch is 20 files of each stream for Thalweg's interval join and 10 for its others; for Spark's 5, 10 with "
    "one query of AJoin's, 4 of 3 to 5 streams: others gave it nothing (single runs: interval join 57k rows/s at 10, "
    "78k at 5, and another day 80k at 2, 83k at 5; AJoin's one query 312k at 20, 334k at 10; 3 streams 65k at 8, 77k "
    "at 4)",
    "Spark's joins of one query run for seven batches, since its JVM gets faster for so long (interval join 83k "
    "rows/s in three batches, 92k in nine); those of 3 to 5 streams for three, since they get slower (3 streams 83k "
    "in three, 71k in seven)",
)
SIZES = {
    "quick interval": (15, 5),
    "equal interval": (6, 2),
    "equal ajoin": (2, 1),
    "equal nway": (2, 1),
    "thalweg interval": (120, 20),
    "spark interval": (35, 5),
    "thalweg ajoin": (80, 10),
    "spark ajoin": (15, 5),
    "spark ajoin-1": (70, 10),
    "thalweg nway": (80, 10),
    "spark nway": (12, 4),
}
"""Files of 50,000 rows of each stream, in all and in a batch."""


def _side(system: str, work: str, size: str = "") -> Side:
    """Each side at the size that suits it, as far as others were tried (`settings`)."""
    kind = size or system.removesuffix("-called")
    files, files_per_batch = SIZES.get(f"{kind} {work}") or SIZES[f"{kind} {_kind(work)}"]
    return side(system, work, files, files_per_batch=files_per_batch)


def _kind(work: str) -> str:
    return work.split("-")[0].rstrip("0123456789")


def _beside(name: str, meaning: str, asked: float | None, size: str = "", theirs: str = "spark") -> Comparison:
    """The workload of that name, against another system or (`thalweg WORK`) ours on another workload."""
    system, _, work = theirs.partition(" ")
    return Comparison(name, meaning, _side("thalweg", name, size), _side(system, work or name, size), asked)


AS_MANY = " (keys drawn from a wider range: about as many result rows)"
COMPARISONS = (
    _beside("interval", "1 interval join, against plain Spark", 15),
    _beside("ajoin-1", "AJoin, 1 query, against plain Spark", None),
    _beside("ajoin-20", "AJoin, 20 queries, against plain Spark", 50),
    Comparison(
        "ajoin-20-called",
        "AJoin, 20 queries, results handed to Python in the driver, against dropped in the tasks",
        _side("thalweg-called", "ajoin-20"),
        _side("thalweg", "ajoin-20"),
    ),
    _beside("ajoin-100", f"AJoin, 100 queries, against 20{AS_MANY}", 1 / 3, theirs="thalweg ajoin-20"),
    _beside("ajoin-500", f"AJoin, 500 queries, against 20{AS_MANY}", None, theirs="thalweg ajoin-20"),
    *(_beside(f"nway-{n}", f"join of {n} streams, against Spark's", 15) for n in (3, 4, 5)),
)
QUICK_COMPARISONS = (_beside("interval", "1 interval join, against plain Spark", 15, "quick"),)


def main(arguments: list[str]) -> int:
    options = measure.parser("joins", __doc__, (c.name for c in COMPARISONS)).parse_args(arguments)
    bench = Bench("joins", TITLE, options, ANSWERS)
    comparisons = bench.chosen(QUICK_COMPARISONS if options.quick else COMPARISONS)
    sides = [s for c in comparisons for s in c.sides]
    bench.run(_checks(sides, "quick" if options.quick else "equal"), sides)
    lines = bench.with_older([*bench.lines(comparisons), *_states(bench), *measure.shuffle_lines(bench)])
    notes = (*SETTINGS, *_sizes_said(s.work for s in sides))
    bench.result(lines, notes)
    return 0


def _sizes_said(works: Any) -> list[str]:
    notes = []
    for work in dict.fromkeys(w for w in works if w.startswith("ajoin")):
        joins = joins_named(work)
        most = work.split("-")[0].removeprefix("ajoin") or MAX_OUTPUT
        if joins is not None:
            drawn = f"ATR_MAX {joins.data.values:,} (keys are drawn from so many)"
            notes.append(f"{work}: {drawn}, for at most {most} rows out per row in")
    return notes


def _checks(sides: Sequence[Side], size: str) -> list[Check]:
    """Every workload against plain Spark where that runs it, too, and else against DuckDB."""
    on_spark = {s.work for s in sides if s.system == "spark"}
    works = dict.fromkeys(s.work for s in sides)
    peers = {work: "spark" if work in on_spark else "duckdb" for work in works}
    return [Check(_side("thalweg", work, size), (_side(peer, work, size),)) for work, peer in peers.items()]


def _states(bench: Bench) -> list[Line]:
    """The state held where it was largest against the windows; the first batch only fills them."""
    lines = []
    for one, runs in bench.runs.items():
        joins = joins_named(one.work)
        if one.system != "thalweg" or joins is None:
            continue
        ratios = [
            max(held / joins.window_bytes(rows, ahead) for held, rows, ahead in samples[1:] or samples)
            for samples in (run["state_samples"] for run in runs)
        ]
        found = Measured(one.system, one.work, median(ratios), min(ratios), max(ratios), tuple(ratios))
        meaning = f"state held against the rows inside the windows, {one.work}"
        lines.append(Line(f"state-{one.work}", meaning, "x", "lower", found, None, STATE_TARGET))
    return lines
