"""Unit: the cause of a failure, found in texts as Spark 4.3 gives them."""

from __future__ import annotations

from typing import cast

import pyarrow as pa
import pytest

from thalweg.engine import spark_runner
from thalweg.engine.failure import is_late_worker, root_cause
from thalweg.engine.spark import JobGroup

RAISED = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/x/compute.py", line 3, in evaluate
    raise KeyError("inner")
KeyError: 'inner'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/x/compute.py", line 9, in evaluate
    return run(sql)
           ^^^^^^^^
duckdb.FatalException: FATAL Error: database has been invalidated
Original error: "Scalar function upper: not UTF-8"
"""
CRASHED = """An error occurred while calling o157.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed 1 times, \
most recent failure: Lost task 0.0 in stage 2.0 (TID 2) (localhost): org.apache.spark.SparkException: Python worker \
exited unexpectedly (crashed). Consider setting 'spark.python.worker.faulthandler.enabled' configuration.
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.applyOrElse(PythonRunner.scala:1136)
Caused by: java.io.EOFException
\tat java.base/java.io.DataInputStream.readInt(DataInputStream.java:397)
"""
BOTH = """An error occurred while calling o9.start.
: org.apache.spark.SparkException: Job aborted: Traceback (most recent call last):
  File "/x/reader.py", line 1, in read
ZeroDivisionError: division by zero

\tat org.apache.spark.X.y(X.scala:1)
Caused by: java.lang.IllegalStateException: of Java
"""


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (
            RuntimeError(RAISED),
            "duckdb.FatalException: FATAL Error: database has been invalidated; "
            'Original error: "Scalar function upper: not UTF-8"',
        ),
        (RuntimeError(CRASHED), "Python worker exited unexpectedly (crashed)"),
        (RuntimeError(BOTH), "ZeroDivisionError: division by zero"),
        (OSError(28, "No space left on device"), "OSError: [Errno 28] No space left on device"),
        (RuntimeError("[STREAM_FAILED] Query stopped\nmore"), "[STREAM_FAILED] Query stopped"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 5000), "ValueError: " + "x" * 585 + "..."),
        (RuntimeError("Traceback (most recent call last):"), "RuntimeError: Traceback (most recent call last):"),
    ],
)
def test_the_cause_is_found(error: BaseException, cause: str) -> None:
    assert root_cause(error) == cause


@pytest.mark.parametrize(
    ("said", "is_late"),
    [
        ("org.apache.spark.SparkException: Python worker failed to connect back.\n\tat ...", True),
        ("SparkException: Timed out while waiting for the Python worker to connect back after 15000 ms", True),
        (CRASHED, False),
        (RAISED, False),
    ],
)
def test_a_worker_that_came_too_late_is_told_from_one_that_failed(said: str, is_late: bool) -> None:
    assert is_late_worker(RuntimeError(said)) == is_late


class _Group:
    is_cancelled = False

    def wait(self) -> None: ...


def test_a_job_whose_worker_came_too_late_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_runner, "_PAUSES", (0.0, 0.0))
    late, group = RuntimeError("Python worker failed to connect back."), cast(JobGroup, _Group())
    outcomes: list[object] = [late, late, pa.table({})]

    def collect() -> pa.Table:
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert spark_runner._patiently(collect, group).num_rows == 0
    outcomes[:] = [late, late, late, late]
    with pytest.raises(RuntimeError, match="connect back"):
        spark_runner._patiently(collect, group)
    assert outcomes == [late], "not for ever"
    outcomes[:] = [RuntimeError(CRASHED)]
    with pytest.raises(RuntimeError, match="crashed"):
        spark_runner._patiently(collect, group)
