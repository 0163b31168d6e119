"""Unit: making types fit goes on after DuckDB has given up a database."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from thalweg.model.stream import Field, Schema
from thalweg.source import conform as module
from thalweg.source.conform import conform, connection, rows_as_json

NOT_UTF8 = pa.StringArray.from_buffers(1, *pa.array([b"\xff\xfe"], pa.binary()).buffers()[1:])


def test_a_database_that_was_given_up_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(column: pa.ChunkedArray, spark_type: str, trusted: bool) -> object:
        return connection().from_arrow(pa.table({"x": column})).project("upper(x)").fetchall()

    with monkeypatch.context() as broken:
        broken.setattr(module, "convert", break_down)
        with pytest.raises(duckdb.InternalException):
            conform(pa.table({"g": NOT_UTF8}), Schema((Field("g", "string"),)), ["g"])
    assert rows_as_json(pa.table({"a": [1]})).to_pylist() == ['{"a":"1"}']
