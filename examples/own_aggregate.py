"""An aggregate of your own: the spread between the dearest and the cheapest, called from SQL like any other.

prints:
north: 7.5
south: 0.0
"""

from datetime import datetime

import pyarrow.compute as pc

import thalweg


def update(state, batch):
    """Called with all rows that a task has of a group, as Arrow: no loop over rows."""
    found = pc.min_max(batch.column(0)).as_py()
    return merge(state, (found["min"], found["max"]))


def merge(one, other):
    """States of one group from several tasks and batches, in any order."""
    values = [value for value in (*one, *other) if value is not None]
    return (min(values), max(values)) if values else (None, None)


def finish(state):
    low, high = state
    return None if low is None else high - low


thalweg.aggregate("spread", lambda: (None, None), update, merge, finish, returns="double")


def order(clock, shop, price):
    return {"shop": shop, "price": price, "ts": datetime.fromisoformat(f"2026-01-01T{clock}+00:00")}


orders = thalweg.memory("shop string, price double, ts timestamp")
session = thalweg.connect("state")
session.create_stream("orders", orders, time="ts", watermark="10 seconds")
spreads = session.create_query(
    "spreads", "SELECT shop, spread(price) AS spread FROM orders GROUP BY shop, window(ts, '1 minute')"
)
orders.append([order("12:00:05", "north", 10.0), order("12:00:20", "south", 4.0), order("12:00:40", "north", 2.5)])
orders.append([order("12:01:30", "north", 8.0)])  # closes the first minute
session.run_available()

for row in spreads.results().sort_by("shop").to_pylist():
    print(f"{row['shop']}: {row['spread']}")
session.stop()
