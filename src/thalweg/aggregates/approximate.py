"""approx_count_distinct: HyperLogLog."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import ClassVar

from thalweg.aggregates.contract import AggregateCall, AggregateFamily, Arity, Calling, Parts, partial
from thalweg.errors import bad_deviation
from thalweg.model.expr import quote
from thalweg.model.query import Aggregate
from thalweg.model.types import is_numeric

_DEFAULT_RSD = 0.05
_LEAST_RSD, _MOST_RSD = 0.0041, 0.39
"""What 2^16 registers can give, which is the most that are kept; and the most that Spark lets pass."""


class Approximate(AggregateFamily):
    name = "approximate"
    names: ClassVar = {"approx_count_distinct": Arity(1, 2)}
    functions = ("approx_count_distinct",)

    def check(self, call: Calling) -> None:
        """Spark makes as many columns as the second argument asks for registers."""
        if call.many == 2:
            _deviation(call)

    def signature(self, call: Calling) -> Aggregate:
        rsd = _deviation(call) if call.many == 2 else _DEFAULT_RSD
        return Aggregate("approx_count_distinct", (call.arg(0).to_expr(),), "bigint", parameters=(rsd,))

    def parts(self, asked: AggregateCall) -> Parts:
        return _registers(asked)


def _deviation(call: Calling) -> float:
    given = call.arg(1)
    if isinstance(given.literal, int | float | Decimal) and is_numeric(given.type):
        rsd = float(given.literal)
        if _LEAST_RSD <= rsd <= _MOST_RSD:
            return rsd
    raise bad_deviation(_LEAST_RSD, _MOST_RSD, *call.place(1))


def _registers(asked: AggregateCall) -> Parts:
    """HyperLogLog as a grouping by register: sparse by nature, merged by max like any other partial."""
    deviation = asked.aggregate.parameters[0] if asked.aggregate.parameters else 0.05
    # 2^12 registers are few enough to keep, so no result is worse than theirs; 2^16 are the most.
    precision = min(16, max(12, math.ceil(2 * math.log2(1.04 / deviation))))
    register, rank = asked.columns.register(asked.aggregate.args[0], asked.admitted, precision)
    best = partial(f"max({quote(rank)})", asked.filter_column, "max({})", "TINYINT")
    m = 1 << precision
    alpha = 0.7213 / (1 + 1.079 / m)
    # A NULL value has a NULL rank: it leaves its register unseen.
    used = f"count({quote(best.name)})"
    harmonic = f"(coalesce(sum(pow(2.0, -{quote(best.name)})), 0) + {m} - {used})"
    raw = f"({alpha * m * m!r} / {harmonic})"
    linear = f"({m} * ln({m}::DOUBLE / ({m} - {used})))"
    finish = f"CAST(round(CASE WHEN {raw} <= {2.5 * m} AND {used} < {m} THEN {linear} ELSE {raw} END) AS BIGINT)"
    return Parts((best,), finish, "values", (register,), missing="0")


APPROXIMATE = Approximate()
