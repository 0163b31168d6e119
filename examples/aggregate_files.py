"""Windows over files that keep coming; results are files, too.

prints:
shop   revenue
north  12.5
south  4.0
"""

import json
from pathlib import Path

import pyarrow.parquet as pq

import thalweg


def put(number, *rows):
    """A file must appear whole: write it under another name, then rename it."""
    path = Path("in") / f"{number:04d}.json"
    path.parent.mkdir(exist_ok=True)
    path.with_suffix(".tmp").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    path.with_suffix(".tmp").rename(path)


put(1, {"ts": "2026-01-01T12:00:05Z", "shop": "north", "price": 10.0})
put(2, {"ts": "2026-01-01T12:00:20Z", "shop": "south", "price": 4.0})
put(3, {"ts": "2026-01-01T12:00:40Z", "shop": "north", "price": 2.5})
put(4, {"ts": "2026-01-01T12:01:30Z", "shop": "north", "price": 8.0})  # closes the first minute

session = thalweg.connect("state")
session.create_stream("orders", thalweg.files("in/*.json"), time="ts", watermark="10 seconds")
session.create_query(
    "revenue",
    "SELECT shop, sum(price) AS revenue FROM orders GROUP BY shop, window(ts, '1 minute')",
    sink=thalweg.to_files("out"),
)
session.run_available()  # all files that are there; start() would wait for more
session.stop()

print("shop   revenue")
for row in pq.read_table("out").sort_by("shop").to_pylist():
    print(f"{row['shop']:6} {row['revenue']}")
