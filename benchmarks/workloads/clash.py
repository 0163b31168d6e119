"""003's (CLASH) streams: a linear join of four streams whose partners move from one edge to another mid-stream.

    clash/adaptive      003, Section VII.B, Fig. 8a: r(a), s(a, b), t(b, c), u(c), each pair within 5 s
    clash/adaptive@48   the same, but the change comes with file 48 instead of file 24 (`@never`: not at all)

A generated likeness of what 003 describes, slower by event time: 5,000 rows/s of each stream in place of 100,000.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from benchmarks.workloads.model import Query, Stream, Workload

NAMES = {
    "clash/adaptive": "a linear join of four streams; at file 24 partners move to other edges (CLASH Fig. 8)",
}
START_US = 1_700_000_000_000_000
DELAY_SECONDS = 1

ROWS_PER_FILE = 10_000
ROWS_PER_SECOND = 5_000
"""Of event time, of each stream. A file spans 2 s, an epoch of eight batches 16 s."""
WITHIN_SECONDS = 5
"""003: the window of every stream is five seconds."""
FLIP_FILE = 24
REACH = 2 * WITHIN_SECONDS * ROWS_PER_SECOND
"""Rows of one stream that are near enough to a row of another: with as many values, one of them is a partner."""
EDGES = {"a": ("r", "s"), "b": ("s", "t"), "c": ("t", "u")}
LINEAR = {"r": ("a",), "s": ("a", "b"), "t": ("b", "c"), "u": ("c",)}

# 003 starts with one partner on every edge but a few more between s and t, so that s asks r first and t asks u; then
# "every row of s finds 100 partners in r, but none in t", and likewise for t. None at all would leave no results to
# compare: with one in 10,000 there are about as many results as before, 100 * 100 / 10,000 for a row of s.
BEFORE = {"a": 1.0, "b": 1.5, "c": 1.0}
AFTER = {"a": 100.0, "b": 1 / 10_000, "c": 100.0}
"""Attribute -> partners that a row finds within the window."""


def named(name: str) -> Workload | None:
    found = re.fullmatch(r"clash/adaptive(?:@(never|\d+))?", name)
    if found is None:
        return None
    return adaptive(None if found[1] == "never" else int(found[1] or FLIP_FILE))


def adaptive(flip: int | None = FLIP_FILE) -> Workload:
    """`flip`: the first file of the changed data; None: it never changes."""
    streams = tuple(linear_stream(name, partial(partners_at, flip)) for name in LINEAR)
    at = "never" if flip is None else flip
    return Workload(
        name="clash/adaptive" if flip == FLIP_FILE else f"clash/adaptive@{at}",
        streams=streams,
        queries=(Query("linear", LINEAR_TEXT, spark=LINEAR_SPARK, batch=LINEAR_TEXT),),
        rows_per_file=ROWS_PER_FILE,
        files_per_batch=1,
        answers="CLASH Fig. 8",
        data=f"clash-adaptive-{at}",
    )


def partners_at(flip: int | None, number: int) -> Mapping[str, float]:
    return BEFORE if flip is None or number < flip else AFTER


def linear_stream(name: str, partners: Callable[[int], Mapping[str, float]]) -> Stream:
    def make(number: int) -> pa.Table:
        rng = np.random.default_rng((8, ord(name), number))
        ids = np.arange(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE, dtype=np.int64)
        columns: dict[str, object] = {f"{name}_id": ids}
        for attribute in LINEAR[name]:
            values = max(1, round(REACH / partners(number)[attribute]))
            columns[f"{name}_{attribute}"] = rng.integers(0, values, ROWS_PER_FILE, dtype=np.int64)
        times = START_US + ids * 1_000_000 // ROWS_PER_SECOND
        columns[f"{name}_ts"] = pa.array(times, pa.timestamp("us", tz="UTC"))
        return pa.table(columns)

    columns = [f"{name}_{c}" for c in ("id", *LINEAR[name])]
    time = f"{name}_ts"
    schema = pa.schema([*((c, pa.int64()) for c in columns), (time, pa.timestamp("us", tz="UTC"))])
    return Stream(name, schema, time, DELAY_SECONDS, make)


def joined(left: str, right: str, attribute: str) -> str:
    """The condition of an edge: as good in Thalweg, Spark and DuckDB."""
    reach = f"INTERVAL {WITHIN_SECONDS} SECONDS"
    equality = f"{left}_{attribute} = {right}_{attribute}"
    return f"{equality} AND {right}_ts BETWEEN {left}_ts - {reach} AND {left}_ts + {reach}"


LINEAR_TEXT = "SELECT r_id, s_id, t_id, u_id FROM r" + "".join(
    f" JOIN {right} ON {joined(left, right, attribute)}" for attribute, (left, right) in EDGES.items()
)
# A chained join of Spark's wants one event time in what the join before it gives: the others are left behind.
LINEAR_SPARK = (
    "SELECT r_id, s_id, t_id, u_id FROM (SELECT r_id, s_id, t_id, t_c, t_ts FROM "
    f"(SELECT r_id, s_id, s_b, s_ts FROM r JOIN s ON {joined('r', 's', 'a')}) "
    f"JOIN t ON {joined('s', 't', 'b')}) JOIN u ON {joined('t', 'u', 'c')}"
)
