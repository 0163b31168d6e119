"""Spans of time in words."""

from __future__ import annotations


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
