"""What every partitioner promises, and how rows become the keys it sees."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from thalweg.partition.keys import keys_of

__all__ = ["Keys", "Partitioner", "Times", "Workers", "keys_of"]

Keys = npt.NDArray[np.int64]
Times = npt.NDArray[np.int64]
Workers = npt.NDArray[np.int32]


class Partitioner(Protocol):
    """Decides for every row, in order, which worker takes it. State is kept between calls."""

    workers: int

    def assign(self, keys: Keys, times: Times | None = None) -> Workers:
        """The worker of each row. `times`: event times in microseconds, for those that reset by window."""
        ...

    def reset(self) -> None:
        """Forgets everything, as at the start."""
        ...

    @property
    def state_bytes(self) -> int:
        """What it remembers, in bytes."""
        ...
