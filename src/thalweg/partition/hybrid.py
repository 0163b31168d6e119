"""Hybrid imbalance minimisation (LM, Holistic Alg. 5): the candidate with the least load in rows and keys.

Option `p` (Holistic Eq. 9) weighs them: 1 counts rows alone, 0 different keys alone, 0.5 both alike.
"""

from __future__ import annotations

from typing import Any

from thalweg.partition.decide import CardinalityAware, Measure, Rule, make_by_rule
from thalweg.partition.options import probability, reject_unknown

NAME = "hybrid"


def make(workers: int, *, choices: int, estimator: str, seed: int, **options: Any) -> CardinalityAware:
    reject_unknown(NAME, options, known=("window_us", "p"))
    rule = Rule(Measure.HYBRID, affinity=False, rows_weight=probability(NAME, "p", options.get("p", 0.5)))
    return make_by_rule(NAME, rule, workers, choices, estimator, seed, options.get("window_us"))
