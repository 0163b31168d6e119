"""How much of a backlog a batch takes: enough that what every batch costs is a small share of it, and so little that
results do not wait long and tasks do not hold much.

A batch costs some seconds however few rows it has, above all Spark's, and some for each row. Both are measured. Rows
are counted as splits weigh them (`model/split`): of text nobody knows how many there are. What a batch takes changes
what it costs; how far batches go is in their manifests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

FIXED_SHARE = 0.05
"""Of a batch that may be spent on what every batch costs."""
SHORTEST, LONGEST = 2.0, 10.0
"""Seconds of a batch that leaves something for the next one."""
FIRST_ROWS = 1_000_000
"""Of the first batch, of which nothing is known: its results come soon."""
GROWTH = 4
"""Times the rows of the largest batch that was seen: more would be a guess."""
TASK_BYTES = 512 << 20
"""What a task may make of its rows before it is done: it holds most of that in memory."""
REMEMBERED = 8
"""Batches with rows that are predicted from."""


@dataclass(frozen=True)
class Took:
    """What a batch with rows took."""

    rows: int
    seconds: float
    fixed: float
    """Seconds of these that have little to do with rows."""
    made: int
    """Bytes that its tasks sent and wrote."""


def rows_wanted(seen: Sequence[Took], tasks: int) -> int:
    """The most that the next batch takes, if more waits."""
    if not seen:
        return FIRST_ROWS
    rows = sum(took.rows for took in seen)
    fixed = min(took.fixed for took in seen)
    row_seconds = sum(max(0.0, took.seconds - took.fixed) for took in seen) / rows
    wanted = max(FIRST_ROWS, GROWTH * max(took.rows for took in seen))
    if row_seconds:
        seconds = min(max(fixed / FIXED_SHARE, SHORTEST), LONGEST)
        wanted = min(wanted, int(max(seconds - fixed, 0.0) / row_seconds))
    row_bytes = max(took.made / took.rows for took in seen)
    if row_bytes:
        wanted = min(wanted, int(tasks * TASK_BYTES / row_bytes))
    return max(1, wanted)


class BatchSize:
    """Remembers what batches took, as long as the same queries run."""

    def __init__(self, tasks: int) -> None:
        self._tasks = tasks
        self._seen: list[Took] = []

    def rows(self) -> int:
        return rows_wanted(self._seen, self._tasks)

    def take_in(self, took: Took) -> None:
        if took.rows:
            self._seen = [*self._seen[1 - REMEMBERED :], took]

    def forget(self) -> None:
        """Other queries run from now on."""
        self._seen = []
