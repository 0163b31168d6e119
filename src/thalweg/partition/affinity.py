"""Group affinity (AM, Holistic Alg. 3): a key stays where it is; a new one goes to the candidate with fewest keys.

As little merging as by hash, and better balance. By HyperLogLog a key may at times be taken for one that was there.
"""

from __future__ import annotations

from typing import Any

from thalweg.partition.decide import CardinalityAware, Measure, Rule, make_by_rule
from thalweg.partition.options import reject_unknown

NAME = "affinity"


def make(workers: int, *, choices: int, estimator: str, seed: int, **options: Any) -> CardinalityAware:
    reject_unknown(NAME, options)
    rule = Rule(Measure.KEYS, affinity=True)
    return make_by_rule(NAME, rule, workers, choices, estimator, seed, options.get("window_us"))
