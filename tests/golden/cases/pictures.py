"""Plans as pictures."""

from __future__ import annotations

from tests.golden.cases.streams import SALES, joined, keyed
from tests.golden.transcript import Transcript

QUERIES = """
    CREATE QUERY chain AS SELECT a.v AS v, b.v AS w, c.v AS u
      FROM a JOIN b ON a.x = b.x WITHIN 2 SECONDS JOIN c ON b.y = c.y WITHIN 2 SECONDS;
    CREATE QUERY pairs AS SELECT a.v AS v, b.v AS w FROM a JOIN b ON a.x = b.x WITHIN 2 SECONDS;
"""


def mermaid(told: Transcript) -> None:
    """Joins as Mermaid draws them: all, and one."""
    told.sql(joined(3))
    told.sql(QUERIES)
    told.run(**{name: keyed(50, x=50, y=50) for name in "abc"})
    told.explain(form="mermaid")
    told.explain("pairs", form="mermaid")


def mermaid_of_windows(told: Transcript) -> None:
    """A stream, a query that groups and one that selects."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY counts AS SELECT shop, count(*) AS n FROM sales GROUP BY shop, window(ts, '1 minute');
        CREATE QUERY dear AS SELECT shop, price FROM sales WHERE price > 4;
    """)
    told.explain(form="mermaid")


def graphviz(told: Transcript) -> None:
    """The same as Graphviz draws it."""
    told.sql(joined(3))
    told.sql(QUERIES)
    told.explain("chain", form="graphviz")
