"""Results handed to a Python callable, once per batch that has any."""

from __future__ import annotations

import pyarrow as pa

from thalweg.errors import failed_callback, missing_callback
from thalweg.model.query import SinkSpec
from thalweg.sink.base import Callback, RowSink, SinkContext


class CallbackSink(RowSink):
    """After a crash the callable may see its last batch again, under the same id: it can tell."""

    kind = "callable"

    def __init__(self, query: str, callback: Callback) -> None:
        self._query = query
        self._callback = callback

    @classmethod
    def open(cls, spec: SinkSpec, context: SinkContext) -> CallbackSink:
        if context.callback is None:
            raise missing_callback(context.query)
        return cls(context.query, context.callback)

    def commit(self, batch_id: int, token: str, table: pa.Table | None) -> None:
        if table is None or table.num_rows == 0:
            return
        try:
            self._callback(table, batch_id)
        except (Exception, SystemExit) as error:  # sys.exit() in a callable is no wish to end all other queries
            raise failed_callback(self._query, batch_id, error) from error
