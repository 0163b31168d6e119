"""Unit tests of the parts of the partitioning optimizer: what each of them promises to the others."""

from __future__ import annotations

import itertools
import math
from dataclasses import fields, replace

import numpy as np
import pytest
import scipy.sparse as sparse
from numpy.typing import NDArray
from tests.support.clocks import CountingClock, counted

from thalweg.optimize import slot_assignment
from thalweg.optimize.deadline import Deadline
from thalweg.optimize.slot_assignment import Heuristics, Objective, Problem
from thalweg.optimize.slot_assignment.bounds import spectral_bound
from thalweg.optimize.slot_assignment.correlation import choose_pivot, grow_forest, information
from thalweg.optimize.slot_assignment.goal import make_goal
from thalweg.optimize.slot_assignment.graph import compile_graph, to_places, to_slots
from thalweg.optimize.slot_assignment.kernels import agglomerate, anneal, descend, tie, tridiagonal
from thalweg.optimize.slot_assignment.model import linear_model, pivot_model, solve
from thalweg.optimize.slot_assignment.pivots import pivot_cost
from thalweg.optimize.slot_assignment.reduce import Effort, halved, solve_by
from thalweg.optimize.slot_assignment.search import coarsen, placed, search, settle

optimize = counted(slot_assignment.optimize)

NO_STEPS = dict.fromkeys(("merge_groups", "merge_slots", "tree", "hybrid", "search"), False)


def keys_of(count: int, stream: str = "s") -> list[tuple[str, str]]:
    return [(stream, f"k{i}") for i in range(count)]


