"""Queries come, fail and go; sessions end and go on."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.golden.cases.streams import SALES, joined, keyed, sales
from tests.golden.transcript import Transcript

COUNTS = """
    CREATE QUERY counts AS
      SELECT shop, count(*) AS n FROM sales GROUP BY shop, window(ts, '1 minute');
"""


def nothing(told: Transcript) -> None:
    """A session without queries."""
    told.sql(SALES)
    told.explain()


def failed(told: Transcript) -> None:
    """A query that failed is out of the plan, the others go on."""
    told.sql(SALES)
    told.sql(COUNTS)
    told.sql("""
        CREATE QUERY shares AS
          SELECT shop, sum(price / pieces) AS s FROM sales GROUP BY shop, window(ts, '1 minute');
    """)
    told.explain()
    told.run("some rows of 0 pieces", sales=sales(100))
    told.explain()
    told.explain("shares")


def dropped(told: Transcript) -> None:
    """What only a dropped query used is gone from the plan at once, and from the state with the next batch."""
    told.sql(SALES)
    told.sql(COUNTS)
    told.sql("""
        CREATE QUERY visitors AS
          SELECT shop, count(DISTINCT customer) AS n
          FROM sales WHERE price > 1 GROUP BY shop, window(ts, '10 minutes');
    """)
    told.run(sales=sales(100))
    told.explain()
    told.sql("DROP QUERY visitors;")
    told.explain()


def created_later(told: Transcript) -> None:
    """A query that comes while others run shares their pass from the next batch on."""
    told.sql(SALES)
    told.sql(COUNTS)
    told.run(sales=sales(100))
    told.sql("""
        CREATE QUERY totals AS
          SELECT shop, sum(price) AS s FROM sales GROUP BY shop, window(ts, '30 seconds');
    """)
    told.explain()


def slots(told: Transcript) -> None:
    """One slot, and many."""
    told.open(slots=1)
    told.sql(SALES)
    told.sql(COUNTS)
    told.explain()
    told.open(slots=64)
    told.sql(SALES)
    told.sql(COUNTS)
    told.explain()


def restarted(told: Transcript) -> None:
    """What was measured and kept is known after a restart; what was learned of the last batch is not."""
    with tempfile.TemporaryDirectory() as place:
        told.open(state_dir=Path(place))
        told.sql(joined(2))
        told.sql("""
            CREATE QUERY pairs AS SELECT a.v AS v, b.v AS w FROM a JOIN b ON a.x = b.x WITHIN 5 SECONDS;
            CREATE QUERY counts AS SELECT x, count(*) AS n FROM a GROUP BY x, window(ts, '1 minute');
        """)
        told.run(a=keyed(100), b=keyed(100, x=50))
        told.explain()
        told.reopen(Path(place))
        told.explain()
        told.session.stop()
