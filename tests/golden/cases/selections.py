"""Rows are selected, without windows."""

from __future__ import annotations

from tests.golden.cases.streams import SALES
from tests.golden.transcript import Transcript


def one(told: Transcript) -> None:
    """A query without a window answers row by row."""
    told.sql(SALES)
    told.sql("CREATE QUERY dear AS SELECT shop, price * pieces AS paid FROM sales WHERE price > 4;")
    told.explain()
    told.explain("dear")


def beside_windows(told: Transcript) -> None:
    """Selections and windows read their stream once; the same expression is computed once."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY dear AS SELECT shop, price * pieces AS paid FROM sales WHERE price > 4;
        CREATE QUERY cheap AS SELECT shop, price * pieces AS paid FROM sales WHERE price <= 4;
        CREATE QUERY totals AS
          SELECT shop, sum(price * pieces) AS paid FROM sales GROUP BY shop, window(ts, '1 minute');
    """)
    told.explain()
    told.explain("cheap")
