"""What Dalton consists of, part by part: windows, frequencies, the Q-table, merging, forwarding."""

from __future__ import annotations

import os
import pickle
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from thalweg.errors import ThalwegError
from thalweg.partition import create
from thalweg.partition.cooperative import LONGEST, SHORTEST, Learned, Policy, merge, next_interval
from thalweg.partition.dalton import Dalton
from thalweg.partition.forwarding import Fragmentation, join_fragmentations, may_forward, split_keys
from thalweg.partition.frequencies import (
    MAP,
    MODE,
    SKETCH,
    USED,
    Frequencies,
    count,
    estimate,
    forget,
    frequent,
    grown,
    is_crowded,
    mix,
    new_frequencies,
)
from thalweg.partition.joint_kernel import joint_kernel
from thalweg.partition.loads import (
    NEVER,
    TOTAL,
    add_row,
    mark,
    new_fragments,
    new_loads,
    slide_fragments,
    slide_loads,
)
from thalweg.partition.q_table import INITIAL, choose, learn, new_q_table, random_bits, reward

pytestmark = pytest.mark.slow
"""The parts are compiled anew in every process: only the kernels made of them are kept on disk."""

# -- windows


def test_loads_are_those_of_the_last_slides() -> None:
    rng = np.random.default_rng(1)
    held = new_loads(5, 4)
    rows: list[tuple[int, int]] = []
    slide = -3
    for _ in range(400):
        if rng.random() < 0.1:
            slide += int(rng.integers(1, 7))
        slide_loads(held, slide)
        worker = int(rng.integers(0, 5))
        add_row(held, worker)
        rows.append((slide, worker))
        expected = np.bincount([w for s, w in rows if s > slide - 4], minlength=5)
        assert held.window.tolist() == expected.tolist()
        assert held.counters[TOTAL] == expected.sum()


def test_a_key_lies_where_it_got_rows_in_the_window() -> None:
    rng = np.random.default_rng(2)
    fragments = new_fragments(6, 2)
    rows: list[tuple[int, int, int]] = []
    for slide in range(60):
        slide_fragments(fragments, 2, slide, 3)
        for _ in range(int(rng.integers(0, 4))):
            entry, worker = int(rng.integers(0, 2)), int(rng.integers(0, 6))
            mark(fragments, entry, worker)
            rows.append((slide, entry, worker))
        for entry in (0, 1):
            assert fragments.spread[entry] == len({w for s, e, w in rows if e == entry and s > slide - 3})


# -- frequencies


def bits_of(key: int) -> np.uint64:
    return np.uint64(mix(key))


def count_all(frequencies: Frequencies, keys: list[int]) -> Frequencies:
    for key in keys:
        count(frequencies, key, bits_of(key), 10.0)
        if is_crowded(frequencies):
            frequencies = grown(frequencies)
    return frequencies


@pytest.mark.parametrize("structure", ["map", "auto"])
def test_a_map_counts_exactly(structure: str) -> None:
    keys = np.random.default_rng(3).integers(-3000, 3000, 9000).tolist()
    counted = count_all(new_frequencies(4, structure), keys)
    names, rows = np.unique(keys, return_counts=True)
    assert [estimate(counted, key, bits_of(key)) for key in names.tolist()] == rows.tolist()
    assert estimate(counted, 10**9, bits_of(10**9)) == 0
    top, top_rows = frequent(counted, 5)
    assert top_rows.tolist() == sorted(rows.tolist(), reverse=True)[:5]
    assert [rows[names.tolist().index(key)] for key in top.tolist()] == top_rows.tolist()


def test_a_sketch_is_never_low_and_seldom_high() -> None:
    keys = np.random.default_rng(4).zipf(1.3, 40_000) % 10_000
    counted = count_all(new_frequencies(32, "sketch"), keys.tolist())
    names, rows = np.unique(keys, return_counts=True)
    above = np.array([estimate(counted, key, bits_of(key)) for key in names.tolist()]) - rows
    assert (above >= 0).all()
    assert (above > np.e / 4096 * len(keys)).mean() < 0.02


