"""What every partitioner promises, over the whole family and through `create` alone (property)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg import ThalwegError
from thalweg.partition import Partitioner, create, keys_of, names

sys.path.insert(0, str(Path(__file__).parent))
from plain_holistic import candidates

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Kind:
    """A partitioner with the settings that these tests give it."""

    name: str
    estimator: str = "exact"
    options: dict[str, Any] = field(default_factory=dict)

    def made(self, workers: int, choices: int = 2, seed: int = 0, **options: Any) -> Partitioner:
        given: dict[str, Any] = {**self.options, **options}
        return create(self.name, workers, choices=min(choices, workers), estimator=self.estimator, seed=seed, **given)

    def __str__(self) -> str:
        return " ".join([self.name, self.estimator, *map(str, self.options.values())])


SHORT = {"stats_rows": 250, "window_rows": 600, "slide_rows": 200}
"""Windows that end several times in a short stream, and yet see keys often enough to take them for hot."""
CHOOSING = ("partial_key", "cardinality", "affinity", "affinity_count", "hybrid")
"""Those that choose among the candidates of a key."""
BY_CARDINALITY = CHOOSING[1:]
ROW_BY_ROW = (
    Kind("shuffle"),
    Kind("hash"),
    *(Kind(name) for name in CHOOSING),
    *(Kind(name, "hll") for name in BY_CARDINALITY),
    Kind("hybrid", options={"p": 0.9}),
    Kind("da_greedy", options=SHORT),
    Kind("dalton", options=SHORT),
    Kind("dalton", options={**SHORT, "frequencies": "sketch"}),
)
BY_BATCH = (Kind("prompt"), Kind("dalton", options={"micro_batch": True}))
FAMILY = (*ROW_BY_ROW, *BY_BATCH)
ALWAYS_WHOLE = (Kind("hash"), Kind("affinity"), Kind("affinity_count"))
"""A key has one worker in a window. Sketches promise that only almost always."""

FEW_KEYS = st.integers(0, 3)
ANY_KEY = st.integers(-(2**63), 2**63 - 1)
some_keys = st.builds(
    lambda keys, times: np.tile(np.array(keys, np.int64), times),
    st.lists(FEW_KEYS | st.integers(-40, 40) | ANY_KEY, max_size=150),
    st.sampled_from([1, 1, 8]),  # often enough for some to become hot
)
some_workers = st.integers(1, 40)
some_seed = st.integers(0, 2**64 - 1)


def skewed(rows: int, seed: int, exponent: float = 1.3, keys: int = 400) -> Ints:
    chance = np.random.default_rng(seed)
    weights = 1.0 / np.arange(1, keys + 1) ** exponent
    return chance.choice(chance.integers(-(2**63), 2**63 - 1, keys), rows, p=weights / weights.sum())


def shifting(rows: int, seed: int = 0) -> Ints:
    """The frequent keys change four times, and once nothing is frequent."""
    quarter = rows // 4
    return np.concatenate([skewed(quarter, seed + i, exponent) for i, exponent in enumerate((1.6, 0.0, 1.1, 2.0))])


STREAMS = {
    "skewed": skewed(4000, 1),
    "uniform": skewed(4000, 2, 0.0),
    "twenty": skewed(4000, 3, 0.0, keys=20),
    "shifting": shifting(4000),
    "one": np.full(900, 7),
}


def cuts(keys: Ints, places: list[int]) -> Iterator[Ints]:
    yield from np.split(keys, sorted(place % (len(keys) + 1) for place in places))


def test_the_family_is_whole() -> None:
    assert {kind.name for kind in FAMILY} == set(names())


@pytest.mark.parametrize("kind", FAMILY, ids=str)
@given(keys=some_keys, workers=some_workers, choices=st.integers(1, 40), seed=some_seed)
def test_every_row_goes_to_a_worker_there_is(kind: Kind, keys: Ints, workers: int, choices: int, seed: int) -> None:
    made = kind.made(workers, choices, seed)
    given = keys.copy()
    out = made.assign(keys)
    assert made.workers == workers
    assert out.dtype == np.int32
    assert out.shape == keys.shape
    assert ((out >= 0) & (out < workers)).all()
    assert (keys == given).all()
    assert made.state_bytes >= 0


@pytest.mark.parametrize("kind", FAMILY, ids=str)
@pytest.mark.parametrize("workers", [1, 2, 33, 200])
def test_every_worker_gets_rows_where_keys_are_many(kind: Kind, workers: int) -> None:
    keys = np.arange(40 * workers)
    assert set(kind.made(workers).assign(keys).tolist()) == set(range(workers))


@pytest.mark.parametrize("kind", ROW_BY_ROW, ids=str)
@given(keys=some_keys, workers=some_workers, seed=some_seed, places=st.lists(st.integers(0, 300), max_size=6))
def test_pieces_are_decided_as_the_whole(kind: Kind, keys: Ints, workers: int, seed: int, places: list[int]) -> None:
    whole = kind.made(workers, seed=seed).assign(keys)
    made = kind.made(workers, seed=seed)
    assert np.concatenate([made.assign(part) for part in cuts(keys, places)]).tolist() == whole.tolist()


@pytest.mark.parametrize("kind", ROW_BY_ROW, ids=str)
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("timed", [False, True])
def test_long_streams_in_pieces_are_decided_as_the_whole(kind: Kind, stream: str, timed: bool) -> None:
    """Long enough for tables to grow and for windows of every sort to end; with times, also by time."""
    keys = STREAMS[stream]
    chance = np.random.default_rng(len(keys))
    times = np.cumsum(chance.integers(0, 20, len(keys))) + chance.integers(-30, 30, len(keys))  # not in order
    options = {"window_us": 5000} if timed else {}
    made, again = kind.made(9, **options), kind.made(9, **options)
    whole = made.assign(keys, times if timed else None)
    places = np.sort(chance.integers(0, len(keys), 12))
    parts = zip(np.split(keys, places), np.split(times, places), strict=True)
    pieces = np.concatenate([again.assign(part, at if timed else None) for part, at in parts])
    assert pieces.tolist() == whole.tolist()


@pytest.mark.parametrize("kind", [kind for kind in FAMILY if kind.name not in ("hash", "prompt")], ids=str)
def test_what_came_before_counts(kind: Kind) -> None:
    """Otherwise that pieces are decided as the whole would say little."""
    made = kind.made(9)
    made.assign(STREAMS["skewed"][:-1])
    assert made.assign(STREAMS["shifting"]).tolist() != kind.made(9).assign(STREAMS["shifting"]).tolist()


@pytest.mark.parametrize("kind", FAMILY, ids=str)
@given(before=some_keys, keys=some_keys, workers=some_workers, seed=some_seed)
def test_after_reset_nothing_is_known(kind: Kind, before: Ints, keys: Ints, workers: int, seed: int) -> None:
    fresh, made = kind.made(workers, seed=seed, window_us=1000), kind.made(workers, seed=seed, window_us=1000)
    made.assign(before, np.arange(len(before)) * 10**6)
    made.assign(before)
    made.reset()
    times = np.arange(len(keys)) * 7 - 500  # before the windows that are forgotten
    assert made.assign(keys, times).tolist() == fresh.assign(keys, times).tolist()
    assert made.assign(keys).tolist() == fresh.assign(keys).tolist()
    made.reset()
    made.reset()
    assert made.state_bytes == kind.made(workers, seed=seed, window_us=1000).state_bytes


@pytest.mark.parametrize("kind", FAMILY, ids=str)
@pytest.mark.parametrize("stream", ["skewed", "shifting"])
def test_after_reset_a_long_stream_is_decided_the_same(kind: Kind, stream: str) -> None:
    made = kind.made(9, seed=3)
    first = made.assign(STREAMS[stream])
    made.reset()
    assert (made.assign(STREAMS[stream]) == first).all()


@pytest.mark.parametrize("kind", ROW_BY_ROW[2:11], ids=str)
def test_a_newer_window_starts_as_a_new_partitioner(kind: Kind) -> None:
    """Holistic, Algorithm 1; an older row does not bring its window back."""
    keys = STREAMS["skewed"]
    made = kind.made(9, window_us=100)
    made.assign(keys[:1500], np.full(1500, 250))
    fresh = kind.made(9)
    expected = fresh.assign(keys[1500:3500])
    times = np.where(np.arange(2000) % 3 == 1, 299, 300)
    assert made.assign(keys[1500:3500], times).tolist() == expected.tolist()


@pytest.mark.parametrize("kind", ALWAYS_WHOLE, ids=str)
@given(keys=some_keys, workers=some_workers, choices=st.integers(1, 40), seed=some_seed, window=st.integers(1, 400))
def test_affinity_never_splits_a_key_in_a_window(
    kind: Kind, keys: Ints, workers: int, choices: int, seed: int, window: int
) -> None:
    made = kind.made(workers, choices, seed, window_us=window)
    times = np.arange(len(keys))
    where: dict[tuple[int, int], int] = {}
    halves = np.split(keys, [len(keys) // 2]), np.split(times, [len(keys) // 2])
    for part, at in zip(*halves, strict=True):
        for time, key, worker in zip(at.tolist(), part.tolist(), made.assign(part, at).tolist(), strict=True):
            assert where.setdefault((time // window, key), worker) == worker


@pytest.mark.parametrize("name", ["affinity", "affinity_count"])
def test_by_sketches_affinity_splits_few_keys(name: str) -> None:
    keys = np.random.default_rng(1).integers(0, 5000, 100_000)
    pairs = np.unique(np.stack([keys, create(name, 16, estimator="hll").assign(keys)]), axis=1)
    assert pairs.shape[1] < 1.05 * len(np.unique(keys))


@pytest.mark.parametrize("kind", [kind for kind in ROW_BY_ROW if kind.name in CHOOSING], ids=str)
@given(keys=some_keys, workers=some_workers, choices=st.integers(1, 40), seed=some_seed)
def test_a_key_goes_only_to_its_candidates(kind: Kind, keys: Ints, workers: int, choices: int, seed: int) -> None:
    choices = min(choices, workers)
    allowed = {key: candidates(key, workers, choices, seed) for key in set(keys.tolist())}
    assert all(len(set(few)) == choices for few in allowed.values())
    out = kind.made(workers, choices, seed).assign(keys)
    assert all(worker in allowed[key] for key, worker in zip(keys.tolist(), out.tolist(), strict=True))


@pytest.mark.parametrize("choices", [2, 5])
def test_partial_key_uses_all_candidates_of_a_hot_key_evenly(choices: int) -> None:
    out = create("partial_key", 12, choices=choices).assign(np.full(1000, -5))
    assert sorted(set(out.tolist())) == sorted(candidates(-5, 12, choices, 0))
    loads = np.bincount(out)[candidates(-5, 12, choices, 0)]
    assert loads.max() - loads.min() <= 1


@pytest.mark.parametrize("name", ["dalton", "da_greedy"])
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("workers", [1, 2, 5, 16])
@pytest.mark.parametrize("hot_share", [0.0, 0.02, 1.0])
def test_no_more_keys_are_hot_than_workers(name: str, stream: str, workers: int, hot_share: float) -> None:
    """In a statistics window at most n keys become heavy hitters, and those of the one before are still hot.

    Only hot keys leave their home, so at most 2n do in a window, whatever the share from which a key is heavy.
    """
    keys, span = STREAMS[stream], 1000
    options: dict[str, Any] = {"hot_share": hot_share, "stats_rows": span, "window_rows": span, "slide_rows": span}
    made = create(name, workers, seed=4, **options)
    homes = create("hash", workers, seed=4).assign(keys)
    away_in_all = 0
    for start in range(0, len(keys), span):
        away: set[int] = set()
        for at in range(start, min(start + span, len(keys)), 100):
            part = keys[at : at + 100]
            out = made.assign(part)
            away |= set(part[out != homes[at : at + 100]].tolist())
            if name == "dalton":
                assert made.heavy_hitters <= workers  # type: ignore[attr-defined]
                assert len(made.hot_keys) <= 2 * workers  # type: ignore[attr-defined]
        assert len(away) <= 2 * workers
        away_in_all += len(away)
    assert away_in_all > 0 or workers == 1 or stream == "uniform" or hot_share == 1.0


@given(keys=some_keys, workers=st.integers(1, 9), hot_share=st.floats(0, 1), stats_rows=st.integers(1, 600))
def test_any_rows_have_at_most_n_heavy_hitters(keys: Ints, workers: int, hot_share: float, stats_rows: int) -> None:
    made = create("dalton", workers, hot_share=hot_share, stats_rows=stats_rows)
    for part in np.array_split(keys, 20):
        made.assign(part)
        assert made.heavy_hitters <= workers  # type: ignore[attr-defined]
        assert len(set(made.hot_keys.tolist())) == len(made.hot_keys) <= 2 * workers  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", FAMILY, ids=str)
def test_null_is_a_key_like_any_other(kind: Kind) -> None:
    column = pa.array([None if i % 3 == 0 else i % 7 for i in range(600)])
    keys = keys_of([column])
    nulls = column.is_null().to_numpy(zero_copy_only=False)
    assert len(set(keys[nulls].tolist())) == 1
    assert keys[nulls][0] not in keys[~nulls]
    out = kind.made(5).assign(keys)
    assert ((out >= 0) & (out < 5)).all()
    if kind in ALWAYS_WHOLE:
        assert len(set(out[nulls].tolist())) == 1


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize(
    ("workers", "options", "named"),
    [
        (0, {}, "workers"),
        (-3, {}, "workers"),
        (1.5, {}, "workers"),
        (float("nan"), {}, "workers"),
        (None, {}, "workers"),
        (True, {}, "workers"),
        (4, {"choices": 0}, "choices"),
        (4, {"choices": 2.0}, "choices"),
        (4, {"estimator": "bloom"}, "estimator"),
        (4, {"seed": float("nan")}, "seed"),
        (4, {"window_us": -1}, "window_us"),
        (4, {"window_us": float("nan")}, "window_us"),
        (4, {"no_such": 1}, "no_such"),
    ],
)
def test_bad_settings_are_refused_by_all(name: str, workers: Any, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ThalwegError, match=named) as refused:
        create(name, workers, **options)
    assert name in str(refused.value)


@pytest.mark.parametrize("name", CHOOSING)
def test_more_choices_than_workers_are_refused_where_choices_count(name: str) -> None:
    with pytest.raises(ThalwegError, match="choices"):
        create(name, 3, choices=4)
    create(name, 3, choices=3)


PROBABILITIES = [("hybrid", "p"), ("da_greedy", "hot_share")]
PROBABILITIES += [("dalton", option) for option in ("epsilon", "step", "balance", "hot_share")]


@pytest.mark.parametrize(("name", "option"), PROBABILITIES)
@pytest.mark.parametrize("value", [float("nan"), np.nan, -0.01, 1.01, float("inf"), "0.5", None, True])
def test_what_is_no_probability_is_refused(name: str, option: str, value: Any) -> None:
    with pytest.raises(ThalwegError, match=option):
        create(name, 4, **{option: value})
    good: Any
    for good in (0, 1, 0.5, np.float32(0.25)):
        create(name, 4, **{option: good})


@pytest.mark.parametrize("name", ["", "Dalton", "thalweg.partition.hash", "hash ", None, 3])
def test_unknown_names_are_refused(name: Any) -> None:
    with pytest.raises(ThalwegError) as refused:
        create(name, 4)
    assert all(known in str(refused.value) for known in names())


@pytest.mark.parametrize("kind", FAMILY, ids=str)
@pytest.mark.parametrize(
    "keys",
    [
        np.array([1.0, np.nan]),
        np.array([1, None], object),
        np.array(["a", "b"]),
        np.array([True, False]),
        np.zeros((3, 2), np.int64),
        np.int64(5),
    ],
)
def test_rows_that_are_no_keys_are_refused_and_change_nothing(kind: Kind, keys: Any) -> None:
    made, fresh = kind.made(4), kind.made(4)
    with pytest.raises(ThalwegError, match="keys"):
        made.assign(keys)
    assert made.assign(STREAMS["skewed"]).tolist() == fresh.assign(STREAMS["skewed"]).tolist()


@pytest.mark.parametrize("kind", ROW_BY_ROW, ids=str)
@pytest.mark.parametrize("times", [np.arange(3), np.array([0.0, np.nan]), np.zeros((2, 1), np.int64)])
def test_times_that_are_none_are_refused(kind: Kind, times: Any) -> None:
    with pytest.raises(ThalwegError, match="times"):
        kind.made(4, window_us=10).assign(np.arange(2), times)


@pytest.mark.parametrize("kind", FAMILY, ids=str)
def test_no_rows_are_no_work(kind: Kind) -> None:
    made, fresh = kind.made(4, window_us=10), kind.made(4, window_us=10)
    nothing = np.array([], np.int64)
    assert made.assign(nothing).tolist() == []
    assert made.assign(nothing, nothing).tolist() == []
    keys = STREAMS["skewed"][:500]
    assert made.assign(keys, np.arange(500)).tolist() == fresh.assign(keys, np.arange(500)).tolist()
