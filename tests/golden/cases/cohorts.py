"""Which joins run together."""

from __future__ import annotations

from tests.golden.cases.streams import joined, keyed
from tests.golden.transcript import Transcript

ABOVE = "SELECT a.v AS v, b.v AS w FROM a JOIN b ON a.x = b.x WITHIN 5 SECONDS WHERE a.v > <i>"


def similar(told: Transcript) -> None:
    """Twenty joins of the same streams by the same key are one probe tree."""
    told.sql(joined(2))
    told.queries(20, "above_<i>", ABOVE)
    told.explain()
    told.explain("above_7")


def dissimilar(told: Transcript) -> None:
    """Joins by different keys, or of different streams, have nothing to share but what is kept."""
    told.sql(joined(3))
    told.sql("""
        CREATE QUERY by_x AS SELECT a.v AS v, b.v AS w FROM a JOIN b ON a.x = b.x WITHIN 5 SECONDS;
        CREATE QUERY by_y AS SELECT a.v AS v, b.v AS w FROM a JOIN b ON a.y = b.y WITHIN 5 SECONDS;
        CREATE QUERY others AS SELECT b.v AS v, c.v AS w FROM b JOIN c ON b.x = c.x WITHIN 5 SECONDS;
        CREATE QUERY more AS SELECT b.v AS v, c.z AS w FROM b JOIN c ON b.x = c.x WITHIN 1 SECOND;
    """)
    told.explain()


def more_than_one_holds(told: Transcript) -> None:
    """A group holds at most 64 queries."""
    told.sql(joined(2))
    told.queries(70, "above_<i>", ABOVE)
    told.run(**{name: keyed(100) for name in "ab"})
    told.explain()


def rows_that_never_meet(told: Transcript) -> None:
    """Queries whose rows were measured to have little in common run apart, where sharing would cost more."""
    told.sql(joined(2))
    told.sql("""
        CREATE QUERY low AS SELECT a.v AS v, b.v AS w FROM a JOIN b ON a.x = b.x WITHIN 9 SECONDS
          WHERE a.v < 50 AND b.v < 50;
        CREATE QUERY high AS SELECT a.v AS v, b.v AS w FROM a JOIN b ON a.x = b.x WITHIN 9 SECONDS
          WHERE a.v >= 50 AND b.v >= 50;
    """)
    told.explain()
    rows = {name: keyed(6000, seconds=9, x=400) for name in "ab"}
    told.run("400 different x, v evenly from 0 to 99", **rows)
    told.explain()
