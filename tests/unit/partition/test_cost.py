"""The cost of a window: against counting by hand and by plain loops (differential), and the rule that chooses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg import ThalwegError
from thalweg.partition import create
from thalweg.partition.cost import (
    aggregation_bounds,
    aggregation_cost,
    cardinality_imbalance,
    choose,
    cost_of,
    fragmentation_cost,
    hybrid_imbalance,
    hybrid_loads,
    load_cost,
    measure,
    merging_pays,
    reducer_cost,
    scaled,
    tuple_imbalance,
)


def test_a_window_counted_by_hand() -> None:
    #                         worker 0: 1 1 2 2 2, worker 1: 1 3, worker 2: nothing
    keys, assigned = np.array([1, 1, 2, 1, 2, 3, 2]), np.array([0, 0, 0, 1, 0, 1, 0])
    window = measure(keys, assigned, 3, reducers=1)
    assert window.loads.tolist() == [5, 2, 0]
    assert window.cardinalities.tolist() == [2, 2, 0]
    assert window.partials.tolist() == [4]
    assert window.groups == 3
    cost = cost_of(window, p=0.25)
    assert (cost.rows, cost.groups, cost.aggregation, cost.reducer) == (7, 3, 4, 4)
    assert cost.tuple_imbalance == pytest.approx(5 - 7 / 3)
    assert cost.cardinality_imbalance == pytest.approx(2 - 4 / 3)
    hybrid = [0.25 * 1 + 0.75 * 1, 0.25 * 0.4 + 0.75 * 1, 0]
    assert cost.hybrid_imbalance == pytest.approx(1 - sum(hybrid) / 3)
    assert cost.merging_pays  # 4 to merge, 5 rows on the busiest worker


def test_equations_on_given_loads() -> None:
    assert tuple_imbalance([4, 4, 4]) == 0
    assert tuple_imbalance([9, 0, 0]) == 6
    assert cardinality_imbalance([1, 3]) == 1
    assert scaled([2, 4, 3]).tolist() == [0, 1, 0.5]
    assert scaled([7, 7]).tolist() == [0, 0]
    assert hybrid_loads([0, 10], [5, 0], p=0.2).tolist() == pytest.approx([0.8, 0.2])
    assert hybrid_imbalance([0, 10], [5, 0], p=0.2) == pytest.approx(0.3)
    assert aggregation_cost([2, 3, 0]) == 5
    assert aggregation_bounds(5, 4) == (5, 20)
    assert merging_pays([3, 5], [2, 3])
    assert not merging_pays([3, 4], [2, 3])
    assert reducer_cost([3, 8, 1]) == 8


def test_rewards_of_dalton() -> None:
    assert load_cost(10, 5) == 0.5
    assert load_cost(2, 8) == -0.75
    assert load_cost(0, 0) == 0
    assert fragmentation_cost(3, 12) == 0.25


def test_an_empty_window_costs_nothing() -> None:
    cost = cost_of(measure(np.array([], np.int64), np.array([], np.int32), 4))
    assert (cost.rows, cost.groups, cost.tuple_imbalance, cost.aggregation) == (0, 0, 0, 0)


rows_of_keys = st.lists(st.tuples(st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1), st.integers(0, 19)))


@settings(max_examples=examples(100))
@given(rows=rows_of_keys, reducers=st.integers(1, 5))
def test_counts_equal_sets_and_keep_to_proposition_1(rows: list[tuple[int, int]], reducers: int) -> None:
    keys, assigned = np.array([k for k, _ in rows], np.int64), np.array([w for _, w in rows], np.int32)
    window = measure(keys, assigned, 20, reducers=reducers)
    pairs = set(rows)
    assert window.loads.tolist() == [sum(w == worker for _, w in rows) for worker in range(20)]
    assert window.cardinalities.tolist() == [sum(w == worker for _, w in pairs) for worker in range(20)]
    assert window.groups == len({k for k, _ in rows})
    reducer_of = {k: int(create("hash", reducers).assign(np.array([k]))[0]) for k, _ in rows}
    assert window.partials.tolist() == [sum(reducer_of[k] == r for k, _ in pairs) for r in range(reducers)]
    low, high = aggregation_bounds(window.groups, 20)
    assert low <= aggregation_cost(window.cardinalities) <= high


def test_many_rows_over_several_blocks() -> None:
    rng = np.random.default_rng(1)
    keys, assigned = rng.integers(0, 5000, 100_000), rng.integers(0, 37, 100_000).astype(np.int32)
    window = measure(keys, assigned, 37)
    pairs = np.unique(keys * 37 + assigned)
    assert window.cardinalities.tolist() == np.bincount(pairs % 37, minlength=37).tolist()
    assert window.loads.tolist() == np.bincount(assigned, minlength=37).tolist()


def test_the_papers_order_of_costs() -> None:
    """Holistic Fig. 4: shuffling balances and merges most, hashing neither; affinity merges as little as hashing."""
    rng = np.random.default_rng(2)
    weights = 1.0 / np.arange(1, 2001)
    keys = rng.choice(2000, 40_000, p=weights / weights.sum())
    costs = {
        name: cost_of(measure(keys, create(name, 16).assign(keys), 16))
        for name in ("shuffle", "hash", "partial_key", "affinity", "cardinality", "affinity_count")
    }
    assert costs["shuffle"].tuple_imbalance < costs["partial_key"].tuple_imbalance < costs["hash"].tuple_imbalance
    groups = len(set(keys.tolist()))
    assert {costs[name].aggregation for name in ("hash", "affinity", "affinity_count")} == {groups}
    assert costs["hash"].aggregation < costs["partial_key"].aggregation < costs["shuffle"].aggregation
    assert costs["partial_key"].aggregation <= 2 * groups
    assert costs["affinity"].cardinality_imbalance < costs["hash"].cardinality_imbalance
    assert not costs["shuffle"].merging_pays


@pytest.mark.parametrize(
    ("rows", "groups", "workers", "grows", "chosen", "said"),
    [
        (6_000_000, 4, 8, "rows", "shuffle", "4 groups against 750000 rows"),  # TPC-H query 1
        (60_000_000, 110_000, 32, "rows", "shuffle", "few"),
        (1_000_000, 110_000, 32, "rows", "affinity_count", "many"),
        (1_000_000, 110_000, 32, "groups", "affinity", "many"),
        (42, 4, 8, "rows", "affinity_count", "4 groups against 5 rows"),  # cluster monitoring, query 1
        (8_000_000, [100, 100, 104], 8, "rows", "shuffle", "few"),
        (8_000_000, [100, 5000], 8, "rows", "affinity_count", "vary between 100 and 5000"),
        (0, 0, 4, "rows", "shuffle", "0 groups"),
    ],
)
def test_the_rule_chooses(rows: float, groups: Any, workers: int, grows: str, chosen: str, said: str) -> None:
    choice = choose(rows, groups, workers, work_grows_with=grows)
    assert choice.partitioner == chosen
    assert said in choice.reason


@pytest.mark.parametrize("p", [float("nan"), -1, 2])
def test_bad_weights_are_refused(p: float) -> None:
    with pytest.raises(ThalwegError, match="p = "):
        hybrid_loads([1, 2], [1, 2], p)


def test_bad_windows_are_refused() -> None:
    keys = np.arange(3)
    for assigned in (np.array([0, 1, 2]), np.array([0, -1, 0]), np.array([0, 1])):
        with pytest.raises(ThalwegError, match="assigned"):
            measure(keys, assigned.astype(np.int32), 2)
    with pytest.raises(ThalwegError, match="workers"):
        measure(keys, np.zeros(3, np.int32), 0)
    with pytest.raises(ThalwegError, match="reducers"):
        measure(keys, np.zeros(3, np.int32), 2, reducers=0)


@pytest.mark.parametrize(
    "bad",
    [
        {"rows": float("nan")},
        {"rows": -1},
        {"groups": float("nan")},
        {"groups": []},
        {"groups": -2},
        {"workers": 0},
        {"work_grows_with": "luck"},
    ],
)
def test_bad_expectations_are_refused(bad: dict[str, Any]) -> None:
    given: dict[str, Any] = {"rows": 10, "groups": 2, "workers": 2, **bad}
    with pytest.raises(ThalwegError, match=next(iter(bad))):
        choose(**given)
