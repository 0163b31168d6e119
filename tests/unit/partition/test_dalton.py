"""Dalton against its plain transcription, row for row, and what must always hold (differential, property)."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.errors import ThalwegError
from thalweg.partition import create
from thalweg.partition.cooperative import merge
from thalweg.partition.dalton import Dalton

sys.path.insert(0, str(Path(__file__).parent))
from plain_dalton import PlainDalton


def zipf(exponent: float, keys: int, rows: int, seed: int) -> np.ndarray:
    """`exponent` 0 is uniform. Which keys are frequent depends on the seed."""
    rng = np.random.default_rng(seed)
    weights = np.cumsum(1.0 / np.arange(1, keys + 1) ** exponent)
    names = rng.choice(2**62, keys, replace=False).astype(np.int64) - 2**61
    return names[np.searchsorted(weights / weights[-1], rng.random(rows))]


def shifting(rows: int) -> np.ndarray:
    parts = [zipf(1.5, 500, rows // 4, 1), zipf(0, 500, rows // 4, 2), zipf(1.2, 50, rows // 4, 3)]
    return np.concatenate([*parts, zipf(2.0, 500, rows // 4, 4)])


STREAMS = {
    "uniform": zipf(0, 300, 6000, 1),
    "zipf 0.5": zipf(0.5, 300, 6000, 2),
    "zipf 1.0": zipf(1.0, 300, 6000, 3),
    "zipf 2.0": zipf(2.0, 300, 6000, 4),
    "shifting": shifting(8000),
    "one key": np.full(3000, -7, np.int64),
}


def homes_of(keys: np.ndarray, workers: int, seed: int) -> dict[int, int]:
    names = np.unique(keys)
    return dict(zip(names.tolist(), create("hash", workers, seed=seed).assign(names, None).tolist(), strict=True))


def both(keys: np.ndarray, workers: int, **options: Any) -> tuple[Dalton, Any]:
    """The partitioner and its transcription with the same settings."""
    seed = options.pop("seed", 0)
    made = create("dalton", workers, seed=seed, **options)
    assert isinstance(made, Dalton)
    given = made.settings
    slide = given.slide_us or given.window_us or given.slide_rows
    window = given.window_us or given.window_rows
    other = PlainDalton(
        workers,
        homes_of(keys, workers, seed),
        seed=seed,
        member=given.member,
        slide=slide,
        slides=-(-window // slide),
        stats_rows=None if given.micro_batch or given.cooperative else given.stats_rows,
        hot_share=given.hot_share,
        sketch=given.frequencies == "sketch",
        epsilon=given.epsilon,
        step=given.step,
        balance=given.balance,
    )
    return made, other


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("workers", [1, 2, 5, 16, 70])
def test_it_decides_as_the_paper_row_for_row(stream: str, workers: int) -> None:
    keys = STREAMS[stream]
    options = {"window_rows": 1500, "slide_rows": 500, "stats_rows": 700, "seed": 11, "hot_share": 0.5}
    made, other = both(keys, workers, **options)
    for start in range(0, len(keys), 1234):
        part = keys[start : start + 1234]
        assert made.assign(part).tolist() == other.assign(part.tolist())
    assert set(made.hot_keys.tolist()) == set(other.hot)
    assert len(made.hot_keys) > 0 or stream not in ("zipf 2.0", "one key")


@pytest.mark.parametrize(
    "options",
    [
        {"frequencies": "sketch"},
        {"frequencies": "map", "hot_share": 1.0},
        {"epsilon": 0.0, "balance": 1.0},
        {"epsilon": 1.0, "step": 1.0},
        {"balance": 0.0, "member": 3},
        {"stats_rows": 64, "hot_share": 0.1},
        {"window_rows": 64, "slide_rows": 64},
        {"window_rows": 100_000, "slide_rows": 100, "stats_rows": 150},
    ],
)
def test_every_setting_is_the_papers(options: dict[str, Any]) -> None:
    keys = np.concatenate([STREAMS["zipf 1.0"], STREAMS["shifting"]])
    made, other = both(keys, 8, **{"window_rows": 2000, "slide_rows": 400, "stats_rows": 500, **options})
    assert made.assign(keys).tolist() == other.assign(keys.tolist())


def test_windows_by_time_slide_with_late_rows_and_gaps() -> None:
    rng = np.random.default_rng(5)
    keys = STREAMS["shifting"]
    times = np.cumsum(rng.integers(0, 2000, len(keys))) + rng.integers(-5000, 5000, len(keys)) - 1_000_000
    times[4000:] += 10**8
    made, other = both(keys, 6, window_us=300_000, slide_us=100_000, stats_rows=600)
    for part in (slice(0, 2500), slice(2500, 8000)):
        assert made.assign(keys[part], times[part]).tolist() == other.assign(
            keys[part].tolist(), times[part].tolist()
        )


def test_micro_batches_are_seen_before_they_are_assigned() -> None:
    keys = STREAMS["shifting"]
    made, other = both(keys, 8, micro_batch=True, window_rows=3000, slide_rows=1000)
    for start in range(0, len(keys), 900):
        part = keys[start : start + 900]
        assert made.assign(part).tolist() == other.assign_batch(part.tolist())
        names, rows = np.unique(part, return_counts=True)
        assert set(names[rows >= 32].tolist()) <= set(made.hot_keys.tolist())


@pytest.mark.parametrize("frequencies", ["map", "sketch"])
def test_cooperative_rounds_with_kept_rewards_are_algorithm_2(frequencies: str) -> None:
    keys = STREAMS["shifting"]
    made, other = both(keys, 8, cooperative=True, frequencies=frequencies, window_rows=3000, slide_rows=1000)
    for start in range(0, len(keys), 1000):
        first, late = keys[start : start + 700], keys[start + 700 : start + 1000]
        assert made.assign(first).tolist() == other.assign(first.tolist())
        exported = made.export()
        assert made.awaits
        assert {k: v.tolist() for k, v in zip(exported.keys.tolist(), exported.values, strict=True)} == {
            key: other.q[key] for key in other.hot
        }
        other.sync()
        assert made.assign(late).tolist() == other.assign(late.tolist())
        policy = merge([exported, exported], weights="frequency")
        made.adopt(policy)
        values = dict(zip(policy.keys.tolist(), policy.values.tolist(), strict=True))
        other.adopt(values, policy.rows, [0] * 8)
        assert not made.awaits
        assert set(made.hot_keys.tolist()) == set(other.hot) == set(policy.keys.tolist())


def test_growing_tables_change_nothing() -> None:
    """Thousands of keys in the map, and hot keys that stay in a long window until there is no entry left."""
    keys = np.concatenate([zipf(1.0, 40, 400, seed) for seed in range(60)] + [zipf(0, 5000, 5000, 99)])
    options = {"window_rows": 10**6, "slide_rows": 10**5, "stats_rows": 200, "hot_share": 0.1, "frequencies": "map"}
    made, other = both(keys, 3, **options)
    assert made.assign(keys).tolist() == other.assign(keys.tolist())
    assert len(made.fragmentation.keys) > 8


def test_too_many_keys_are_poured_into_the_sketch_and_few_bring_back_the_map() -> None:
    made = create("dalton", 4, stats_rows=40_000, seed=1)
    assert isinstance(made, Dalton)
    many = zipf(0, 10**6, 40_000, 1)
    hot = np.full(40_000, 5, np.int64)
    made.assign(np.stack([many, hot]).T.reshape(-1)[:40_000])
    assert made._state.frequencies.counters[0] == 1
    assert made.hot_keys.tolist() == [5]
    before = made.state_bytes
    made.assign(zipf(0, 100, 120_001, 2))
    assert made._state.frequencies.counters[0] == 0
    assert made.state_bytes == before


@given(
    workers=st.integers(1, 9),
    keys=st.lists(st.integers(-3, 40) | st.sampled_from([-(2**63), 2**63 - 1]), max_size=400),
    stats_rows=st.integers(1, 90),
    slide_rows=st.integers(1, 200),
    micro_batch=st.booleans(),
    data=st.data(),
)
def test_invariants(
    workers: int, keys: list[int], stats_rows: int, slide_rows: int, micro_batch: bool, data: st.DataObject
) -> None:
    array = np.array(keys, np.int64)
    made = create(
        "dalton", workers, stats_rows=stats_rows, slide_rows=slide_rows, window_rows=200, micro_batch=micro_batch
    )
    assert isinstance(made, Dalton)
    homes = homes_of(array, workers, 0) if keys else {}
    cut = data.draw(st.integers(0, len(keys)))
    for part in (array[:cut], array[cut:]):
        out = made.assign(part)
        assert out.dtype == np.int32
        assert len(out) == len(part)
        assert ((out >= 0) & (out < workers)).all()
        assert made.heavy_hitters <= workers
        assert len(made.hot_keys) <= 2 * workers
        for key, worker in zip(part.tolist(), out.tolist(), strict=True):
            known = set(made.fragmentation.keys.tolist())
            assert worker == homes[key] or key in known or len(part) > stats_rows
    made.reset()
    fresh = create(
        "dalton", workers, stats_rows=stats_rows, slide_rows=slide_rows, window_rows=200, micro_batch=micro_batch
    )
    assert made.assign(array).tolist() == fresh.assign(array).tolist()


def test_keys_that_are_not_split_lie_in_one_worker() -> None:
    """Key forwarding: in every window, a key that is in several workers is named."""
    keys = STREAMS["shifting"]
    made = create("dalton", 8, window_rows=1000, slide_rows=1000, stats_rows=300)
    assert isinstance(made, Dalton)
    found = 0
    for start in range(0, len(keys), 1000):
        part = keys[start : start + 1000]
        out = made.assign(part)
        places = np.unique(np.stack([part, out]), axis=1)
        several, counts = np.unique(places[0], return_counts=True)
        assert set(several[counts > 1].tolist()) <= set(made.split_keys().tolist())
        found += len(made.split_keys())
    assert 0 < found < len(np.unique(keys)) / 2


def test_the_same_seed_decides_the_same_and_members_explore_differently() -> None:
    keys = zipf(1.5, 1000, 20_000, 1)
    runs = [create("dalton", 16, seed=3, member=m).assign(keys) for m in (0, 0, 1)]
    assert (runs[0] == runs[1]).all()
    assert (runs[0] != runs[2]).any()


def modelled_time(keys: np.ndarray, out: np.ndarray, workers: int, window: int) -> float:
    """Dalton Eq. 1 and 2, averaged over windows: rows above the average, and partial results of split keys."""
    times = []
    for start in range(0, len(keys), window):
        part, where = keys[start : start + window], out[start : start + window]
        loads = np.bincount(where, minlength=workers)
        pairs = np.unique(np.stack([part, where]), axis=1)
        counts = np.unique(pairs[0], return_counts=True)[1]
        times.append(loads.max() - loads.mean() + counts[counts > 1].sum())
    return float(np.mean(times))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [8, 32])
@pytest.mark.parametrize("stream", ["uniform", "0.5", "1.0", "1.5", "2.0", "alternating"])
def test_it_is_as_good_as_the_better_of_hash_and_two_choices(stream: str, workers: int) -> None:
    window, rows = 100_000, 400_000
    if stream == "alternating":
        keys = np.concatenate([zipf(exponent, 50_000, window, i) for i, exponent in enumerate((0, 1.5, 0, 1.5))])
    else:
        keys = zipf(0 if stream == "uniform" else float(stream), 50_000, rows, 7)
    dalton = create("dalton", workers, window_rows=window, slide_rows=window).assign(keys)
    costs = [
        modelled_time(keys, create(name, workers).assign(keys), workers, window) for name in ("hash", "partial_key")
    ]
    mine = modelled_time(keys, dalton, workers, window)
    assert mine <= 1.05 * min(costs)
    assert stream != "alternating" or mine < 0.5 * min(costs)


@pytest.mark.slow
@pytest.mark.parametrize("members", [2, 4, 8])
@pytest.mark.parametrize("exponent", [1.0, 1.5])
def test_partitioners_that_learn_together_are_ahead_of_independent_ones(members: int, exponent: float) -> None:
    rows, chunk, workers = 65_536, 8192, 32
    streams = [np.random.default_rng(i).permutation(zipf(exponent, 20_000, rows, 1)) for i in range(members)]
    window = rows // 4
    costs = {}
    for together in (False, True):
        made = [
            create("dalton", workers, member=i, cooperative=together, window_rows=window, slide_rows=window)
            for i in range(members)
        ]
        seen, sent = [], []
        for start in range(0, rows, chunk):
            parts = [stream[start : start + chunk] for stream in streams]
            seen += parts
            sent += [one.assign(part) for one, part in zip(made, parts, strict=True)]
            if together:
                policy = merge([one.export() for one in made])  # type: ignore[attr-defined]
                for one in made:
                    one.adopt(policy)  # type: ignore[attr-defined]
        costs[together] = modelled_time(np.concatenate(seen), np.concatenate(sent), workers, window * members)
    assert costs[True] < costs[False]


@pytest.mark.parametrize(
    "options",
    [
        {"workers": 0},
        {"workers": 2.5},
        {"epsilon": math.nan},
        {"epsilon": 1.5},
        {"step": -0.1},
        {"balance": "much"},
        {"hot_share": math.inf},
        {"window_us": 0},
        {"slide_us": 5},
        {"window_us": 5, "slide_us": 6},
        {"stats_rows": 0},
        {"frequencies": "guess"},
        {"member": -1},
        {"micro_batch": 1},
        {"colour": "red"},
        {"choices": 0},
        {"estimator": "psychic"},
        {"seed": "x"},
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any]) -> None:
    workers = options.pop("workers", 4)
    with pytest.raises(ThalwegError, match="dalton"):
        create("dalton", workers, **options)


def test_alone_it_neither_exports_nor_adopts() -> None:
    with pytest.raises(ThalwegError, match="cooperative"):
        create("dalton", 4).export()  # type: ignore[attr-defined]
    together = create("dalton", 4, cooperative=True)
    with pytest.raises(ThalwegError, match="workers"):
        create("dalton", 5, cooperative=True).adopt(merge([together.export()]))  # type: ignore[attr-defined]
