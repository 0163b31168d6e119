"""How often each key came in the statistics window: exactly, by count-min sketch, or whichever is cheaper.

Dalton 3.3 and 5.3: a hash map is exact and fast while it fits into the cache; a sketch costs the same for any number
of keys. "auto" counts exactly until there are too many keys, pours the counts into the sketch, and returns to the map
after a window in which the sketch has seen few.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.partition.joint_kernel import joint_kernel, part

MAP, SKETCH = 0, 1
DEPTH = 4
WIDTH = 4096
"""Counters in each row of the sketch, or 64 for each worker: an estimate is then too high by 4 % of the threshold of
a heavy hitter at most, with a probability of 98 % (e / WIDTH of all rows, e^-DEPTH)."""
MOST_EXACT = 1 << 13
"""Keys above which "auto" takes the sketch."""
SMALLEST = 1 << 10

MODE, SIZE, USED, LIMIT, NOTED = 0, 1, 2, 3, 4
"""Places in `Frequencies.counters`: map or sketch; slots of the map in use as a table, and filled; keys at which to
leave the map (0: never; negative: always the sketch); how many keys are noted."""


class Frequencies(NamedTuple):
    table: npt.NDArray[np.int64]
    """The map: slot -> key, count. A count of 0 is a free slot."""
    sketch: npt.NDArray[np.int32]
    """Count-min: row x counter."""
    noted: npt.NDArray[np.int64]
    """Frequent keys that the sketch alone could not name: slot -> key, 1. A cooperative partitioner reports them."""
    counters: npt.NDArray[np.int64]


def new_frequencies(workers: int, structure: str) -> Frequencies:
    """`structure` is "map", "sketch" or "auto"."""
    width = max(WIDTH, 1 << (64 * workers - 1).bit_length()) if structure != "map" else 1
    limit = {"map": 0, "sketch": -1, "auto": MOST_EXACT}[structure]
    slots = 1 if structure == "sketch" else SMALLEST
    mode = SKETCH if structure == "sketch" else MAP
    return Frequencies(
        np.zeros((slots, 2), np.int64),
        np.zeros((DEPTH, width), np.int32),
        np.zeros((1 << (64 * workers - 1).bit_length(), 2), np.int64),
        np.array([mode, slots, 0, limit, 0], np.int64),
    )


def grown(frequencies: Frequencies) -> Frequencies:
    """With room for twice as many keys."""
    size = 2 * int(frequencies.counters[SIZE])
    table = np.zeros((max(size, len(frequencies.table)), 2), np.int64)
    rehash(frequencies.table[: frequencies.counters[SIZE]], table, size)
    frequencies.counters[SIZE] = size
    return frequencies._replace(table=table)


@part
def mix(key: int) -> int:
    """The bits by which a key is found again in the map and the sketch: SplitMix64's finalizer."""
    z = np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))  # type: ignore[return-value]


@joint_kernel()
def rehash(old: npt.NDArray[np.int64], new: npt.NDArray[np.int64], size: int) -> None:
    mask = size - 1
    for slot in range(len(old)):
        if old[slot, 1] > 0:
            place = np.int64(mix(old[slot, 0])) & mask
            while new[place, 1] > 0:
                place = (place + 1) & mask
            new[place, 0] = old[slot, 0]
            new[place, 1] = old[slot, 1]


@part
def count(frequencies: Frequencies, key: int, mixed: int, noteworthy: float) -> int:
    """Counts a row of the key; returns its frequency with that row. A sketch notes keys that are `noteworthy`."""
    if frequencies.counters[MODE] == MAP:
        rows = add_to_map(frequencies, key, mixed)
        limit = frequencies.counters[LIMIT]
        if limit > 0 and frequencies.counters[USED] > limit:
            pour(frequencies, noteworthy)
        return rows
    rows = add_to_sketch(frequencies.sketch, mixed, 1)
    if rows >= noteworthy:
        note(frequencies, key, mixed)
    return rows


@part
def add_to_map(frequencies: Frequencies, key: int, mixed: int) -> int:
    """There is a free slot: a kernel that has filled half of them returns to have more made."""
    table = frequencies.table
    mask = frequencies.counters[SIZE] - 1
    slot = np.int64(mixed) & mask
    while True:
        rows = table[slot, 1]
        if rows == 0:
            table[slot, 0] = key
            frequencies.counters[USED] += 1
            break
        if table[slot, 0] == key:
            break
        slot = (slot + 1) & mask
    table[slot, 1] = rows + 1
    return int(rows + 1)


