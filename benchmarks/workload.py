"""The stream that the aggregate figures are measured on, as Parquet files, and the queries over it.

20M rows of 8 columns: id, ts (100,000 rows per second of event time), a, b, c, e of 500 values each, d of
100,000, v a double with a short fraction so that sums do not depend on their order.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS_PER_FILE = 1_000_000
ROWS_PER_SECOND = 100_000
START_US = 1_700_000_000_000_000


@dataclass(frozen=True)
class Workload:
    name: str
    selects: tuple[str, ...]
    files_per_batch: int = 4


def make_files(directory: Path, files: int) -> Path:
    """The first `files` million rows under `directory`; what is there already is kept."""
    directory.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        path = directory / f"part-{number:04d}.parquet"
        if not path.exists():
            temporary = directory / f".{path.name}.tmp"
            pq.write_table(_table(number), temporary, compression="snappy", row_group_size=ROWS_PER_FILE)
            temporary.rename(path)
    return directory


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
    return pa.table(columns)


KEYS = ("a", "b", "c", "e", "d", "a, b", "b, c", "a, e")


def grouped(keys: str, window: str = "'20 seconds', '10 seconds'", where: str = "") -> str:
    """A windowed count and sum."""
    condition = f" WHERE {where}" if where else ""
    return (
        f"SELECT window.start AS start, {keys}, count(*) AS n, sum(v) AS total "
        f"FROM events{condition} GROUP BY {keys}, window(ts, {window})"
    )


def first(n: int) -> Workload:
    """The first n of the eight queries of the figures."""
    return Workload(f"{n} queries", tuple(grouped(keys) for keys in KEYS[:n]))


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
    ("'20 seconds', '10 seconds'", ""),
    ("'20 seconds', '10 seconds'", "v < 5000"),
    ("'10 seconds'", "e < 250"),
    ("'30 seconds', '10 seconds'", "v >= 5000 AND a < 400"),
    ("'10 seconds'", "d < 50000"),
)


def many(key_sets: tuple[str, ...], variants: int) -> Workload:
    """Every key set with this many predicates and windows."""
    selects = tuple(_aliased(keys, window, where) for window, where in VARIANTS[:variants] for keys in key_sets)
    return Workload(f"{len(selects)} queries", selects)


def _aliased(keys: str, window: str, where: str) -> str:
    parts = [part.strip() for part in keys.split(",")]
    named = ", ".join(part if part.isidentifier() else f"{part} AS k{i}" for i, part in enumerate(parts))
    condition = f" WHERE {where}" if where else ""
    return (
        f"SELECT window.start AS start, {named}, count(*) AS n, sum(v) AS total "
        f"FROM events{condition} GROUP BY {keys}, window(ts, {window})"
    )


def windowed(window: str) -> Workload:
    return Workload(f"window {window}", (grouped("a", window),))
