"""How long the partitioning optimiser takes and how good its answers are: Fig. 8 of SASPAR, and a shift.

`grid` gives a line per input and objective: the time, and the cost of hashing, of list scheduling and of the answer.
Three columns say how much of what can be saved over hashing the answer saves: of the optimum's saving where the
optimum is proven (by the answer's own bound, or by HiGHS on the whole problem where it is given time), at least
(against the bound), and of the best assignment known. Given time, a plain annealing looks for a better one too: it
shares no line with the optimiser's search.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from benchmarks.partition_problems import FIG8, Point, RouteKey, heaviest_first, make_problem, planted, shifted
from thalweg.optimize.slot_assignment import Problem, optimize
from thalweg.optimize.slot_assignment.graph import compile_graph, to_places, to_slots
from thalweg.optimize.slot_assignment.model import linear_model, pivot_model, size_of, solve
from thalweg.optimize.slot_assignment.pivots import compile_pivots

Objective = Literal["copies", "saspar"]
OBJECTIVES: tuple[Objective, ...] = ("copies", "saspar")
Ids = NDArray[np.int64]
Floats = NDArray[np.float64]
Slots = dict[RouteKey, Ids]
PROVEN = 1e-4
"""A gap between bound and cost that counts as none: HiGHS stops there."""
STEPS_A_SECOND = 2_000_000
MOST_BINARIES = 40_000
"""Beyond, HiGHS would not get past its first relaxation in any time one would wait."""


def grid(
    budget: float,
    prove_seconds: float | None = None,
    points: Sequence[Point] = FIG8,
    objectives: Sequence[Objective] = OBJECTIVES,
) -> list[dict[str, Any]]:
    """A line per point and objective; with `prove_seconds`, HiGHS looks for the optimum that long."""
    lines = []
    for point in points:
        problem = make_problem(point)
        for objective in objectives:
            lines.append(_line(point, problem, objective, budget, prove_seconds))
    return lines


def _line(
    point: Point, problem: Problem, objective: Objective, budget: float, prove_seconds: float | None
) -> dict[str, Any]:
    started = time.perf_counter()
    answer = optimize(problem, budget_seconds=budget, seed=1, objective=objective)
    seconds = time.perf_counter() - started
    hashed = problem.cost(problem.hashed(), objective=objective)
    greedy = problem.cost(list_scheduled(problem), objective=objective)
    known = [dict(answer.slots), planted(point)]
    bound = answer.bound
    if prove_seconds is not None and not is_proven(answer.cost, bound):
        found, proven = prove(problem, objective, prove_seconds, dict(answer.slots))
        bound = max(bound, proven)
        known += [found, annealed(problem, objective, int(STEPS_A_SECOND * prove_seconds))]
    best = min(problem.cost(slots, objective=objective) for slots in known if slots is not None)
    return {
        "point": point.name,
        "kind": point.kind,
        "objective": objective,
        "seconds": seconds,
        "hashed": hashed,
        "greedy": greedy,
        "answer": answer.cost,
        "best known": best,
        "bound": bound,
        "saving": share(hashed, answer.cost, best) if is_proven(best, bound) else None,
        "at least": share(hashed, answer.cost, bound),
        "of best known": share(hashed, answer.cost, best),
        "method": answer.method,
    }


def is_proven(cost: float, bound: float) -> bool:
    return cost - bound <= PROVEN * max(1.0, cost)


def share(before: float, after: float, best: float) -> float:
    """How much of what could be saved has been."""
    return 1.0 if before - best <= 1e-9 * max(1.0, before) else (before - after) / (before - best)


def list_scheduled(problem: Problem) -> Slots:
    """What balances load and knows nothing of sharing: per class of tied route keys, heaviest key group first."""
    found: Slots = {}
    for members in classes(problem):
        sizes = sum(np.asarray(problem.counts[key], dtype=float) for key in members)
        found |= dict.fromkeys(members, heaviest_first(np.asarray(sizes), problem.slots))
    return {key: found[key] for key in problem.counts}


def classes(problem: Problem) -> list[list[RouteKey]]:
    """Route keys that `equal` ties to one assignment, and every other one alone."""
    found = [[key] for key in problem.counts]
    for a, b in problem.equal:
        first, second = (next(members for members in found if key in members) for key in (a, b))
        if first is not second:
            found.remove(second)
            first.extend(second)
    return found


def prove(problem: Problem, objective: Objective, seconds: float, start: Slots) -> tuple[Slots | None, float]:
    """HiGHS on the whole problem from `start`: the best it found and the bound it proved."""
    graph = compile_graph(problem, objective)
    if size_of(graph) > MOST_BINARIES:
        return None, 0.0
    pivots = compile_pivots(problem) if objective == "saspar" else None
    program = linear_model(graph) if pivots is None else pivot_model(graph, pivots)
    solved = solve(program, to_places(problem, start), seconds=seconds, gap=PROVEN, seed=1)
    return None if solved.places is None else to_slots(problem, solved.places), solved.bound


def annealed(problem: Problem, objective: Objective, steps: int, seed: int = 1) -> Slots | None:
    """One slow descent from a random assignment; for "saspar" on the graph that bounds it from above."""
    graph = compile_graph(problem, objective)
    if graph.streams != 1 or not graph.uniform or graph.nodes * graph.slots > 1 << 24:
        return None
    weights = graph.weights
    places = np.random.default_rng(seed).integers(0, graph.slots, graph.nodes)
    price = graph.price / graph.latency[0] if graph.latency[0] > 0 else 0.0
    edges = graph.edge_start, graph.edge_node, graph.edge_rows
    _anneal(weights, *edges, graph.slots, price, weights.mean() / 2, weights.mean() / 1000, steps, seed, places)
    return to_slots(problem, places)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _anneal(
    weights: Floats, start: Ids, node: Ids, rows: Floats, slots: int, price: float,
    hot: float, cold: float, steps: int, seed: int, places: Ids,
) -> None:  # fmt: skip
    """Moves of a node and swaps of two, by Metropolis' rule on the true cost; keeps the best."""
    np.random.seed(seed)
    nodes = len(weights)
    load, common = np.zeros(slots), np.zeros((nodes, slots))
    for u in range(nodes):
        load[places[u]] += weights[u]
        for e in range(start[u], start[u + 1]):
            common[u, places[node[e]]] += rows[e]
    top, change, least, best = load.max(), 0.0, 0.0, places.copy()
    for step in range(steps):
        u = np.random.randint(nodes)
        v = np.random.randint(nodes) if np.random.random() < 0.5 else -1
        p, q = places[u], places[v] if v >= 0 else np.random.randint(slots)
        if p == q:
            continue
        delta, moved = common[u, p] - common[u, q], weights[u]
        if v >= 0:
            delta += common[v, q] - common[v, p]
            moved -= weights[v]
            for e in range(start[u], start[u + 1]):
                if node[e] == v:
                    delta += 2 * rows[e]
        load[p] -= moved
        load[q] += moved
        fullest = load.max()
        delta += price * (fullest - top)
        warmth = hot * (cold / hot) ** (step / steps)
        if delta > 0 and np.random.random() >= np.exp(-delta / warmth):
            load[p] += moved
            load[q] -= moved
            continue
        top, change = fullest, change + delta
        for each, old, new in ((u, p, q), (v, q, p)):
            if each >= 0:
                places[each] = new
                for e in range(start[each], start[each + 1]):
                    common[node[e], old] -= rows[e]
                    common[node[e], new] += rows[e]
        if change < least:
            least = change
            best[:] = places
    places[:] = best


