"""Results given to Spark's own writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from thalweg.engine.failure import root_cause
from thalweg.engine.hadoop import HadoopFiles
from thalweg.engine.records import SinkRecords
from thalweg.engine.staged_files import StagedFiles
from thalweg.errors import ThalwegError, failed_sink
from thalweg.model.bucket import Section
from thalweg.model.query import Query
from thalweg.model.shown import shown, shown_schema
from thalweg.model.types import is_string
from thalweg.sink.contract import RowSink, SinkContext
from thalweg.sink.outlet import INLINE_BYTES
from thalweg.sink.spark import FILE_FORMATS
from thalweg.state.container import read_section
from thalweg.state.storage import Storage

_TASK_BYTES = 64 << 20
"""Of results that one task of the writer reads, and of which it makes one file."""


class SparkSink(RowSink):
    """Any batch writer of Spark's, called once for every batch that has results.

    Files are staged, so that a batch that is repeated shows once. Delta gets the number of the batch (txnAppId,
    txnVersion) and keeps the first; batches of another timeline are others. Who writes is recorded before, as an
    older copy of the state would give out the same numbers for other rows. Whatever else there is sees a repeated
    batch again.
    """

    kind = "spark"

    def __init__(self, spark: SparkSession, query: Query, id_: str, context: SinkContext, storage: Storage) -> None:
        self._spark = spark
        self._query = query
        self._format = query.sink.option("format")
        self._transaction = f"{context.timeline}/{id_}"
        self._storage = storage
        self._staged: StagedFiles | None = None
        self._records: SinkRecords | None = None
        if self._format.lower() in FILE_FORMATS:
            with self._naming_itself():
                self._staged = StagedFiles(HadoopFiles(spark, query.sink.option("path")), context, id_)
        elif self._format.lower() == "delta":
            with self._naming_itself():
                self._records = SinkRecords(HadoopFiles(spark, query.sink.option("path")), context, id_)
        mine = ("format",) if self._staged is None else ("format", "path")
        self._options = {name: str(value) for name, value in query.sink.options if name not in mine}

    def commit(self, batch_id: int, token: str, table: pa.Table | None) -> None:
        """Nobody calls it: sections are given to `commit_sections`."""
        raise NotImplementedError

    def commit_sections(self, batch_id: int, sections: Sequence[Section]) -> None:
        with self._naming_itself():
            if self._staged is not None:
                self._staged.commit(batch_id, sections, lambda place: self._writer(sections, "overwrite").save(place))
            else:
                writer = self._writer(sections, "append")
                if self._records is not None:
                    if self._records.newest(batch_id) < batch_id:
                        self._records.write(batch_id)
                    self._records.sweep()
                    writer = writer.option("txnAppId", self._transaction).option("txnVersion", batch_id)
                writer.save()

    def _writer(self, sections: Sequence[Section], mode: str) -> DataFrameWriter:
        return self._frame(sections).write.format(self._format).mode(mode).options(**self._options)

    def _frame(self, sections: Sequence[Section]) -> DataFrame:
        """Few results go through the driver; others are read where they are written."""
        columns = ", ".join(f"{_quote(o.name)} {_column_type(o.expr.type)}" for o in self._query.outputs)
        schema = shown_schema(self._query)
        if sum(section.length for section in sections) <= INLINE_BYTES:
            table = pa.concat_tables([shown(read_section(self._storage, s), schema) for s in sections])
            return self._spark.createDataFrame(table, columns).coalesce(1)
        groups = grouped(sections, _TASK_BYTES)
        task = _read_task(self._storage, groups, schema)
        return self._spark.range(0, len(groups), 1, len(groups)).mapInArrow(task, columns)

    @contextmanager
    def _naming_itself(self) -> Iterator[None]:
        try:
            yield
        except ThalwegError:
            raise
        except Exception as error:
            raise failed_sink(self._query.name, f"Spark's {self._format}", root_cause(error)) from error


def grouped(sections: Sequence[Section], most_bytes: int) -> tuple[tuple[Section, ...], ...]:
    """Sections for each task, in their order."""
    groups: list[list[Section]] = []
    nbytes = 0
    for section in sections:
        if not groups or nbytes + section.length > most_bytes:
            groups.append([])
            nbytes = 0
        groups[-1].append(section)
        nbytes += section.length
    return tuple(tuple(group) for group in groups)


def _read_task(
    storage: Storage, groups: Sequence[Sequence[Section]], schema: pa.Schema
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:  # one row, which says no more than the number of the task
            pass
        for section in groups[int(TaskContext.get().partitionId())]:
            yield from shown(read_section(storage, section), schema).to_batches(max_chunksize=65_536)

    return run


def _column_type(kind: str) -> str:
    return "string" if is_string(kind) else kind


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
