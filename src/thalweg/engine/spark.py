"""The Spark session that Thalweg runs on, with the settings that make a small batch cheap."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from thalweg.engine.launch import launch_jvm

_HERE = os.path.dirname(os.path.abspath(__file__))
_LOGGING = os.path.join(_HERE, "log4j2.properties")
_START = os.path.join(_HERE, "start")

SETTINGS: dict[str, str] = {
    # Loopback TCP between the JVM and its Python workers waits for delayed acknowledgements: 40 ms a task.
    "spark.python.unix.domain.socket.enabled": "true",
    # Workers are forked from a process that has imported everything once and frozen it.
    "spark.python.daemon.module": "thalweg.engine.daemon",
    # Python processes import PySpark as it is installed: the zip that Spark gives them has no byte code.
    "spark.executorEnv.PYTHONPATH": _START,
    # Workers keep the memory of one batch for the next: a third of a join's processor time was the kernel clearing
    # pages that had been given back a moment before. Other C libraries than glibc do not look at this.
    "spark.executorEnv.GLIBC_TUNABLES": (
        "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=536870912:glibc.malloc.top_pad=16777216"
        ":glibc.malloc.hugetlb=1"
    ),
    # On a busy machine a worker takes its time to start; after 15 s Spark would give up.
    "spark.python.authenticate.socketTimeout": "120s",
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
    "spark.sql.execution.arrow.useLargeVarTypes": "false",
    "spark.shuffle.compress": "false",
    "spark.sql.shuffle.partitions": "2",
}

BATCH_SETTINGS = (
    "spark.sql.adaptive.enabled",
    "spark.sql.session.timeZone",
    "spark.sql.ansi.enabled",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.execution.arrow.useLargeVarTypes",
    "spark.sql.shuffle.partitions",
)
"""Those that act on batches, whoever made the Spark session."""

_GROUP, _INTERRUPT = "spark.jobGroup.id", "spark.job.interruptOnCancel"
"""Spark's names for what a thread's jobs belong to."""
_PATIENCE_SECONDS = 10.0
"""How long tasks may take to end that were cancelled."""
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


def batch_session(spark: SparkSession) -> SparkSession:
    """The session of batches: what a user sets in another, now or later, does not act on them."""
    return further_session(spark, {name: SETTINGS[name] for name in BATCH_SETTINGS})


def further_session(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A session of the engine's own on the same Spark. The user's is not touched."""
    to_dataframe = RDD.toDF
    made = spark.newSession()
    RDD.toDF = to_dataframe  # which PySpark has bound to the newest session
    for name, value in settings.items():
        made.conf.set(name, value)
    return made


def keeps_properties() -> bool:
    """Whether what a thread sets for its jobs is there when it starts them: PySpark can be told otherwise."""
    return os.getenv("PYSPARK_PIN_THREAD", "true").lower() == "true"


def describe_jobs(spark: SparkSession, what: str) -> None:
    """What Spark's UI calls the jobs that this thread starts from now on."""
    spark.sparkContext.setJobDescription(f"thalweg: {what}")


class JobGroup:
    """The jobs that a thread starts while it is inside, which another thread can cancel. Tasks find `properties` in
    their TaskContext."""

    def __init__(self, context: SparkContext, what: str, properties: Mapping[str, str] | None = None) -> None:
        self.is_cancelled = False
        self._properties = properties or {}
        self._context = context
        self._what = what
        self._id = f"thalweg-{uuid.uuid4().hex}"

    def __enter__(self) -> JobGroup:
        # Interrupted, a task ends at once; otherwise Spark looks after two seconds, and waits for two more.
        self._context.setJobGroup(self._id, f"thalweg: {self._what}", interruptOnCancel=True)
        for name, value in self._properties.items():
            self._context.setLocalProperty(name, value)
        return self

    def __exit__(self, *raised: object) -> None:
        with suppress(Exception):  # of a Spark that is gone, what went wrong before says more
            for name in (_GROUP, _INTERRUPT, *self._properties):
                self._context.setLocalProperty(name, None)

    def cancel(self) -> None:
        """Of jobs that begin later, nothing is known yet."""
        self.is_cancelled = True
        with suppress(Exception):
            self._context.cancelJobGroup(self._id)

    def wait(self) -> None:
        """Until no task of it runs any more, but not for ever: a task may be out of reach."""
        patience = time.monotonic() + _PATIENCE_SECONDS
        with suppress(Exception):
            while self._active_tasks() and time.monotonic() < patience:
                time.sleep(0.02)

    def _active_tasks(self) -> int:
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(self._id)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return sum(stage.numActiveTasks for stage in stages if stage is not None)


def cores(spark: SparkSession) -> int:
    return max(1, int(spark.sparkContext.defaultParallelism))
