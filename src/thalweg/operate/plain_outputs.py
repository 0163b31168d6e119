"""Columns of merged partials that a result takes as they are: no statement is needed to choose and to rename.

Most queries ask for keys, a window, sums, counts and means. DuckDB takes two milliseconds to be told so, which a
hundred queries feel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.columns import WINDOW
from thalweg.model.expr import quote

_NAME = r'"((?:[^"]|"")+)"'
_WINDOW = re.escape(quote(WINDOW))
MOST_KNOWN = 1 << 15
"""Texts whose shape is remembered."""


def choose(sqls: Iterable[str], merged: pa.Table) -> list[pa.ChunkedArray | None]:
    """The value of each expression over the table m; None for one that is more than a choice."""
    return [_choose(sql, merged) for sql in sqls]


def _choose(sql: str, merged: pa.Table) -> pa.ChunkedArray | None:
    shaped = _shape(sql)
    return None if shaped is None else shaped[1](shaped[0], merged)


@lru_cache(maxsize=MOST_KNOWN)
def _shape(sql: str) -> tuple[re.Match[str], _Make] | None:
    """Which shape the text has, with the names in it. Batch after batch asks for the same."""
    matches = ((shape.fullmatch(sql), make) for shape, make in _SHAPES)
    return next(((match, make) for match, make in matches if match), None)


def _named(match: re.Match[str], merged: pa.Table, group: int = 1) -> pa.ChunkedArray:
    return merged.column(match[group].replace('""', '"'))


def _or_zero(match: re.Match[str], merged: pa.Table) -> pa.ChunkedArray:
    return _filled(_named(match, merged), 0)


def _mean(match: re.Match[str], merged: pa.Table) -> pa.ChunkedArray | None:
    total, count = _named(match, merged, 1), _named(match, merged, 2)
    if not (pa.types.is_float64(total.type) and pa.types.is_int64(count.type)):
        return None
    zero = pc.equal(count, 0)
    if pc.any(zero).as_py():
        count = pc.if_else(zero, None, count)
    return pc.divide(total, count.cast(pa.float64(), safe=False))  # beyond 2**53 to the nearest, as DuckDB does


def _above_zero(match: re.Match[str], merged: pa.Table) -> pa.ChunkedArray:
    return _filled(pc.greater(_named(match, merged), 0), False)


def _filled(column: pa.ChunkedArray, missing: object) -> pa.ChunkedArray:
    return pc.fill_null(column, missing) if column.null_count else column


def _moment(match: re.Match[str], merged: pa.Table) -> pa.ChunkedArray:
    return pc.add(merged.column(WINDOW), int(match[1] or 0)).cast(pa.timestamp("us"))


_Make = Callable[[re.Match[str], pa.Table], pa.ChunkedArray | None]
_SHAPES: tuple[tuple[re.Pattern[str], _Make], ...] = (
    (re.compile(rf"m\.{_NAME}"), _named),
    (re.compile(rf"\({_NAME}\)"), _named),
    (re.compile(rf"\(coalesce\({_NAME}, 0\)\)"), _or_zero),
    (re.compile(rf"\({_NAME} / nullif\({_NAME}, 0\)\)"), _mean),
    (re.compile(rf"coalesce\(m\.{_NAME} > 0, FALSE\)"), _above_zero),
    (re.compile(rf"make_timestamp\(m\.{_WINDOW}(?: \+ (\d+))?\)"), _moment),
)