def drawn(
    keys: int = 2,
    groups: int = 8,
    slots: int = 4,
    *,
    noise: float = 0.3,
    rows: int = 2000,
    seed: int = 0,
    **rest: object,
) -> Problem:
    """Rows of as many kinds as slots; a route key tells the kind, but for noise, by a key group of its own order."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(slots, size=rows)
    columns = []
    for _ in range(keys):
        told = kind * groups // slots + rng.integers(max(groups // slots, 1), size=rows)
        columns.append(
            rng.permutation(groups)[np.where(rng.random(rows) < noise, rng.integers(groups, size=rows), told)]
        )
    names = keys_of(keys)
    counts = {name: np.bincount(column, minlength=groups) for name, column in zip(names, columns, strict=True)}
    joint = {
        (names[i], names[j]): np.histogram2d(columns[i], columns[j], bins=[np.arange(groups + 1)] * 2)[0]
        for i, j in itertools.combinations(range(keys), 2)
    }
    return Problem(slots, counts, joint, **rest)  # type: ignore[arg-type]


def all_places(nodes: int, slots: int) -> list[NDArray[np.int64]]:
    return [np.array(places) for places in itertools.product(range(slots), repeat=nodes)]


def soon(seconds: float = 5.0) -> Deadline:
    return Deadline.after(seconds, CountingClock())


def test_information_is_nothing_for_independent_keys_and_the_entropy_for_equal_ones() -> None:
    assert information(sparse.csr_array(np.outer([1.0, 3.0], [2.0, 5.0]))) == 0.0
    assert information(sparse.csr_array(np.diag([5.0, 5.0]))) == pytest.approx(np.log(2))
    assert information(sparse.csr_array((2, 2))) == 0.0


def test_the_forest_has_the_greatest_weight_and_ties_go_to_the_first() -> None:
    a, b, c, d = keys_of(4)
    weights = {(a, b): 1.0, (b, c): 3.0, (a, c): 2.0}
    assert grow_forest([a, b, c, d], weights) == [(b, c), (a, c)]
    assert grow_forest([a, b, c], dict.fromkeys(weights, 1.0)) == [(a, b), (a, c)]
    assert choose_pivot([a, b, c, d], weights) == c
    assert choose_pivot([a, b], {(a, b): 1.0}) == a


@pytest.mark.parametrize("seed", range(3))
def test_the_graph_costs_what_the_problem_does(seed: int) -> None:
    a, _, c = keys_of(3)
    problem = drawn(3, 6, 3, seed=seed, near=[0.0, 0.5, 1.0], lat_mem=0.3, equal=[(a, c)])
    graph = compile_graph(problem, "copies")
    rng = np.random.default_rng(seed)
    for _ in range(5):
        places = rng.integers(3, size=graph.nodes)
        slots = to_slots(problem, places)
        assert (slots[a] == slots[c]).all()
        assert (to_places(problem, slots) == places).all()
        assert graph.cost(places) == pytest.approx(problem.cost(slots))
        owner = np.unique(rng.integers(4, size=graph.nodes), return_inverse=True)[1]
        merged = rng.integers(3, size=owner.max() + 1)
        assert graph.merged(owner).cost(merged) == pytest.approx(graph.cost(merged[owner]))


def test_neighbours_are_in_order_and_edges_go_both_ways() -> None:
    graph = compile_graph(drawn(4, 16, 4, noise=0.6), "copies")
    dense = np.zeros((graph.nodes, graph.nodes))
    for u in range(graph.nodes):
        neighbours = graph.edge_node[graph.edge_start[u] : graph.edge_start[u + 1]]
        assert (np.diff(neighbours) > 0).all()
        dense[u, neighbours] = graph.edge_rows[graph.edge_start[u] : graph.edge_start[u + 1]]
    assert (dense == dense.T).all()


def test_a_part_of_a_problem_costs_its_share() -> None:
    first = drawn(2, 8, 4, seed=1)
    counts = dict(first.counts) | {("t", key[1]): rows for key, rows in first.counts.items()}
    problem = Problem(4, counts, dict(first.joint))
    hashed = problem.hashed()
    parts = [problem.part([stream]) for stream in problem.streams]
    assert sum(part.cost({key: hashed[key] for key in part.counts}) for part in parts) == problem.cost(hashed)


@pytest.mark.filterwarnings("error")
def test_a_part_without_rows_of_a_stream_has_no_load_cap_where_there_was_none() -> None:
    keys = {("s", "a"): np.arange(16), ("t", "b"): np.zeros(16, np.int64)}
    graph = compile_graph(Problem(4, keys, most_load=math.inf), "copies")
    for members in (np.arange(16), np.arange(16, 32)):
        assert graph.part(members).most.tolist() == [math.inf, math.inf]


def test_what_a_descent_says_it_saved_is_saved() -> None:
    graph = compile_graph(drawn(3, 32, 4, lat_proc=2.0), "copies")
    places = np.random.default_rng(0).integers(4, size=graph.nodes)
    before = graph.cost(places)
    saved = descend(graph, places, np.arange(graph.nodes), np.ones(graph.nodes, np.bool_), 0.0)
    assert saved > 0.0
    assert graph.cost(places) == pytest.approx(before - saved)


def test_no_single_move_improves_what_has_settled() -> None:
    graph = compile_graph(drawn(2, 8, 3, lat_proc=1.0, noise=0.5), "copies")
    places = settle(graph, np.random.default_rng(1).integers(3, size=graph.nodes), soon(), 0)
    cost = graph.cost(places)
    for node, slot in itertools.product(range(graph.nodes), range(3)):
        moved = places.copy()
        moved[node] = slot
        assert graph.cost(moved) > cost - 1e-6


def test_annealing_returns_nothing_dearer_by_its_own_measure() -> None:
    graph = compile_graph(drawn(3, 16, 4, noise=0.6, lat_proc=2.0), "copies")
    free, caps = graph._replace(price=0.0), np.full(1, graph.fullest(0))

    def measure(places: NDArray[np.int64]) -> float:
        return free.cost(places) + graph.price * float(np.maximum(graph.load_of(places) - caps[:, None], 0.0).sum())

    start = settle(graph, np.random.default_rng(2).integers(4, size=graph.nodes), soon(), 0)
    for seed in range(5):
        places = start.copy()
        anneal(graph, places, tie(graph, places), caps, seed, 40_000, 100.0, 1.0)
        assert measure(places) < measure(start)


def test_clusters_stay_below_the_greatest_weight() -> None:
    owner = agglomerate(np.array([0, 1, 2]), np.array([1, 2, 3]), np.array([1.0, 1.0, 1.0, 1.0]), 2.0)
    assert owner.tolist() == [0, 0, 1, 1]


def test_the_reduction_keeps_eigenvalues() -> None:
    matrix = np.random.default_rng(0).random((12, 12))
    matrix += matrix.T
    diagonal, beside = tridiagonal(matrix.copy())
    small = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    assert np.linalg.eigvalsh(small) == pytest.approx(np.linalg.eigvalsh(matrix))


@pytest.mark.parametrize("seed", range(6))
def test_bounds_are_below_every_assignment(seed: int) -> None:
    problem = drawn(2, 4, 3, rows=80, noise=seed / 6, seed=seed, lat_proc=(0.1, 1.0, 5.0)[seed % 3])
    graph = compile_graph(problem, "copies")
    inside = [places for places in all_places(graph.nodes, 3) if not graph.over(places)]
    cheapest = min(map(graph.cost, inside))
    assert graph.bound() <= spectral_bound(graph, 60.0) <= cheapest + 1e-9


def test_without_a_load_cap_one_slot_is_proven_best_where_work_is_cheap() -> None:
    free = replace(drawn(3, 32, 4, noise=0.5, lat_proc=0.01), most_load=math.inf)
    answer = optimize(free, budget_seconds=2.0)
    assert answer.cost == pytest.approx(answer.bound)
    assert "proven optimal" in answer.method
    assert len(np.unique(np.concatenate(list(answer.slots.values())))) == 1


@pytest.mark.parametrize("near", [None, [0.0, 0.6]])
def test_the_programs_find_the_optimum(near: list[float] | None) -> None:
    problem = drawn(3, 3, 2, rows=90, seed=3, lat_proc=1.0, near=near, lat_mem=0.2)
    for objective in ("copies", "saspar"):
        goal = make_goal(problem, objective)
        cheapest = min(map(goal.cost, all_places(goal.graph.nodes, 2)))
        known = to_places(problem, problem.hashed())
        solved = solve(goal.model(), known, deadline=soon(20.0), gap=1e-6, seed=0)
        assert solved.proven
        assert solved.places is not None
        assert goal.cost(solved.places) == pytest.approx(cheapest)
        assert solved.bound == pytest.approx(cheapest, rel=1e-5)


def test_programs_of_two_keys_are_one_program() -> None:
    problem = drawn(2, 4, 2, rows=60, seed=5, lat_proc=2.0)
    graph = compile_graph(problem, "copies")
    assert make_goal(problem, "saspar").pivots is None
    three = drawn(3, 4, 2, rows=60, seed=5, lat_proc=2.0)
    pivots = make_goal(three, "saspar").pivots
    assert pivots is not None
    assert pivot_model(compile_graph(three, "saspar"), pivots).binaries == 3 * 4 * 2
    assert linear_model(graph).binaries == 2 * 4 * 2


def test_the_pivots_cost_what_the_problem_does() -> None:
    problem = drawn(4, 6, 3, seed=2, equal=[(keys_of(2)[0], keys_of(2)[1])], near=[0.1, 0.2, 0.3])
    goal = make_goal(problem, "saspar")
    assert goal.pivots is not None
    rng = np.random.default_rng(0)
    for _ in range(5):
        places = rng.integers(3, size=goal.graph.nodes)
        expected = problem.cost(to_slots(problem, places), objective="saspar")
        assert pivot_cost(goal.graph, goal.pivots, places) == pytest.approx(expected)
        assert goal.graph.cost(places) >= expected - 1e-9
        assert goal.cost(goal.settle(places, soon(), 0)) <= expected


def test_key_groups_are_halved_but_not_below_the_slots() -> None:
    graph = compile_graph(drawn(2, 16, 4), "copies")
    owner = halved(graph, 0)
    assert owner.max() + 1 == 16
    alone = compile_graph(Problem(4, {("s", "a"): np.arange(16)}), "copies")
    assert halved(alone, 0).max() + 1 == 8
    few = alone.merged(np.arange(16) % 5)
    assert halved(few, 0).max() + 1 == 4


@pytest.mark.parametrize("steps", [("merged key groups",), ("merged slots",), ("tree",), ("hybrid",), ()])
def test_every_way_to_reduce_gives_an_assignment_that_shares(steps: tuple[str, ...]) -> None:
    problem = drawn(4, 8, 4, noise=0.05, lat_proc=2.0)
    graph = compile_graph(problem, "copies")
    reduced = solve_by(steps, graph, Effort(0.05, soon(1.5), seed=0))
    assert reduced is not None
    assert reduced.places.shape == (graph.nodes,)
    assert graph.cost(reduced.places) < graph.cost(to_places(problem, problem.hashed()))


def test_a_hopeless_model_is_not_begun() -> None:
    graph = compile_graph(drawn(4, 64, 32), "copies")
    assert solve_by((), graph, Effort(0.1, soon(), seed=0)) is None


@pytest.mark.slow
def test_merging_nodes_does_not_mix_slots() -> None:
    graph = compile_graph(drawn(16, 128, 4, rows=20_000), "copies")
    places = np.random.default_rng(0).integers(4, size=graph.nodes)
    levels = coarsen(graph, places, 0)
    assert levels
    owner = levels[0][1]
    for _, further in levels[1:]:
        owner = further[owner]
    assert all(len(np.unique(places[owner == node])) == 1 for node in range(owner.max() + 1))


def test_list_scheduling_balances_and_greedy_shares() -> None:
    graph = compile_graph(drawn(2, 32, 4, noise=0.1, lat_proc=2.0), "copies")
    order = np.argsort(-graph.weights, kind="stable")
    balanced = placed(graph, order, np.arange(4), sharing=0.0)
    assert graph.load_of(balanced).max() < 1.05 * graph.fullest(0)
    assert graph.cost(placed(graph, order, np.arange(4), sharing=1.0)) < graph.cost(balanced)


@pytest.mark.slow
def test_the_search_finds_what_was_planted() -> None:
    problem = drawn(2, 64, 8, noise=0.0, rows=20_000, lat_proc=4.0)
    graph = compile_graph(problem, "copies")
    hashed = to_places(problem, problem.hashed())
    places = search(graph, [hashed], soon(2.0), 0)
    shipped = sum(problem.shipped(to_slots(problem, places)).values())
    assert shipped == pytest.approx(20_000)
    assert graph.cost(places) < 1.03 * graph.bound()


def test_the_search_is_the_same_for_the_same_seed() -> None:
    graph = compile_graph(drawn(2, 16, 4, noise=0.6, lat_proc=2.0), "copies")
    found = [search(graph, [], soon(60.0), 5, patience=3) for _ in range(2)]
    assert (found[0] == found[1]).all()


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["copies", "saspar"])
def test_slots_are_renumbered_so_that_few_rows_move(objective: str) -> None:
    problem = drawn(3, 32, 4, noise=0.1, lat_proc=2.0)
    first = optimize(problem, budget_seconds=0.2, objective=objective)  # type: ignore[arg-type]
    turned = {key: (slots + 1) % 4 for key, slots in first.slots.items()}
    again = optimize(problem, budget_seconds=0.2, objective=objective, start=turned)  # type: ignore[arg-type]
    if again.cost == pytest.approx(first.cost):
        assert all((again.slots[key] == turned[key]).all() for key in problem.counts)
    else:
        assert again.cost < first.cost


def test_key_groups_without_rows_stay_where_they_are() -> None:
    a, b = keys_of(2)
    rows = np.diag([9.0, 8.0, 7.0, 6.0, 0.0, 0.0, 0.0, 0.0])[[3, 2, 1, 0, 4, 5, 6, 7]]
    problem = Problem(4, {a: rows.sum(axis=1), b: rows.sum(axis=0)}, {(a, b): rows}, lat_proc=2.0)
    answer = optimize(problem, budget_seconds=0.3)
    assert answer.cost < problem.cost(problem.hashed())
    for key in (a, b):
        assert (answer.slots[key][4:] == problem.hashed()[key][4:]).all()


def test_nothing_moves_for_nothing() -> None:
    free = drawn(2, 8, 4, lat_net=0.0, lat_mem=0.0)
    assert optimize(free, budget_seconds=0.2).method.startswith("hashing")
    even = Problem(4, {("s", "a"): np.ones(8)})
    start = {("s", "a"): np.array([3, 3, 2, 2, 1, 1, 0, 0])}
    assert (optimize(even, budget_seconds=0.2, start=start).slots["s", "a"] == start["s", "a"]).all()
    assert (optimize(even, budget_seconds=0.2).slots["s", "a"] == even.hashed()["s", "a"]).all()


@pytest.mark.slow
def test_streams_apart_are_solved_apart() -> None:
    first = drawn(2, 16, 4, noise=0.2, lat_proc=2.0)
    counts = {(stream, key[1]): rows for stream in "stu" for key, rows in first.counts.items()}
    joint = {
        ((stream, one[1]), (stream, other[1])): cells
        for stream in "stu"
        for (one, other), cells in first.joint.items()
    }
    alone = optimize(first, budget_seconds=0.15)
    together = optimize(Problem(4, counts, joint, lat_proc=2.0), budget_seconds=0.3)
    assert together.cost == pytest.approx(3.0 * alone.cost, rel=0.01)
    assert together.bound == pytest.approx(3.0 * alone.bound, rel=0.01)


@pytest.mark.parametrize("name", [field.name for field in fields(Heuristics) if field.name not in ("gap", "timeout")])
def test_every_heuristic_works_alone(name: str) -> None:
    problem = drawn(4, 8, 4, noise=0.05, lat_proc=2.0)
    alone = Heuristics(**{**NO_STEPS, "parallel": False, "gap": False, name: True})
    answer = optimize(problem, budget_seconds=0.3, heuristics=alone)
    assert answer.cost < problem.cost(problem.hashed())
    assert answer.bound <= answer.cost


def allowed(problem: Problem, stream: str) -> float:
    """A quarter above an even share, or the heaviest key group."""
    rows = [problem.rows[key] for key in problem.streams[stream]]
    return max(1.25 * sum(float(r.sum()) for r in rows) / problem.slots, *(float(r.max()) for r in rows))


@pytest.mark.parametrize("objective", ["copies", "saspar"])
@pytest.mark.parametrize("lat_proc", [0.01, 0.1, 0.3, 1.0, 5.0, 20.0, None])
@pytest.mark.parametrize(("keys", "groups", "slots"), [(1, 64, 4), (2, 64, 4), (3, 32, 8), (4, 64, 16)])
def test_no_slot_gets_more_than_the_load_cap(
    keys: int, groups: int, slots: int, lat_proc: float | None, objective: Objective
) -> None:
    for seed, noise in ((0, 0.0), (1, 0.3), (2, 1.0)):
        problem = replace(drawn(keys, groups, slots, noise=noise, seed=seed, rows=4000), lat_proc=lat_proc)
        for start in (None, {key: np.zeros(groups, np.int64) for key in problem.route_keys}):
            answer = optimize(problem, budget_seconds=0.05, seed=seed, objective=objective, start=start)
            for stream, load in problem.loads(answer.slots).items():
                assert load.max() <= allowed(problem, stream) * (1 + 1e-9)


@pytest.mark.parametrize("used", ["merge_groups", "merge_slots", "tree", "hybrid", "search"])
def test_every_heuristic_keeps_the_load_cap(used: str) -> None:
    only = Heuristics(**{f.name: f.name in ("parallel", used) for f in fields(Heuristics)})
    problem = replace(drawn(3, 24, 4, noise=0.3, rows=4000), lat_proc=0.01)
    answer = optimize(problem, budget_seconds=0.3, heuristics=only)
    assert max(load.max() for load in problem.loads(answer.slots).values()) <= allowed(problem, "s") * (1 + 1e-9)


def test_work_counts_a_quarter_for_each_slot_unless_it_is_said() -> None:
    assert replace(drawn(2, 8, 16), lat_proc=None).price == 4.0
    assert drawn(2, 8, 16, lat_proc=0.5).price == 0.5
