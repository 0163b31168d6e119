"""The Spark session that Thalweg runs on, with the settings that make a small batch cheap."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from thalweg.engine.launch import launch_jvm
from thalweg.errors import not_utc

_LOGGING = Path(__file__).with_name("log4j2.properties")
_START = Path(__file__).with_name("start")

SETTINGS: dict[str, str] = {
    # Loopback TCP between the JVM and its Python workers waits for delayed acknowledgements: 40 ms a task.
    "spark.python.unix.domain.socket.enabled": "true",
    # Workers are forked from a process that has imported everything once and frozen it.
    "spark.python.daemon.module": "thalweg.engine.daemon",
    # Python processes import PySpark as it is installed: the zip that Spark gives them has no byte code.
    "spark.executorEnv.PYTHONPATH": str(_START),
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
    # copes with them best.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.shuffle.compress": "false",
    "spark.sql.shuffle.partitions": "2",
}

_UTC = frozenset(
    f"{area}{name}"
    for area in ("", "Etc/")
    for name in ("UTC", "UCT", "GMT", "GMT0", "Greenwich", "Universal", "Zulu")
) | {"Z", "+00:00"}
"""What a machine, or somebody who sets up a session, may call the zone."""
_LOOK_SECONDS = 0.2
"""How often a thread that waits looks up: a signal that another thread got does not wake it."""


def create_session(master: str | None = None, **settings: Any) -> SparkSession:
    """A local Spark session for Thalweg; `settings` override its own."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    chosen = _with_logging({**SETTINGS, **settings})
    launch_jvm({"spark.app.name": "thalweg", "spark.master": master or "local[*]", **chosen})
    builder = SparkSession.builder.appName("thalweg").master(master or "local[*]")
    for name, value in chosen.items():
        builder = builder.config(name, value)
    with _own_interrupts():
        return builder.getOrCreate()


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Leaves Ctrl-C to whom it belonged before. PySpark would have it call the JVM, in the midst of whatever call is
    under way, and cancel the jobs of the batch that runs."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if is_main and before is not None:
            signal.signal(signal.SIGINT, before)


def await_ending(query: StreamingQuery) -> None:
    """Waits until the query has ended, and raises what ended it. Not by a call into the JVM on this thread: an
    interrupt would break the connection."""
    ending: Future[None] = Future()

    def run() -> None:
        try:
            query.awaitTermination()
            ending.set_result(None)
        except BaseException as error:
            ending.set_exception(error)

    # A daemon: a program that is interrupted twice ends without it.
    threading.Thread(target=run, name="thalweg-await", daemon=True).start()
    while not ending.done():
        wait([ending], _LOOK_SECONDS)
    ending.result()


def _with_logging(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Spark's log is quiet before the first line of Python runs: what goes wrong reaches the user as an error of
    ours. A user's own choice of options for the JVM leaves that as it is, unless it is about the log."""
    options = str(settings["spark.driver.extraJavaOptions"])
    if "log4j" not in options:
        options = f"{options} -Dlog4j2.configurationFile=file:{_LOGGING}"
    return {**settings, "spark.driver.extraJavaOptions": options}


def warm_up(spark: SparkSession) -> threading.Thread:
    """Begins to load what the first batch needs, beside what is to be done before it: the JVM's classes for such a
    job, and the process that workers are forked from. The first batch of a session took 5 s without, 1.5 with it."""

    def run() -> None:
        with suppress(Exception):  # what is wrong with the session, its first batch says
            describe_jobs(spark, "warming up")
            spark.range(1, numPartitions=1).mapInArrow(_same, "id bigint").toArrow()

    thread = threading.Thread(target=run, name="thalweg-warm-up", daemon=True)
    thread.start()
    return thread


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def check_settings(spark: SparkSession) -> SparkSession:
    """A session that the user brought: refused where results would differ from what it says itself."""
    # Without a default of ours: Spark would check it as if it were a value, and its own is the machine's zone.
    zone = spark.conf.get("spark.sql.session.timeZone")
    if zone not in _UTC:
        raise not_utc(zone)
    return spark


def describe_jobs(spark: SparkSession, what: str) -> None:
    """What Spark's UI calls the jobs that this thread starts from now on."""
    spark.sparkContext.setJobDescription(f"thalweg: {what}")


def cores(spark: SparkSession) -> int:
    return max(1, int(spark.sparkContext.defaultParallelism))
