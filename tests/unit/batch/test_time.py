"""Unit: where the time of a batch went, as a running pipeline reports it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import thalweg
from thalweg.observe.stopwatch import PHASES

ROWS = 20_000


def rows(seed: int, first_second: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    times = first_second * 1_000_000 + np.sort(rng.integers(0, 10_000_000, ROWS))
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "k": rng.integers(0, 5_000, ROWS)})


def test_the_parts_add_up_to_every_batch_of_aggregates_and_joins(spark: SparkSession, state_dir: Path) -> None:
    session = thalweg.connect(state_dir, spark=spark)
    try:
        assert session.progress()["time"]["last"] == dict.fromkeys(PHASES, 0.0)
        streams = {}
        for name in ("left", "right"):
            streams[name] = thalweg.memory(rows(0, 0).schema, max_files_per_batch=1)
            session.create_stream(name, streams[name], time="ts", watermark="1 second")
        session.sql("CREATE QUERY n AS SELECT k, count(*) AS n FROM left GROUP BY k, window(ts, '5 seconds')")
        session.sql("CREATE QUERY j AS SELECT l.k FROM left l JOIN right r ON l.k = r.k WITHIN 1 SECOND")
        for batch in range(2):
            for seed, source in enumerate(streams.values()):
                source.append(rows(seed, 10 * batch))
        session.run_available()
        reports, told = session._parts.runner.reports, session.progress()["time"]
    finally:
        session.stop()
    for report in reports:
        assert list(report.time) == list(PHASES)
        assert sum(report.time.values()) == pytest.approx(report.seconds)
        assert min(report.time.values()) >= -1e-9
    full = [report.time for report in reports if report.rows]
    assert len(full) == 2
    for phase in set(PHASES) - {"idle"}:
        assert full[-1][phase] > 0, phase
    assert told["last"] == reports[-1].time
    assert sum(told["shares"].values()) == pytest.approx(1.0)
    assert told["mean"]["read"] == pytest.approx((full[0]["read"] + full[1]["read"]) / 2)
    assert told["cores"] == 2
