"""What a prompt or a notebook shows of tables and texts."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa

_ROWS = 20
_MOST_CHARACTERS = 100
"""Of a value in a cell."""


class Explanation(str):
    """A text that a prompt shows with its line breaks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


class Shown:
    """An Arrow table that a prompt shows row by row. In all else it is the table: `to_pandas()`, `to_pylist()`,
    `column(name)`, `num_rows`, ...; `pa.table(shown)` gives the table itself."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __getattr__(self, name: str) -> Any:
        if name == "table":  # a copy that has none yet
            raise AttributeError(name)
        return getattr(self.table, name)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __getitem__(self, key: Any) -> Any:
        return self.table[key]

    def __eq__(self, other: object) -> bool:
        return bool(self.table == (other.table if isinstance(other, Shown) else other))

    __hash__ = None  # type: ignore[assignment]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return table_text(self.table)

    def _repr_html_(self) -> str:
        return table_html(self.table)


def table_text(table: pa.Table, rows: int = _ROWS) -> str:
    """The first rows, in columns."""
    lines = [table.column_names, *_cells(table, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    right = [_is_number(field) for field in table.schema]

    def line(cells: Sequence[str]) -> str:
        fitted = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right, strict=True))
        return "  ".join(fitted).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([line(lines[0]), rule, *map(line, lines[1:]), *_left_out(table, rows)])


def table_html(table: pa.Table, rows: int = _ROWS) -> str:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "".join(row(cells, "td") for cells in _cells(table, rows))
    more = "".join(f"<p>{html.escape(text)}</p>" for text in _left_out(table, rows))
    return f"<table><thead>{row(table.column_names, 'th')}</thead><tbody>{body}</tbody></table>{more}"


def _cells(table: pa.Table, rows: int) -> Iterator[tuple[str, ...]]:
    columns = [column.to_pylist() for column in table.slice(0, rows).columns]
    return zip(*([cell_text(value) for value in column] for column in columns), strict=True)


def _left_out(table: pa.Table, rows: int) -> list[str]:
    more = table.num_rows - rows
    return [f"and {more:,} more rows"] if more > 0 else [] if table.num_rows else ["no rows"]


def _is_number(field: pa.Field) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(is_kind(field.type) for is_kind in kinds)


def cell_text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, dict):
        return " .. ".join(cell_text(part) for part in value.values())
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(value))
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."
