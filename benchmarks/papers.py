"""The papers' other workloads: SASPAR's game, and GCM, DEBS 2015 and word count by hash and as the engine chooses.

    thalweg bench papers [--quick] [--json FILE] [--only NAME ...] [--repetitions N]

The data sets cannot be had here; these are generated likenesses with the papers' group counts, windows and skews
(benchmarks/workloads/game.py, cluster.py, taxi.py, words.py). Some comparisons run only when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks import measure
from benchmarks.measure import Bench, Check, Comparison, Side, side
from benchmarks.workloads import named

ANSWERS = "SASPAR Listing 1, Fig. 1; Holistic Fig. 8, 12; Dalton Fig. 7, 8"
MINUTES = (2, 32)
TITLE = "The papers' workloads"

GAME_SIZES = {"one": (160, 20), "thalweg": (80, 20), "thalweg-apart": (60, 20), "spark": (30, 10)}
"""Files of 50,000 rows of each stream, in all and in a batch. One query is an aggregation, for which Spark gets
as many as we; of its joins, four queries had 56k rows/s with 5, 66k with 10."""
GAME_SPARK = (1, 2, 4, 8)
GAME_APART = (4, 16)
GAME_THALWEG = (16, 64)
DEALT = {
    "gcm/class": (64, 16),
    "gcm/jobs": (64, 16),
    "debs/routes": (64, 16),
    "debs/fares": (64, 16),
    "words/uniform": (32, 8),
    "words/t4sa": (32, 8),
    "words": (32, 8),
    "words/zipf": (32, 8),
}
"""Workload -> files, in all and in a batch of 800,000 rows."""
SLOTS = 4
QUICK = {"files": 10, "files_per_batch": 5}
CHECK_DEALT = {"files": 4, "files_per_batch": 2}
USUAL = (
    "game-1", "game-4", "game-16-apart", "game-64-alone", "gcm/jobs", "debs/routes", "words/uniform", "words/zipf",
)  # fmt: skip
"""The others take another half an hour, and are measured when they are asked for."""
QUICK_NAMES = ("game-4",)


def _game(system: str, n: int) -> Side:
    files, files_per_batch = GAME_SIZES["one" if n == 1 else system]
    return side(system, f"game/{n}", files, files_per_batch=files_per_batch)


def _dealt(work: str, files: int, files_per_batch: int) -> Comparison:
    ours = side("thalweg", work, files, files_per_batch=files_per_batch, slots=SLOTS)
    theirs = ours.with_settings(partitioner="hash")
    return Comparison(work, f"{work}: rows dealt out as the engine chooses, against hash", ours, theirs)


GAMES = (
    *(
        Comparison(
            f"game-{n}",
            f"the game, {n} {'query' if n == 1 else 'queries'}, against plain Spark",
            _game("thalweg", n),
            _game("spark", n),
        )
        for n in GAME_SPARK
    ),
    *(
        Comparison(
            f"game-{n}-apart",
            f"the game, {n} queries, against Thalweg with sharing off",
            _game("thalweg", n),
            _game("thalweg-apart", n),
        )
        for n in GAME_APART
    ),
    *(Comparison(f"game-{n}-alone", f"the game, {n} queries", _game("thalweg", n)) for n in GAME_THALWEG),
)
DEALINGS = tuple(_dealt(work, *sizes) for work, sizes in DEALT.items())
COMPARISONS = (*GAMES, *DEALINGS)


def main(arguments: list[str]) -> int:
    options = measure.parser("papers", __doc__, (c.name for c in COMPARISONS)).parse_args(arguments)
    bench = Bench("papers", TITLE, options, ANSWERS)
    comparisons = bench.chosen(tuple(_quick())) if options.quick else bench.chosen(COMPARISONS, usual=USUAL)
    bench.run(_checks(comparisons), [s for c in comparisons for s in c.sides])
    lines = bench.with_older([*bench.lines(comparisons), *measure.shuffle_lines(bench)])
    bench.result(lines, _dealt_out(bench, comparisons))
    return 0


def _quick() -> Iterator[Comparison]:
    return (c.resized(**QUICK) for c in GAMES if c.name in QUICK_NAMES)


def _checks(comparisons: Sequence[Comparison]) -> list[Check]:
    """Against a batch of DuckDB; the game against plain Spark, too, and the engine's choice against hash.

    Fewer queries of the game are the first of more: the most are checked, of all and of those that Spark runs.
    """
    games = [c for c in comparisons if c.name not in DEALT]
    on_spark = [c for c in games if c.theirs is not None and c.theirs.system == "spark"]
    most = [max(some, key=_queries) for some in (on_spark, games) if some]
    checks: dict[str, Check] = {}
    for c in (*most, *(c for c in comparisons if c.name in DEALT)):
        small = c.resized(**(CHECK_DEALT if c.name in DEALT else QUICK))
        peers = [side("duckdb", c.ours.work, small.ours.files)]
        if small.theirs is not None and (c.name in DEALT or small.theirs.system == "spark"):
            peers.append(small.theirs)
        checks.setdefault(c.ours.work, Check(small.ours, tuple(peers)))
    return list(checks.values())


def _queries(c: Comparison) -> int:
    return len(named(c.ours.work).queries)


# -- how rows were dealt out -------------------------------------------------------------------------------


def _dealt_out(bench: Bench, comparisons: Sequence[Comparison]) -> list[str]:
    """Who dealt the rows of the last batch out, where the engine chose."""
    told = []
    for c in comparisons:
        runs = bench.runs.get(c.ours, []) if c.name in DEALT else []
        dealt = runs[-1].get("dealt") if runs else None
        if dealt:
            chosen = ", ".join(dict.fromkeys(each["partitioner"] for each in dealt.values()))
            told.append(f"{c.name}: dealt by {chosen} in the end")
    return told
