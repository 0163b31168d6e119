"""The streams of the cases, and rows for them: always the same."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SALES = """
    CREATE STREAM sales (ts timestamp, shop bigint, item string, customer bigint, price double, pieces int,
      WATERMARK FOR ts AS ts - INTERVAL 10 SECONDS) WITH (source = 'memory');
"""
LETTERS = "abcde"


def joined(count: int) -> str:
    """Streams a, b, c, ... with three keys x, y and z and a value v."""
    return "\n".join(
        f"CREATE STREAM {name} (ts timestamp, x bigint, y bigint, z bigint, v bigint, "
        "WATERMARK FOR ts AS ts) WITH (source = 'memory');"
        for name in LETTERS[:count]
    )


def sales(
    rows: int, *, start: int = 0, seconds: int = 20, shops: int = 5, customers: int = 40, prices: int = 20
) -> pa.Table:
    """Rows evenly over `seconds`. So many different shops, customers and prices, one after the other."""
    n = np.arange(rows)
    return pa.table(
        {
            "ts": _times(n, rows, start, seconds),
            "shop": n % shops,
            "item": pa.array([f"item {i}" for i in n % 7]),
            "customer": n % customers,
            "price": (n % prices) / 4,
            "pieces": pa.array(n % 3, pa.int32()),
        }
    )


def keyed(
    rows: int, *, start: int = 0, seconds: int = 5, x: int = 10, y: int = 10, z: int = 10, v: int = 100
) -> pa.Table:
    """Rows of a stream that is joined: so many different values of each column, one after the other."""
    n = np.arange(rows)
    columns = {name: n % values for name, values in (("x", x), ("y", y), ("z", z), ("v", v))}
    return pa.table({"ts": _times(n, rows, start, seconds), **columns})


def _times(n: np.ndarray[tuple[int], np.dtype[np.int64]], rows: int, start: int, seconds: int) -> pa.Array:
    return pa.array(start * 1_000_000 + n * seconds * 1_000_000 // rows).cast(pa.timestamp("us", "UTC"))