def test_auto_pours_into_the_sketch_and_comes_back() -> None:
    counted = new_frequencies(4, "auto")
    counted = count_all(counted, [7] * 10 + list(range(1000, 1000 + 2**14)))
    assert counted.counters[MODE] == SKETCH
    assert counted.counters[USED] == 0
    assert 10 <= estimate(counted, 7, bits_of(7)) <= 30
    assert 7 in frequent(counted, 100)[0].tolist()
    forget(counted)
    assert counted.counters[MODE] == SKETCH
    counted = count_all(counted, list(range(500)))
    forget(counted)
    assert counted.counters[MODE] == MAP
    assert estimate(counted, 7, bits_of(7)) == 0


def test_a_forced_structure_stays() -> None:
    counted = count_all(new_frequencies(4, "map"), list(range(2**14 + 10)))
    assert counted.counters[MODE] == MAP
    sketch = count_all(new_frequencies(4, "sketch"), [1])
    forget(sketch)
    assert sketch.counters[MODE] == SKETCH


# -- the Q-table


def test_the_best_arm_is_always_the_first_of_the_highest() -> None:
    rng = np.random.default_rng(5)
    table = new_q_table(9, 2)
    for _ in range(3000):
        arm = int(rng.integers(0, 9)) if rng.random() < 0.3 else int(table.best[1])
        learn(table, 1, arm, float(rng.choice([-1.0, -0.5, 0.0, 0.3])), 0.5)
        assert table.best[1] == int(table.values[1].argmax())
    assert (table.values[0] == INITIAL).all()
    assert table.rewards[1].sum() == 3000


def test_rewards_are_equations_3_and_4() -> None:
    assert reward(10, 40, 4, 1, 0.5) == -(0.5 * 0.0 + 0.5 * 0.25)
    assert reward(20, 40, 4, 4, 0.5) == -(0.5 * 0.5 + 0.5 * 1.0)
    assert reward(5, 40, 4, 2, 1.0) == 0.5
    assert min(reward(40, 40, 4, 4, 0.5), reward(1, 1, 64, 64, 0.5)) > INITIAL


def test_exploration_is_as_frequent_as_asked_and_even() -> None:
    table = new_q_table(8, 1)
    table.best[0] = 3
    arms = [choose(table, 0, np.uint64(random_bits(np.uint64(1), row)), int(0.1 * 2**32)) for row in range(40_000)]
    counts = np.bincount(arms, minlength=8)
    others = np.delete(counts, 3)
    assert abs(others.sum() - 0.1 * 40_000 * 7 / 8) < 300
    assert others.max() < 1.3 * others.min()


# -- learning together

NOTHING = Fragmentation(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros((0, 2), np.int64), 0)


