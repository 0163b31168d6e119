"""Coarser groupings are made from finer ones, where that is right and pays."""

from __future__ import annotations

from tests.golden.cases.streams import SALES, sales
from tests.golden.transcript import Transcript

BY_BOTH = """
    CREATE QUERY both AS
      SELECT shop, item, sum(price) AS s FROM sales GROUP BY shop, item, window(ts, '1 minute');
"""
BY_SHOP = """
    CREATE QUERY by_shop AS
      SELECT shop, sum(price) AS s FROM sales GROUP BY shop, window(ts, '1 minute');
"""


def coarser_from_finer(told: Transcript) -> None:
    """Of three groupings only the finest is a pass over the rows."""
    told.sql(SALES)
    told.sql(BY_BOTH)
    told.sql(BY_SHOP)
    told.sql("""
        CREATE QUERY everything AS
          SELECT avg(price) AS mean FROM sales GROUP BY window(ts, '5 minutes');
    """)
    told.explain()
    told.explain("everything")


def from_the_smallest(told: Transcript) -> None:
    """Of several finer groupings the one that was measured to make the fewest groups is taken."""
    told.sql(SALES)
    told.sql(BY_BOTH)
    told.sql(BY_SHOP)
    told.sql("""
        CREATE QUERY by_customer AS
          SELECT shop, customer, sum(price) AS s FROM sales GROUP BY shop, customer, window(ts, '1 minute');
    """)
    told.explain()
    told.run("5 shops, 7 items, 400 customers", sales=sales(2000, customers=400))
    told.explain()


def not_where_slices_differ(told: Transcript) -> None:
    """A slice of the coarser grouping must be made of whole slices of the finer one."""
    told.sql(SALES)
    told.sql(BY_BOTH)
    told.sql("""
        CREATE QUERY by_shop AS
          SELECT shop, sum(price) AS s FROM sales GROUP BY shop, window(ts, '90 seconds');
    """)
    told.explain()


def not_where_groups_are_many(told: Transcript) -> None:
    """A finer grouping with more than one group in two rows is no cheaper than the rows."""
    told.sql(SALES)
    told.sql(BY_SHOP)
    told.sql("""
        CREATE QUERY by_customer AS
          SELECT shop, customer, sum(price) AS s FROM sales GROUP BY shop, customer, window(ts, '1 minute');
    """)
    told.explain()
    told.run("5 shops, 1,300 customers", sales=sales(2000, customers=1300))
    told.explain()


def not_of_values(told: Transcript) -> None:
    """Different values, percentiles and aggregates by value are not rolled up: their passes are by value too."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY both AS
          SELECT shop, item, median(price) AS m FROM sales GROUP BY shop, item, window(ts, '1 minute');
        CREATE QUERY by_shop AS
          SELECT shop, median(price) AS m FROM sales GROUP BY shop, window(ts, '1 minute');
    """)
    told.explain()


def not_where_dealt_apart(told: Transcript) -> None:
    """A query that asks for a partitioner keeps its grouping to itself."""
    told.sql(SALES)
    told.sql(BY_BOTH)
    told.sql("""
        CREATE QUERY by_shop OPTIONS (partitioner = 'hash') AS
          SELECT shop, sum(price) AS s FROM sales GROUP BY shop, window(ts, '1 minute');
    """)
    told.explain()
