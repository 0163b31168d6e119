"""Unit: what Daltons have learned, in the manifest: small, read again, and ignored where it is damaged."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from msgspec import structs
from tests.support.local_pipeline import LocalPipeline
from tests.unit.operate.test_own import MEAN, SECOND, STREAM, TUMBLING, call, code, query

from thalweg.adapt.learned_splits import MOST, kept_of, policy_of
from thalweg.model.measurements import LearnedSplits
from thalweg.partition.cooperative import Policy

SLOTS = 8


def random_policy(seed: int, slots: int = SLOTS, keys: int = 20) -> Policy:
    rng = np.random.default_rng(seed)
    hashes = rng.choice(2**62, keys, replace=False).astype(np.int64)
    loads, values = rng.integers(0, 99, slots), -2 * rng.random((keys, slots))
    return Policy(9, 3, int(loads.sum()), loads, hashes, values, rng.integers(8, 10, keys), 1 << 17)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_kept_is_the_policy_but_for_loads_and_the_last_bits(seed: int) -> None:
    policy = random_policy(seed, *random.Random(seed).choice([(1, 0), (4, 9), (64, 40)]))
    found = policy_of(kept_of(policy))
    assert found is not None
    assert (found.round, found.rows, found.interval) == (policy.round, policy.rows, policy.interval)
    order, known = np.argsort(policy.keys), np.argsort(found.keys)
    for name in ("keys", "heavy", "values"):
        given, read = getattr(policy, name)[order], getattr(found, name)[known]
        assert np.allclose(given, read, atol=1e-3)
    assert not found.loads.any()


@pytest.mark.parametrize("slots", [1, 16, 1000])
def test_however_many_keys_are_hot_little_is_kept_and_the_hottest_first(slots: int) -> None:
    policy = random_policy(1, slots, 12_000)
    kept = kept_of(policy)
    assert len(kept.values) <= 2 * max(MOST, slots)
    found = policy_of(kept)
    assert found is not None
    assert set(found.heavy.tolist()) == {9}


def damages() -> list[LearnedSplits]:
    kept = kept_of(random_policy(2))
    changes = [
        {"slots": 0},
        {"slots": 7},
        {"slots": -8},
        {"round": -1},
        {"round": 3},
        {"interval": 0},
        {"rows": 2**63},
    ]
    changes += [{name: getattr(kept, name)[:-1]} for name in ("keys", "heavy", "values")]
    changes += [{"keys": kept.keys[:8] * 20}, {"values": b"\xff\x7f" * 160}, {"values": b"\x00\x3c\x00\xc4" * 80}]
    return [structs.replace(kept, **change) for change in changes]


@pytest.mark.parametrize("kept", damages())
def test_what_is_damaged_is_learned_again(kept: LearnedSplits) -> None:
    assert policy_of(kept) is None


@pytest.mark.parametrize("seed", range(300))
def test_whatever_the_bytes_are_nothing_is_raised(seed: int) -> None:
    rng = random.Random(seed)
    texts = [rng.randbytes(rng.choice([0, 8, 16, 160, 320])) for _ in range(3)]
    found = policy_of(LearnedSplits(rng.randrange(-1, 9), rng.randrange(9), rng.randrange(-1, 11), 5, *texts))
    assert found is None or found.values.shape == (len(found.keys), len(found.loads))


def rows(batch: int) -> pa.Table:
    """A third of the rows are of one key, a fifth of another."""
    rng = np.random.default_rng(batch)
    n = 4000
    keys = np.where(rng.random(n) < 0.33, 1, np.where(rng.random(n) < 0.3, 2, rng.integers(3, 4000, n)))
    times = pa.array(np.sort(rng.integers(0, 4 * SECOND, n)) + batch * 4 * SECOND)
    columns = {"k": pa.array(keys, pa.int32()), "v": pa.array(keys), "b": pa.array(["x"] * n)}
    return pa.table({"ts": times.cast(pa.timestamp("us")), **columns})


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True])
def test_a_restart_goes_on_splitting_as_learned(tmp_path: Path, damaged: bool) -> None:
    wanted = replace(query("q", TUMBLING, call("mean", "v", "double", "v")), options=(("partitioner", "dalton"),))
    pipeline = LocalPipeline(tmp_path, [STREAM], [wanted], slots=SLOTS, tasks=1, functions=code(v=MEAN))

    def above_even(batch: int) -> float:
        pipeline.append("s", rows(batch), 1)
        assert pipeline.run()
        (report,) = pipeline.batches.adaptations.partitioning_report(pipeline.manifest.measured).aggregations.values()
        assert report.partitioner == "dalton"
        return report.above_even

    try:
        uneven = [above_even(batch) for batch in range(10)]
        if damaged:
            measured = pipeline.manifest.measured
            (kept,) = measured.partitioners.learned.values()
            (key,) = measured.partitioners.learned
            broken = structs.replace(measured.partitioners, learned={key: structs.replace(kept, values=b"")})
            pipeline.batches.adaptations.change("partitioners", policies={})
            assert pipeline.decided.policies
            changed = structs.replace(measured, partitioners=broken)
            assert not pipeline.batches.adaptations.decided(changed, 10).policies
        learned = pipeline.decided.policies
        pipeline.reopen()
        again = pipeline.decided.policies
        assert again.keys() == learned.keys()
        for key, policy in learned.items():
            known = dict(zip(policy.keys.tolist(), policy.values, strict=True))
            assert all(
                np.allclose(known[k], v, atol=1e-3)
                for k, v in zip(again[key].keys.tolist(), again[key].values, strict=True)
            )
        assert uneven[0] > 0.2
        assert above_even(10) < 0.5 * uneven[0]
    finally:
        pipeline.close()
