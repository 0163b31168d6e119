"""Two streams joined: each order with its payment, if it comes within half a minute.

prints:
order 1: 10.0 by card
order 2: 4.0 by cash
"""

from datetime import datetime

import thalweg


def at(clock):
    return datetime.fromisoformat(f"2026-01-01T{clock}+00:00")


orders = thalweg.memory("id bigint, price double, ts timestamp")
payments = thalweg.memory("order_id bigint, method string, ts timestamp")

session = thalweg.connect("state")
session.create_stream("orders", orders, time="ts", watermark="10 seconds")
session.create_stream("payments", payments, time="ts", watermark="10 seconds")
# A join needs an equality and a bound of time. Without a bound its state would grow for ever.
paid = session.create_query(
    "paid",
    "SELECT o.id, o.price, p.method FROM orders o JOIN payments p ON o.id = p.order_id WITHIN 30 SECONDS",
)

orders.append([{"id": 1, "price": 10.0, "ts": at("12:00:00")}, {"id": 2, "price": 4.0, "ts": at("12:00:10")}])
orders.append([{"id": 3, "price": 7.0, "ts": at("12:00:20")}])
payments.append([{"order_id": 1, "method": "card", "ts": at("12:00:12")}])
payments.append([{"order_id": 2, "method": "cash", "ts": at("12:00:15")}])
payments.append([{"order_id": 3, "method": "card", "ts": at("12:01:20")}])  # a minute later: no pair
session.run_available()

for row in paid.results().sort_by("id").to_pylist():
    print(f"order {row['id']}: {row['price']} by {row['method']}")
session.stop()
