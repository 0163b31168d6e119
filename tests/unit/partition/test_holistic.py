"""The partitioners of the Holistic paper: row for row like its algorithms in plain Python, and promises."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg import ThalwegError
from thalweg.kernel import frozen_view
from thalweg.partition import create
from thalweg.partition.candidates import CandidateWorkers
from thalweg.partition.cardinalities import ExactCardinalities
from thalweg.partition.decide import CardinalityAware

sys.path.insert(0, str(Path(__file__).parent))
from plain_holistic import Plain, candidates

Ints = npt.NDArray[np.int64]

AWARE = ("cardinality", "affinity", "affinity_count", "hybrid")
ALL = ("shuffle", "hash", "partial_key", *AWARE)
KINDS = [(name, "exact") for name in ALL] + [(name, "hll") for name in AWARE]


def zipf(rng: np.random.Generator, exponent: float, keys: int, rows: int) -> Ints:
    weights = 1.0 / np.arange(1, keys + 1) ** exponent
    return rng.choice(rng.integers(-(2**63), 2**63 - 1, keys), rows, p=weights / weights.sum())


def stream(kind: str, rows: int, seed: int = 0) -> Ints:
    rng = np.random.default_rng(seed)
    if kind == "uniform":
        return rng.integers(-50, 50, rows)
    if kind == "distinct":
        return rng.permutation(rows) - rows // 2
    if kind == "shifting":
        return np.concatenate([zipf(rng, 1.2, 200, rows // 4) for _ in range(4)])
    if kind == "edges":
        return rng.choice(np.array([0, -1, 1, -(2**63), 2**63 - 1, 2**32, -(2**32)]), rows)
    return zipf(rng, float(kind), 500, rows)


STREAMS = ("uniform", "distinct", "shifting", "edges", "0.5", "1.0", "1.5", "2.0")


@pytest.mark.parametrize(("name", "estimator"), KINDS)
@pytest.mark.parametrize("kind", STREAMS)
def test_rows_go_where_the_paper_says(name: str, estimator: str, kind: str) -> None:
    keys = stream(kind, 1200, seed=len(kind))
    ours, plain = create(name, 7, estimator=estimator, seed=3), Plain(name, 7, estimator=estimator, seed=3)
    for part in np.split(keys, [1, 2, 500, 500, 900]):  # state is kept between calls, an empty one changes nothing
        assert ours.assign(part).tolist() == plain.assign(part)


@pytest.mark.parametrize(("name", "estimator"), KINDS)
@pytest.mark.parametrize(
    ("workers", "choices"), [(1, 1), (2, 2), (3, 1), (5, 5), (32, 2), (33, 5), (12, 9), (20, 17), (130, 3)]
)
def test_any_number_of_workers_and_choices(name: str, estimator: str, workers: int, choices: int) -> None:
    keys = stream("1.0", 800, seed=workers)
    given = {"choices": choices, "estimator": estimator, "seed": 2**64 - 5}
    ours, plain = create(name, workers, **given), Plain(name, workers, **given)
    assert ours.assign(keys).tolist() == plain.assign(keys)


@pytest.mark.parametrize(("name", "estimator"), KINDS)
def test_a_newer_window_starts_afresh_and_an_older_row_does_not(name: str, estimator: str) -> None:
    rng = np.random.default_rng(5)
    keys = stream("1.0", 1500, seed=5)
    times = np.arange(-700, 800) * 10 + rng.integers(-300, 300, keys.size)  # unordered, and before 1970 too
    given: dict[str, Any] = {"estimator": estimator, "window_us": 1000}
    ours, plain = create(name, 5, **given), Plain(name, 5, **given)
    for part in (slice(0, 400), slice(400, 401), slice(401, 1500)):
        assert ours.assign(keys[part], times[part]).tolist() == plain.assign(keys[part], times[part])


@pytest.mark.parametrize("p", [0.0, 0.2, 0.9, 1.0])
@pytest.mark.parametrize("estimator", ["exact", "hll"])
def test_hybrid_weighs_rows_against_keys(p: float, estimator: str) -> None:
    keys = stream("1.5", 1500)
    ours, plain = create("hybrid", 6, estimator=estimator, p=p), Plain("hybrid", 6, estimator=estimator, p=p)
    assert ours.assign(keys).tolist() == plain.assign(keys)


def test_hybrid_at_its_ends_is_partial_key_and_cardinality() -> None:
    keys = stream("1.0", 20_000)
    by_rows, by_keys = create("hybrid", 9, p=1.0).assign(keys), create("hybrid", 9, p=0.0).assign(keys)
    assert by_rows.tolist() == create("partial_key", 9).assign(keys).tolist()
    assert by_keys.tolist() == create("cardinality", 9).assign(keys).tolist()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "estimator"), [(name, e) for name in AWARE for e in ("exact", "hll")])
def test_many_keys_grow_the_table_and_leave_linear_counting(name: str, estimator: str) -> None:
    keys = np.concatenate([stream("distinct", 30_000), stream("distinct", 6_000)])
    ours, plain = create(name, 2, estimator=estimator), Plain(name, 2, estimator=estimator)
    assert ours.assign(keys).tolist() == plain.assign(keys)


@pytest.mark.parametrize("choices", [1, 2, 3, 4, 5, 8, 16])
def test_candidates_are_different_workers_and_evenly_used(choices: int) -> None:
    keys = frozen_view(np.arange(20_000))
    named = CandidateWorkers(16, choices, seed=1).all(keys)
    assert [named[:, row].tolist() for row in range(300)] == [candidates(key, 16, choices, 1) for key in range(300)]
    ordered = np.sort(named, axis=0)
    assert (ordered[1:] > ordered[:-1]).all()
    for line in named:
        assert np.bincount(line, minlength=16).max() < 1.15 * 20_000 / 16


def test_decisions_are_pinned_on_every_platform() -> None:
    keys = np.array([0, 1, -1, 2**63 - 1, -(2**63), 123456789])
    assert create("hash", 32).assign(keys).tolist() == [9, 29, 19, 15, 8, 29]
    assert create("partial_key", 32, choices=5, seed=9).assign(keys).tolist() == [14, 3, 25, 27, 9, 7]


@settings(max_examples=examples(60))
@given(
    keys=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 3), max_size=200),
    workers=st.integers(1, 40),
    data=st.data(),
)
def test_promises(keys: list[int], workers: int, data: st.DataObject) -> None:
    choices = data.draw(st.integers(1, workers))
    seed = data.draw(st.integers(0, 2**64 - 1))
    cut = data.draw(st.integers(0, len(keys)))
    array = np.array(keys, np.int64)
    for name, estimator in KINDS:
        ours = create(name, workers, choices=choices, estimator=estimator, seed=seed)
        whole = ours.assign(array)
        assert whole.dtype == np.int32
        assert ((whole >= 0) & (whole < workers)).all()
        ours.reset()
        assert np.concatenate([ours.assign(array[:cut]), ours.assign(array[cut:])]).tolist() == whole.tolist()
        check_promise_of(name, estimator, array, whole, workers, choices, seed)


def check_promise_of(
    name: str, estimator: str, keys: Ints, assigned: Any, workers: int, choices: int, seed: int
) -> None:
    if name == "shuffle":
        loads = np.bincount(assigned, minlength=workers)
        assert loads.max() - loads.min() <= 1
        return
    allowed = {key: candidates(key, workers, 1 if name == "hash" else choices, seed) for key in set(keys.tolist())}
    assert all(worker in allowed[key] for key, worker in zip(keys.tolist(), assigned.tolist(), strict=True))
    if name == "hash" or (name.startswith("affinity") and estimator == "exact"):
        homes = dict(zip(keys.tolist(), assigned.tolist(), strict=True))
        assert [homes[key] for key in keys.tolist()] == assigned.tolist()


@pytest.mark.parametrize("name", ["affinity", "affinity_count"])
def test_affinity_keeps_keys_whole_in_a_window_and_lets_them_move_after_it(name: str) -> None:
    rng = np.random.default_rng(2)
    keys = rng.integers(0, 3000, 60_000)
    times = np.arange(keys.size)
    assigned = create(name, 16, window_us=10_000).assign(keys, times)
    pairs = {(time // 10_000, key, worker) for time, key, worker in zip(times, keys, assigned, strict=True)}
    assert len(pairs) == len({(window, key) for window, key, _ in pairs})
    assert len({(key, worker) for _, key, worker in pairs}) > len(set(keys.tolist()))


def test_balance_is_what_each_promises() -> None:
    keys = stream("1.0", 50_000)
    most = {name: np.bincount(create(name, 8).assign(keys), minlength=8).max() for name in ALL}
    assert most["shuffle"] == 6250
    assert most["partial_key"] < 0.9 * most["hash"]
    spread = np.random.default_rng(3).integers(0, 20_000, 100_000)
    by_keys = {
        name: np.bincount(create(name, 32).assign(np.unique(spread)), minlength=32).max() for name in ("hash", *AWARE)
    }
    assert by_keys["affinity"] < 0.95 * by_keys["hash"]
    assert by_keys["cardinality"] < 0.95 * by_keys["hash"]


@pytest.mark.parametrize("rows", [2000, 30_000, 400_000])  # linear counting, where it ends, and harmonic means
def test_sketches_estimate_within_the_error_of_4096_registers(rows: int) -> None:
    keys = np.random.default_rng(4).integers(0, 2**62, rows)
    ours = create("cardinality", 3, estimator="hll")
    assert isinstance(ours, CardinalityAware)
    workers = ours.assign(keys)
    true = np.array([np.unique(keys[workers == worker]).size for worker in range(3)])
    estimates = ours._known.estimates  # type: ignore[union-attr]
    assert (np.abs(estimates - true) < 4 * 1.04 / np.sqrt(4096) * true).all()


def test_table_holds_every_key_once_whatever_the_order() -> None:
    keys = stream("distinct", 40_000)
    known = ExactCardinalities(4, 2)
    for part in np.array_split(frozen_view(np.concatenate([keys, keys[::-1]])), 37):
        slots = known.place(frozen_view(part))
        assert np.unique(slots).size == np.unique(part).size
    known.lines[-1, 7] = 1  # as deciding on key 0, which has a line of its own, would
    assert known.groups == 40_000
    known.clear()
    assert known.groups == 0
    assert known.place(frozen_view(keys[:5])).size == 5


@pytest.mark.slow
def test_memory_is_below_table_4_of_the_paper() -> None:
    exact = create("affinity", 32)
    exact.assign(np.arange(8_100_000))
    assert 8 * 8_100_000 < exact.state_bytes < 122e6
    exact.reset()
    assert exact.state_bytes < 4096
    for name in AWARE:
        sketched = create(name, 32, estimator="hll")
        sketched.assign(np.arange(100_000))
        assert 32 * 4096 * 5 / 8 < sketched.state_bytes < 0.1e6


def test_a_window_with_few_keys_gives_memory_back() -> None:
    ours = create("affinity", 4, window_us=100)
    ours.assign(np.arange(200_000), np.zeros(200_000, np.int64))
    large = ours.state_bytes
    for window in range(1, 5):
        ours.assign(np.arange(10), np.full(10, 100 * window))
    assert ours.state_bytes < large / 100


def test_the_first_and_the_last_instant_have_windows() -> None:
    keys = np.zeros(4, np.int64)
    times = np.array([-(2**63), 0, 2**63 - 1, 2**63 - 1])
    for name, estimator in KINDS:
        given: dict[str, Any] = {"estimator": estimator, "window_us": 2**40 + 1}
        assert create(name, 4, **given).assign(keys, times).tolist() == Plain(name, 4, **given).assign(keys, times)


def test_many_short_windows_take_one_pass() -> None:
    keys, times = stream("distinct", 20_000), np.arange(20_000)
    ours = create("partial_key", 4, window_us=2)
    expected = Plain("partial_key", 4, window_us=2).assign(keys, times)
    assert ours.assign(keys, times).tolist() == expected


def test_times_without_windows_and_windows_without_times_do_not_reset() -> None:
    keys = stream("1.0", 500)
    expected = create("hybrid", 4).assign(keys).tolist()
    assert create("hybrid", 4).assign(keys, np.arange(500)).tolist() == expected
    assert create("hybrid", 4, window_us=10).assign(keys).tolist() == expected


def test_reset_also_forgets_the_window() -> None:
    keys = stream("1.0", 300)
    ours = create("affinity", 4, window_us=10)
    late, early = np.full(300, 10**6), np.zeros(300, np.int64)
    first = ours.assign(keys, late).tolist()
    ours.reset()
    assert ours.assign(keys, early).tolist() == first
    assert ours.assign(keys, early + 10).tolist() == first  # the newer window of the two starts afresh


def test_whole_numbers_of_any_width_and_layout_are_keys() -> None:
    keys = stream("uniform", 600)
    for name in ALL:
        expected = create(name, 6).assign(keys).tolist()
        assert create(name, 6).assign(keys.astype(np.int16)).tolist() == expected  # type: ignore[arg-type]
        assert create(name, 6).assign(keys.astype(np.uint64)).tolist() == expected  # type: ignore[arg-type]
        assert create(name, 6).assign(np.repeat(keys, 2)[::2]).tolist() == expected


BAD: list[tuple[int, dict[str, Any], str]] = [
    (0, {}, "workers"),
    (-1, {}, "workers"),
    (2**20, {}, "workers"),
    (4, {"estimator": "guess"}, "estimator"),
    (4, {"seed": "x"}, "seed"),
    (4, {"window_us": 0}, "window_us"),
    (4, {"window_us": 1.5}, "window_us"),
    (4, {"colour": 1}, "colour"),
    (4, {"choices": 0}, "choices"),
    (4, {"choices": True}, "choices"),
]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(("workers", "options", "named"), BAD)
def test_bad_input_is_named(name: str, workers: int, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ThalwegError, match=named):
        create(name, workers, **options)


@pytest.mark.parametrize("name", ["partial_key", *AWARE])
def test_more_choices_than_workers_are_refused(name: str) -> None:
    with pytest.raises(ThalwegError, match="choices"):
        create(name, 4, choices=5)


@pytest.mark.parametrize("p", [float("nan"), -0.1, 1.1, float("inf"), "half", None, True])
def test_p_is_a_probability(p: Any) -> None:
    with pytest.raises(ThalwegError, match="p = "):
        create("hybrid", 4, p=p)
    with pytest.raises(ThalwegError, match="p = "):
        create("affinity", 4, p=0.5)  # only hybrid has it


@pytest.mark.parametrize("name", ALL)
def test_what_is_no_key_and_no_time_is_refused(name: str) -> None:
    ours = create(name, 4, window_us=10)
    with pytest.raises(ThalwegError, match="keys"):
        ours.assign(np.array([1.5, np.nan]))  # type: ignore[arg-type]
    with pytest.raises(ThalwegError, match="keys"):
        ours.assign(np.zeros((2, 2), np.int64))
    with pytest.raises(ThalwegError, match="times"):
        ours.assign(np.arange(3), np.arange(2))
    with pytest.raises(ThalwegError, match="times"):
        ours.assign(np.arange(2), np.array([0.5, np.nan]))  # type: ignore[arg-type]
    assert ours.assign(np.array([])).size == 0
