"""What a partitioning of a window costs: imbalance of the workers, and merging of what they made of split keys.

Holistic Eq. 1-10 and Dalton Eq. 1-4 as functions of what each worker got. `measure` counts that from the rows of a
window; `choose` is the rule of Holistic Section 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.errors import partitioner_option
from thalweg.kernel import frozen_view, kernel
from thalweg.partition.candidates import CandidateWorkers
from thalweg.partition.cardinalities import Counts, ExactCardinalities
from thalweg.partition.contract import Keys, Workers
from thalweg.partition.options import key_array, probability, whole_number, worker_count
from thalweg.partition.windowed import BLOCK

Loads = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]

FEW = 0.1
"""Groups are few when they are at most this part of a worker's rows ("significantly less", Holistic Section 7)."""
STEADY = 0.1
"""Groups are constant while they vary by at most this part over the windows looked at."""

_MARKS = 7
_ONE = np.uint64(1)


@dataclass(frozen=True)
class WindowLoads:
    """What each worker, and each reducer behind them, got of a window."""

    loads: Loads
    """Rows of each worker (L)."""
    cardinalities: Counts
    """Different keys of each worker (CL, Holistic Eq. 5): its partial results."""
    partials: Counts
    """Partial results of each reducer (A, Dalton Eq. 2), to which keys go by hash."""
    groups: int
    """Different keys of the window."""


@dataclass(frozen=True)
class Cost:
    """The cost of a window in the terms of both papers."""

    rows: int
    groups: int
    tuple_imbalance: float
    cardinality_imbalance: float
    hybrid_imbalance: float
    aggregation: int
    """Partial results to merge (Holistic Eq. 4)."""
    reducer: int
    """Partial results of the busiest reducer (Dalton Eq. 2)."""
    merging_pays: bool
    """Whether there is less to merge than the busiest worker has rows (Holistic Eq. 3)."""


@kernel
def _count(slots: Any, lines: Any, assigned: Any, reducers: Any, loads: Any, keys: Any, partials: Any) -> None:
    for row in range(slots.size):
        worker = assigned[row]
        loads[worker] += 1
        line, word = slots[row] >> 3, _MARKS + (worker >> 3)
        mark = _ONE << np.uint64(8 * (slots[row] & 7) + (worker & 7))
        if not lines[line, word] & mark:
            lines[line, word] |= mark
            keys[worker] += 1
            partials[reducers[row]] += 1


def measure(
    keys: Keys, assigned: Workers, workers: int, *, reducers: int | None = None, seed: int = 0
) -> WindowLoads:
    """Counts what each worker got, from the key and the worker of every row of a window. As many reducers as workers
    unless told."""
    workers = worker_count("cost", workers)
    behind = workers if reducers is None else whole_number("cost", "reducers", reducers, 1, 1 << 16, "at least 1")
    rows = key_array("cost", keys)
    places = frozen_view(np.asarray(assigned).astype(np.int32, copy=False))
    if places.shape != rows.shape or (rows.size and not 0 <= places.min() <= places.max() < workers):
        raise partitioner_option("cost", "assigned", "these", f"a worker from 0 to {workers - 1} for every key")
    by_hash = CandidateWorkers(behind, 1, seed)
    known = ExactCardinalities(workers, workers)
    loads, partials = np.zeros(workers, np.int64), np.zeros(behind, np.int64)
    for start in range(0, rows.size, BLOCK):
        block = rows[start : start + BLOCK]
        reducer = np.empty(block.size, np.int32)
        by_hash.first(block, reducer)
        slots = known.place(block)
        _count(slots, known.lines, places[start : start + BLOCK], reducer, loads, known.counts, partials)
    return WindowLoads(loads, known.counts, partials, known.groups)


def cost_of(window: WindowLoads, p: float = 0.5) -> Cost:
    """`p` weighs rows against different keys in the hybrid imbalance."""
    return Cost(
        rows=int(window.loads.sum()),
        groups=window.groups,
        tuple_imbalance=tuple_imbalance(window.loads),
        cardinality_imbalance=cardinality_imbalance(window.cardinalities),
        hybrid_imbalance=hybrid_imbalance(window.loads, window.cardinalities, p),
        aggregation=aggregation_cost(window.cardinalities),
        reducer=reducer_cost(window.partials),
        merging_pays=merging_pays(window.loads, window.cardinalities),
    )


