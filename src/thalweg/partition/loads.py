"""How many rows each worker holds in the application's window, and in how many workers a hot key lies.

Dalton 3.3: a window of W slides on by s; every row costs O(1), and so does forgetting a slide. The load is kept per
slide with a running sum (subtract on evict). Of a key's fragments only the latest slide of each worker matters: a
worker holds the key while that slide is in the window. So one store per row replaces the paper's ring of bit maps
and its reference counters; the number of workers is counted again for the few hot keys when the window slides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.partition.joint_kernel import part

NEVER = -(2**62)
"""A slide before all others."""

SLIDE, HEAD, TOTAL = 0, 1, 2
"""Places in `Loads.counters`: the current slide, its row in `slides`, the rows in the window."""
NEWEST, OLDEST = 0, 1
"""Places in `Fragments.counters`: the first and the last slide of the window."""


class Loads(NamedTuple):
    slides: npt.NDArray[np.int64]
    """Slide of the window x worker: rows."""
    window: npt.NDArray[np.int64]
    """Worker: rows in the window."""
    counters: npt.NDArray[np.int64]


class Fragments(NamedTuple):
    latest: npt.NDArray[np.int64]
    """Entry of a hot key x worker: the latest slide in which it got a row."""
    spread: npt.NDArray[np.int32]
    """Entry: in how many workers the key lies in the window."""
    counters: npt.NDArray[np.int64]


def new_loads(workers: int, slides: int) -> Loads:
    counters = np.array([NEVER, 0, 0], np.int64)
    return Loads(np.zeros((slides, workers), np.int64), np.zeros(workers, np.int64), counters)


def new_fragments(workers: int, entries: int) -> Fragments:
    latest = np.full((entries, workers), NEVER, np.int64)
    return Fragments(latest, np.zeros(entries, np.int32), np.array([0, 0], np.int64))


@part
def add_row(loads: Loads, worker: int) -> None:
    loads.slides[loads.counters[HEAD], worker] += 1
    loads.window[worker] += 1
    loads.counters[TOTAL] += 1


@part
def slide_loads(loads: Loads, slide: int) -> None:
    """Moves the window on so that `slide` is its newest."""
    slides = len(loads.slides)
    steps = 0 if loads.counters[SLIDE] == NEVER else min(slide - loads.counters[SLIDE], slides)
    for _ in range(steps):
        head = (loads.counters[HEAD] + 1) % slides
        for worker in range(len(loads.window)):
            rows = loads.slides[head, worker]
            loads.window[worker] -= rows
            loads.counters[TOTAL] -= rows
            loads.slides[head, worker] = 0
        loads.counters[HEAD] = head
    loads.counters[SLIDE] = slide


@part
def mark(fragments: Fragments, entry: int, worker: int) -> None:
    """A row of the key went to the worker."""
    if fragments.latest[entry, worker] < fragments.counters[OLDEST]:
        fragments.spread[entry] += 1
    fragments.latest[entry, worker] = fragments.counters[NEWEST]


@part
def slide_fragments(fragments: Fragments, entries: int, slide: int, slides: int) -> None:
    oldest = slide - slides + 1
    fragments.counters[NEWEST] = slide
    fragments.counters[OLDEST] = oldest
    for entry in range(entries):
        spread = 0
        for worker in range(fragments.latest.shape[1]):
            spread += fragments.latest[entry, worker] >= oldest
        fragments.spread[entry] = spread


@part
def start_fragments(fragments: Fragments, entry: int, home: int) -> None:
    """Of a key that was not hot before: what there is of it lies in its home worker."""
    fragments.latest[entry, :] = NEVER
    fragments.latest[entry, home] = fragments.counters[NEWEST]
    fragments.spread[entry] = 1


@part
def move_fragments(fragments: Fragments, source: int, target: int) -> None:
    for worker in range(fragments.latest.shape[1]):
        fragments.latest[target, worker] = fragments.latest[source, worker]
    fragments.spread[target] = fragments.spread[source]


@part
def is_whole_at(fragments: Fragments, entry: int, home: int) -> bool:
    """Whether no other worker than `home` holds the key."""
    held = fragments.latest[entry, home] >= fragments.counters[OLDEST]
    return bool(fragments.spread[entry] == (1 if held else 0))
