"""Unit: what the pipeline does with the one query under it; the query itself is a stand-in."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors.exceptions.base import StreamingQueryException

from thalweg.engine.pipeline import Pipeline
from thalweg.errors import ThalwegError, UsageError, pipeline_failed


class Query:
    """Spark's, as far as the pipeline knows it; it is its own writer."""

    def __init__(self, ends_with: BaseException | None = None) -> None:
        self.ends_with = ends_with
        self.isActive = True
        self.stopped = False

    def trigger(self, **trigger: Any) -> Query:
        return self

    def start(self) -> Query:
        return self

    def awaitTermination(self) -> None:  # noqa: N802 - Spark's name
        if self.ends_with is not None:
            raise self.ends_with

    def stop(self) -> None:
        self.stopped, self.isActive = True, False

    def exception(self) -> None:
        return None


def pipeline_over(query: Query, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    spark: Any = SimpleNamespace(dataSource=SimpleNamespace(register=lambda source: None))
    runner: Any = None
    monkeypatch.setattr(Pipeline, "_writer", lambda self: query)
    return Pipeline(spark, state_dir, runner, lambda: None)


def test_an_interrupt_does_not_leave_the_query_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(ends_with=KeyboardInterrupt())
    pipeline = pipeline_over(query, tmp_path, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run_available()
    assert query.stopped
    assert not pipeline.is_running


def test_a_failure_is_told_once_the_query_has_ended_and_until_it_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query()
    pipeline = pipeline_over(query, tmp_path, monkeypatch)
    pipeline.start(0)
    pipeline._failure = pipeline_failed("a disk is full")
    pipeline.check()  # the batch has failed, but the query that ran it is still there
    query.isActive = False
    with pytest.raises(ThalwegError, match="has stopped"):
        pipeline.check()
    query.isActive = True
    pipeline.start(0)
    query.isActive = False
    pipeline.check()


def test_a_batch_that_fails_again_is_told_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query(ends_with=StreamingQueryException("An error occurred while calling o1.awaitTermination."))
    pipeline = pipeline_over(query, tmp_path, monkeypatch)
    pipeline.runner = SimpleNamespace(manifest=SimpleNamespace(batch=6))
    pipeline._failure = OSError(28, "No space left on device")
    monkeypatch.setattr(Pipeline, "tick", lambda self: setattr(self, "_failure", OSError(28, "No space left")))

    def told() -> ThalwegError:
        with pytest.raises(ThalwegError, match="has stopped in batch") as caught:
            pipeline.run_available()
        return caught.value

    first = told()
    assert first.message == "the pipeline has stopped in batch 7"
    assert first.detail == "OSError: [Errno 28] No space left"
    assert str(first.hint).startswith("mend what the detail says, then start again: batch 7 is run again")
    assert pipeline._reason(None).hint == first.hint  # told again, but not failed again
    assert "has failed 2 times: starting again will not help by itself" in str(told().hint)
    pipeline.runner.manifest.batch = 7
    assert "batch 8 is run again" in str(told().hint)
    for error in (told(), first):
        assert "nothing is lost" not in str(error)


def test_a_query_that_is_still_starting_is_stopped_when_its_first_batch_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which is not run. One that ends before, or whose first batch has come, is not waited for."""
    query = Query()
    pipeline = pipeline_over(query, tmp_path, monkeypatch)
    pipeline.start(0)
    stopping = threading.Thread(target=pipeline.stop)
    stopping.start()
    stopping.join(0.3)
    assert stopping.is_alive()
    assert not query.stopped
    with pytest.raises(UsageError, match="stopped"):
        pipeline._run(None, 0)
    stopping.join(10)
    assert query.stopped

    for has_begun in (True, False):
        query = Query()
        pipeline = pipeline_over(query, tmp_path, monkeypatch)
        pipeline.start(0)
        pipeline._begun.set() if has_begun else setattr(query, "isActive", False)
        began = time.monotonic()
        pipeline.stop()
        assert query.stopped
        assert time.monotonic() - began < 5
