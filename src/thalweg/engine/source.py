"""The pipeline's input as Spark sees it: one streaming source for all native streams.

Spark keeps an offset `{"tick": n, "streams": {stream: units consumed}}` and hands out split descriptors; the
rows themselves never pass through the JVM. The reader lives in a Python process of its own and knows nothing
but the state directory, so a stream that is registered there while the pipeline runs is simply there in the
next batch.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from thalweg.errors import SourceError
from thalweg.source.registry import load_tick
from thalweg.source.split import dump_splits
from thalweg.source.split_planner import Offset, SplitPlanner, Target

_RAISED = re.compile(r"thalweg\.errors\.SourceError: (.*?)(?:\n\s*\n|\n\tat |\nTraceback|\Z)", re.DOTALL)


class ThalwegSource(DataSource):  # type: ignore[misc]
    """`spark.readStream.format("thalweg").option("dir", state_dir).option("tasks", n)`."""

    @classmethod
    def name(cls) -> str:
        return "thalweg"

    def schema(self) -> str:
        return "splits string"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        missing = [name for name in ("dir", "tasks") if name not in self.options]
        if missing:
            raise SourceError(f"the thalweg source needs the option {missing[0]!r}")
        return ThalwegReader(self.options["dir"], int(self.options["tasks"]))


class SplitsPartition(InputPartition):  # type: ignore[misc]
    """The splits of one task."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class ThalwegReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Spark's view of the split planner. Method names are Spark's."""

    def __init__(self, state_dir: str, tasks: int) -> None:
        self._state_dir = state_dir
        self._tasks = max(1, tasks)
        self._planner: SplitPlanner | None = None
        self._target: Target | None = None
        """AvailableNow: what was there when the query started."""

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"tick": 0, "streams": {}}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        # The limits are the streams' own: Spark's would be one for all of them together.
        planner, tick = self._open(), load_tick(self._state_dir)
        return planner.latest(start, tick) if self._target is None else planner.until(start, self._target, tick)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._open().target()

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        """Always as many as there are tasks, so that a batch without data runs like any other."""
        return [SplitsPartition(dump_splits(task)) for task in self._open().splits(start, end, self._tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"splits": [partition.value]})

    def commit(self, end: Offset) -> None:
        self._open().release(end)

    def stop(self) -> None:
        """Spark ends the process of a reader by closing the connection to it. PySpark would take that for an error,
        and print at length that nobody listens to it."""
        if _found_nothing_more(sys.exc_info()[1]):
            os._exit(0)

    def _open(self) -> SplitPlanner:
        """Made where it is used: this object travels to executors, open files do not."""
        if self._planner is None:
            self._planner = SplitPlanner(self._state_dir)
        return self._planner


def _found_nothing_more(error: BaseException | None) -> bool:
    """Whether it is the end of what Spark asks, and not one that our own code has run into."""
    trace = [] if error is None else traceback.extract_tb(error.__traceback__)
    return isinstance(error, EOFError) and [frame.name for frame in trace] == ["main", "read_int"]


def source_error_in(text: str) -> SourceError | None:
    """The error that was raised in the reader's process, found again in what Spark makes of it."""
    match = _RAISED.search(text)
    if match is None:
        return None
    lines = match[1].strip().splitlines()
    marked = {"detail": None, "hint": None} | {
        key: line.strip().removeprefix(f"{key}: ")
        for line in lines[1:]
        for key in ("detail", "hint")
        if line.strip().startswith(f"{key}: ")
    }
    return SourceError(lines[0], detail=marked["detail"], hint=marked["hint"])
