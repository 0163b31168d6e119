"""TPC-H as streams: each query alone and several together, against plain Spark and against Thalweg without sharing.

    thalweg bench tpch [--quick] [--json FILE] [--only NAME ...] [--repetitions N]

lineitem, orders and customer arrive as streams, a second of event time for a day; nation, region, part and supplier
are static (benchmarks/workloads/tpch.py). Some of the comparisons run only when they are asked for. Needs
`tpchgen-cli`: pip install 'thalweg[bench]'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from benchmarks import measure
from benchmarks.measure import Bench, Check, Comparison, Side, side
from benchmarks.workloads import named, tpch

ANSWERS = "SASPAR Fig. 6"
MINUTES = (2, 35)
TITLE = "TPC-H as streams"

SIZES = {"thalweg": (60, 12), "thalweg-apart": (36, 12), "spark": (24, 8), "spark alone": (40, 8)}
"""Files of 30 days each, in all and in a batch. Plain Spark's joins get fewer: Q3 had 87k rows/s with 4, 110k with
8. One query alone runs for longer: the JVM gets faster for several batches."""
TOGETHER = (2, 4, 8)
CHECK = {"files": 16, "files_per_batch": 8}
"""Spark holds windows back behind a join for as long as rows may wait in it: it takes 11 files until one closes."""
CHECK_SCALE = "@0.05"
QUICK = {"files": 12, "files_per_batch": 4}
QUICK_SCALE = "@0.1"


def _compared(name: str, work: str, theirs: str, meaning: str) -> Comparison:
    return Comparison(name, meaning, _side("thalweg", work), _side(theirs, work))


def _side(system: str, work: str) -> Side:
    joins = len(named(f"tpch/{work}").streams) > 1
    size = "spark alone" if system == "spark" and work.startswith("q") else system
    files, files_per_batch = SIZES[size if joins else "thalweg"]
    return side(system, f"tpch/{work}", files, files_per_batch=files_per_batch)


COMPARISONS = (
    *(_compared(q, q, "spark", f"{q.upper()} alone, against plain Spark") for q in tpch.ORDER),
    *(_compared(f"{n}-queries", str(n), "spark", f"{n} queries, against plain Spark") for n in TOGETHER),
    *(
        _compared(f"{n}-apart", str(n), "thalweg-apart", f"{n} queries, against Thalweg with sharing off")
        for n in TOGETHER
    ),
)
USUAL = ("q3", "q6", "q18", "4-queries", "8-queries", "4-apart", "8-apart")
"""The others take another half an hour, and are measured when they are asked for."""
QUICK_NAMES = ("2-queries", "2-apart")


def main(arguments: list[str]) -> int:
    options = measure.parser("tpch", __doc__, (c.name for c in COMPARISONS)).parse_args(arguments)
    bench = Bench("tpch", TITLE, options, ANSWERS)
    reason = tpch.missing()
    if reason:
        bench.skipped.append(reason)
        bench.result(())
        return 0
    comparisons = bench.chosen(_quick()) if options.quick else bench.chosen(COMPARISONS, usual=USUAL)
    bench.run(_checks(comparisons, options.quick), [s for c in comparisons for s in c.sides])
    lines = bench.with_older([*bench.lines(comparisons), *measure.shuffle_lines(bench)])
    bench.result(lines)
    return 0


def _quick() -> tuple[Comparison, ...]:
    """Less of it, at a smaller scale, so that batches are small, too."""
    kept = [c for c in COMPARISONS if c.name in QUICK_NAMES]
    return tuple(_scaled(c, QUICK_SCALE).resized(**QUICK) for c in kept)


def _scaled(c: Comparison, scale: str) -> Comparison:
    ours, theirs = (side(s.system, f"{s.work}{scale}", s.files) for s in c.sides)
    return Comparison(c.name, c.meaning, ours, theirs)


def _checks(comparisons: Sequence[Comparison], quick: bool) -> list[Check]:
    """Everything against a batch of DuckDB and, as far as it is timed, plain Spark; small, before it is timed."""
    checks: dict[str, Check] = {}
    sizes = [len(named(c.ours.work).queries) for c in comparisons]
    # Fewer queries together are the first of more.
    for c in (c for c, size in zip(comparisons, sizes, strict=True) if size in (1, max(sizes))):
        ours = c.ours if quick else side("thalweg", f"{c.ours.work}{CHECK_SCALE}", **CHECK)
        peers = [replace(ours, system="duckdb")]
        if c.theirs is not None and c.theirs.system == "spark":
            peers.append(replace(ours, system="spark"))
        checks.setdefault(ours.work, Check(ours, tuple(peers), stands_for=c.ours.work))
    return list(checks.values())
