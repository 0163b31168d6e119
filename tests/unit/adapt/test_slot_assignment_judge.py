"""Unit: when a new partitioning is proposed, and when the one in force stays."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.support.clocks import counted

from thalweg.adapt.slot_assignment import judge
from thalweg.adapt.slot_assignment.judge import AssignmentInput, choose_followers
from thalweg.adapt.slot_assignment.sharing import KeyGroupSample, Sharing
from thalweg.model.partitioning import Partitioning

decide = counted(judge.decide)

GROUPS = 64


def sharing(columns: dict[str, np.ndarray]) -> Sharing:
    groups = np.stack(list(columns.values()), axis=1).astype(np.uint16)
    return Sharing(GROUPS).after(KeyGroupSample(tuple(columns), groups, float(len(groups))))


def given(columns: dict[str, np.ndarray], **more: object) -> AssignmentInput:
    seen = sharing(columns)
    known = AssignmentInput(4, {"s": seen.fitting()}, {"s": seen.held_out()}, Partitioning(), lat_proc=2.0)
    return replace(known, **more)  # type: ignore[arg-type]


def correlated(seed: int, rows: int = 30_000, entities: int = 40) -> dict[str, np.ndarray]:
    """Few users, each with a few packs, each in a key group of its own."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, entities, rows)
    of_user, of_pack = rng.permutation(GROUPS)[:entities], rng.integers(0, GROUPS, (entities, 2))
    return {"s(user)": of_user[user], "s(pack)": of_pack[user, rng.integers(0, 2, rows)]}


def independent(seed: int, rows: int = 30_000) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {"s(a)": rng.integers(0, GROUPS, rows), "s(b)": rng.integers(0, GROUPS, rows)}


def test_correlated_keys_are_brought_together() -> None:
    proposal = decide(given(correlated(1)), budget_seconds=0.15)
    assert proposal.partitioning is not None
    assert set(proposal.partitioning.assignment) == {"s(user)", "s(pack)"}
    seen = proposal.streams["s"]
    assert seen.now == seen.hashed > 1.6
    assert 1.0 <= seen.bound <= seen.proposed < 1.35
    assert proposal.moved_groups > 10
    assert "of the cost is saved" in proposal.reason


def test_what_was_brought_together_stays() -> None:
    known = given(correlated(1))
    first = decide(known, budget_seconds=0.15).partitioning
    assert first is not None
    again = decide(replace(known, current=first), budget_seconds=0.15)
    assert again.partitioning is None


@pytest.mark.slow
def test_independent_keys_are_left_alone() -> None:
    """An optimiser finds some agreement in any sample; on rows that it has not seen there is none."""
    proposal = decide(given(independent(2)), budget_seconds=0.15)
    assert proposal.partitioning is None
    assert proposal.streams["s"].now == pytest.approx(1.75, abs=0.03)


def test_a_move_that_costs_more_than_it_saves_is_not_made() -> None:
    held = {key: np.full(GROUPS, 1e6) for key in ("s(user)", "s(pack)")}
    proposal = decide(given(correlated(1), held=held, horizon=2.0), budget_seconds=0.15)
    assert proposal.partitioning is None
    assert "rows of state costs more than" in proposal.reason


def test_keys_inside_others_follow_them() -> None:
    known = given(independent(3), purity={("s(b)", "s(a)"): 1.0, ("s(a)", "s(b)"): 0.3})
    assert choose_followers(known) == {"s(b)": "s(a)"}
    proposal = decide(known, budget_seconds=0.15)
    assert proposal.partitioning is not None
    assert proposal.partitioning.co_located_with == {"s(b)": "s(a)"}
    assert proposal.streams["s"].proposed == pytest.approx(1.0)
    settled = decide(replace(known, current=proposal.partitioning), budget_seconds=0.15)
    assert settled.partitioning is None


def test_nobody_follows_into_an_overloaded_slot() -> None:
    rng = np.random.default_rng(4)
    country = np.where(rng.random(30_000) < 0.9, 0, rng.integers(0, GROUPS, 30_000))
    columns = {"s(country)": country, "s(country, user)": rng.integers(0, GROUPS, 30_000)}
    known = given(columns, purity={("s(country, user)", "s(country)"): 1.0})
    assert choose_followers(known) == {}
    assert choose_followers(replace(known, lat_proc=0.1)) == {"s(country, user)": "s(country)"}


def test_who_must_stay_does_not_follow() -> None:
    known = given(independent(3), purity={("s(b)", "s(a)"): 1.0}, bound=frozenset({"s(b)"}))
    assert choose_followers(known) == {}


def test_followers_have_one_leader_each_and_leaders_do_not_follow() -> None:
    rng = np.random.default_rng(5)
    names = [f"s({c})" for c in "abcd"]
    columns = {name: rng.integers(0, GROUPS, 10_000) for name in names}
    purity = {(k, a): float(rng.random() < 0.6) for k in names for a in names if k != a}
    for seed in range(20):
        rng = np.random.default_rng(seed)
        purity = {pair: float(rng.random() < 0.6) for pair in purity}
        co_located_with = choose_followers(given(columns, purity=purity))
        assert not set(co_located_with) & set(co_located_with.values())
        assert all(purity[pair] == 1.0 for pair in co_located_with.items())


def test_both_sides_of_a_join_are_assigned_alike_and_evenly() -> None:
    skewed = np.full(GROUPS, 10.0)
    skewed[:8] = 1_000.0
    left, right = ("l", "l(k)"), ("r", "r(k)")
    known = AssignmentInput(
        4, {}, {}, Partitioning(), lat_proc=1.0, probed={left: skewed, right: skewed * 2}, equal=[(left, right)]
    )
    proposal = decide(known, budget_seconds=0.15)
    assert proposal.partitioning is not None
    assignment = proposal.partitioning.assignment
    assert list(assignment["l(k)"]) == list(assignment["r(k)"])
    loads = np.bincount(assignment["l(k)"], skewed, minlength=4)
    assert loads.max() < 1.1 * loads.mean()


@pytest.mark.parametrize("lat_proc", [0.01, 0.1, 1.0, 20.0])
def test_what_the_engine_proposes_keeps_the_load_cap(lat_proc: float) -> None:
    proposed = 0
    for seed in range(3):
        for columns in (correlated(seed), independent(seed)):
            known = given(columns, lat_proc=lat_proc)
            proposal = decide(known, budget_seconds=0.2, seed=seed, threshold=-math.inf)
            if proposal.partitioning is None:
                continue
            proposed += 1
            found, counts = proposal.partitioning, known.fitting["s"].counts
            load = np.zeros(4)
            for name, rows in counts.items():
                if name in found.assignment:
                    load += np.bincount(found.assignment[name], rows, 4)
            led = [rows for name, rows in counts.items() if name in found.assignment]
            if led:
                most = max(1.25 * sum(r.sum() for r in led) / 4, max(r.max() for r in led))
                assert load.max() <= most * (1 + 1e-9)
    assert proposed > 0
