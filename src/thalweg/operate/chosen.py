"""Columns of merged partials that a result takes as they are: no statement is needed to choose and to rename.

Most queries ask for keys, a window and sums and counts. DuckDB takes two milliseconds to be told so, which a hundred
queries feel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.expr import quote
from thalweg.operate.columns import WINDOW

_NAME = r'"((?:[^"]|"")+)"'
_WINDOW = re.escape(quote(WINDOW))


def choose(sqls: Iterable[str], merged: pa.Table) -> list[pa.ChunkedArray] | None:
    """The value of each expression over the table m; None where one of them is more than a choice."""
    found = []
    for sql in sqls:
        column = _choose(sql, merged)
        if column is None:
            return None
        found.append(column)
    return found


def _choose(sql: str, merged: pa.Table) -> pa.ChunkedArray | None:
    for shape, made in _SHAPES:
        match = shape.fullmatch(sql)
        if match:
            return made(match, merged)
    return None


def _named(match: re.Match[str], merged: pa.Table) -> pa.ChunkedArray:
    return merged.column(match[1].replace('""', '"'))


def _or_zero(match: re.Match[str], merged: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(_named(match, merged), 0)


def _above_zero(match: re.Match[str], merged: pa.Table) -> pa.ChunkedArray:
    return pc.fill_null(pc.greater(_named(match, merged), 0), False)


def _moment(match: re.Match[str], merged: pa.Table) -> pa.ChunkedArray:
    return pc.add(merged.column(WINDOW), int(match[1] or 0)).cast(pa.timestamp("us"))


_SHAPES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], pa.Table], pa.ChunkedArray]], ...] = (
    (re.compile(rf"m\.{_NAME}"), _named),
    (re.compile(rf"\({_NAME}\)"), _named),
    (re.compile(rf"\(coalesce\({_NAME}, 0\)\)"), _or_zero),
    (re.compile(rf"coalesce\(m\.{_NAME} > 0, FALSE\)"), _above_zero),
    (re.compile(rf"make_timestamp\(m\.{_WINDOW}(?: \+ (\d+))?\)"), _moment),
)
