"""The partitioners: which of several workers takes the next row of a key. One file each, one contract.

A partitioner decides row by row, in order, and remembers how loaded the workers are and where keys have been. Loops
over rows are Numba kernels. `create` makes one by name; adding one means adding a file and a line in `_REGISTRY`.
"""

from __future__ import annotations

import importlib
from typing import Any

from thalweg.errors import partitioner_unknown
from thalweg.partition.contract import Partitioner, keys_of

__all__ = ["Partitioner", "create", "keys_of", "names"]

_REGISTRY = {
    "shuffle": "thalweg.partition.shuffle",
    "hash": "thalweg.partition.hash",
    "partial_key": "thalweg.partition.partial_key",
    "cardinality": "thalweg.partition.cardinality",
    "affinity": "thalweg.partition.affinity",
    "affinity_count": "thalweg.partition.affinity_count",
    "hybrid": "thalweg.partition.hybrid",
    "da_greedy": "thalweg.partition.da_greedy",
    "prompt": "thalweg.partition.prompt",
    "dalton": "thalweg.partition.dalton",
}
"""name -> the module whose `make` builds it."""


def names() -> tuple[str, ...]:
    return tuple(_REGISTRY)


def create(
    name: str, workers: int, *, choices: int = 2, estimator: str = "exact", seed: int = 0, **options: Any
) -> Partitioner:
    """A partitioner over `workers` workers. `choices`: how many of them a key may go to, where that is limited."""
    if name not in _REGISTRY:
        raise partitioner_unknown(name, names())
    module = importlib.import_module(_REGISTRY[name])
    made: Partitioner = module.make(workers, choices=choices, estimator=estimator, seed=seed, **options)
    return made
