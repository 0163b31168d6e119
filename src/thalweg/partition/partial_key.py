"""Partial key (PK-M): a row to the one of its key's M candidates that has had the fewest rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from thalweg.kernel import kernel
from thalweg.partition.candidates import CandidateWorkers
from thalweg.partition.contract import Keys, Workers
from thalweg.partition.options import choice_count, estimator_name, reject_unknown, seed_word, worker_count
from thalweg.partition.windowed import Windowed


@kernel
def _least_loaded(candidates: Any, loads: Any, out: Any) -> None:
    for row in range(out.size):
        best = candidates[0, row]
        least = loads[best]
        for i in range(1, candidates.shape[0]):
            worker = candidates[i, row]
            less = loads[worker] < least
            least = loads[worker] if less else least
            best = worker if less else best
        loads[best] = least + 1
        out[row] = best


class PartialKey(Windowed):
    name = "partial_key"

    def __init__(self, workers: int, choices: int, seed: int, window_us: Any) -> None:
        super().__init__(workers, window_us)
        self._candidates = CandidateWorkers(workers, choices, seed)
        self._loads = np.zeros(workers, np.int64)

    @property
    def state_bytes(self) -> int:
        return self._loads.nbytes

    def _decide(self, keys: Keys, out: Workers) -> None:
        _least_loaded(self._candidates.all(keys), self._loads, out)

    def _forget(self) -> None:
        self._loads.fill(0)


def make(workers: int, *, choices: int, estimator: str, seed: int, **options: Any) -> PartialKey:
    name = PartialKey.name
    workers = worker_count(name, workers)
    estimator_name(name, estimator)
    reject_unknown(name, options)
    return PartialKey(workers, choice_count(name, choices, workers), seed_word(name, seed), options.get("window_us"))
