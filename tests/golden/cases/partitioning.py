"""Which slot has which key groups, and what the optimiser said."""

from __future__ import annotations

from tests.golden.cases.streams import SALES, joined, keyed, sales
from tests.golden.transcript import Transcript

from thalweg.adapt.contract import SolverCall
from thalweg.adapt.slot_assignment.judge import Proposal

QUERIES = """
    CREATE QUERY by_customer AS
      SELECT customer, sum(price) AS s FROM sales GROUP BY customer, window(ts, '1 minute');
    CREATE QUERY by_pair AS
      SELECT customer, shop, sum(price) AS s FROM sales GROUP BY customer, shop, window(ts, '1 minute');
"""


def assigned(told: Transcript) -> None:
    """Key groups placed by the optimiser, and rows that follow those of another route key."""
    told.open(slots=4)
    told.sql(SALES)
    told.sql(QUERIES)
    told.run("every customer once", sales=sales(2000, customers=2000))
    by_customer, by_pair = _route_keys(told)
    told.assign("key groups by customer to the slots in turn", {by_customer: [0, 1, 2, 3] * 64}, {})
    told.run("every customer once", sales=sales(2000, start=20, customers=2000))
    told.explain()
    told.assign("rows by pair follow those by customer", {}, {by_pair: by_customer})
    told.run("every customer once", sales=sales(2000, start=40, customers=2000))
    told.explain()


def answered(told: Transcript) -> None:
    """What the optimiser was asked, and why it left things as they are."""
    told.open(slots=4)
    told.sql(SALES)
    told.sql(QUERIES)
    told.run("every customer once", sales=sales(2000, customers=2000))
    told.say("the optimiser was asked and answered")
    told.session._parts.runner.adaptations.change(
        "slot_assignment",
        asked=SolverCall(7, "240 s have passed", 0.0),
        proposal=Proposal(None, "a switch would save 1% of what is shipped", method="greedy"),
    )
    told.explain()


def other_slots(told: Transcript) -> None:
    """On another number of slots what was assigned for four is not used."""
    told.open(slots=4)
    told.sql(SALES)
    told.sql(QUERIES)
    told.run("every customer once", sales=sales(2000, customers=2000))
    by_customer, _ = _route_keys(told)
    told.assign("key groups by customer to the slots in turn", {by_customer: [0, 1, 2, 3] * 64}, {})
    told.run("every customer once", sales=sales(2000, start=20, customers=2000))
    told.say("slots = 3 from now on")
    told.session._parts.runner.adaptations.change("slot_count", slots=3)
    told.explain()


def hot_keys_of_joins(told: Transcript) -> None:
    """Key groups of joins that are too much for a slot are probed by all slots."""
    told.open(slots=4)
    told.sql(joined(2))
    told.sql("CREATE QUERY pairs AS SELECT a.v AS v, b.v AS w FROM a JOIN b ON a.x = b.x WITHIN 1 SECOND;")
    told.run("a has 1,000 different x, b has 2", a=keyed(1500, seconds=60, x=1000), b=keyed(1500, seconds=60, x=2))
    told.explain()


def _route_keys(told: Transcript) -> tuple[str, str]:
    plan = told.session._parts.runner.plan
    assert plan is not None
    keys = {grouping.keys: grouping.route_key for grouping in plan.groupings.values()}
    return keys["customer",], keys["customer", "shop"]
