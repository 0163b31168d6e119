"""How rows reach a decision: in blocks that fit a cache, afresh at every newer window (Holistic Alg. 1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from thalweg.kernel import kernel
from thalweg.partition.contract import Keys, Times, Workers
from thalweg.partition.options import key_array, time_array, window_span

BLOCK = 4096
"""Rows decided together. What is worked out for them beforehand stays in the second-level cache."""
_LATEST = 2**63 - 1


@kernel
def _first_at_least(times: Any, start: Any, bound: Any) -> int:
    for row in range(start, times.size):
        if times[row] >= bound:
            return int(row)
    return int(times.size)


class Windowed(ABC):
    """A partitioner that forgets at the end of a window: subclasses say what they forget and how they decide."""

    name: str

    def __init__(self, workers: int, window_us: Any = None) -> None:
        self.workers = workers
        self._window_us = window_span(self.name, window_us)
        self._window_end: int | None = None

    def assign(self, keys: Keys, times: Times | None = None) -> Workers:
        """The worker of each row, in order. A row of an older window is decided by what the newest one has seen."""
        rows = key_array(self.name, keys)
        out = np.empty(rows.size, np.int32)
        start = 0
        for stop in self._window_starts(rows.size, times):
            self._decide_blocks(rows[start:stop], out[start:stop])
            start = stop
            if stop < rows.size:
                self._forget_window()
        return out

    def reset(self) -> None:
        self._window_end = None
        self._forget()

    @property
    @abstractmethod
    def state_bytes(self) -> int: ...

    @abstractmethod
    def _decide(self, keys: Keys, out: Workers) -> None:
        """Decides a block of one window, at most `BLOCK` rows."""

    @abstractmethod
    def _forget(self) -> None:
        """Forgets everything, as at the start."""

    def _forget_window(self) -> None:
        """Forgets the window that ended. Room for what it held may be kept: the next one is likely as large."""
        self._forget()

    def _decide_blocks(self, keys: Keys, out: Workers) -> None:
        for start in range(0, keys.size, BLOCK):
            self._decide(keys[start : start + BLOCK], out[start : start + BLOCK])

    def _window_starts(self, rows: int, times: Times | None) -> Iterator[int]:
        """The rows that a newer window starts with, then the number of rows."""
        if self._window_us is not None and times is not None and rows:
            instants = time_array(self.name, times, rows)
            if self._window_end is None:
                self._window_end = self._end_of_window(int(instants[0]))
            row = 0
            while self._window_end <= _LATEST and (row := _first_at_least(instants, row, self._window_end)) < rows:
                self._window_end = self._end_of_window(int(instants[row]))
                yield row
        yield rows

    def _end_of_window(self, time: int) -> int:
        assert self._window_us is not None
        return (time // self._window_us + 1) * self._window_us
