"""A session in the calling process: no JVM. What only Spark can do is refused by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from thalweg.batch.local_runner import LocalRunner
from thalweg.batch.loop import Loop
from thalweg.batch.run import BatchRunner
from thalweg.engine.contract import Analyzer
from thalweg.engine.failure import root_cause
from thalweg.errors import bad_table, needs_spark
from thalweg.model.query import Query
from thalweg.model.stream import Schema, Stream
from thalweg.sink.contract import Sink, SinkContext
from thalweg.state.storage import Storage


class LocalEngine:
    def __init__(self, analyzer: Analyzer, runner: LocalRunner) -> None:
        self.analyzer = analyzer
        self.runner = runner

    def pipeline(
        self,
        batches: BatchRunner,
        known: Callable[[], Mapping[str, Stream]],
        used: Callable[[], Mapping[str, Stream]],
        after_batch: Callable[[], None],
    ) -> Loop:
        return Loop(batches, known, used, after_batch, root_cause)

    def source(self, name: str, given: Any, storage: Storage, place: str) -> Any:
        if _is_sparks(given):
            raise needs_spark(f"the streaming DataFrame of stream {name!r}", "append its rows to thalweg.memory")
        return given

    def read_table(self, name: str, given: Any, schema: Schema | None, kind: str | None) -> pa.Table:
        if isinstance(given, pa.Table):
            return given
        if _is_sparks(given):
            raise needs_spark(f"the DataFrame of table {name!r}", "give an Arrow table")
        if not isinstance(given, str | os.PathLike) or not os.fspath(given):
            raise bad_table(name, f"{given!r} is not an Arrow table or the path of a Parquet file", None)
        if (kind or os.path.splitext(given)[1].lstrip(".")) != "parquet":
            raise needs_spark(f"the file of table {name!r}", "give an Arrow table or Parquet")
        try:
            return pq.read_table(given)
        except (pa.ArrowException, OSError) as error:
            raise bad_table(name, f"{given} cannot be read as parquet: {str(error).splitlines()[0]}", None) from None

    def check_sink(self, query: Query) -> None:
        raise needs_spark(f"the Spark writer of query {query.name!r}", "give another sink")

    def open_sink(self, query: Query, id_: str, context: SinkContext, storage: Storage) -> Sink:
        raise needs_spark(f"the Spark writer of query {query.name!r}", "drop it")

    def stop(self) -> None:
        """There is nothing to end."""


def _is_sparks(given: object) -> bool:
    """Without importing PySpark, which need not be there."""
    return type(given).__module__.startswith("pyspark.")
