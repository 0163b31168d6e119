"""What Spark leaves open, decided by a seed: how input is cut and dealt out, the order of tasks and cells, and tasks
that fail, are repeated, or run beside the attempt that counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from thalweg.batch.local_runner import Attempt, Cells
from thalweg.source.split import Split, dump_splits, parse_splits

MOST_TASKS = 4
_IN_PIECES = ("parquet", "arrow")
"""Formats whose splits are ranges of pieces (row groups, record batches), which can be cut anywhere."""


class Seeded:
    """A `Chance` of the local runner. `trouble`: how often a task is tried more than once."""

    def __init__(self, rng: Random, trouble: float = 0.2) -> None:
        self._rng = rng
        self._trouble = trouble

    def deal(self, splits: Sequence[str]) -> Sequence[str]:
        pieces = [piece for text in splits for split in parse_splits(text) for piece in self._cut(split)]
        tasks: list[list[Split]] = [[] for _ in range(self._rng.randint(1, MOST_TASKS))]
        for piece in pieces:
            self._rng.choice(tasks).append(piece)
        return [dump_splits(task) for task in tasks]

    def tasks(self, tasks: int) -> Sequence[int]:
        return self._rng.sample(range(tasks), tasks)

    def attempt(self, begin: Attempt) -> Cells:
        if self._rng.random() < self._trouble:
            self._abandon(begin)
        made = list(begin())
        if self._rng.random() < self._trouble:
            other = list(begin())
            made = self._rng.choice((made, other))
        return made

    def order(self, cells: Cells) -> Cells:
        return self._rng.sample(cells, len(cells))

    def _abandon(self, begin: Attempt) -> None:
        """An attempt that ends before it is done."""
        attempt = begin()
        for _ in range(self._rng.randint(0, 3)):
            if next(attempt, None) is None:
                break
        close = getattr(attempt, "close", None)
        if close is not None:
            close()

    def _cut(self, split: Split) -> list[Split]:
        if split.kind not in _IN_PIECES or split.end - split.start < 2 or self._rng.random() < 0.5:
            return [split]
        at = self._rng.randint(split.start + 1, split.end - 1)
        return [replace(split, end=at), replace(split, start=at)]
