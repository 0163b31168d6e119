"""How EXPLAIN says things: counts, lists, spans of time, windows, columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thalweg.model.plan import StreamPlan
from thalweg.model.query import Window


def describe_window(window: Window) -> str:
    if window.range_us == window.slide_us:
        text = f"windows of {describe_span(window.range_us)}"
    else:
        text = f"windows of {describe_span(window.range_us)} sliding by {describe_span(window.slide_us)}"
    return text if window.start_us == 0 else f"{text}, shifted by {describe_span(window.start_us)}"


def describe_span(us: int) -> str:
    """A span of time in the largest unit that divides it."""
    if us == 0:
        return "0 seconds"
    for name, size in (
        ("day", 86_400_000_000),
        ("hour", 3_600_000_000),
        ("minute", 60_000_000),
        ("second", 10**6),
    ):
        if us >= size and us % size == 0:
            n = us // size
            return f"{n} {name}" if n == 1 else f"{n} {name}s"
    if (us + 1) % 10**6 == 0:  # `<` of whole microseconds, or one window
        return f"just under {describe_span(us + 1)}"
    return f"{us // 1000} ms" if us % 1000 == 0 else f"{us} µs"


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
