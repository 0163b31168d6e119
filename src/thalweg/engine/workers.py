"""Whether the Python workers of a Spark that somebody else set up can run Thalweg's tasks."""

from __future__ import annotations

import platform
import re
import threading
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from thalweg.engine.failure import root_cause
from thalweg.engine.spark import further_session
from thalweg.errors import ThalwegError, spark_connect, workers_differ, workers_do_not_start, workers_lack

_LOCK = threading.Lock()
_seen: set[str] = set()
"""Applications whose workers were found fit."""
_MISSING = re.compile(r"No module named '([\w.]+)'")
_VERSION = re.compile(r"Python in worker has different version: (\d+\.\d+)")


def check_workers(spark: SparkSession) -> None:
    """Runs one task that loads what batches need, once an application."""
    if ".connect." in type(spark).__module__:
        raise spark_connect()
    application = spark.sparkContext.applicationId
    with _LOCK:
        if application not in _seen:
            try:
                further_session(spark, {}).range(1, numPartitions=1).mapInArrow(_load, "id bigint").toArrow()
            except Exception as error:
                raise explain(error) from None
            _seen.add(application)


def explain(error: Exception) -> ThalwegError:
    """What is wrong with the workers, from what Spark says of a task that failed."""
    text = str(error)
    if (missing := _MISSING.search(text)) is not None:
        return workers_lack(missing[1].partition(".")[0])
    if (other := _VERSION.search(text)) is not None:
        return workers_differ(f"Python {other[1]}", f"Python {platform.python_version()}")
    return workers_do_not_start(root_cause(error))


def _load(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from thalweg.batch import local_runner

    local_runner.warm_up()
    yield from batches
