"""Key forwarding (Dalton 4.2): which keys lie whole in one worker, so that no second step need merge them.

A key that is not hot goes to its home worker, everywhere. So only keys that have been hot can lie in several workers,
and what each partitioner knows of those is enough to tell, also when there are several partitioners: one that does
not know a key as hot may have sent rows of it home. Where in doubt a key counts as split: merging it costs little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from thalweg.partition.heavy_hitters import ENTRIES, HotKeys
from thalweg.partition.loads import NEVER, NEWEST, OLDEST, Fragments


@dataclass(frozen=True)
class Fragmentation:
    """Where the keys lie that have been hot. All others lie in their home worker."""

    keys: npt.NDArray[np.int64]
    homes: npt.NDArray[np.int32]
    latest: npt.NDArray[np.int64]
    """Key x worker: the latest slide in which the worker got a row of it; NEVER where it got none."""
    newest: int
    """The slide that was current."""


def fragmentation_of(hot: HotKeys, fragments: Fragments) -> Fragmentation:
    """Of one partitioner, in the application's window or in the micro-batch."""
    used = slice(0, hot.counters[ENTRIES])
    latest = np.where(fragments.latest[used] >= fragments.counters[OLDEST], fragments.latest[used], NEVER)
    return Fragmentation(hot.key[used].copy(), hot.home[used].copy(), latest, int(fragments.counters[NEWEST]))


def join_fragmentations(parts: Sequence[Fragmentation]) -> Fragmentation:
    """What several partitioners did together, or one in several batches."""
    keys, first = np.unique(np.concatenate([part.keys for part in parts]), return_index=True)
    homes = np.concatenate([part.homes for part in parts])[first]
    newest = max(part.newest for part in parts)
    latest = np.full((len(keys), parts[0].latest.shape[1]), NEVER, np.int64)
    for part in parts:
        places = np.searchsorted(keys, part.keys)
        latest[places] = np.maximum(latest[places], part.latest)
        unknown = np.setdiff1d(np.arange(len(keys)), places)
        latest[unknown, homes[unknown]] = newest
    return Fragmentation(keys, homes, latest, newest)


def split_keys(fragmentation: Fragmentation, since: int) -> npt.NDArray[np.int64]:
    """The keys that lie in several workers in the slides from `since` on. Every other key lies whole in one."""
    held = (fragmentation.latest >= since).sum(axis=1)
    return np.asarray(fragmentation.keys[held > 1])


def may_forward(interval: int, slide: int, heard: bool) -> bool:
    """Whether partitioners that do not wait for each other may forward keys when a slide ends.

    They must synchronise at least once per slide (every `interval`, in the unit of `slide`), and the merged policy
    must have been `heard` since the slide began: only then do they know what others split.
    """
    return interval <= slide and heard
