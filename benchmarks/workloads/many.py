"""As many windowed aggregations over one stream as are asked for, none like another.

Eight keys of 50 values, three numbers. A query groups by one or two of the keys in one of four windows, most admit
only rows beyond a constant, and each has one to three aggregates. A file spans ten seconds of event time.
"""

from __future__ import annotations

import itertools
import random
import re
from functools import cache

import numpy as np
import pyarrow as pa

from benchmarks.workloads.model import Query, Stream, Workload
from benchmarks.workloads.windowed import closed, in_windows

NAMES = {
    "many/N": "the first N of an endless list of windowed aggregations, 20,000 rows a batch",
    "many/N/large": "the same, 500,000 rows a batch",
}
START_US = 1_700_000_000_000_000
SPAN_US = 10_000_000
KEYS = tuple("abcdefgh")
KEY_SETS = (*((key,) for key in KEYS), *itertools.combinations(KEYS, 2))
WINDOWS = ((10, 10), (20, 20), (30, 30), (30, 10))
AGGREGATES = {
    "count(*)": "bigint",
    "sum(v)": "bigint",
    "min(v)": "int",
    "max(v)": "int",
    "avg(v)": "double",
    "sum(x)": "double",
    "avg(x)": "double",
}
PREDICATES = ("", "v > {n}", "v >= {n}", "v < {n}", "u > {n}", "u <= {n}", "x > {n}.5")
ROWS = {"": 20_000, "/large": 500_000}
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        *((key, pa.int32()) for key in KEYS),
        ("u", pa.int32()),
        ("v", pa.int32()),
        ("x", pa.float64()),
    ]
)


def named(name: str) -> Workload | None:
    found = re.fullmatch(r"many/(\d+)(/large)?", name)
    if found is None:
        return None
    rows = ROWS[found[2] or ""]
    stream = Stream("s", SCHEMA, "ts", 0, lambda number: table(number, rows))
    return Workload(name, (stream,), queries(int(found[1])), rows, 1, data=f"many-{rows}")


def table(number: int, rows: int) -> pa.Table:
    """The rows of file `number`."""
    rng = np.random.default_rng(number)
    times = START_US + number * SPAN_US + np.arange(rows) * (SPAN_US // rows)
    columns = {"ts": pa.array(times, pa.timestamp("us", tz="UTC"))}
    columns |= {key: pa.array(rng.integers(0, 50, rows, dtype=np.int32)) for key in KEYS}
    columns |= {name: pa.array(rng.integers(0, 1000, rows, dtype=np.int32)) for name in ("u", "v")}
    # Quarters, so that sums do not depend on their order.
    columns["x"] = pa.array(rng.integers(0, 4000, rows) / 4)
    return pa.table(columns, schema=SCHEMA)


@cache
def queries(count: int) -> tuple[Query, ...]:
    """The first of an endless list: those of fewer are among those of more."""
    rng = random.Random(22)
    return tuple(_query(f"q{i}", rng) for i in range(count))


def _query(name: str, rng: random.Random) -> Query:
    keys, (size, slide) = rng.choice(KEY_SETS), rng.choice(WINDOWS)
    aggregates = rng.sample(sorted(AGGREGATES), rng.choice((1, 2, 2, 3)))
    where = rng.choice(PREDICATES).format(n=rng.randrange(1000))
    listed = ", ".join([*keys, *(f"{text} AS x{i}" for i, text in enumerate(aggregates))])
    source, by = f"s WHERE {where}" if where else "s", ", ".join(keys)
    spans = f"'{size} seconds'" if size == slide else f"'{size} seconds', '{slide} seconds'"
    rows = in_windows(source, "ts", size, slide)
    return Query(
        name,
        f"SELECT window.start AS start, {listed} FROM {source} GROUP BY {by}, window(ts, {spans})",
        batch=f"SELECT start, {listed} FROM ({rows}) GROUP BY start, {by}",
        closed=closed(size),
    )
