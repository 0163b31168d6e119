"""Oracle: partials that wait in the state for their windows, where INGEST has put them, give what Spark gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.support.side import Side

import thalweg
from thalweg.operate.pre_aggregate import STAYING_FROM
from thalweg.testing.compare import rows_equal
from thalweg.testing.oracle import Feed

SECOND = 1_000_000
ROWS, KEYS = 60_000, 8_000
MADE = ", ".join(f"{f}({c}) AS {f}_{c}" for f in ("sum", "min", "max", "count") for c in ("u", "v", "w"))
SELECT = f"SELECT k, {MADE}, window.end AS until FROM s GROUP BY k, window(ts, '20 seconds', '10 seconds')"


def feed() -> Feed:
    """Every batch brings 20 seconds and some rows of the 20 seconds before."""
    rng = np.random.default_rng(11)
    tables = []
    for batch in range(3):
        times = (20 + batch * 20) * SECOND + rng.integers(0, 20 * SECOND, ROWS)
        times -= np.where(rng.random(ROWS) < 0.02, rng.integers(0, 20 * SECOND, ROWS), 0)
        numbers = {c: pa.array(rng.integers(-50, 50, ROWS), mask=rng.random(ROWS) < 0.01) for c in ("u", "v", "w")}
        ts = pa.array(times, pa.timestamp("us", "UTC"))
        tables.append(pa.table({"ts": ts, "k": rng.integers(0, KEYS, ROWS), **numbers}))
    return Feed("s", "ts", 5 * SECOND, tuple(tables))


@pytest.mark.on_spark
def test_large_partials_do_not_travel_and_results_are_the_same(side: Side, state_dir: Path) -> None:
    rows = feed()
    with side.connect(state_dir, repartition=None) as session:
        source = thalweg.memory(rows.schema, max_files_per_batch=1)
        session.create_stream("s", source, time="ts", watermark="5 seconds")
        handle = session.create_query("q", SELECT)
        for table in rows.batches:
            source.append(table)
        session.run_available()
        told = session.progress()["partitioning"]["aggregations"]
        sent = [report.sent_bytes for report in session._parts.runner.reports if report.rows]
        found = handle.results()
    # 8,000 keys in three slices with two counts and nine values each are more than enough to stay.
    assert max(sent) < STAYING_FROM // 4
    assert all(report["partitioner"] == "combine" and report["reducer"] > 0 for report in told.values())
    rows_equal(found, side.expected(rows, SELECT))
