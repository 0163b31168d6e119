"""The stream that the aggregate figures are measured on, and windowed counts and sums over it.

8 columns: id, ts (100,000 rows per second of event time), a, b, c, e of 500 values each, d of 100,000, v a double
with a short fraction so that sums do not depend on their order.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from benchmarks.workloads.model import Query, Stream, Workload
from benchmarks.workloads.windowed import Windowed

ROWS_PER_FILE = 1_000_000
ROWS_PER_SECOND = 100_000
START_US = 1_700_000_000_000_000
DELAY_SECONDS = 10
WINDOW = "20 seconds,10 seconds"
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("ts", pa.timestamp("us", tz="UTC")),
        *((name, pa.int32()) for name in ("a", "b", "c", "e", "d")),
        ("v", pa.float64()),
    ]
)

EIGHT = "8 queries (four of 100,000 to 250,000 groups)"
"""How the queries of `facts/8` are told."""
KEYS = ("a", "b", "c", "e", "d", "a, b", "b, c", "a, e")
NARROW_KEY_SETS = (
    "a", "b", "c", "e", "a % 50", "b % 50", "c % 50", "e % 50", "d % 1000", "d % 100",
    "a % 50, b % 50", "a % 50, c % 50", "a % 50, e % 50", "b % 50, c % 50", "b % 50, e % 50", "c % 50, e % 50",
    "a % 10, d % 100", "b % 10, d % 100", "c % 10, d % 100", "e % 10, d % 100",
)  # fmt: skip
"""20 key sets of 50 to 2,500 groups each."""
WIDE_KEY_SETS = (
    "a", "b", "c", "e", "a, b", "a, c", "a, e", "b, c", "b, e", "c, e",
    "a % 50", "b % 50", "c % 50", "e % 50", "a % 50, b % 50", "b % 50, c % 50", "c % 50, e % 50",
    "a % 50, e % 50", "d % 1000", "d % 100",
)  # fmt: skip
"""20 key sets, six of them of 250,000 groups: every query of those gives a row for each fourth row read."""
VARIANTS = (
    (WINDOW, ""),
    (WINDOW, "v < 5000"),
    ("10 seconds", "e < 250"),
    ("30 seconds,10 seconds", "v >= 5000 AND a < 400"),
    ("10 seconds", "d < 50000"),
)

NAMES = {
    "facts/N": "the first N of eight windowed counts and sums, 20 s sliding by 10 s, 500 to 250,000 groups",
    "facts/20xV": "20 key sets of 50 to 2,500 groups with V predicates and windows each: 20 to 100 queries",
    "facts/wide20xV": "the same, six of the key sets of 250,000 groups",
    "facts/window=SIZE[,SLIDE]": "one query by a key of 500 values over that window (60 seconds,1 second)",
}


def named(name: str) -> Workload | None:
    if not name.startswith("facts/"):
        return None
    text = name.removeprefix("facts/")
    if text.isdigit() and 1 <= int(text) <= len(KEYS):
        return _workload(name, [(keys, WINDOW, "") for keys in KEYS[: int(text)]])
    if text.startswith("window="):
        return _workload(name, [("a", text.removeprefix("window="), "")])
    many = re.fullmatch(r"(wide)?20x([1-5])", text)
    if many is None:
        return None
    key_sets, variants = WIDE_KEY_SETS if many[1] else NARROW_KEY_SETS, VARIANTS[: int(many[2])]
    return _workload(name, [(keys, window, where) for window, where in variants for keys in key_sets])


def _workload(name: str, asked: list[tuple[str, str, str]]) -> Workload:
    queries = tuple(_query(f"q{i}", *one) for i, one in enumerate(asked))
    return Workload(name, (EVENTS,), queries, ROWS_PER_FILE, 4, data="facts")


def _table(number: int) -> pa.Table:
    rng = np.random.default_rng(number)
    n = ROWS_PER_FILE
    ids = np.arange(number * n, (number + 1) * n, dtype=np.int64)
    columns = {
        "id": ids,
        "ts": pa.array(START_US + ids * (1_000_000 // ROWS_PER_SECOND), pa.timestamp("us", tz="UTC")),
    }
    for name in ("a", "b", "c", "e"):
        columns[name] = rng.integers(0, 500, n, dtype=np.int32)
    columns["d"] = rng.integers(0, 100_000, n, dtype=np.int32)
    columns["v"] = rng.integers(0, 40_000, n) / 4
    return pa.table(columns, schema=SCHEMA)


def _query(name: str, keys: str, window: str, where: str) -> Query:
    """A windowed count and sum."""
    size, _, slide = window.partition(",")
    spans = _seconds(size), _seconds(slide or size)
    return Windowed(EVENTS, _parts(keys), {"n": "count(*)", "total": "sum(v)"}, *spans, where).query(name)


def _seconds(span: str) -> int:
    number, unit = span.split()
    return int(number) * {"second": 1, "minute": 60, "hour": 3600}[unit.rstrip("s")]


def _parts(keys: str) -> dict[str, str]:
    """Name of a key -> what it is."""
    parts = [part.strip() for part in keys.split(",")]
    return {part if part.isidentifier() else f"k{i}": part for i, part in enumerate(parts)}


EVENTS = Stream("events", SCHEMA, "ts", DELAY_SECONDS, _table)
