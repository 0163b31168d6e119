"""Columns of merged partials that a result takes as they are: no statement is needed to choose and to rename.

Most queries ask for keys, a window, sums, counts and means. DuckDB takes two milliseconds to be told so, which a
hundred queries feel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.columns import WINDOW
from thalweg.model.expr import quote

_NAME = r'"((?:[^"]|"")+)"'
_WINDOW = re.escape(quote(WINDOW))
MOST_KNOWN = 1 << 15
"""Texts whose shape is remembered."""
Column: TypeAlias = "pa.Array | pa.ChunkedArray"


@dataclass(frozen=True)
class Choice:
    """An expression over merged partials that is no more than a choice."""

    make: Callable[..., Column | None]
    """The value, of the columns that are read; None where these are of types that it is not meant for."""
    reads: tuple[str, ...]
    constants: tuple[int, ...] = ()

    def of(self, columns: Iterable[Column]) -> Column | None:
        return self.make(*columns, *self.constants)


def choose(sqls: Iterable[str], merged: pa.Table) -> list[pa.ChunkedArray | None]:
    """The value of each expression over the table m; None for one that is more than a choice."""
    choices = (choice(sql) for sql in sqls)
    return [None if c is None else c.of(merged.column(name) for name in c.reads) for c in choices]


@lru_cache(maxsize=MOST_KNOWN)
def choice(sql: str) -> Choice | None:
    """None where the text is more than that. Batch after batch asks for the same."""
    matches = ((shape.fullmatch(sql), to_choice) for shape, to_choice in _SHAPES)
    return next((to_choice(match) for match, to_choice in matches if match), None)


def _reading(make: Callable[..., Column | None]) -> Callable[[re.Match[str]], Choice]:
    """Of the columns whose names the text has."""
    return lambda match: Choice(make, tuple(name.replace('""', '"') for name in match.groups()))


def _moment_of(match: re.Match[str]) -> Choice:
    return Choice(_moment, (WINDOW,), (int(match[1] or 0),))


def _as_it_is(column: Column) -> Column:
    return column


def _or_zero(column: Column) -> Column:
    return _filled(column, 0)


def _mean(total: Column, count: Column) -> Column | None:
    if not (pa.types.is_float64(total.type) and pa.types.is_int64(count.type)):
        return None
    zero = pc.equal(count, 0)
    if pc.any(zero).as_py():
        count = pc.if_else(zero, None, count)
    return pc.divide(total, count.cast(pa.float64(), safe=False))  # beyond 2**53 to the nearest, as DuckDB does


def _above_zero(column: Column) -> Column:
    return _filled(pc.greater(column, 0), False)


def _filled(column: Column, missing: object) -> Column:
    return pc.fill_null(column, missing) if column.null_count else column


def _moment(window: Column, shift: int) -> Column:
    return pc.add(window, shift).cast(pa.timestamp("us"))


_SHAPES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Choice]], ...] = (
    (re.compile(rf"m\.{_NAME}"), _reading(_as_it_is)),
    (re.compile(rf"\({_NAME}\)"), _reading(_as_it_is)),
    (re.compile(rf"\(coalesce\({_NAME}, 0\)\)"), _reading(_or_zero)),
    (re.compile(rf"\({_NAME} / nullif\({_NAME}, 0\)\)"), _reading(_mean)),
    (re.compile(rf"coalesce\(m\.{_NAME} > 0, FALSE\)"), _reading(_above_zero)),
    (re.compile(rf"make_timestamp\(m\.{_WINDOW}(?: \+ (\d+))?\)"), _moment_of),
)
