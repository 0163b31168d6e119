"""The keys that are worth splitting: Def. 3.3 of Dalton.

A key is a heavy hitter when it alone fills a worker: its rows in the statistics window are at least L / n. The load L
of a window that has not ended is taken to be that of the one before; it is at least what has come already, and never
so small that chance makes a heavy hitter. A heavy hitter stays hot for the rest of its window and the next one.

A key that was hot keeps its entry for as long as the application's window may hold it in several workers: then every
row of it is known, and the key is not taken for whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.partition.joint_kernel import part

FEWEST = 32
"""Rows that a heavy hitter has at least."""

ENTRIES, HEAVY, WINDOW, SO_FAR, LOAD = 0, 1, 2, 3, 4
"""Places in `HotKeys.counters`: entries in use, heavy hitters of this statistics window, its number, its rows so
far, the rows of the window before."""
LONG_AGO = -(2**62)


class HotKeys(NamedTuple):
    """Entries 0, 1, ... in use; `places` finds the entry of a key by open addressing, -1 where there is none."""

    places: npt.NDArray[np.int32]
    key: npt.NDArray[np.int64]
    hash: npt.NDArray[np.uint64]
    home: npt.NDArray[np.int32]
    """The worker that takes the key while it is not hot."""
    rows: npt.NDArray[np.int64]
    """In the statistics window."""
    heavy: npt.NDArray[np.int64]
    """The statistics window in which it was last a heavy hitter."""
    learned: npt.NDArray[np.bool_]
    """Whether it is hot. The others have only been."""
    counters: npt.NDArray[np.int64]


def new_hot_keys(entries: int) -> HotKeys:
    """`entries` is a power of two."""
    return HotKeys(
        np.full(4 * entries, -1, np.int32),
        np.zeros(entries, np.int64),
        np.zeros(entries, np.uint64),
        np.zeros(entries, np.int32),
        np.zeros(entries, np.int64),
        np.full(entries, LONG_AGO, np.int64),
        np.zeros(entries, np.bool_),
        np.zeros(5, np.int64),
    )


@part
def find(hot: HotKeys, key: int, mixed: int) -> int:
    """The entry of a key, or -1. `mixed` is the key's 64-bit hash."""
    mask = len(hot.places) - 1
    place = np.int64(mixed >> np.uint64(20)) & mask
    entry = hot.places[place]
    while entry >= 0 and hot.key[entry] != key:
        place = (place + 1) & mask
        entry = hot.places[place]
    return int(entry)


@part
def put(hot: HotKeys, entry: int) -> None:
    mask = len(hot.places) - 1
    place = np.int64(hot.hash[entry] >> np.uint64(20)) & mask
    while hot.places[place] >= 0:
        place = (place + 1) & mask
    hot.places[place] = entry


@part
def enter(hot: HotKeys, key: int, mixed: int, home: int, rows: int) -> int:
    """A new entry. There is room: a kernel that has filled the last one returns to have more made."""
    entry = hot.counters[ENTRIES]
    hot.key[entry] = key
    hot.hash[entry] = mixed
    hot.home[entry] = home
    hot.rows[entry] = rows
    hot.heavy[entry] = LONG_AGO
    hot.learned[entry] = False
    hot.counters[ENTRIES] += 1
    put(hot, entry)
    return int(entry)


@part
def hot_load(hot: HotKeys, workers: int, share: float) -> float:
    """L of Def. 3.3, or `share` of it: a heavy hitter has at least its n-th part."""
    return float(max(max(hot.counters[LOAD], hot.counters[SO_FAR]) * share, FEWEST * workers))


@part
def is_heavy(hot: HotKeys, rows: int, workers: int, share: float) -> bool:
    """At most n keys of a window are (Theorem 3.4)."""
    return bool(rows * workers >= hot_load(hot, workers, share) and hot.counters[HEAVY] < workers)


@part
def set_heavy(hot: HotKeys, entry: int) -> None:
    hot.heavy[entry] = hot.counters[WINDOW]
    hot.counters[HEAVY] += 1


@part
def end_window(hot: HotKeys) -> None:
    """The next statistics window begins; who has not been heavy in the one that ends is hot no longer."""
    ended = hot.counters[WINDOW]
    for entry in range(hot.counters[ENTRIES]):
        hot.rows[entry] = 0
        if hot.heavy[entry] < ended:
            hot.learned[entry] = False
    if hot.counters[SO_FAR] > 0:
        hot.counters[LOAD] = hot.counters[SO_FAR]
    hot.counters[SO_FAR] = 0
    hot.counters[HEAVY] = 0
    hot.counters[WINDOW] = ended + 1


@part
def move_entry(hot: HotKeys, source: int, target: int) -> None:
    hot.key[target] = hot.key[source]
    hot.hash[target] = hot.hash[source]
    hot.home[target] = hot.home[source]
    hot.rows[target] = hot.rows[source]
    hot.heavy[target] = hot.heavy[source]
    hot.learned[target] = hot.learned[source]


@part
def index(hot: HotKeys) -> None:
    """Finds the entries again after some have moved."""
    hot.places[:] = -1
    for entry in range(hot.counters[ENTRIES]):
        put(hot, entry)
