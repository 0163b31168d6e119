"""Names of Thalweg's own columns in buckets. They start with a dot; a stream's columns may not."""

from __future__ import annotations

START = ".start"
"""The first microsecond of the slice."""
GROUP = ".kg"
"""The key group."""
WINDOW = ".w"
"""The first microsecond of the window."""
NEW = ".new"
"""Whether the row came with this batch."""
SPAN = ".span"
"""The width of the stretch of slices that the row stands for."""
ROW = ".row"
"""The number of the row, where its place has to be found again."""

SERVES = ".serves"
"""Which route keys a shipped row serves in its slot: one bit each."""


def key(i: int) -> str:
    return f".k{i}"


def value(i: int) -> str:
    return f".v{i}"


LANES = ".l "
"""How a column of many partials side by side is called (`operate/lanes`): this, and what they have in common."""
EXTRA_LANES = ".x "
"""The same of partials that only go into a coarser grouping."""
