"""Task events of a compute cluster, like the Google Cluster Monitoring data (GCM) of Holistic and SASPAR.

The data themselves cannot be had here; this is a generated likeness with what Holistic tells of them (Table 3,
Sections 5.2 and 6.2): 4 scheduling classes, some 670,000 job IDs of which few come again within a window.

    gcm          both queries
    gcm/class    Q1: CPU asked for by scheduling class, 60 s sliding by 1 s
    gcm/jobs     Q2: mean CPU asked for by job, 45 min sliding by 5 min

Holistic slides Q2 by 1 s too. With as many rows to read as here, each would be in 2,700 windows' results.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from benchmarks.workloads.model import Query, Stream, Workload, over_one
from benchmarks.workloads.windowed import Windowed

NAMES = {
    "gcm": "like Google's cluster data: CPU by scheduling class, 60 s by 1 s, and by job, 45 min by 5 min",
    "gcm/class": "the first of the two: 4 groups",
    "gcm/jobs": "the second: about a group for each second row",
}

START_US = 1_700_000_100_000_000
"""Where a window of Q2 begins."""
DELAY_SECONDS = 1
ROWS_PER_FILE = 50_000
ROWS_PER_SECOND = 500
"""Of event time: 50,000 rows are 100 s. (Holistic's windows of Q1 have 42 rows: too few for a batch to have work.)"""
CLASS_SHARES = (0.55, 0.20, 0.15, 0.10)
"""Generated: Holistic gives the number of scheduling classes, not their shares."""
JOBS = 670_000
JOBS_FILES = 28
"""After so many files all jobs have been seen (1.4M rows); then others come."""
JOB_TAIL = 1.1
"""Pareto's exponent of how long ago, counted in jobs, the job of a row was started: mostly just now."""
SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("job", pa.int64()),
        ("machine", pa.int32()),
        ("class", pa.int32()),
        ("cpu", pa.float64()),
    ]
)


def named(name: str) -> Workload | None:
    if name not in NAMES:
        return None
    return over_one(TASKS, name, QUERIES, ROWS_PER_FILE)


def rows(number: int) -> pa.Table:
    """Of one file."""
    rng = np.random.default_rng((2, number))
    ids = np.arange(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE, dtype=np.int64)
    newest = ids * JOBS // (JOBS_FILES * ROWS_PER_FILE)
    ago = rng.pareto(JOB_TAIL, ROWS_PER_FILE).astype(np.int64)
    columns = {
        "ts": pa.array(START_US + ids * 1_000_000 // ROWS_PER_SECOND, SCHEMA.field("ts").type),
        "job": np.maximum(newest - ago, 0),
        "machine": rng.integers(0, 12_500, ROWS_PER_FILE, dtype=np.int32),
        "class": rng.choice(len(CLASS_SHARES), ROWS_PER_FILE, p=CLASS_SHARES).astype(np.int32),
        # Sixty-fourths of a core, so that sums do not depend on their order.
        "cpu": rng.integers(1, 65, ROWS_PER_FILE) / 64,
    }
    return pa.table(columns, schema=SCHEMA)


TASKS = Stream("tasks", SCHEMA, "ts", DELAY_SECONDS, rows)
QUERIES: tuple[Query, ...] = (
    Windowed(TASKS, {"class": "class"}, {"cpu": "sum(cpu)"}, 60, 1).query("class"),
    Windowed(TASKS, {"job": "job"}, {"cpu": "avg(cpu)"}, 45 * 60, 5 * 60).query("jobs"),
)
