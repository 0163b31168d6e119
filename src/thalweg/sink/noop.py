"""Takes results and does nothing: for measuring what they cost to make."""

from __future__ import annotations

import pyarrow as pa

from thalweg.kinds.options import NoOptions
from thalweg.model.query import SinkSpec
from thalweg.sink.contract import EXACTLY_ONCE, RowSink, SinkContext, SinkKind


class NoopSink(RowSink):
    """Results reach it only where slots alone cannot tell what they are (LIMIT); tasks count and drop the others."""

    kind = "noop"

    def commit(self, batch_id: int, token: str, table: pa.Table | None) -> None:
        pass


class NoopKind(SinkKind[NoOptions]):
    """Results are made, counted and dropped: for measuring, as Spark's `noop`."""

    name = "noop"
    options = NoOptions
    wants_rows = False

    def delivery(self, options: NoOptions) -> str:
        return EXACTLY_ONCE

    def open(self, options: NoOptions, context: SinkContext) -> NoopSink:
        return NoopSink()


NOOP = NoopKind()


def to_noop() -> SinkSpec:
    """Make results and drop them where they were made, counted: for measuring, as Spark's `noop`."""
    return NOOP.spec()