def tuple_imbalance(loads: npt.ArrayLike) -> float:
    """Holistic Eq. 1, Dalton Eq. 1: the rows of the busiest worker above the mean."""
    return _above_mean(loads)


def cardinality_imbalance(cardinalities: npt.ArrayLike) -> float:
    """Holistic Eq. 6: the different keys of the worker with most of them, above the mean."""
    return _above_mean(cardinalities)


def hybrid_imbalance(loads: npt.ArrayLike, cardinalities: npt.ArrayLike, p: float = 0.5) -> float:
    """Holistic Eq. 10."""
    return _above_mean(hybrid_loads(loads, cardinalities, p))


def scaled(values: npt.ArrayLike) -> Shares:
    """Holistic Eq. 7 and 8: from 0 for the least to 1 for the most; 0 where all are equal."""
    array: Shares = np.asarray(values, np.float64)
    if array.size == 0 or array.max() == array.min():
        return np.zeros_like(array)
    low, high = array.min(), array.max()
    within: Shares = (array - low) / (high - low)
    return within


def hybrid_loads(loads: npt.ArrayLike, cardinalities: npt.ArrayLike, p: float = 0.5) -> Shares:
    """Holistic Eq. 9: of each worker, rows and different keys together."""
    weight = probability("cost", "p", p)
    return weight * scaled(loads) + (1.0 - weight) * scaled(cardinalities)


def aggregation_cost(cardinalities: npt.ArrayLike) -> int:
    """Holistic Eq. 2 and 4: all partial results, which are to be merged."""
    return int(np.sum(cardinalities))


def aggregation_bounds(groups: int, workers: int) -> tuple[int, int]:
    """Holistic Proposition 1: every key whole, and every key everywhere."""
    return groups, groups * workers


def merging_pays(loads: npt.ArrayLike, cardinalities: npt.ArrayLike) -> bool:
    """Holistic Eq. 3: the condition under which imbalance is minimised."""
    return aggregation_cost(cardinalities) <= int(np.max(loads, initial=0))


def reducer_cost(partials: npt.ArrayLike) -> int:
    """Dalton Eq. 2: the partial results of the busiest reducer."""
    return int(np.max(partials, initial=0))


def load_cost(load: float, mean: float) -> float:
    """Dalton Eq. 3: how far a worker is above the mean after it took a row; -1 to 1, below 0 if underloaded."""
    most = max(load, mean)
    return (load - mean) / most if most > 0 else 0.0


def fragmentation_cost(holders: int, workers: int) -> float:
    """Dalton Eq. 4: the part of the workers that hold rows of the key."""
    return holders / workers


def _above_mean(values: npt.ArrayLike) -> float:
    array = np.asarray(values, np.float64)
    return float(abs(array.max() - array.mean())) if array.size else 0.0


@dataclass(frozen=True)
class Choice:
    partitioner: str
    reason: str


def choose(rows: float, groups: float | Sequence[float], workers: int, *, work_grows_with: str = "rows") -> Choice:
    """The rule of Holistic Section 7, for windows of `rows` rows.

    `groups`: different keys expected in a window; or those of the last windows, which also tell whether they are
    constant. `work_grows_with`: "rows" or "groups", whichever the work of a slot depends on more.
    """
    workers = worker_count("choose", workers)
    seen = np.atleast_1d(np.asarray(groups, np.float64))
    if work_grows_with not in ("rows", "groups"):
        raise partitioner_option("choose", "work_grows_with", work_grows_with, "rows or groups")
    if not np.isfinite(rows) or rows < 0:
        raise partitioner_option("choose", "rows", rows, "a number of rows from 0")
    if seen.size == 0 or not (np.isfinite(seen).all() and (seen >= 0).all()):
        raise partitioner_option("choose", "groups", groups, "one number of groups from 0, or several")
    most, per_worker = float(seen.max()), rows / workers
    found = f"{most:.0f} groups against {per_worker:.0f} rows per worker and window"
    constant = most - float(seen.min()) <= STEADY * most
    if constant and most <= FEW * per_worker:
        return Choice("shuffle", f"{found}: groups are few, merging them costs little and rows spread evenly")
    affinity = "affinity_count" if work_grows_with == "rows" else "affinity"
    if not constant:
        why = f"groups vary between {seen.min():.0f} and {most:.0f}, so that merging could grow"
    else:
        why = "groups are many, merging split ones would cost more than balance gains"
    return Choice(affinity, f"{found}: {why}; keys stay whole")
