"""Unit: which key groups of joins are probed by all slots."""

from __future__ import annotations

import numpy as np

from thalweg.adapt.hot_join_keys import next_spread
from thalweg.adapt.routing_totals import RoutingTotals
from thalweg.model.plan import Plan

PLAN = Plan("p", 4, 16, {}, {}, (), spread={"s(k)": (3,), "t(k)": (5,)})


def moved(**hot: float) -> RoutingTotals:
    """16 key groups of 1,000 rows, and of `s(k)` some with other numbers of rows."""
    rows = np.full(16, 1000.0)
    for group, n in hot.items():
        rows[int(group[1:])] = n
    return RoutingTotals(probing={("s", "s(k)"): rows})


def test_a_key_group_of_half_a_share_is_spread() -> None:
    assert next_spread({}, PLAN, moved()) == {}
    assert next_spread({}, PLAN, moved(g3=1900)) == {}
    assert next_spread({}, PLAN, moved(g3=4000, g9=3000)) == {"s(k)": [3, 9]}


def test_it_stays_spread_until_it_is_clearly_smaller() -> None:
    assert next_spread({"s(k)": [3]}, PLAN, moved(g3=1900)) == {"s(k)": [3]}
    assert next_spread({"s(k)": [3]}, PLAN, moved(g3=1000)) == {}


def test_few_rows_and_no_rows_say_nothing() -> None:
    few = RoutingTotals(probing={("s", "s(k)"): np.array([500.0, 1.0])})
    assert next_spread({"s(k)": [1]}, PLAN, few) == {"s(k)": [1]}
    assert next_spread({"t(k)": [5], "gone(k)": [1]}, PLAN, few) == {"t(k)": [5]}
