"""Rows that are shipped whole: slots make the groups."""

from __future__ import annotations

from tests.golden.cases.streams import SALES, sales
from tests.golden.transcript import Transcript

BY_CUSTOMER = """
    CREATE QUERY by_customer AS
      SELECT customer, sum(price) AS s, count(*) AS n FROM sales GROUP BY customer, window(ts, '1 minute');
"""


def many_groups(told: Transcript) -> None:
    """Once groups are measured to be as many as rows, rows are shipped and slots combine them."""
    told.sql(SALES)
    told.sql(BY_CUSTOMER)
    told.run("every customer once", sales=sales(2000, customers=2000))
    told.explain()
    told.run("every customer once", sales=sales(2000, start=20, customers=2000))
    told.explain()
    told.explain("by_customer")


def back_to_combining(told: Transcript) -> None:
    """Where groups become fewer again, tasks combine again."""
    told.sql(SALES)
    told.sql(BY_CUSTOMER)
    told.run("every customer once", sales=sales(2000, customers=2000))
    for start in (20, 40):
        told.run("50 customers", sales=sales(2000, start=start, customers=50))
    told.explain()


def several_route_keys(told: Transcript) -> None:
    """One copy of a row serves all route keys that need it in the same slot."""
    told.open(slots=4)
    told.sql(SALES)
    told.sql(BY_CUSTOMER)
    told.sql("""
        CREATE QUERY by_pair AS
          SELECT customer, shop, max(price) AS high FROM sales
          WHERE pieces > 0 GROUP BY customer, shop, window(ts, '1 minute');
    """)
    for start in (0, 20):
        told.run("every customer once", sales=sales(2000, start=start, customers=2000))
    told.explain()


def values_that_come_once(told: Transcript) -> None:
    """Of percentiles of values that hardly come again slots could make nothing: rows stay where they were read."""
    told.open(slots=4)
    told.sql(SALES)
    told.sql("""
        CREATE QUERY medians AS
          SELECT shop, median(price) AS m FROM sales GROUP BY shop, window(ts, '1 minute');
    """)
    for start in (0, 20):
        told.run("every price once", sales=sales(2000, start=start, prices=2000))
    told.explain()


def bound_to_slots(told: Transcript) -> None:
    """With EMIT UPDATES rows are needed where their windows are, at once: they cannot stay at the source."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY medians AS
          SELECT shop, median(price) AS m FROM sales GROUP BY shop, window(ts, '1 minute') EMIT UPDATES;
    """)
    for start in (0, 20):
        told.run("every price once", sales=sales(2000, start=start, prices=2000))
    told.explain()
