"""How long the join optimiser takes, what sharing saves and how near the optimum it is (CLASH, V.2 and VII.C).

    thalweg bench join-planning [--quick] [--json FILE] [--only example|asked|sweep|methods|attach ...] [--seeds N]

Workloads are drawn as CLASH describes: relations of three attributes, every relation of the same rate and every join
of selectivity 1/rate, so that all intermediate results are of one size; a query is a random relation and then random
joins until it is as large as it should be. Queries drawn twice are kept once. Two relations can be joined where they
have an attribute of one name; there are 1.7 names for each relation. `saving` is against each query optimised alone,
`gap` is what is unproven of the cost. Medians over seeds, and the worst. `chi` is what a broadcast costs; where it is
more than 1, sharing can cost more than it saves: apart, every query may partition a common store as it likes.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import join_planning_lines as compared
from benchmarks.measure import Bench, add_columns, coloured, new_table, out
from benchmarks.remaining import Remaining
from thalweg.optimize.probe_orders import JoinQuery, Plan, Statistics, attach, detach, optimize

ANSWERS = "CLASH Section V.2, Fig. 9"
MINUTES = (2, 8)
TITLE = "The join optimiser: its time, what sharing saves, and how near the optimum it is"
RATE = 1000
ATTRIBUTES = 3
NAMES_PER_RELATION = 1.7
METHODS = ("dp", "ilp", "auto")
Joins = dict[tuple[int, int], list[str]]
"""Two relations -> the names of attributes that both have."""


@dataclass(frozen=True)
class Workload:
    queries: int
    """As many are drawn; those drawn twice count once."""
    size: int
    relations: int
    parallelism: int = 1
    materialize: bool = True
    budget: float = 1.0

    @property
    def name(self) -> str:
        return f"{self.queries} queries of {self.size} out of {self.relations}"


@dataclass(frozen=True)
class Asked:
    """What the project asks of a workload; 0: nothing."""

    workload: Workload
    seconds: float = 0.0
    gap: float = 0.0
    saving: float = 0.0


ABOUT_HALF = 0.48
"""CLASH reads 50 % off a figure, over other relations."""
SETTINGS = ((1, True), (5, True), (1, False), (5, False))
"""Chi, and whether intermediate results may be kept."""


def asked_of(parallelism: int, materialize: bool) -> tuple[Asked, ...]:
    def workload(queries: int, size: int, relations: int, budget: float = 1.0) -> Workload:
        return Workload(queries, size, relations, parallelism, materialize, budget)

    return (
        Asked(workload(100, 3, 100), seconds=0.1, gap=0.01),
        Asked(workload(30, 5, 10, budget=0.9), seconds=1.0, gap=0.01),
        Asked(workload(100, 3, 10), seconds=1.1, saving=ABOUT_HALF if parallelism == 1 else 0.0),
        Asked(workload(500, 3, 100), seconds=1.1),
        Asked(workload(500, 5, 100), seconds=1.1),
    )


@dataclass(frozen=True)
class Sizes:
    seeds: int
    settings: tuple[tuple[int, bool], ...]
    counts: tuple[int, ...]
    """Queries, for the sweep."""
    longest: int
    """Relations of a query, for the sweep."""
    compared: int
    """Workloads on which the methods are compared."""
    attached: int
    """Of five hundred queries, one by one."""


def sizes_of(quick: bool) -> Sizes:
    if quick:
        return Sizes(3, SETTINGS[:2], (10, 100), 4, 1, 5)
    return Sizes(9, SETTINGS, (10, 20, 30, 50, 70, 100), 6, 3, 20)


def main(arguments: list[str]) -> int:
    sections: dict[str, Callable[[Sizes], Any]] = {
        "example": example,
        "asked": asked_for,
        "sweep": sweep,
        "methods": methods,
        "attach": attached_one_by_one,
    }
    parser = argparse.ArgumentParser(prog="thalweg bench join-planning", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer seeds and sizes, in less than two minutes")
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    parser.add_argument("--only", nargs="*", choices=list(sections), help="some of the sections")
    parser.add_argument("--seeds", type=int, help="workloads drawn for each line")
    options = parser.parse_args(arguments)
    bench = Bench("join-planning", TITLE, options, ANSWERS)
    sizes = sizes_of(options.quick)
    if options.seeds:
        sizes = replace(sizes, seeds=options.seeds)
    bench.repetitions = sizes.seeds
    chosen = options.only or list(sections)
    runs = {name: f"join-planning {name} {sizes.seeds} {len(sizes.counts)}" for name in chosen}
    found: dict[str, Any] = {}
    planned(*draw(Workload(5, 3, 5, parallelism=2), 0), budget=1.0)  # what loads with the first call is not its time
    bar = Remaining("join-planning", list(runs.values()))
    for name, run in runs.items():
        with bar.during(run):
            found[name] = sections[name](sizes)
    bench.result(tuple(compared.lines(found)), compared.NOTES)
    return 0


def draw(workload: Workload, seed: int) -> tuple[list[JoinQuery], Statistics]:
    rng = random.Random(f"{workload.queries} {workload.size} {workload.relations} {seed}")
    joins = draw_joins(rng, workload.relations, workload.size)
    drawn = dict.fromkeys(draw_query(rng, joins, workload) for _ in range(workload.queries))
    queries = [JoinQuery(f"q{i}", relations_of(pairs), pairs) for i, pairs in enumerate(drawn)]
    pairs = {pair for query in queries for pair in query.predicates}
    rates = {relation: RATE for query in queries for relation in query.relations}
    return queries, Statistics(
        rates=rates, selectivity=dict.fromkeys(sorted(pairs), 1 / RATE), parallelism=workload.parallelism
    )


def draw_joins(rng: random.Random, relations: int, size: int) -> Joins:
    """Drawn again until every relation is in some query of that size."""
    names = [f"a{i}" for i in range(round(NAMES_PER_RELATION * relations))]
    while True:
        attributes = [rng.sample(names, ATTRIBUTES) for _ in range(relations)]
        common = {
            (i, j): sorted(set(attributes[i]) & set(attributes[j])) for i, j in combinations(range(relations), 2)
        }
        joins = {link: found for link, found in common.items() if found}
        if all(len(part) >= size for part in parts_of(joins, relations)):
            return joins


def parts_of(joins: Iterable[tuple[int, int]], relations: int) -> list[set[int]]:
    """Relations that are joined to one another, directly or not."""
    part_of = {relation: {relation} for relation in range(relations)}
    for one, other in joins:
        if part_of[one] is not part_of[other]:
            part_of[one] |= part_of[other]
            part_of |= dict.fromkeys(part_of[other], part_of[one])
    return list({id(part): part for part in part_of.values()}.values())


def draw_query(rng: random.Random, joins: Joins, workload: Workload) -> tuple[tuple[str, str], ...]:
    inside, pairs = {rng.randrange(workload.relations)}, []
    while len(inside) < workload.size:
        link = rng.choice([link for link in joins if len(inside & set(link)) == 1])
        name = rng.choice(joins[link])
        pairs.append((f"r{link[0]:02}.{name}", f"r{link[1]:02}.{name}"))
        inside |= set(link)
    return tuple(sorted(pairs))


def relations_of(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    return tuple(sorted({attribute.split(".")[0] for pair in pairs for attribute in pair}))


@dataclass(frozen=True)
class Taken:
    seconds: float
    cpu_seconds: float


def planned(
    queries: list[JoinQuery], statistics: Statistics, *, budget: float, method: str = "auto", materialize: bool = True
) -> tuple[Plan, Taken]:
    """The plan, and how long it took; what the queries cost apart is reckoned when it is read, after that."""
    gc.collect()
    began, cpu = time.perf_counter(), time.process_time()
    plan = optimize(queries, statistics, budget_seconds=budget, method=method, materialize=materialize)
    return plan, Taken(time.perf_counter() - began, time.process_time() - cpu)


def figures(workload: Workload, seeds: int, method: str = "auto") -> dict[str, Any]:
    lines: list[dict[str, Any]] = []
    for seed in range(seeds):
        queries, statistics = draw(workload, seed)
        plan, taken = planned(
            queries, statistics, budget=workload.budget, method=method, materialize=workload.materialize
        )
        lines.append(
            {
                "seconds": taken.seconds,
                "cpu seconds": taken.cpu_seconds,
                "distinct": len(queries),
                "cost": plan.cost,
                "separate": plan.separate_cost,
                "saving": 1 - plan.cost / plan.separate_cost,
                "gap": 1 - plan.bound / plan.cost,
                "kept": sum(len(store.relations) > 1 for store in plan.stores),
                "method": plan.method,
            }
        )
    medians = {key: median(line[key] for line in lines) for key in lines[0] if key != "method"}
    worst = {f"worst {key}": max(line[key] for line in lines) for key in ("seconds", "gap")}
    found = {"workload": workload.name, **asdict(workload), "asked of": method, **medians, **worst}
    return {**found, "methods": sorted({line["method"] for line in lines}), "runs": lines}


def example(_: Sizes) -> dict[str, Any]:
    """CLASH, Section V.2: 475 rows for each query alone, 800 for both together."""
    queries = [
        JoinQuery("q1", ("R", "S", "T"), (("R.a", "S.a"), ("S.b", "T.b"))),
        JoinQuery("q2", ("S", "T", "U"), (("S.b", "T.b"), ("T.c", "U.c"))),
    ]
    selectivity = {("R.a", "S.a"): 0.01, ("S.b", "T.b"): 0.015, ("T.c", "U.c"): 0.01}
    statistics = Statistics(rates=dict.fromkeys("RSTU", 100), selectivity=selectivity, parallelism=1)
    table = new_table("CLASH, V.2: 950 apart, 800 together", "method")
    add_columns(table, "apart", "together", "bound", "ms")
    found = {}
    for method in METHODS:
        plan, taken = planned(queries, statistics, budget=1.0, method=method, materialize=False)
        good = round(plan.cost, 6) == 800 and round(plan.separate_cost, 6) == 950
        cells = (
            f"{plan.separate_cost:g}",
            coloured(f"{plan.cost:g}", good),
            f"{plan.bound:g}",
            f"{taken.seconds * 1e3:.1f}",
        )
        table.add_row(method, *cells)
        found[method] = {"separate": plan.separate_cost, "cost": plan.cost, "bound": plan.bound, **asdict(taken)}
    out.print(table)
    return found


def asked_for(sizes: Sizes) -> list[dict[str, Any]]:
    found = []
    for setting in sizes.settings:
        for asked in asked_of(*setting):
            line = figures(asked.workload, sizes.seeds)
            found.append({**line, "asked": {key: getattr(asked, key) for key in ("seconds", "gap", "saving")}})
    _show("what is asked; [green]reached[/] or [red]not[/]", found)
    return found


def sweep(sizes: Sizes) -> list[dict[str, Any]]:
    """Fig. 9: more queries over ten and a hundred relations, and larger ones."""
    workloads = [
        Workload(count, 3, relations, chi) for chi in (1, 5) for relations in (10, 100) for count in sizes.counts
    ]
    workloads += [Workload(10, size, 10, chi) for chi in (1, 5) for size in range(2, sizes.longest + 1)]
    found = [figures(workload, sizes.seeds) for workload in workloads]
    _show("more and larger queries (Fig. 9)", found)
    return found


def methods(sizes: Sizes) -> list[dict[str, Any]]:
    """The dynamic program, the integer program, and both, on the same workloads."""
    found = []
    for workload in (Workload(100, 3, 10), Workload(100, 3, 10, 5), Workload(30, 5, 10))[: sizes.compared]:
        found += [figures(workload, sizes.seeds, method) for method in METHODS]
    _show("methods", found)
    return found


def attached_one_by_one(sizes: Sizes) -> list[dict[str, Any]]:
    """The last queries come one by one and the first go again, against full runs over those that are there."""
    table = new_table("attached to the plan in force, then detached; cost against a full run's", "workload")
    add_columns(table, "chi", "attached", "ms each", "cost", "detached", "ms each", "cost")
    found = []
    for workload, come in (
        (Workload(20, 3, 10), 19),
        (Workload(20, 3, 10, 5), 19),
        (Workload(20, 5, 10), 19),
        (Workload(500, 3, 100), sizes.attached),
    ):
        lines = [_attached(workload, come, seed) for seed in range(min(sizes.seeds, 3))]
        line = {key: median(one[key] for one in lines) for key in lines[0]}
        found.append({"workload": workload.name, **asdict(workload), **line})
        cells = [str(workload.parallelism)]
        for way in ("attach", "detach"):
            cells += [f"{line[way]:g}", f"{line[f'{way} seconds'] * 1e3:.1f}", f"{line[f'{way} ratio']:.3f}x"]
        table.add_row(workload.name, *cells)
    out.print(table)
    return found


def _attached(workload: Workload, come: int, seed: int) -> dict[str, float]:
    queries, statistics = draw(workload, seed)
    before = max(len(queries) - come, 1)
    plan, _ = planned(queries[:before], statistics, budget=workload.budget)
    began = time.perf_counter()
    for query in queries[before:]:
        plan = attach(plan, query, statistics)
    attached = time.perf_counter() - began
    full, _ = planned(queries, statistics, budget=workload.budget)
    ratio = plan.cost / full.cost
    gone = min(come, len(queries) // 2)
    began = time.perf_counter()
    for query in queries[:gone]:
        plan = detach(plan, query.name)
    detached = time.perf_counter() - began
    left, _ = planned(queries[gone:], statistics, budget=workload.budget)
    return {
        "attach": len(queries) - before,
        "attach seconds": attached / (len(queries) - before),
        "attach ratio": ratio,
        "detach": gone,
        "detach seconds": detached / gone,
        "detach ratio": plan.cost / left.cost,
    }


def _show(title: str, lines: Iterable[Mapping[str, Any]]) -> None:
    table = new_table(title, "workload")
    add_columns(table, "chi", "stores", "by", "ms", "worst", "cpu", "cost", "saving", "gap", "worst", "kept")
    for line in lines:
        asked: dict[str, float] = line.get("asked", {})
        table.add_row(
            line["workload"],
            str(line["parallelism"]),
            "kept" if line["materialize"] else "base",
            line["asked of"],
            coloured(f"{line['seconds'] * 1e3:.0f}", _within(line["seconds"], asked.get("seconds"))),
            f"{line['worst seconds'] * 1e3:.0f}",
            f"{line['cpu seconds'] * 1e3:.0f}",
            f"{line['cost'] / 1e3:.0f}k",
            coloured(f"{line['saving']:.1%}", _within(-line["saving"], -asked.get("saving", 0.0))),
            coloured(f"{line['gap']:.2%}", _within(line["gap"], asked.get("gap"))),
            f"{line['worst gap']:.2%}",
            f"{line['kept']:g}",
        )
    out.print(table)


def _within(value: float, most: float | None) -> bool | None:
    return value <= most if most else None
