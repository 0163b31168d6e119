"""DAGreedy: hash for the tail; a frequent key's row to the worker that scores best, held already against loaded.

Pacaci and Özsu, "Distribution-Aware Stream Partitioning" (2018), as Dalton compares with it: for every row of a
frequent key all workers are scored, one that holds the key in the window by 1, less its load against the average. It
keeps no experience. Windows, heavy hitters and their frequencies are Dalton's, so that only the decision differs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.kernel import frozen_view
from thalweg.partition import bandit as bandit_part
from thalweg.partition.bandit import (
    PARTS,
    ROW,
    SLIDE_END,
    STATS_END,
    BanditState,
    Spans,
    end_statistics,
    needs_room,
    new_state,
    observe,
    slide_on,
    with_room,
)
from thalweg.partition.candidates import CandidateWorkers
from thalweg.partition.contract import Keys, Times, Workers
from thalweg.partition.forwarding import Fragmentation, fragmentation_of, split_keys
from thalweg.partition.frequencies import mix
from thalweg.partition.heavy_hitters import find
from thalweg.partition.joint_kernel import joint_kernel, part
from thalweg.partition.loads import OLDEST, TOTAL, add_row, mark
from thalweg.partition.options import (
    estimator_name,
    key_array,
    probability,
    reject_unknown,
    seed_word,
    time_array,
    whole_number,
    worker_count,
)
from thalweg.partition.windows import WindowSettings, check_windows, spans_of

_NO_TIMES = frozen_view(np.zeros(0, np.int64))


@dataclass(frozen=True)
class DAGreedySettings(WindowSettings):
    hot_share: float = 0.2
    """A key is scored from this share of a worker's part of the rows on: 1 / 5n of all rows."""


@part
def best_worker(state: BanditState, entry: int) -> int:
    """The first best, from the home worker on. Scores are scaled by all rows of the window, to stay whole numbers."""
    loads, fragments = state.loads, state.fragments
    workers = len(loads.window)
    total, oldest = loads.counters[TOTAL], fragments.counters[OLDEST]
    worker = state.hot.home[entry]
    best = worker
    highest = -(2**62)
    for _ in range(workers):
        score = (total if fragments.latest[entry, worker] >= oldest else 0) - loads.window[worker] * workers
        if score > highest:
            highest = score
            best = worker
        worker = worker + 1 if worker + 1 < workers else 0
    return int(best)


@joint_kernel(bandit_part, *PARTS)
def assign_greedily(
    keys: Keys, times: Times, out: Workers, start: int, state: BanditState, spans: Spans, hot_share: float
) -> int:
    """Assigns rows from `start` on. `out` holds the home workers. Returns how far it came before it needed room."""
    for row in range(start, len(keys)):
        number = state.clock[ROW]
        order = times[row] if spans.timed else number
        if order >= state.clock[SLIDE_END]:
            slide_on(state, spans, order)
        if number >= state.clock[STATS_END]:
            end_statistics(state, spans, number)
        key = keys[row]
        mixed = mix(key)
        entry = observe(state, find(state.hot, key, mixed), key, mixed, out[row], hot_share)
        if entry >= 0:
            if state.hot.learned[entry]:
                out[row] = best_worker(state, entry)
            mark(state.fragments, entry, out[row])
        add_row(state.loads, out[row])
        state.clock[ROW] = number + 1
        if needs_room(state):
            return row + 1
    return len(keys)


class DAGreedy:
    name = "da_greedy"

    def __init__(self, workers: int, seed: int, settings: DAGreedySettings) -> None:
        self.workers = workers
        self.settings = settings
        self._candidates = CandidateWorkers(workers, 1, seed)
        self.reset()

    def reset(self) -> None:
        slides = spans_of(self.settings, False).slides
        self._state = new_state(self.workers, slides, self.settings.frequencies, arms=1)

    @property
    def state_bytes(self) -> int:
        return bandit_part.state_bytes(self._state)

    def assign(self, keys: Keys, times: Times | None = None) -> Workers:
        rows = key_array(self.name, keys)
        timed = times is not None and self.settings.window_us is not None
        instants = time_array(self.name, times, len(rows)) if timed else _NO_TIMES
        out = np.empty(len(rows), np.int32)
        self._candidates.first(rows, out)
        spans = spans_of(self.settings, timed)
        done = 0
        while done < len(rows):
            done = assign_greedily(rows, instants, out, done, self._state, spans, self.settings.hot_share)
            self._state = with_room(self._state)
        return out

    @property
    def fragmentation(self) -> Fragmentation:
        return fragmentation_of(self._state.hot, self._state.fragments)

    def split_keys(self) -> npt.NDArray[np.int64]:
        """The keys that need a merge, as Dalton's."""
        return split_keys(self.fragmentation, int(self._state.fragments.counters[OLDEST]))


def make(workers: int, *, choices: int, estimator: str, seed: int, **options: Any) -> DAGreedy:
    """`choices` and `estimator` limit nothing here: a frequent key may go to any worker."""
    name = DAGreedy.name
    workers = worker_count(name, workers)
    whole_number(name, "choices", choices, 1, 2**31, "a whole number above 0")
    estimator_name(name, estimator)
    reject_unknown(name, options, tuple(field.name for field in fields(DAGreedySettings)))
    settings = DAGreedySettings(**options)
    check_windows(name, settings)
    settings = replace(settings, hot_share=probability(name, "hot_share", settings.hot_share))
    return DAGreedy(workers, seed_word(name, seed), settings)
