"""In which order rows look for partners, and which sub-joins are kept."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.golden.cases.streams import joined, keyed
from tests.golden.transcript import Transcript

from thalweg.adapt.contract import SolverCall
from thalweg.model.probe_order import CohortCost

CHAIN = """
    CREATE QUERY chain AS SELECT a.v AS v, b.v AS w, c.v AS u
      FROM a JOIN b ON a.x = b.x WITHIN 2 SECONDS JOIN c ON b.y = c.y WITHIN 2 SECONDS;
"""


def measured(told: Transcript) -> None:
    """Rows of the middle look first where they find less."""
    told.sql(joined(3))
    told.sql(CHAIN)
    told.explain()
    rows = {name: keyed(200, x=10, y=100) for name in "abc"}
    told.run("10 different x, 100 different y", **rows)
    told.explain()


def intermediate(told: Transcript) -> None:
    """A sub-join that was decided for is kept, filled and looked into."""
    told.sql(joined(3))
    told.sql(CHAIN)
    told.sql("CREATE QUERY pairs AS SELECT b.v AS v, c.v AS w FROM b JOIN c ON b.y = c.y WITHIN 2 SECONDS;")
    told.run("every row a partner", **{name: keyed(50, x=50, y=50) for name in "abc"})
    _look_into_pair(told)
    told.run("every row a partner", **{name: keyed(50, start=5, x=50, y=50) for name in "abc"})
    told.explain()
    told.explain("chain")


def after_a_restart(told: Transcript) -> None:
    """What was decided is in force after a restart, too."""
    with tempfile.TemporaryDirectory() as place:
        told.open(state_dir=Path(place))
        told.sql(joined(3))
        told.sql(CHAIN)
        _look_into_pair(told)
        told.run("every row a partner", **{name: keyed(50, x=50, y=50) for name in "abc"})
        told.reopen(Path(place))
        told.explain()
        told.session.stop()


def small_sub_join(told: Transcript) -> None:
    """A sub-join of which rows seldom find anything is kept without a decision."""
    told.sql(joined(3))
    told.sql(CHAIN)
    a, b, c = keyed(200, x=10), keyed(200, x=10, y=200), keyed(200, y=1000)
    seldom = c.set_column(2, "y", [[n * 20 for n in range(200)]])
    told.run("10 different x; one in 20 rows of b and c finds a partner by y", a=a, b=b, c=seldom)
    told.explain()


def planned(told: Transcript) -> None:
    """What the optimiser was asked, what it said, and what is expected of it."""
    told.sql(joined(3))
    told.sql(CHAIN)
    _look_into_pair(told)
    told.run("every row a partner", **{name: keyed(50, x=50, y=50) for name in "abc"})
    told.say("the optimiser was asked again and answered")
    told.session._parts.runner.adaptations.change(
        "probe_orders",
        asked=SolverCall(1, "2 selectivities are no longer what they were", 0.0),
        answer="left as they are: no others would send more than 3% less",
        cohorts=(CohortCost((told.session.query("chain").id,), 300.0, 300.0),),
    )
    told.explain()


def _look_into_pair(told: Transcript) -> None:
    orders = {"a": (("b", "c"),), "b": (("c",), ("a",)), "c": (("b",), ("a",))}
    change = "chain: rows of a look into (b ⋈ c); before: b, then c"
    told.order("chain", orders, "other orders send 45% less: from epoch 1 on", change)