def learned(
    q: dict[int, list[float]], seen: dict[int, int], rows: int, *, kept: float = 0.5, heavy: int = -1, round: int = 0
) -> Learned:
    values = np.array(list(q.values()), np.float64).reshape(len(q), 2)
    return Learned(
        round,
        rows,
        np.array([rows // 2, rows - rows // 2]),
        np.array(list(q), np.int64),
        values,
        np.full_like(values, INITIAL),
        np.full_like(values, kept),
        np.full(len(q), heavy, np.int64),
        np.array(list(seen), np.int64),
        np.array(list(seen.values()), np.int64),
        NOTHING,
        1.0,
        4096,
        overdue=False,
    )


def test_tables_are_averaged_by_frequency() -> None:
    exports = [learned({5: [-1.0, -0.4]}, {5: 30}, 40), learned({5: [-0.2, -0.8]}, {5: 10}, 40)]
    policy = merge(exports, weights="frequency")
    assert policy.keys.tolist() == [5]
    assert policy.values[0] == pytest.approx([(-1.0 * 30 - 0.2 * 10) / 40, (-0.4 * 30 - 0.8 * 10) / 40])
    assert (policy.rows, policy.members, policy.round) == (80, 2, 1)
    assert policy.loads.tolist() == [40, 40]


def test_rewards_of_all_count_as_if_one_had_got_them() -> None:
    """Two rewards at one partitioner, three at another, all the same: five at one give the same value."""
    value = {n: -0.5 + (INITIAL + 0.5) * 0.9**n for n in (2, 3, 5)}
    exports = [
        learned({5: [value[2], INITIAL]}, {5: 20}, 20, kept=0.9**2),
        learned({5: [value[3], INITIAL]}, {5: 20}, 20, kept=0.9**3),
    ]
    exports = [replace(e, kept=np.array([[k, 1.0]])) for e, k in zip(exports, (0.9**2, 0.9**3), strict=True)]
    assert merge(exports).values[0] == pytest.approx([value[5], INITIAL])
    assert merge(exports[:1]).values[0] == pytest.approx([value[2], INITIAL])


def test_heavy_hitters_are_those_of_all_rows_together() -> None:
    exports = [
        learned({1: [-0.5, -0.5], 2: [-0.5, -0.5]}, {1: 50, 2: 30, 3: 20}, 100),
        learned({}, {3: 90, 2: 10}, 100),
    ]
    policy = merge(exports)
    assert policy.keys.tolist() == [3]
    assert (policy.values == INITIAL).all()
    assert merge([replace(export, hot_share=0.5) for export in exports]).keys.tolist() == [1, 3]


def test_a_key_leaves_the_policy_a_round_after_it_was_heavy() -> None:
    def rounds(number: int, heavy: int) -> list[int]:
        export = learned({9: [-0.5, -0.5]}, {9: 1}, 100, heavy=heavy, round=number)
        return merge([export]).keys.tolist()

    assert rounds(3, 3) == [9]
    assert rounds(4, 3) == []
    assert rounds(3, -1) == []


def test_the_interval_follows_the_reducer() -> None:
    assert next_interval(4096, True, 9.0, 1.0) == 8192
    assert next_interval(4096, False, 9.0, 1.0) == 2048
    assert next_interval(4096, False, 1.0, 9.0) == 4096
    assert next_interval(SHORTEST, False, 9.0, 1.0) == SHORTEST
    assert next_interval(LONGEST, True, 0.0, 0.0) == LONGEST


def test_who_still_awaits_a_policy_asks_for_longer_intervals() -> None:
    made = create("dalton", 4, cooperative=True, sync_rows=2048)
    assert isinstance(made, Dalton)
    assert not made.sync_due
    made.assign(np.arange(2048))
    assert made.sync_due
    first = made.export()
    assert not first.overdue
    assert not made.sync_due
    made.assign(np.arange(2048))
    second = made.export()
    assert second.overdue
    policy = merge([second])
    assert policy.interval == 4096
    made.adopt(policy)
    assert not made.awaits
    made.assign(np.arange(2048))
    assert not made.sync_due


def test_what_was_learned_travels_to_a_new_partitioner() -> None:
    keys = np.where(np.random.default_rng(1).random(20_000) < 0.5, 77, np.arange(20_000) + 100).astype(np.int64)
    made = create("dalton", 8, cooperative=True)
    assert isinstance(made, Dalton)
    made.assign(keys)
    policy: Policy = pickle.loads(pickle.dumps(merge([pickle.loads(pickle.dumps(made.export()))])))
    assert policy.keys.tolist() == [77]
    fresh = create("dalton", 8, cooperative=True, member=1)
    assert isinstance(fresh, Dalton)
    fresh.adopt(policy)
    assert fresh.hot_keys.tolist() == [77]
    out = fresh.assign(keys[:2000])
    unlearned = create("dalton", 8, cooperative=True, member=1).assign(keys[:2000])
    assert np.bincount(out, minlength=8).max() < 0.7 * np.bincount(unlearned, minlength=8).max()


def test_loads_of_all_are_evened_out_and_never_negative() -> None:
    """One sends everything to one worker, the other everywhere; then slides pass before the policy comes."""
    made = [create("dalton", 4, cooperative=True, member=i, window_rows=400, slide_rows=100) for i in range(2)]
    one, other = (each for each in made if isinstance(each, Dalton))
    one.assign(np.full(90, 3, np.int64))
    other.assign(np.arange(90))
    policy = merge([one.export(), other.export()])
    other.adopt(policy)
    assert other._state.loads.window.tolist() == (policy.loads // 2).tolist()
    one.assign(np.arange(330))
    one.adopt(policy)
    for _ in range(6):
        one.assign(np.arange(100))
        loads = one._state.loads
        assert loads.slides.min() >= 0
        assert loads.window.tolist() == loads.slides.sum(axis=0).tolist()
        assert loads.counters[TOTAL] == loads.window.sum()


@pytest.mark.parametrize("weights", ["", "loudness"])
def test_merging_nothing_or_by_unknown_weights_is_refused(weights: str) -> None:
    with pytest.raises(ThalwegError):
        merge([], weights="rewards")
    with pytest.raises(ThalwegError, match="weights"):
        merge([learned({}, {}, 1)], weights=weights)


# -- key forwarding


def fragmentation(places: dict[int, dict[int, int]], newest: int) -> Fragmentation:
    """Key -> worker -> latest slide. Every key's home is worker 0."""
    latest = np.full((len(places), 3), NEVER, np.int64)
    for i, workers in enumerate(places.values()):
        for worker, slide in workers.items():
            latest[i, worker] = slide
    return Fragmentation(np.array(list(places), np.int64), np.zeros(len(places), np.int32), latest, newest)


def test_split_keys_are_those_in_several_workers_since_a_slide() -> None:
    one = fragmentation({1: {0: 5, 1: 9}, 2: {2: 9}, 3: {0: 2, 2: 3}}, 9)
    assert split_keys(one, 0).tolist() == [1, 3]
    assert split_keys(one, 3).tolist() == [1]
    assert split_keys(one, 9).tolist() == []


def test_a_key_that_another_partitioner_sends_home_is_split() -> None:
    """Key 2 lies whole away from home at one partitioner; the other does not know it as hot (Dalton Fig. 6b)."""
    one = fragmentation({1: {0: 9}, 2: {2: 9}}, 9)
    other = fragmentation({1: {0: 8}, 4: {1: 8}}, 8)
    joined = join_fragmentations([one, other])
    assert joined.keys.tolist() == [1, 2, 4]
    assert split_keys(joined, 9).tolist() == [2]
    assert split_keys(joined, 8).tolist() == [2, 4]


def test_partitioners_together_name_every_split_key() -> None:
    rng = np.random.default_rng(6)
    made = [create("dalton", 6, member=i, window_rows=4000, slide_rows=4000, stats_rows=500) for i in range(3)]
    streams = [np.where(rng.random(4000) < 0.4, i, rng.integers(0, 200, 4000)) for i in range(3)]
    sent = [one.assign(stream) for one, stream in zip(made, streams, strict=True)]
    pairs = np.unique(np.stack([np.concatenate(streams), np.concatenate(sent)]), axis=1)
    names, counts = np.unique(pairs[0], return_counts=True)
    joined = join_fragmentations([one.fragmentation for one in made if isinstance(one, Dalton)])
    assert set(names[counts > 1].tolist()) == set(split_keys(joined, 0).tolist())
    assert 0 < (counts > 1).sum() < len(names)


def test_forwarding_needs_a_policy_in_every_slide() -> None:
    assert may_forward(10, 10, heard=True)
    assert not may_forward(11, 10, heard=True)
    assert not may_forward(5, 10, heard=False)


# -- compiling


def test_a_changed_part_voids_what_was_compiled(tmp_path: Path) -> None:
    part = ModuleType("part")
    part.__file__ = str(tmp_path / "part.py")

    def stamp(text: str) -> object:
        Path(str(part.__file__)).write_text(text)
        os.utime(str(part.__file__), (1, 1))
        compiled: Any = joint_kernel(part)(stamp)
        return compiled._cache._cache_file._source_stamp

    assert stamp("one") == stamp("two")
    assert stamp("one") != stamp("three")
