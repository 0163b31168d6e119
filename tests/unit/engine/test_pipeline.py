"""Unit: what the pipeline does with the one query under it; the query itself is a stand-in."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from thalweg.engine.pipeline import Pipeline
from thalweg.errors import ThalwegError, pipeline_failed


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
    pipeline.start("0 seconds")
    pipeline._failure = pipeline_failed("a disk is full")
    pipeline.check()  # the batch has failed, but the query that ran it is still there
    query.isActive = False
    with pytest.raises(ThalwegError, match="has stopped"):
        pipeline.check()
    query.isActive = True
    pipeline.start("0 seconds")
    query.isActive = False
    pipeline.check()
