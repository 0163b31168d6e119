"""Windows are cut into slices, which are shared."""

from __future__ import annotations

from tests.golden.cases.streams import SALES, sales
from tests.golden.transcript import Transcript


def tumbling_and_sliding(told: Transcript) -> None:
    """A tumbling window is one slice, a sliding window is put together from slices."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY minutes AS
          SELECT shop, count(*) AS n FROM sales GROUP BY shop, window(ts, '1 minute');
        CREATE QUERY moving AS
          SELECT item, count(*) AS n FROM sales GROUP BY item, window(ts, '1 minute', '25 seconds');
    """)
    told.explain()
    told.explain("moving")


def shared_slices(told: Transcript) -> None:
    """Windows of one pass share slices that no edge of any window cuts."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY minutes AS
          SELECT shop, count(*) AS n FROM sales GROUP BY shop, window(ts, '1 minute');
        CREATE QUERY moving AS
          SELECT shop, count(*) AS n FROM sales GROUP BY shop, window(ts, '90 seconds', '45 seconds');
        CREATE QUERY shifted AS
          SELECT shop, count(*) AS n FROM sales GROUP BY shop, window(ts, '1 hour', '1 hour', '5 seconds');
        CREATE QUERY short AS
          SELECT shop, count(*) AS n FROM sales GROUP BY shop, window(ts, '1500 milliseconds');
    """)
    told.explain()


def after_batches(told: Transcript) -> None:
    """What was measured, and what is kept until windows close."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY moving AS
          SELECT shop, count(*) AS n FROM sales GROUP BY shop, window(ts, '1 minute', '10 seconds');
        CREATE QUERY visitors AS
          SELECT shop, count(DISTINCT customer) AS n FROM sales GROUP BY shop, window(ts, '1 minute');
    """)
    told.run("5 shops, 40 customers, 20 seconds", sales=sales(2000))
    told.explain()
    told.run("the next 60 seconds", sales=sales(2000, start=20, seconds=60))
    told.explain()
