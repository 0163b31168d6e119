"""From 20 to 2,000 queries: what a batch costs, with all queries sharing, with none, and as plain Spark.

    thalweg bench scale [--quick] [--json FILE] [--only NAME ...] [--repetitions N]

Windowed aggregations over one stream, none like another (`many/N`), and joins of two streams, 75 % similar
(`ajoin-N@75`). Batches of 20,000 rows show what is paid for each query, batches of 500,000 what is paid for a row.
With sharing off every aggregation groups by itself and has a state of its own; rows are read once either way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks import measure
from benchmarks.measure import Bench, Check, Comparison, Side, side

ANSWERS = "SASPAR Fig. 10; AJoin Fig. 15, 16"
MINUTES = (3, 45)
TITLE = "Twenty to two thousand queries"
NUMBERS = (20, 100, 500, 1000, 2000)
SPARK_NUMBERS = (20, 100)
"""More of its queries were not done in twenty minutes."""
WORTH = {500: 3.0, 2000: 5.0}
"""Queries -> what sharing is asked to gain."""
NEAR_FLAT = 2.0
"""Times the processor time of 100 aggregations that 1,000 may take."""
JOINED_NUMBERS = (20, 100, 500, 1000, 2000)
ALIKE = 0.6
"""Of the rate of 20 joins that 500 are asked to have."""
TINY, LARGE, JOINED, SPARK = 8, 4, 8, 3
"""Files, each of them a batch."""
DROPPED = 20
QUICK_NUMBERS = (100, 1000)


def main(arguments: list[str]) -> int:
    options = measure.parser("scale", __doc__, (c.name for c in COMPARISONS)).parse_args(arguments)
    bench = Bench("scale", TITLE, options, ANSWERS)
    comparisons = bench.chosen(_quick() if options.quick else COMPARISONS)
    bench.run(_checks(comparisons), [s for c in comparisons for s in c.sides])
    bench.result(bench.with_older(list(bench.lines(comparisons))), NOTES)
    return 0


def _tiny(count: int) -> Side:
    return side("thalweg", f"many/{count}", TINY, drop=DROPPED)


def _large(count: int, system: str = "thalweg") -> Side:
    return side(system, f"many/{count}/large", LARGE)


def _joined(count: int) -> Side:
    return side("thalweg", f"ajoin-{count}@75", JOINED, files_per_batch=1, drop=DROPPED)


def _aggregations() -> Iterator[Comparison]:
    for count in NUMBERS:
        yield Comparison(
            f"{count}-tiny",
            f"{count:,} aggregations, batches of 20,000 rows: processor time of a batch, against 100",
            _tiny(count),
            None if count == 100 else _tiny(100),
            NEAR_FLAT if count == 1000 else None,
            "cpu_seconds_a_batch",
            "s",
            "lower",
        )
    for count in NUMBERS:
        yield Comparison(
            f"{count}-shared",
            f"{count:,} aggregations, batches of 500,000 rows, against sharing off",
            _large(count),
            _large(count, "thalweg-unshared"),
            WORTH.get(count),
        )
    for count in SPARK_NUMBERS:
        meaning = f"{count:,} aggregations, batches of 20,000 rows, against plain Spark"
        yield Comparison(f"{count}-spark", meaning, _tiny(count), side("spark", f"many/{count}", SPARK))


def _joins() -> Iterator[Comparison]:
    for count in JOINED_NUMBERS:
        yield Comparison(
            f"{count}-joins",
            f"{count:,} joins, batches of 100,000 rows, against 20",
            _joined(count),
            None if count == 20 else _joined(20),
            ALIKE if count == 500 else None,
        )


COMPARISONS = (*_aggregations(), *_joins())
NOTES = (
    "the more joins there are, the wider the range that keys are drawn from, so that results stay at ten rows for a "
    "row read",
    "the time of a batch is from its beginning to its end: with rows that wait for it, what a result waits for",
)


def _quick() -> tuple[Comparison, ...]:
    wanted = {f"{count}-tiny" for count in QUICK_NUMBERS} | {f"{QUICK_NUMBERS[-1]}-shared", "20-joins"}
    return tuple(c for c in COMPARISONS if c.name in wanted)


def _checks(comparisons: Sequence[Comparison]) -> list[Check]:
    """Those of fewer queries are among those of more; without sharing the results are the same."""
    works = {s.work for c in comparisons for s in c.sides}
    checks = []
    aggregations = sorted((int(work.split("/")[1]) for work in works if work.startswith("many/")), reverse=True)
    if aggregations:
        work = f"many/{min(aggregations[0], 500)}"
        peers = tuple(side(system, work, 4) for system in ("thalweg-unshared", "duckdb"))
        checks.append(Check(side("thalweg", work, 4), peers))
    joins = sorted(int(work[len("ajoin-") : work.index("@")]) for work in works if work.startswith("ajoin-"))
    if joins:
        work = f"ajoin-{min(joins[-1], 100)}@75"
        settings = {"files_per_batch": 1}
        checks.append(Check(side("thalweg", work, 2, **settings), (side("duckdb", work, 2, **settings),)))
    return checks
