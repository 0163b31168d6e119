"""Results printed as a table, a bounded number of rows per batch."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
from msgspec import Meta, Struct
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from thalweg.foreign import plain_text
from thalweg.model.query import SinkSpec
from thalweg.sink.contract import RowSink, SinkContext, SinkKind


class ConsoleOptions(Struct, frozen=True):
    rows: Annotated[int, Meta(ge=1, description="How many rows of a batch are printed.")] = 20


class ConsoleSink(RowSink):
    kind = "console"

    def __init__(self, query: str, rows: int = 20, console: Console | None = None) -> None:
        self._query = query
        self._rows = rows
        self._console = console or Console()
        self._last = -1

    def commit(self, batch_id: int, token: str, table: pa.Table | None) -> None:
        """Print a batch once; a new process that repeats it prints it again, as paper has no memory."""
        if table is None or table.num_rows == 0 or batch_id <= self._last:
            return
        self._last = batch_id
        title = f"{plain_text(self._query)} · batch {batch_id} · {table.num_rows:,} rows"
        self._console.print(title, render(table, self._rows), sep="\n", markup=False)


class ConsoleKind(SinkKind[ConsoleOptions]):
    """The first rows of every batch, printed as a table."""

    name = "console"
    options = ConsoleOptions

    def open(self, options: ConsoleOptions, context: SinkContext) -> ConsoleSink:
        return ConsoleSink(context.query, options.rows)


CONSOLE = ConsoleKind()


def to_console(rows: int = 20) -> SinkSpec:
    """Print the first `rows` results of every batch."""
    return CONSOLE.spec(rows=rows)


def render(table: pa.Table, rows: int) -> Table:
    """The first `rows` rows of a table, numbers to the right."""
    caption = f"first {rows:,} of {table.num_rows:,} rows" if table.num_rows > rows else None
    printed = Table(caption=caption)
    for field in table.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        printed.add_column(
            escape(plain_text(field.name)), justify="right" if numeric or pa.types.is_decimal(field.type) else "left"
        )
    for row in zip(*(column.to_pylist() for column in table.slice(0, rows).columns), strict=True):
        printed.add_row(*(_cell(value) for value in row))
    return printed


def _cell(value: object) -> str:
    if value is None:
        return "[dim]NULL[/dim]"
    if isinstance(value, dict):
        return " .. ".join(_cell(part) for part in value.values())
    return escape(plain_text(str(value)))
