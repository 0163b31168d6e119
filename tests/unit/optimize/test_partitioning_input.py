"""Unit: what the partitioning optimiser takes, and what it says about what it does not take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from tests.support.clocks import counted

from thalweg.errors import ThalwegError
from thalweg.optimize import slot_assignment
from thalweg.optimize.slot_assignment import Answer, Problem

GEM, USER, ADS = ("purchases", "gemPackID"), ("purchases", "userID"), ("ads", "userID")
COUNTS = {GEM: np.array([4.0, 6.0, 0.0]), USER: np.array([5.0, 3.0, 2.0]), ADS: np.array([1.0, 0.0, 7.0])}
JOINT = np.array([[3.0, 1.0, 0.0], [2.0, 2.0, 2.0], [0.0, 0.0, 0.0]])
GOOD: dict[str, Any] = {
    "slots": 2,
    "counts": COUNTS,
    "joint": {(GEM, USER): JOINT},
    "equal": [(USER, ADS)],
    "lat_net": 1.0,
    "lat_mem": 0.0,
    "lat_proc": 0.1,
    "near": None,
}
optimize = counted(slot_assignment.optimize)

RUN: dict[str, Any] = {"budget_seconds": 0.2, "seed": 0, "objective": "copies"}


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """What is compiled at the first call is compiled before a second is measured."""
    for objective in ("copies", "saspar"):
        optimize(Problem(**GOOD), budget_seconds=0.2, objective=objective)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def within_a_second() -> Iterator[None]:
    started = time.process_time()
    yield
    assert time.process_time() - started < 1.0


def solve(**changes: Any) -> Answer:
    run = RUN | {name: changes.pop(name) for name in [*RUN, "start"] if name in changes}
    return optimize(Problem(**(GOOD | changes)), **run)


def counts_with(key: tuple[str, str], values: Any) -> dict[str, Any]:
    return {"counts": COUNTS | {key: values}}


def joint_of(table: Any, pair: tuple[Any, Any] = (GEM, USER)) -> dict[str, Any]:
    return {"joint": {pair: table}}


UNKNOWN = ("purchases", "colour")
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "negative count": (counts_with(ADS, np.array([1.0, -1.0, 3.0])), "userID"),
    "count that is no number": (counts_with(GEM, np.array([4.0, np.nan, 0.0])), "gemPackID"),
    "infinite count": (counts_with(GEM, np.array([4.0, np.inf, 0.0])), "gemPackID"),
    "minus infinite count": (counts_with(USER, np.array([4.0, -np.inf, 0.0])), "userID"),
    "counts in two dimensions": (counts_with(GEM, np.ones((3, 1))), "gemPackID"),
    "a number for counts": (counts_with(GEM, 4.0), "gemPackID"),
    "text for counts": (counts_with(GEM, np.array(["4", "x", "0"])), "gemPackID"),
    "nothing for counts": (counts_with(GEM, None), "gemPackID"),
    "ragged counts": (counts_with(GEM, [[1], [2, 3]]), "gemPackID"),
    "too few counts": (counts_with(ADS, np.ones(2)), "userID"),
    "too many counts": (counts_with(GEM, np.ones(4)), "purchases"),
    "joint that is not square": (joint_of(JOINT[:2]), "gemPackID"),
    "joint of another size": (joint_of(np.ones((4, 4))), "gemPackID"),
    "sparse joint of another size": (joint_of(sparse.csr_matrix(np.ones((4, 4)))), "gemPackID"),
    "joint in one dimension": (joint_of(np.ones(9)), "gemPackID"),
    "joint with other rows": (joint_of(JOINT[[1, 0, 2]]), "gemPackID"),
    "joint with other columns": (joint_of(JOINT[:, [1, 0, 2]]), "userID"),
    "joint the wrong way round": (joint_of(JOINT.T), "gemPackID"),
    "joint that is too great": (joint_of(JOINT * 1.001), "gemPackID"),
    "joint of nothing": (joint_of(np.zeros((3, 3))), "gemPackID"),
    "negative joint with the right margins": (
        joint_of(JOINT + np.array([[2.0, -2.0, 0], [-2.0, 2.0, 0], [0, 0, 0]])),
        "gemPackID",
    ),
    "joint that is no number": (joint_of(np.where(JOINT == 3, np.nan, JOINT)), "gemPackID"),
    "infinite joint": (joint_of(np.where(JOINT == 3, np.inf, JOINT)), "gemPackID"),
    "text for joint": (joint_of("xyz"), "gemPackID"),
    "nothing for joint": (joint_of(None), "gemPackID"),
    "joint across streams": (joint_of(np.zeros((3, 3)), (GEM, ADS)), "gemPackID"),
    "joint of an unknown key": (joint_of(JOINT, (GEM, UNKNOWN)), "colour"),
    "joint of a key with itself": (joint_of(np.diag(COUNTS[GEM]), (GEM, GEM)), "gemPackID"),
    "joint both ways that differ": (
        {"joint": {(GEM, USER): JOINT, (USER, GEM): np.outer(COUNTS[USER], COUNTS[GEM]) / 10}},
        "gemPackID",
    ),
    "equal of an unknown key": ({"equal": [(USER, UNKNOWN)]}, "colour"),
    "equal with the unknown key first": ({"equal": [(UNKNOWN, USER)]}, "colour"),
    "no slot": ({"slots": 0}, "slots"),
    "fewer than no slots": ({"slots": -3}, "slots"),
    "half a slot": ({"slots": 2.5}, "slots"),
    "negative lat_net": ({"lat_net": -1.0}, "lat_net"),
    "negative lat_mem": ({"lat_mem": -0.1}, "lat_mem"),
    "negative lat_proc": ({"lat_proc": -0.1}, "lat_proc"),
    "lat_net that is no number": ({"lat_net": np.nan}, "lat_net"),
    "infinite lat_proc": ({"lat_proc": np.inf}, "lat_proc"),
    "near of too few slots": ({"near": [0.5]}, "near"),
    "near of too many slots": ({"near": [0.5, 0.2, 0.3]}, "near"),
    "near above one": ({"near": [0.5, 1.5]}, "near"),
    "near below nothing": ({"near": [0.5, -0.5]}, "near"),
    "near that is no number": ({"near": [0.5, np.nan]}, "near"),
    "unknown objective": ({"objective": "latency"}, "latency"),
    "no objective": ({"objective": ""}, "objective"),
    "negative budget": ({"budget_seconds": -0.1}, "budget"),
    "budget that is no number": ({"budget_seconds": float("nan")}, "budget"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(name: str) -> None:
    changes, named = BAD[name]
    with pytest.raises(ThalwegError) as caught:
        solve(**changes)
    assert named in str(caught.value)


def test_bad_counts_name_the_stream_too() -> None:
    """Two streams may have route keys of one name."""
    with pytest.raises(ThalwegError, match="ads"):
        solve(**counts_with(ADS, np.array([1.0, -1.0, 3.0])))


EMPTY = np.zeros(0)
VALID: dict[str, dict[str, Any]] = {
    "as it is": {},
    "no route keys": {"counts": {}, "joint": {}, "equal": []},
    "one slot": {"slots": 1},
    "more slots than key groups": {"slots": 9},
    "no key groups": {"counts": {GEM: EMPTY, USER: EMPTY, ADS: EMPTY}, "joint": {(GEM, USER): np.zeros((0, 0))}},
    "no key groups, sparse": {
        "counts": {GEM: EMPTY, USER: EMPTY, ADS: EMPTY},
        "joint": {(GEM, USER): sparse.csr_matrix((0, 0))},
    },
    "one key group": {
        "counts": {GEM: np.array([8.0]), USER: np.array([8.0]), ADS: np.array([3.0])},
        "joint": {(GEM, USER): np.array([[8.0]])},
    },
    "all rows in one key group": {
        "counts": {GEM: np.array([0, 9.0, 0]), USER: np.array([0, 0, 9.0]), ADS: np.zeros(3)},
        "joint": {(GEM, USER): np.array([[0, 0, 0], [0, 0, 9.0], [0, 0, 0]])},
    },
    "all counts zero": {"counts": {k: np.zeros(3) for k in COUNTS}, "joint": {(GEM, USER): np.zeros((3, 3))}},
    "no joint counts": {"joint": {}},
    "joint both ways": {"joint": {(GEM, USER): JOINT, (USER, GEM): JOINT.T}},
    "sparse joint": {"joint": {(GEM, USER): sparse.coo_matrix(JOINT)}},
    "margins off by a rounding error": {"joint": {(GEM, USER): JOINT * (1 + 1e-9)}},
    "whole numbers": {"counts": {k: c.astype(np.int32) for k, c in COUNTS.items()}},
    "lists": {"counts": {k: c.tolist() for k, c in COUNTS.items()}, "joint": {(GEM, USER): JOINT.tolist()}},
    "a key tied to itself": {"equal": [(USER, USER)]},
    "a tie said twice": {"equal": [(USER, ADS), (ADS, USER), (USER, ADS)]},
    "everything tied": {"equal": [(USER, ADS), (GEM, ADS)]},
    "nothing costs": {"lat_net": 0.0, "lat_mem": 0.0, "lat_proc": 0.0},
    "memory dearer than network": {"lat_mem": 5.0, "near": [0.3, 0.7]},
    "near everywhere": {"near": [1.0, 1.0]},
    "near as an array": {"near": np.array([0.25, 0.75])},
    "no time": {"budget_seconds": 0.0},
    "a start": {"start": {key: np.array([1, 0, 1]) for key in COUNTS}},
    "numbers of NumPy's": {"slots": np.int64(2), "lat_net": np.float64(1.0), "seed": np.int64(3)},
}


def check(answer: Answer, changes: dict[str, Any], objective: str) -> None:
    given = GOOD | {name: value for name, value in changes.items() if name in GOOD}
    problem = Problem(**given)
    groups = len(next(iter(given["counts"].values()), ()))
    assert list(answer.slots) == list(given["counts"])
    for slots in answer.slots.values():
        assert slots.shape == (groups,)
        assert ((slots >= 0) & (slots < given["slots"])).all()
    for a, b in given["equal"]:
        np.testing.assert_array_equal(answer.slots[a], answer.slots[b])
    assert np.isfinite(answer.cost)
    assert answer.cost == pytest.approx(problem.cost(answer.slots, objective=objective))  # type: ignore[arg-type]
    assert answer.bound <= answer.cost * (1 + 1e-9)
    assert answer.bound >= 0


@pytest.mark.parametrize("objective", ["copies", "saspar"])
@pytest.mark.parametrize("name", VALID)
def test_unusual_input_is_solved(name: str, objective: str) -> None:
    check(solve(**VALID[name], objective=objective), VALID[name], objective)


def test_nothing_to_assign_costs_nothing() -> None:
    for name in ("no route keys", "no key groups", "all counts zero"):
        answer = solve(**VALID[name])
        assert answer.cost == 0
        assert answer.bound == 0


EITHER: dict[str, dict[str, Any]] = {
    "counts near the greatest number there is": {
        "counts": {k: c * 1e307 for k, c in COUNTS.items()},
        "joint": {(GEM, USER): JOINT * 1e307},
    },
    "counts next to nothing": {
        "counts": {k: c * 1e-310 for k, c in COUNTS.items()},
        "joint": {(GEM, USER): JOINT * 1e-310},
    },
    "a latency beyond all others": {"lat_proc": 1e300},
    "slots as true": {"slots": True},
    "a seed below zero": {"seed": -1},
    "ten thousand slots": {"slots": 10_000},
    "a start without a key": {"start": {GEM: np.array([0, 1, 0])}},
    "a start of another length": {"start": {key: np.array([0, 1]) for key in COUNTS}},
    "a start in slots that are gone": {"start": {key: np.array([0, 5, 1]) for key in COUNTS}},
    "a start in slots below zero": {"start": {key: np.array([0, -1, 1]) for key in COUNTS}},
    "a start that breaks a tie": {"start": {key: np.full(3, i % 2) for i, key in enumerate(COUNTS)}},
    "a start with an unknown key": {"start": {key: np.zeros(3, dtype=int) for key in [*COUNTS, UNKNOWN]}},
    "a start of fractions": {"start": {key: np.array([0.5, 1.0, 0.0]) for key in COUNTS}},
    "an empty start": {"start": {}},
}


@pytest.mark.parametrize("name", EITHER)
def test_odd_input_is_refused_or_solved(name: str) -> None:
    try:
        answer = solve(**EITHER[name])
    except ThalwegError:
        return
    check(answer, EITHER[name], "copies")


SLOTS = {key: np.array([0, 1, 0]) for key in COUNTS}
BAD_SLOTS: dict[str, dict[Any, Any]] = {
    "a key is missing": {key: SLOTS[key] for key in (USER, ADS)},
    "too few key groups": SLOTS | {GEM: np.array([0, 1])},
    "too many key groups": SLOTS | {GEM: np.array([0, 1, 1, 0])},
    "a slot too high": SLOTS | {GEM: np.array([0, 2, 0])},
    "a slot below zero": SLOTS | {GEM: np.array([0, -1, 0])},
}


@pytest.mark.parametrize("name", BAD_SLOTS)
def test_the_cost_of_a_bad_assignment_is_refused(name: str) -> None:
    with pytest.raises(ThalwegError, match="gemPackID"):
        Problem(**GOOD).cost(BAD_SLOTS[name])


def test_the_cost_under_an_unknown_objective_is_refused() -> None:
    with pytest.raises(ThalwegError, match="latency"):
        Problem(**GOOD).cost(SLOTS, objective="latency")  # type: ignore[arg-type]
