"""How far an experiment is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.tables import out


class Remaining:
    """Says before every run which it is, and of how many."""

    def __init__(self, title: str, runs: Sequence[str]) -> None:
        self._title, self._count, self._done = title, len(runs), 0

    def begins(self, run: str) -> None:
        self._done += 1
        out.print(f"{self._title} {self._done} of {self._count}: {run}", soft_wrap=True, highlight=False, style="dim")

    @contextmanager
    def during(self, run: str) -> Iterator[None]:
        self.begins(run)
        yield
