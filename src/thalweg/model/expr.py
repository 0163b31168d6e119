"""A compiled scalar expression, and how names are written in one."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg.model.canonical import canonical


@canonical("Expr(sql, type, columns, fails)")
@dataclass(frozen=True)
class Expr:
    """A scalar expression compiled to DuckDB.

    Before grouping its free names are columns of the stream; after grouping they are `k0, k1, ...` (keys),
    `a0, a1, ...` (aggregate values), `window_start` and `window_end` (naive timestamps).
    """

    sql: str
    type: str
    columns: tuple[str, ...] = ()
    """The names it reads, sorted, unquoted."""
    fails: bool = False
    """Whether some value can make it raise (ANSI overflow, division by zero, a cast)."""

    @property
    def is_column(self) -> bool:
        return len(self.columns) == 1 and self.sql == quote(self.columns[0])


def quote(name: str) -> str:
    """A column name as a DuckDB identifier."""
    return '"' + name.replace('"', '""') + '"'
