"""What queries aggregate by, and what they share."""

from __future__ import annotations

import pyarrow.compute as pc
from tests.golden.cases.streams import SALES
from tests.golden.transcript import Transcript

import thalweg


def sums(told: Transcript) -> None:
    """Queries with equal keys share one pass, and partials that several need are made once."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY totals AS
          SELECT shop, count(*) AS n, sum(price) AS total, avg(price) AS mean
          FROM sales GROUP BY shop, window(ts, '1 minute');
        CREATE QUERY extremes AS
          SELECT shop, min(price) AS low, max(price) AS high, avg(price) AS mean
          FROM sales GROUP BY shop, window(ts, '1 minute');
    """)
    told.explain()
    told.explain("extremes")


def distinct(told: Transcript) -> None:
    """Different values are counted in a pass by key and value; a query takes part in several passes."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY visitors AS
          SELECT shop, count(DISTINCT customer) AS customers, count(DISTINCT item) AS items, count(*) AS n
          FROM sales GROUP BY shop, window(ts, '1 minute');
        CREATE QUERY regulars AS
          SELECT shop, count(DISTINCT customer) AS customers
          FROM sales WHERE pieces > 1 GROUP BY shop, window(ts, '1 minute');
        CREATE QUERY about AS
          SELECT shop, approx_count_distinct(customer) AS customers
          FROM sales GROUP BY shop, window(ts, '1 minute');
    """)
    told.explain()
    told.explain("regulars")


def percentiles(told: Transcript) -> None:
    """Percentiles of one column share a pass by key and value."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY medians AS
          SELECT shop, median(price) AS m, percentile(price, 0.9) AS high
          FROM sales GROUP BY shop, window(ts, '1 minute');
        CREATE QUERY lows AS
          SELECT shop, percentile(price, 0.1) AS low, count(DISTINCT price) AS prices
          FROM sales GROUP BY shop, window(ts, '30 seconds');
    """)
    told.explain()
    told.explain("medians")


def other_kinds(told: Transcript) -> None:
    """Variances, values chosen by another column or by event time, conditions: all are partials of one pass."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY spread AS
          SELECT shop, stddev(price) AS s, var_pop(price) AS v, avg(price) AS mean
          FROM sales GROUP BY shop, window(ts, '1 minute');
        CREATE QUERY best AS
          SELECT shop, min_by(item, price) AS cheapest, max_by(item, price) AS dearest
          FROM sales GROUP BY shop, window(ts, '1 minute');
        CREATE QUERY ends AS
          SELECT shop, first(item) AS opening, last(item) AS closing
          FROM sales GROUP BY shop, window(ts, '1 minute');
        CREATE QUERY checks AS
          SELECT shop, bool_and(price > 0) AS paid, bool_or(pieces > 1) AS many
          FROM sales GROUP BY shop, window(ts, '1 minute');
    """)
    told.explain()


def of_ones_own(told: Transcript) -> None:
    """An aggregate of one's own is a partial like any other."""
    thalweg.aggregate(
        "largest_step",
        init=lambda: 0.0,
        update=lambda state, batch: max(state, pc.max(batch.column(0)).as_py() or 0.0),
        merge=max,
        finish=lambda state: state,
        returns="double",
    )
    told.say("thalweg.aggregate('largest_step', ...)")
    told.sql(SALES)
    told.sql("""
        CREATE QUERY steps AS
          SELECT shop, largest_step(price) AS step, max(price) AS high
          FROM sales GROUP BY shop, window(ts, '1 minute');
    """)
    told.explain()


def filters(told: Transcript) -> None:
    """WHERE and FILTER of many queries become filters of one pass; equal ones are one."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY dear AS
          SELECT shop, sum(price) AS total FROM sales WHERE price > 4 GROUP BY shop, window(ts, '1 minute');
        CREATE QUERY counted AS
          SELECT shop, count(*) AS n, count(*) FILTER (WHERE price > 4) AS dear
          FROM sales GROUP BY shop, window(ts, '1 minute');
        CREATE QUERY packs AS
          SELECT shop, sum(price) FILTER (WHERE item LIKE 'item%') AS items
          FROM sales WHERE pieces > 1 GROUP BY shop, window(ts, '1 minute');
    """)
    told.explain()
    told.explain("packs")


def having_and_top(told: Transcript) -> None:
    """HAVING, ORDER BY and LIMIT are for when a window closes: they cost no pass of their own."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY busy AS
          SELECT shop, count(*) AS n FROM sales GROUP BY shop, window(ts, '1 minute') HAVING count(*) > 100;
        CREATE QUERY top AS
          SELECT shop, count(*) AS n FROM sales GROUP BY shop, window(ts, '1 minute') ORDER BY n DESC LIMIT 3;
    """)
    told.explain()
    told.explain("top")


def updates(told: Transcript) -> None:
    """EMIT UPDATES gives rows of open windows, from the same pass."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY live AS
          SELECT shop, count(*) AS n FROM sales GROUP BY shop, window(ts, '1 minute') EMIT UPDATES;
        CREATE QUERY final AS
          SELECT shop, count(*) AS n FROM sales GROUP BY shop, window(ts, '1 minute');
    """)
    told.explain()
    told.explain("live")


def keys(told: Transcript) -> None:
    """Keys may be expressions, or none."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY rounded AS
          SELECT round(price) AS price, upper(item) AS item, count(*) AS n
          FROM sales GROUP BY round(price), upper(item), window(ts, '1 minute');
        CREATE QUERY everything AS
          SELECT count(*) AS n FROM sales GROUP BY window(ts, '1 minute');
    """)
    told.explain()
    told.explain("everything")


def many(told: Transcript) -> None:
    """Forty queries with equal keys are one pass."""
    told.sql(SALES)
    select = "SELECT shop, sum(price) AS s FROM sales WHERE price > <i> GROUP BY shop, window(ts, '1 minute')"
    told.queries(40, "above_<i>", select)
    told.explain()
    told.explain("above_0")
