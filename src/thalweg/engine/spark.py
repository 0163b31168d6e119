"""The Spark session that Thalweg runs on, with the settings that make a small batch cheap."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from thalweg.errors import not_utc

_LOGGING = Path(__file__).with_name("log4j2.properties")

SETTINGS: dict[str, str] = {
    # Loopback TCP between the JVM and its Python workers waits for delayed acknowledgements: 40 ms a task.
    "spark.python.unix.domain.socket.enabled": "true",
    # Workers are forked from a process that has imported everything once and frozen it.
    "spark.python.daemon.module": "thalweg.engine.daemon",
    # Workers keep the memory of one batch for the next: a third of a join's processor time was the kernel clearing
    # pages that had been given back a moment before. Other C libraries than glibc do not look at this.
    "spark.executorEnv.GLIBC_TUNABLES": (
        "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=536870912:glibc.malloc.top_pad=16777216"
        ":glibc.malloc.hugetlb=1"
    ),
    # The plan of a batch is fixed; adaptive execution would only re-plan it.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "10",
    # The default manager asks the shell for permissions of every file of the offset log: 40 ms each.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    # The JVM plans, schedules and passes bytes on: its optimising compiler would take half of a core for the first
    # twenty batches and give nothing back. Cells are large arrays that live for one batch: the parallel collector
    # copes with them best. Logging has to be quiet before the first line of Python runs; what goes wrong reaches the
    # user as an error of ours.
    "spark.driver.extraJavaOptions": (
        f"-XX:TieredStopAtLevel=1 -XX:+UseParallelGC -Dlog4j2.configurationFile=file:{_LOGGING}"
    ),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.shuffle.compress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.log.level": "FATAL",
}


def create_session(master: str | None = None, **settings: Any) -> SparkSession:
    """A local Spark session for Thalweg; `settings` override its own."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("thalweg").master(master or "local[*]")
    for name, value in {**SETTINGS, **settings}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def warm_up(spark: SparkSession) -> threading.Thread:
    """Begins to load what the first batch needs, beside what is to be done before it: the JVM's classes for such a
    job, and the process that workers are forked from. The first batch of a session took 5 s without, 1.5 with it."""

    def run() -> None:
        with suppress(Exception):  # what is wrong with the session, its first batch says
            spark.range(1, numPartitions=1).mapInArrow(_same, "id bigint").toArrow()

    thread = threading.Thread(target=run, name="thalweg-warm-up", daemon=True)
    thread.start()
    return thread


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def check_settings(spark: SparkSession) -> SparkSession:
    """A session that the user brought: refused where results would differ from what it says itself."""
    zone = spark.conf.get("spark.sql.session.timeZone", "")
    if zone not in ("UTC", "Etc/UTC", "GMT", "Z", "+00:00"):
        raise not_utc(zone)
    return spark


def cores(spark: SparkSession) -> int:
    return max(1, int(spark.sparkContext.defaultParallelism))
