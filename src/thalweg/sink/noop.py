"""Takes results and does nothing: for measuring what they cost to make."""

from __future__ import annotations

import pyarrow as pa

from thalweg.model.query import SinkSpec
from thalweg.sink.base import RowSink, SinkContext


class NoopSink(RowSink):
    """Results reach it only where slots alone cannot tell what they are (LIMIT); tasks count and drop the others."""

    kind = "noop"

    @classmethod
    def open(cls, spec: SinkSpec, context: SinkContext) -> NoopSink:
        return cls()

    def commit(self, batch_id: int, token: str, table: pa.Table | None) -> None:
        pass
