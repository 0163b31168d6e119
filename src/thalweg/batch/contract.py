"""What a batch needs of whatever runs it: Spark, or the calling process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from thalweg.batch.work import Work
from thalweg.model.plan import Plan
from thalweg.model.query import Query
from thalweg.model.way import Way
from thalweg.sink.contract import Sink, SinkContext
from thalweg.state.storage import Storage


class TasksCancelledError(Exception):
    """The tasks of a batch were ended before they were done. The batch has not happened."""


class Runner(Protocol):
    """Runs the stages of a batch: INGEST over the splits, then SLOT as often as `work.stages` says, cells in between
    going to the task `slot % work.tasks`."""

    @property
    def tasks(self) -> int:
        """Tasks of one stage that run at the same time."""
        ...

    def run(self, plan: Plan, work: Work, splits: Sequence[str], way: Way = Way.STAGES) -> pa.Table:
        """The cells that are left after the last stage: results and reports. `splits`: for every task of INGEST the
        text of its splits. `way`: what suits the batch best; a runner that has it not takes another."""
        ...

    def cancel(self) -> None:
        """From another thread: ends the tasks that run, if it can. Their `run` raises TasksCancelledError then."""
        ...


class SinkOpener(Protocol):
    """Opens what only the engine can write to."""

    def check_sink(self, query: Query) -> None:
        """Refuses one that the engine has not. Asked of sinks that only the engine can open, as is the next."""
        ...

    def open_sink(self, query: Query, id_: str, context: SinkContext, storage: Storage) -> Sink:
        """`storage`: where the results are that it will be given."""
        ...
