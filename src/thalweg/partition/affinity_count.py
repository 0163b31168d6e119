"""Group affinity by count (cAM, Holistic Alg. 4): a key stays where it is; a new one goes where the fewest rows went.

Like `affinity`, for work that grows with the rows.
"""

from __future__ import annotations

from typing import Any

from thalweg.partition.decide import CardinalityAware, Measure, Rule, make_by_rule
from thalweg.partition.options import reject_unknown

NAME = "affinity_count"


def make(workers: int, *, choices: int, estimator: str, seed: int, **options: Any) -> CardinalityAware:
    reject_unknown(NAME, options)
    rule = Rule(Measure.ROWS, affinity=True)
    return make_by_rule(NAME, rule, workers, choices, estimator, seed, options.get("window_us"))
