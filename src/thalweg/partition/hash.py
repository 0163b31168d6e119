"""Hash (FLD): a key to one worker, always the same. No merging, and no defence against skew."""

from __future__ import annotations

from typing import Any

from thalweg.partition.candidates import CandidateWorkers
from thalweg.partition.contract import Keys, Workers
from thalweg.partition.options import estimator_name, reject_unknown, seed_word, whole_number, worker_count
from thalweg.partition.windowed import Windowed


class Hash(Windowed):
    """It remembers nothing. With the same seed, its worker is the first candidate of those with choices."""

    name = "hash"

    def __init__(self, workers: int, seed: int, window_us: Any) -> None:
        super().__init__(workers, window_us)
        self._candidates = CandidateWorkers(workers, 1, seed)

    @property
    def state_bytes(self) -> int:
        return 0

    def _decide(self, keys: Keys, out: Workers) -> None:
        self._candidates.first(keys, out)

    def _forget(self) -> None:
        pass


def make(workers: int, *, choices: int, estimator: str, seed: int, **options: Any) -> Hash:
    """`choices` limits nothing here: a key has one worker."""
    workers = worker_count(Hash.name, workers)
    whole_number(Hash.name, "choices", choices, 1, 2**31, "a whole number above 0")
    estimator_name(Hash.name, estimator)
    reject_unknown(Hash.name, options)
    return Hash(workers, seed_word(Hash.name, seed), options.get("window_us"))
