"""What Daltons have learned, as the manifest keeps it: small, and never trusted.

A restart would otherwise learn again where to split keys, with batches that wait for one slot meanwhile. Values are
kept in 16 bits: what is learned of an arm in one batch is more than they are off by. Of many keys those are kept that
are hot now, and of these the ones of which most is known.
"""

from __future__ import annotations

import numpy as np

from thalweg.model.measurements import LearnedSplits
from thalweg.partition.cooperative import Policy
from thalweg.partition.q_table import INITIAL

MOST = 4096
"""Values of one route key: 64 keys over 64 slots. The manifest is written with every batch."""


def kept_of(policy: Policy) -> LearnedSplits:
    slots = len(policy.loads)
    known = np.abs(policy.values - INITIAL).sum(axis=1)
    first = np.lexsort((policy.keys, -known, -policy.heavy))[: max(1, MOST // slots)]
    return LearnedSplits(
        policy.round,
        policy.rows,
        slots,
        policy.interval,
        policy.keys[first].astype("<i8").tobytes(),
        policy.heavy[first].astype("<i8").tobytes(),
        policy.values[first].astype("<f2").tobytes(),
    )


def policy_of(kept: LearnedSplits) -> Policy | None:
    """None where it is not what `kept_of` gives: whatever has damaged it, the keys are learned again."""
    count = len(kept.keys) // 8
    shapes_fit = len(kept.keys) == len(kept.heavy) == 8 * count and len(kept.values) == 2 * count * kept.slots
    if not (
        shapes_fit and kept.slots > 0 and 0 <= kept.round < 2**62 and 0 <= kept.rows < 2**62 and kept.interval > 0
    ):
        return None
    keys, heavy = np.frombuffer(kept.keys, "<i8"), np.frombuffer(kept.heavy, "<i8")
    values = np.frombuffer(kept.values, "<f2").astype(np.float64).reshape(count, kept.slots)
    is_sound = bool(np.isfinite(values).all()) and float(np.abs(values).max(initial=0.0)) <= -INITIAL
    if not is_sound or len(np.unique(keys)) < count or int(heavy.max(initial=0)) > kept.round:
        return None
    loads = np.zeros(kept.slots, np.int64)
    return Policy(
        kept.round, 1, kept.rows, loads, keys.astype(np.int64), values, heavy.astype(np.int64), kept.interval
    )
