"""Unit: what the pipeline's jobs are called where people look for them, in Spark's UI."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import thalweg


def descriptions(spark: SparkSession) -> dict[int, str]:
    """job -> its description, of all jobs that Spark's UI would show."""
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs: Any = store.jobsList(None)
    found = (jobs.apply(i) for i in range(jobs.size()))
    return {int(job.jobId()): _text(job.description()) for job in found}


def _text(option: Any) -> str:
    return str(option.get()) if option.isDefined() else ""


def test_jobs_have_names(spark: SparkSession, tmp_path: Path) -> None:
    before = set(descriptions(spark))
    sessions = [thalweg.connect(tmp_path / name, spark=spark) for name in ("first", "second")]
    for session in sessions:
        source = thalweg.generate("purchases", rows_per_second=100, pace=100)
        session.create_stream("purchases", source, time="ts", watermark="1 second")
        session.create_query("counts", "SELECT count(*) AS n FROM purchases GROUP BY window(ts, '1 second')")
        session.start("100 milliseconds")
    deadline = time.monotonic() + 120
    while min(session.progress()["rows"] for session in sessions) == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    for session in sessions:
        session.stop()
    said = {text for job, text in descriptions(spark).items() if job not in before}
    assert {text.rpartition(" ")[2] for text in said} == {"first", "second"}
    assert all(re.fullmatch(r"thalweg: batch \d+ of \w+", text) for text in said)
