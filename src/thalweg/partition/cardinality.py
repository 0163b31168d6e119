"""Cardinality imbalance minimisation (CM, Holistic Alg. 2): to the candidate that has had the fewest different keys.

For work that grows with the groups rather than with the rows. It does nothing against merging.
"""

from __future__ import annotations

from typing import Any

from thalweg.partition.decide import CardinalityAware, Measure, Rule, make_by_rule
from thalweg.partition.options import reject_unknown

NAME = "cardinality"


def make(workers: int, *, choices: int, estimator: str, seed: int, **options: Any) -> CardinalityAware:
    reject_unknown(NAME, options)
    rule = Rule(Measure.KEYS, affinity=False)
    return make_by_rule(NAME, rule, workers, choices, estimator, seed, options.get("window_us"))
