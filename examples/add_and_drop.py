"""A query that comes and goes while the pipeline runs. The others go on, and nothing is restarted.

prints:
dear: [80.0, 95.0]
still there: ['all_orders']
"""

import time
from datetime import datetime, timedelta

import thalweg

NOON = datetime.fromisoformat("2026-01-01T12:00:00+00:00")
orders = thalweg.memory("price double, ts timestamp")

session = thalweg.connect("state")
session.create_stream("orders", orders, time="ts", watermark="10 seconds")
everything = session.create_query("all_orders", "SELECT price, ts FROM orders")
session.start(trigger="100 milliseconds")  # in the background, until stop()


def sell(second, price):
    orders.append([{"price": price, "ts": NOON + timedelta(seconds=second)}])


def wait_for(query, rows):
    while query.status["emitted"] < rows:
        time.sleep(0.05)


sell(1, 70.0)
wait_for(everything, 1)
dear = session.create_query("dear", "SELECT price FROM orders WHERE price > 50")  # from the next batch on
for second, price in ((2, 80.0), (3, 20.0), (4, 95.0)):
    sell(second, price)
wait_for(dear, 2)
print("dear:", sorted(dear.results().column("price").to_pylist()))
dear.drop()  # what only this query needed is freed

wait_for(everything, 4)
print("still there:", sorted(session.queries))
session.stop()