@part
def is_crowded(frequencies: Frequencies) -> bool:
    return bool(2 * frequencies.counters[USED] >= frequencies.counters[SIZE])


@part
def add_to_sketch(sketch: npt.NDArray[np.int32], mixed: int, rows: int) -> int:
    """Two halves of one hash make the places in all rows (Kirsch and Mitzenmacher)."""
    mask = sketch.shape[1] - 1
    place = np.int64(mixed)
    stride = (place >> 32) | 1
    least = 2**31 - 1
    for row in range(DEPTH):
        slot = place & mask
        found = sketch[row, slot] + rows
        sketch[row, slot] = found
        least = min(least, found)
        place += stride
    return int(least)


@part
def note(frequencies: Frequencies, key: int, mixed: int) -> None:
    noted = frequencies.noted
    mask = len(noted) - 1
    slot = np.int64(mixed) & mask
    while noted[slot, 1] > 0:
        if noted[slot, 0] == key:
            return
        slot = (slot + 1) & mask
    if 2 * frequencies.counters[NOTED] < len(noted):
        noted[slot, 0] = key
        noted[slot, 1] = 1
        frequencies.counters[NOTED] += 1


@part
def pour(frequencies: Frequencies, noteworthy: float) -> None:
    """From the map into the sketch, in the middle of a window."""
    for slot in range(frequencies.counters[SIZE]):
        rows = frequencies.table[slot, 1]
        if rows > 0:
            key = frequencies.table[slot, 0]
            mixed = mix(key)
            if add_to_sketch(frequencies.sketch, mixed, rows) >= noteworthy:
                note(frequencies, key, mixed)
            frequencies.table[slot, 1] = 0
    frequencies.counters[USED] = 0
    frequencies.counters[MODE] = SKETCH


@part
def forget(frequencies: Frequencies) -> None:
    """A new statistics window begins, with the structure that suits the number of keys in the last one."""
    counters = frequencies.counters
    if counters[MODE] == SKETCH:
        # Linear counting (Whang): the share of counters that stayed 0 tells how many keys there were.
        untouched = 0
        for slot in range(frequencies.sketch.shape[1]):
            untouched += frequencies.sketch[0, slot] == 0
        keys = -frequencies.sketch.shape[1] * np.log(max(untouched, 1) / frequencies.sketch.shape[1])
        if keys < counters[LIMIT] // 2:
            counters[MODE] = MAP
        frequencies.sketch[:, :] = 0
        frequencies.noted[:, 1] = 0
        counters[NOTED] = 0
    else:
        frequencies.table[: counters[SIZE]] = 0
        while counters[SIZE] > SMALLEST and counters[SIZE] > 4 * counters[USED]:
            counters[SIZE] //= 2
    counters[USED] = 0


@part
def estimate(frequencies: Frequencies, key: int, mixed: int) -> int:
    """How often the key came so far in the window."""
    if frequencies.counters[MODE] == SKETCH:
        return add_to_sketch(frequencies.sketch, mixed, 0)
    mask = frequencies.counters[SIZE] - 1
    slot = np.int64(mixed) & mask
    while frequencies.table[slot, 1] > 0 and frequencies.table[slot, 0] != key:
        slot = (slot + 1) & mask
    return int(frequencies.table[slot, 1])


@joint_kernel()
def estimate_all(frequencies: Frequencies, keys: npt.NDArray[np.int64], out: npt.NDArray[np.int64]) -> None:
    for i in range(len(keys)):
        out[i] = estimate(frequencies, keys[i], mix(keys[i]))


def frequent(frequencies: Frequencies, most: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The `most` most frequent keys and how often they came. A sketch names only those that were noted."""
    if frequencies.counters[MODE] == SKETCH:
        keys = frequencies.noted[frequencies.noted[:, 1] > 0, 0]
        rows = np.zeros(len(keys), np.int64)
        estimate_all(frequencies, keys, rows)
    else:
        used = frequencies.table[: frequencies.counters[SIZE]]
        keys, rows = used[used[:, 1] > 0].T
    # By frequency, then by key: what is reported does not depend on where a key lies in a table.
    order = np.lexsort((keys, -rows))[:most]
    return keys[order], rows[order]
