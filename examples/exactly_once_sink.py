"""A sink of your own: results go into a database, each batch once.

Results may be given again under the same batch id, after a crash or where a call failed half way. So the batch id is
written in the same transaction as the rows, and a batch that is there already is passed over.

prints:
3 orders, 16.5 in all
"""

import sqlite3
from datetime import datetime

import thalweg

database = sqlite3.connect("orders.db", check_same_thread=False)
database.executescript("""
    CREATE TABLE IF NOT EXISTS orders (id INTEGER, price REAL);
    CREATE TABLE IF NOT EXISTS done (batch INTEGER PRIMARY KEY);
""")


def to_database(table, batch_id):
    with database:  # one transaction: all of it or nothing
        if database.execute("SELECT 1 FROM done WHERE batch >= ?", (batch_id,)).fetchone():
            return
        rows = [(row["id"], row["price"]) for row in table.to_pylist()]
        database.executemany("INSERT INTO orders VALUES (?, ?)", rows)
        database.execute("INSERT INTO done VALUES (?)", (batch_id,))


def at(clock):
    return datetime.fromisoformat(f"2026-01-01T{clock}+00:00")


orders = thalweg.memory("id bigint, price double, ts timestamp")
session = thalweg.connect("state")
session.create_stream("orders", orders, time="ts", watermark="10 seconds")
session.create_query("stored", "SELECT id, price FROM orders", sink=to_database)

orders.append([{"id": 1, "price": 10.0, "ts": at("12:00:00")}, {"id": 2, "price": 4.0, "ts": at("12:00:10")}])
session.run_available()
orders.append([{"id": 3, "price": 2.5, "ts": at("12:00:20")}])
session.run_available()
session.stop()

count, total = database.execute("SELECT count(*), sum(price) FROM orders").fetchone()
print(f"{count} orders, {total} in all")
