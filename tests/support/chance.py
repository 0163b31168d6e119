"""What Spark leaves open, decided by a seed: how input is cut and dealt out, the order of tasks and cells, and tasks
that fail, are repeated, or run beside the attempt that counts and even after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random

from msgspec.structs import replace

from thalweg.batch.local_runner import Attempt, Cells
from thalweg.model.split import Split, dump_splits, parse_splits

MOST_TASKS = 4
MOST_PIECES = 4
_IN_PIECES = ("parquet", "unit")
"""Formats whose splits are ranges of pieces (row groups, rows), which can be cut anywhere."""
_IN_BYTES = ("json", "csv")
"""Formats whose splits are ranges of bytes: a line belongs to the one in which it begins, wherever that is cut."""


class Seeded:
    """A `Chance` of the local runner. `trouble`: how often a task is tried more than once."""

    def __init__(self, rng: Random, trouble: float = 0.2, written: Callable[[], int] = lambda: 0) -> None:
        """`written`: how many verbs the disk has seen, to tell what attempts that do not count have written."""
        self._rng = rng
        self._trouble = trouble
        self._written = written
        self._zombies: list[_Running] = []
        self.lost: list[tuple[int, int]] = []
        """Verbs (after, through) of attempts that did not count."""

    def deal(self, splits: Sequence[str]) -> Sequence[str]:
        self._let_zombies_go_on()
        pieces = [piece for text in splits for split in parse_splits(text) for piece in self._cut(split)]
        tasks: list[list[Split]] = [[] for _ in range(self._rng.randint(1, MOST_TASKS))]
        for piece in pieces:
            self._rng.choice(tasks).append(piece)
        return [dump_splits(task) for task in tasks]

    def tasks(self, tasks: int) -> Sequence[int]:
        return self._rng.sample(range(tasks), tasks)

    def attempt(self, begin: Attempt) -> Cells:
        self._let_zombies_go_on()
        if self._rng.random() < self._trouble:
            self._abandon(begin)
        if self._rng.random() < self._trouble:
            return self._race(begin)
        return list(begin())

    def order(self, cells: Cells) -> Cells:
        return self._rng.sample(cells, len(cells))

    def end_zombies(self) -> None:
        """The attempts that still run come to their ends, whatever has been committed since."""
        while self._zombies:
            self._go_on(self._zombies.pop())

    def _abandon(self, begin: Attempt) -> None:
        """An attempt that ends before it is done."""
        attempt = _Running(begin, self)
        for _ in range(self._rng.randint(0, 3)):
            if not attempt.step():
                break
        self._lose(attempt)

    def _race(self, begin: Attempt) -> Cells:
        """Two attempts side by side, cell by cell: the first that is done counts. The other is stopped, or nobody
        tells it: it runs to its end now, or beside later tasks and batches. It may have come no further than to be
        begun."""
        both = [_Running(begin, self), _Running(begin, self)]
        pace = self._rng.choice((0.0, 0.3, 0.5))
        winner = both[0]
        while winner.step():
            winner = both[self._rng.random() < pace]
        loser = both[winner is both[0]]
        fate = self._rng.choice(("stopped", "now", "later", "later"))
        if fate == "now":
            while loser.step():
                pass
        if fate == "later":
            self._zombies.append(loser)
        else:
            self._lose(loser)
        return winner.made

    def _let_zombies_go_on(self) -> None:
        for zombie in list(self._zombies):
            if self._rng.random() < 0.15:
                self._zombies.remove(zombie)
                self._go_on(zombie)

    def _go_on(self, zombie: _Running) -> None:
        """Nobody hears what becomes of it: files that it reads may be gone."""
        try:
            while zombie.step():
                pass
        except Exception:
            zombie.made.clear()
        self._lose(zombie)

    def _lose(self, attempt: _Running) -> None:
        attempt.stop()
        self.lost += attempt.verbs

    def _cut(self, split: Split) -> list[Split]:
        end = split.bytes if split.kind in _IN_BYTES and split.end < 0 else split.end
        if split.kind not in (*_IN_PIECES, *_IN_BYTES) or end - split.start < 2 or self._rng.random() < 0.5:
            return [split]
        cuts = min(end - split.start - 1, self._rng.randint(1, MOST_PIECES - 1) if split.kind in _IN_BYTES else 1)
        bounds = [split.start, *sorted(self._rng.sample(range(split.start + 1, end), cuts)), end]
        return [replace(split, start=low, end=high) for low, high in pairwise(bounds)]


class _Running:
    """An attempt that is under way, the cells that it has made and the verbs in which it wrote."""

    def __init__(self, begin: Attempt, chance: Seeded) -> None:
        self.made: Cells = []
        self.verbs: list[tuple[int, int]] = []
        self._cells = iter(begin())
        self._written = chance._written

    def step(self) -> bool:
        """Goes on to the next cell; False if it was done."""
        before = self._written()
        try:
            cell = next(self._cells, None)
        finally:
            self.verbs.append((before, self._written()))
        if cell is not None:
            self.made.append(cell)
        return cell is not None

    def stop(self) -> None:
        before = self._written()
        close = getattr(self._cells, "close", None)
        if close is not None:
            close()
        self.verbs.append((before, self._written()))
