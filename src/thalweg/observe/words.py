"""How EXPLAIN says things: counts, lists, columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thalweg.model.plan import StreamPlan


def name_of(column: str, stream: StreamPlan) -> str:
    """A computed column by what it computes."""
    for c in stream.computed:
        if c.name == column:
            return c.expr.sql if c.kind == "sql" else f"{c.kind} of {c.expr.sql}"
    return column


def listed(names: Sequence[str]) -> str:
    if len(names) <= 8:
        return ", ".join(names)
    return f"{', '.join(names[:8])} and {len(names) - 8} more"


def count(things: Iterable[object], one: str, many: str | None = None) -> str:
    n = len(list(things))
    return f"{n} {one if n == 1 else many or one + 's'}"
