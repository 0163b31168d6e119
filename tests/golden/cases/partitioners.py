"""What deals out rows that are shipped whole, and why."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from tests.golden.cases.streams import SALES, sales
from tests.golden.transcript import Transcript

from thalweg.model.measurements import Dealing

BY_CUSTOMER = """
    CREATE QUERY by_customer AS
      SELECT customer, sum(price) AS s FROM sales GROUP BY customer, window(ts, '1 minute');
"""


def asked_for(told: Transcript) -> None:
    """A query may ask for a partitioner; what has the same keys is dealt out with it."""
    told.open(slots=4)
    told.sql(SALES)
    told.sql("""
        CREATE QUERY medians OPTIONS (partitioner = 'affinity_count') AS
          SELECT customer, median(price) AS m FROM sales GROUP BY customer, window(ts, '1 minute');
        CREATE QUERY kinds AS
          SELECT customer, count(DISTINCT item) AS items FROM sales GROUP BY customer, window(ts, '1 minute');
    """)
    told.explain()
    told.explain("medians")


def asked_not_to_travel(told: Transcript) -> None:
    """A query may ask for partials made at the source, however many, or for rows that stay there."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY by_customer OPTIONS (partitioner = 'combine') AS
          SELECT customer, sum(price) AS s FROM sales GROUP BY customer, window(ts, '1 minute');
        CREATE QUERY by_item OPTIONS (partitioner = 'local') AS
          SELECT item, sum(price) AS s FROM sales GROUP BY item, window(ts, '1 minute');
    """)
    told.run("every customer once, 7 items", sales=sales(2000, customers=2000))
    told.explain()


def asked_in_vain(told: Transcript) -> None:
    """Beside a query with EMIT UPDATES by the same keys, rows of a key stay together whatever others ask for."""
    told.sql(SALES)
    told.sql("""
        CREATE QUERY live AS
          SELECT customer, sum(price) AS s FROM sales GROUP BY customer, window(ts, '1 minute') EMIT UPDATES;
        CREATE QUERY medians OPTIONS (partitioner = 'dalton') AS
          SELECT customer, median(price) AS m FROM sales GROUP BY customer, window(ts, '1 minute');
    """)
    told.explain()


def chosen(told: Transcript) -> None:
    """Partitioners that were chosen by skew stand with their reasons."""
    told.open(slots=4)
    told.sql(SALES)
    told.sql(BY_CUSTOMER)
    for start in (0, 20):
        told.run("every customer once", sales=sales(2000, start=start, customers=2000))
    told.explain("by_customer")
    (key,) = told.session._parts.runner.manifest.measured.partitioners.dealing
    reason = "hashed, the busiest of 4 slots has 40% of the rows; groups are many"
    dealing = {key: Dealing(2000, 900, 0.1, 0.4, "affinity_count", reason)}
    told.settle("affinity_count deals out the rows by customer", dealing)
    told.explain("by_customer")


def hot_key(told: Transcript) -> None:
    """One customer has a third of the rows, the others one each: too much for a slot of four, so it is split."""
    told.open(slots=4)
    told.sql(SALES)
    told.sql(BY_CUSTOMER)
    told.run("every customer once", sales=sales(2700, customers=2700))
    told.run("one customer in every third row", sales=_one_in(3, sales(2700, start=20, customers=2700)))
    told.explain()


def _one_in(n: int, rows: pa.Table) -> pa.Table:
    """The first customer in every nth row."""
    place = rows.schema.names.index("customer")
    customers = rows.column(place).to_numpy()
    return rows.set_column(place, "customer", pa.array(np.where(customers % n == 0, 0, customers)))
