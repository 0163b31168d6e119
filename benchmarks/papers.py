"""The papers' other workloads: SASPAR's game, and GCM, DEBS 2015 and word count by hash and as the engine chooses.

    thalweg bench papers [--quick] [--json FILE] [--only NAME ...] [--repetitions N]

The data sets cannot be had here; these are generated likenesses with the papers' group counts, windows and skews
(benchmarks/workloads/game.py, cluster.py, taxi.py, words.py). Some comparisons run only when they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import measure
from benchmarks.measure import Bench, Check, Comparison, Side, side
from benchmarks.partitioner_findings import above_even
from benchmarks.result import Finding, Line, Series
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
    loads = dict(bench.older.extra["dealt"]) if bench.older else {}
    loads |= {c.name: _loads(bench, c) for c in comparisons if c.name in DEALT}
    bench.result(lines, [*_series(lines), *_load_series(loads)], _findings(lines, loads), extra={"dealt": loads})
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


def _loads(bench: Bench, c: Comparison) -> dict[str, Any]:
    """`chosen` and `hash` -> who dealt the rows of the last batch out, and how many each worker got."""
    found = {}
    for name, one in (("chosen", c.ours), ("hash", c.theirs)):
        runs = bench.runs.get(one, []) if one else []
        if runs and runs[-1].get("dealt"):
            found[name] = runs[-1]["dealt"]
    return found


def _load_series(loads: Mapping[str, Mapping[str, Any]]) -> list[Series]:
    """Rows of each slot, the busiest first, for the grouping that is least even by hash."""
    made = []
    for work, found in loads.items():
        if len(found) < 2:
            continue
        worst = max(found["hash"], key=lambda g: above_even(found["hash"][g]["loads"]))
        curves = {
            f"{name} ({dealt[worst]['partitioner']})": [
                (float(i), float(rows)) for i, rows in enumerate(sorted(dealt[worst]["loads"], reverse=True))
            ]
            for name, dealt in found.items()
            if worst in dealt
        }
        made.append(
            Series(_loads_plot(work), f"{work}: rows of each worker in the last batch", "worker", "rows", curves)
        )
    return made


def _loads_plot(work: str) -> str:
    return f"loads-{work.replace('/', '-')}"


# -- what was found ----------------------------------------------------------------------------------------


def _series(lines: Sequence[Line]) -> list[Series]:
    names = {"Thalweg": "thalweg", "Thalweg, sharing off": "thalweg-apart", "Structured Streaming": "spark"}
    counts = sorted({*GAME_SPARK, *GAME_APART, *GAME_THALWEG})
    wanted = {name: {float(n): (system, f"game/{n}") for n in counts} for name, system in names.items()}
    curves = measure.curves(wanted, measure.rates(lines))
    title = "SASPAR's game: rows of both streams per second, every query answered"
    return [Series("game", title, "queries", "rows/s", curves, log=True)] if curves else []


PAPERS = {
    "words": (
        "Dalton, Fig. 7, 8",
        "hashing scales for even keys and not for skewed ones; learned splitting is 1.6 to 2.1 times as fast as "
        "other partitioners in micro-batches",
    ),
    "gcm": (
        "Holistic, Fig. 12",
        "keeping a group in one place and balancing groups beats splitting by two choices by more than 1.4 times",
    ),
    "debs": (
        "Holistic, Fig. 8",
        "with millions of groups whole keys win: putting split ones together takes most of the time",
    ),
}


def _findings(lines: Sequence[Line], loads: Mapping[str, Mapping[str, Any]]) -> list[Finding]:
    ratios = {line.name: line for line in lines if line.ratio is not None}
    game = [
        f"{line.meaning.removeprefix('the game, ')}: {line.ratio:.1f}x"
        for name, line in ratios.items()
        if name.startswith("game-")
    ]
    game += [
        f"{line.ratio:.2f}x the bytes of plain Spark change hands for every row, with those that become state"
        for name, line in ratios.items()
        if name.startswith("shuffled-game") and name.endswith("-spark")
    ]
    theirs = "one partitioning shared by queries of different keys sends a row once where the keys are correlated"
    found = [Finding("SASPAR, Listing 1, Fig. 1", theirs, "; ".join(game), "game")] if game else []
    for kind, (paper, told) in PAPERS.items():
        ours = {
            name: f"{name}: {_against_hash(loads.get(name, {}), line)}"
            for name, line in ratios.items()
            if name.split("/")[0] == kind
        }
        if ours:
            found.append(Finding(paper, told, "; ".join(ours.values()), _loads_plot(list(ours)[-1])))
    return found


def _against_hash(found: Mapping[str, Any], line: Line) -> str:
    """What the engine's choices are worth, and which they were in the end."""
    chosen = ", ".join(dict.fromkeys(g["partitioner"] for g in found.get("chosen", {}).values()))
    return f"{line.ratio:.2f}x the rate of hash{f' (dealt by {chosen} in the end)' if chosen else ''}"
