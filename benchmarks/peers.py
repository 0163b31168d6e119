"""Thalweg against its peers: one Structured Streaming query for all, Flink SQL, sharing off, a DuckDB batch.

    thalweg bench peers [--quick] [--json FILE] [--only NAME ...] [--repetitions N]

All over the same rows, results compared first, row by row; N queries of Structured Streaming are in `aggregates` and
`joins`. Settings, of which `settings` tries others: one Structured Streaming query whose foreachBatch caches the
batch and aggregates it by slices of time, several queries at once, adaptive execution off, slices kept in memory;
Flink with mini-batches, two-phase aggregation, object and source reuse, no checkpoints. Flink reads CSV: what it
takes to parse that is measured apart and taken off. DuckDB has all rows at once and two threads, so CPU time is what
is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks import measure
from benchmarks.measure import Bench, Check, Comparison, Side, side
from benchmarks.result import Line, Measured
from benchmarks.result import line as make_line
from benchmarks.result import measured as make_measured
from benchmarks.workloads.facts import EIGHT

ANSWERS = "SASPAR Fig. 6"
MINUTES = (2, 38)
TITLE = "Thalweg against its peers"

FACTS = {
    "thalweg": 32,
    "thalweg-apart": 24,
    "spark-foreach": 20,
    "duckdb": 12,
}
"""Millions of rows; a batch is four. One foreachBatch has twenty queries to warm up, all of them short."""
FLINK = {"facts/1": (20, 4), "facts/8": (6, 2)}
"""Millions of rows, and of these for warming up."""
INTERVAL = {"thalweg": (120, 20), "flink": (40, 15), "flink-scan": (40, 15)}
"""Files of 50,000 rows of each stream, in all and in a batch."""
QUICK_FACTS, QUICK_INTERVAL = (3, 1), (6, 2)


def _side(system: str, work: str, quick: bool) -> Side:
    if work == "interval":
        files, each = QUICK_INTERVAL if quick else INTERVAL[system]
    elif quick:
        files, each = QUICK_FACTS
    else:
        files, each = FLINK[work] if system.startswith("flink") else (FACTS[system], 4)
    return side(system, work, files, files_per_batch=each)


def comparisons(quick: bool) -> tuple[Comparison, ...]:
    def beside(name: str, work: str, peer: str, asked: float | None, meaning: str, **more: Any) -> Comparison:
        return Comparison(name, meaning, _side("thalweg", work, quick), _side(peer, work, quick), asked, **more)

    cpu = {"figure": "cpu_seconds_per_million", "unit": "CPU s/M rows", "better": "lower"}
    offered = (
        beside("foreach-20", "facts/20x1", "spark-foreach", 3, "20 queries, against one foreachBatch for all"),
        beside("foreach-8", "facts/8", "spark-foreach", None, f"{EIGHT}, against one foreachBatch for all"),
        beside("flink-1", "facts/1", "flink", None, "1 query, against Flink SQL with its CSV"),
        beside("flink-8", "facts/8", "flink", None, "8 queries, against Flink SQL with its CSV"),
        beside("flink-interval", "interval", "flink", None, "1 interval join, against Flink SQL with its CSV"),
        beside("apart-8", "facts/8", "thalweg-apart", None, "8 queries, against Thalweg with sharing off"),
        beside("duckdb-8", "facts/8", "duckdb", 2, "8 queries, CPU time, against a DuckDB batch", **cpu),
    )
    return tuple(c for c in offered if not quick or c.name in QUICK)


QUICK = ("flink-1", "duckdb-8")
NET = {"flink-1": None, "flink-8": 10, "flink-interval": 5}
"""What is asked where CSV parsing is taken off."""


def main(arguments: list[str]) -> int:
    parser = measure.parser("peers", __doc__, (c.name for c in comparisons(False)))
    options = parser.parse_args(arguments)
    bench = Bench("peers", TITLE, options, ANSWERS)
    chosen = bench.chosen(comparisons(options.quick))
    sides = [s for c in chosen for s in c.sides]
    scans = {c.name: replace(c.theirs, system="flink-scan") for c in chosen if c.name in NET and c.theirs is not None}
    bench.run(_checks(sides), [*sides, *scans.values()])
    lines = list(bench.lines(chosen))
    for c in chosen:
        if c.name in scans:
            lines.extend(_net_of_parsing(bench, c, scans[c.name]))
    lines = bench.with_older([*lines, *measure.shuffle_lines(bench)])
    bench.result(lines, NOTES)
    return 0


NOTES = (
    "SASPAR's figure is over TPC-H on a cluster; this is another workload on one machine",
    "spark-foreach: batch cached, time as a number, aggregates by slices, 8 queries at a time, adaptive execution "
    "off, slices in memory only (one that survives a failure would have to write them)",
    "flink: one StatementSet, parallelism 2, mini-batch, two-phase aggregation, object and source reuse, no "
    "checkpoints; like Spark with the parallel collector",
    "flink net of CSV: seconds for a row less those of parsing it into nothing",
    "duckdb: 2 threads, one query after the other over the same Parquet files, windows put together from slices",
)


def _checks(sides: Sequence[Side]) -> list[Check]:
    """Ours against every peer that is timed, on the fewest rows with which a window closes. The query of `facts/1` is
    one of those of `facts/8`."""
    peers: dict[str, dict[str, None]] = {}
    for one in sides:
        if one.system != "thalweg":
            peers.setdefault(one.work, {})[one.system] = None
    if peers.get("facts/1", {}).keys() <= peers.get("facts/8", {}).keys():
        peers.pop("facts/1", None)
    checks = []
    for work, systems in peers.items():
        files, each = QUICK_INTERVAL if work == "interval" else QUICK_FACTS
        ours, *theirs = (side(system, work, files, files_per_batch=each) for system in ("thalweg", *systems))
        checks.append(Check(ours, tuple(theirs)))
    return checks


def _net_of_parsing(bench: Bench, c: Comparison, scan: Side) -> list[Line]:
    """Flink's seconds for a row less those of the scan alone, repetition by repetition."""
    ours, theirs = (
        bench.measured(c.ours),
        net_of_scan(bench.runs.get(c.theirs, ()), bench.runs.get(scan, ()), scan.work),
    )
    if ours is None or theirs is None:
        return []
    meaning = c.meaning.replace("with its CSV", "net of parsing CSV")
    return [make_line(f"{c.name}-net", meaning, ours, theirs, NET[c.name])]


def net_of_scan(whole: Sequence[dict[str, Any]], scan: Sequence[dict[str, Any]], work: str) -> Measured | None:
    """None where parsing alone takes as long as all of it: then nothing can be said of the rest."""
    runs = []
    for one, other in zip(whole, scan, strict=False):
        seconds = 1 / one["rows_per_second"] - 1 / other["rows_per_second"]
        if seconds <= 0:
            return None
        runs.append({**one, "rows_per_second": 1 / seconds})
    return make_measured("flink net of CSV", work, runs) if runs else None


SHOWN = {
    "thalweg": "Thalweg",
    "thalweg-apart": "Thalweg, sharing off",
    "spark-foreach": "one foreachBatch",
    "flink": "Flink SQL",
    "duckdb": "DuckDB, a batch",
}
