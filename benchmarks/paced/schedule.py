"""When files are released, and at which moment of the clock an event happens.

Event time runs at the pace of rows: a file is released at the moment when its last event happens. Moments are counted
in seconds from the beginning of the pace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Numbers = np.ndarray


@dataclass(frozen=True, eq=False)
class Schedule:
    first_us: int
    """The event time at the beginning; what is older was there before."""
    lasts_us: Numbers
    """The newest event time of every file, rising."""
    releases: Numbers
    """The moment of every file."""

    def happened(self, events_us: Numbers) -> Numbers:
        """The moments of events; evenly spread between the last event of a file and that of the next."""
        times = np.concatenate(([self.first_us], self.lasts_us)).astype(np.float64)
        moments: Numbers = np.interp(events_us, times, np.concatenate(([0.0], self.releases)))
        return moments

    def released(self, events_us: Numbers) -> Numbers:
        """The moments at which the first event at or after each of these was there to be read; nan: never."""
        places = np.searchsorted(self.lasts_us, events_us, side="left")
        found: Numbers = np.append(self.releases, np.nan)[places]
        return found

    @property
    def seconds(self) -> float:
        return float(self.releases[-1])


def at_pace(first_us: int, lasts_us: Sequence[int], rows: Sequence[int], rows_per_second: float) -> Schedule:
    """`rows` and the pace count the rows of all streams."""
    return Schedule(first_us, np.asarray(lasts_us, np.int64), np.cumsum(rows) / rows_per_second)


@dataclass(frozen=True)
class Size:
    """How a pace is cut into files."""

    rows_per_file: int
    """Of each stream."""
    files: int

    @property
    def rows(self) -> int:
        """Of each stream."""
        return self.rows_per_file * self.files


def size_for(rows_per_second: float, seconds: float, most_rows: int, every: float = 0.1) -> Size:
    """Of each stream: a file every tenth of a second for so many seconds, or until so many rows are used up."""
    rows_per_file = max(100, round(rows_per_second * every))
    return Size(rows_per_file, max(2, min(round(seconds / every), most_rows // rows_per_file)))