def shift(
    budget: float,
    points: Sequence[Point] = FIG8[:6],
    objectives: Sequence[Objective] = ("copies",),
    *,
    long_seconds: float = 20.0,
) -> list[dict[str, Any]]:
    """Cost on a stream whose correlation changed: of the old assignment, after one run from it, and after two.

    The new optimum is the best that is known of: the runs', a run of `long_seconds` from nothing, the planted one.
    """
    lines = []
    for point in points:
        before, after = make_problem(point), make_problem(shifted(point))
        for objective in objectives:
            old = optimize(before, budget_seconds=budget, seed=1, objective=objective)
            first = optimize(after, budget_seconds=budget, seed=2, objective=objective, start=old.slots)
            second = optimize(after, budget_seconds=budget, seed=3, objective=objective, start=first.slots)
            fresh = optimize(after, budget_seconds=long_seconds, seed=4, objective=objective)
            known = planted(shifted(point))
            best = min(
                [first.cost, second.cost, fresh.cost] + ([after.cost(known, objective=objective)] if known else [])
            )
            kept = after.cost(old.slots, objective=objective)
            lines.append(
                {
                    "point": point.name,
                    "objective": objective,
                    "hashed": after.cost(after.hashed(), objective=objective),
                    "old": kept,
                    "run 1": first.cost,
                    "run 2": second.cost,
                    "best known": best,
                    "saving 1": share(kept, first.cost, best),
                    "saving 2": share(kept, second.cost, best),
                    "moved 1": moved_share(old.slots, first.slots, after),
                }
            )
    return lines


def moved_share(old: Mapping[RouteKey, Any], new: Mapping[RouteKey, Any], problem: Problem) -> float:
    """Share of all load whose key group changed its slot."""
    loads = {key: np.asarray(counts, dtype=float) for key, counts in problem.counts.items()}
    moved = sum(float(load[np.asarray(old[key]) != np.asarray(new[key])].sum()) for key, load in loads.items())
    return moved / max(1e-300, sum(float(load.sum()) for load in loads.values()))


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """Plain text: numbers to the right, a column as wide as it must be."""
    lines = list(lines)
    if not lines:
        return ""
    names = [name for name in lines[0] if name != "method"]
    cells = [names] + [[_text(name, line[name]) for name in names] for line in lines]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells)


def _text(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        if name.startswith(("saving", "moved", "at least", "of best")):
            return f"{value:.1%}"
        return f"{value:.2f}" if name == "seconds" else f"{value:,.0f}"
    return str(value)
