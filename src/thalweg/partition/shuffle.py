"""Shuffle (SH): rows to the workers in turn, whatever their keys. The best balance, the most merging."""

from __future__ import annotations

from typing import Any

from thalweg.kernel import kernel
from thalweg.partition.contract import Keys, Workers
from thalweg.partition.options import estimator_name, reject_unknown, seed_word, whole_number, worker_count
from thalweg.partition.windowed import Windowed


@kernel
def _in_turn(out: Any, first: Any, workers: Any) -> None:
    worker = first
    for row in range(out.size):
        out[row] = worker
        worker += 1
        if worker == workers:
            worker = 0


class Shuffle(Windowed):
    """Whose turn it is does not depend on the window: short windows would all begin with the same worker."""

    name = "shuffle"

    def __init__(self, workers: int, seed: int, window_us: Any) -> None:
        super().__init__(workers, window_us)
        self._first = seed % workers  # partitioners side by side begin with different workers
        self._next = self._first

    @property
    def state_bytes(self) -> int:
        return 8

    def _decide(self, keys: Keys, out: Workers) -> None:
        _in_turn(out, self._next, self.workers)
        self._next = (self._next + out.size) % self.workers

    def _forget(self) -> None:
        self._next = self._first

    def _forget_window(self) -> None:
        pass


def make(workers: int, *, choices: int, estimator: str, seed: int, **options: Any) -> Shuffle:
    """`choices` limits nothing here."""
    workers = worker_count(Shuffle.name, workers)
    whole_number(Shuffle.name, "choices", choices, 1, 2**31, "a whole number above 0")
    estimator_name(Shuffle.name, estimator)
    reject_unknown(Shuffle.name, options)
    return Shuffle(workers, seed_word(Shuffle.name, seed), options.get("window_us"))
