"""Dalton: hash for the tail, and for the few hot keys a contextual bandit that learns where to split them.

A heavy hitter's row goes to the worker of the highest expected reward, or with probability epsilon to any; the reward
is what the row did to the balance and to the key's fragmentation (`q_table`). Every other row goes to its key's home
worker, which is the hash partitioner's of the same seed unless told. With others it learns as in `cooperative`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from thalweg.errors import partitioner_option
from thalweg.kernel import frozen_view
from thalweg.partition.bandit import (
    AWAITING,
    BUFFERED,
    ROW,
    Spans,
    adopt_values,
    assign_rows,
    new_state,
    observe_rows,
    state_bytes,
    turn_batch,
    turn_statistics,
    with_room,
)
from thalweg.partition.candidates import CandidateWorkers
from thalweg.partition.contract import Keys, Times, Workers
from thalweg.partition.cooperative import Learned, Policy
from thalweg.partition.forwarding import Fragmentation, fragmentation_of, split_keys
from thalweg.partition.frequencies import frequent
from thalweg.partition.heavy_hitters import ENTRIES, HEAVY, LOAD, SO_FAR
from thalweg.partition.loads import HEAD, OLDEST, TOTAL
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
from thalweg.partition.q_table import Learning
from thalweg.partition.windows import WindowSettings, check_windows, spans_of


class Homes(Protocol):
    def first(self, keys: Keys, out: Workers) -> None:
        """Writes the home worker of each key. The same key always has the same one."""
        ...


@dataclass(frozen=True)
class DaltonSettings(WindowSettings):
    """What may be set. The numbers of the paper's evaluation, where it gives one."""

    epsilon: float = 0.1
    step: float = 0.1
    balance: float = 0.5
    """p1: how much of the reward is balance; the rest is fragmentation."""
    hot_share: float = 0.125
    """A key is hot from this share of a worker's part of the rows on. Def. 3.3 has 1: then keys just below it that
    share a worker leave it with twice its part, and on few workers moderate skew is left to the hash."""
    micro_batch: bool = False
    """Every call of `assign` is a micro-batch, seen whole before it is assigned (3.4)."""
    cooperative: bool = False
    """Statistics windows end with `export` only."""
    member: int = 0
    """Which of several partitioners this is: they explore differently."""
    sync_rows: int = 1 << 17
    """DSYNC at the start: rows between two exports."""
    homes: Homes | None = None
    """Names the home workers of keys, where they are not to be hashed."""


class Dalton:
    """Assigns rows and learns from each. State is kept between calls."""

    name = "dalton"

    def __init__(self, workers: int, seed: int, settings: DaltonSettings) -> None:
        self.workers = workers
        self.settings = settings
        self._homes = settings.homes or CandidateWorkers(workers, 1, seed)
        explore = int(settings.epsilon * 2**32)
        word = np.uint64((seed + (settings.member + 1) * 0xD1B54A32D192ED03) % 2**64)
        self._learning = Learning(settings.step, explore, settings.balance, settings.hot_share, word)
        self.reset()

    def reset(self) -> None:
        given = self.settings
        self._state = new_state(self.workers, self._spans(False).slides, given.frequencies, reports=given.cooperative)
        self._batches = 0
        self._round = 0
        self._heavy_rounds: dict[int, int] = {}
        self._interval = self.settings.sync_rows
        self._exported_at = 0
        self._sent = np.zeros(self.workers, np.int64)
        self._reported = np.zeros(self.workers, np.int64)

    @property
    def state_bytes(self) -> int:
        return state_bytes(self._state)

    def assign(self, keys: Keys, times: Times | None = None) -> Workers:
        rows = key_array(self.name, keys)
        timed = times is not None and self.settings.window_us is not None
        instants = time_array(self.name, times, len(rows)) if timed else _NO_TIMES
        spans = self._spans(timed)
        out = np.empty(len(rows), np.int32)
        self._homes.first(rows, out)
        if spans.by_batch and len(rows):
            self._observe_batch(rows, out, spans)
        done = 0
        while done < len(rows):
            done = assign_rows(rows, instants, out, done, self._state, spans, self._learning)
            self._state = with_room(self._state)
        if self.settings.cooperative:
            self._sent += np.bincount(out, minlength=self.workers)
        return out

    def _observe_batch(self, keys: Keys, homes: Workers, spans: Spans) -> None:
        turn_batch(self._state, spans, len(keys), self._batches)
        self._batches += 1
        done = 0
        while done < len(keys):
            done = observe_rows(keys, homes, done, self._state, self._learning)
            self._state = with_room(self._state)

    def _spans(self, timed: bool) -> Spans:
        given = self.settings
        return spans_of(given, timed, by_batch=given.micro_batch, reports=given.cooperative)

    @property
    def hot_keys(self) -> npt.NDArray[np.int64]:
        """The keys that the bandit assigns now."""
        hot = self._state.hot
        return hot.key[: hot.counters[ENTRIES]][hot.learned[: hot.counters[ENTRIES]]]

    @property
    def heavy_hitters(self) -> int:
        """How many keys have become heavy hitters in this statistics window: at most as many as workers."""
        return int(self._state.hot.counters[HEAVY])

    @property
    def fragmentation(self) -> Fragmentation:
        """Where the keys lie that are or were hot, in the application's window or in the micro-batch."""
        return fragmentation_of(self._state.hot, self._state.fragments)

    def split_keys(self) -> npt.NDArray[np.int64]:
        """The keys that need a merge; every other key of the window lies whole in one worker (key forwarding)."""
        return split_keys(self.fragmentation, int(self._state.fragments.counters[OLDEST]))

    @property
    def sync_due(self) -> bool:
        """Whether DSYNC rows have come since the last export."""
        return int(self._state.clock[ROW]) - self._exported_at >= self._interval

    @property
    def awaits(self) -> bool:
        return bool(self._state.clock[AWAITING])

    def export(self) -> Learned:
        """What was learned since the last export (Alg. 2, line 15). Until a policy is adopted rewards are kept."""
        self._need_cooperative("export")
        hot, table = self._state.hot, self._state.table
        learned = np.flatnonzero(hot.learned[: hot.counters[ENTRIES]])
        arms = (np.arange(self.workers) - hot.home[learned, None]) % self.workers
        keys, frequencies = self._most_frequent()
        exported = Learned(
            self._round,
            int(hot.counters[SO_FAR]),
            self._sent.copy(),
            hot.key[learned],
            np.take_along_axis(table.values[learned], arms, axis=1),
            np.take_along_axis(table.start[learned], arms, axis=1),
            np.take_along_axis(np.power(1.0 - self.settings.step, table.rewards[learned], dtype=np.float64), arms, 1),
            np.array([self._heavy_rounds.get(key, -1) for key in hot.key[learned].tolist()], np.int64),
            keys,
            frequencies,
            self.fragmentation,
            self.settings.hot_share,
            self._interval,
            overdue=self.awaits,
        )
        turn_statistics(self._state, self._spans(False))
        self._state.clock[AWAITING] = 1
        self._exported_at = int(self._state.clock[ROW])
        self._reported += self._sent
        self._sent[:] = 0
        return exported

    def _most_frequent(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The keys with entries, which hold all their rows, and the n most frequent of the others."""
        hot = self._state.hot
        used = slice(0, hot.counters[ENTRIES])
        own, own_rows = hot.key[used], hot.rows[used]
        keys, rows = frequent(self._state.frequencies, self.workers + len(own))
        # A key that became hot was counted here before.
        others = ~np.isin(keys, own)
        keys, rows = keys[others][: self.workers], rows[others][: self.workers]
        return np.concatenate([own, keys]), np.concatenate([own_rows, rows])

    def adopt(self, policy: Policy) -> None:
        """Goes on with what all have learned (Alg. 2, lines 17-20); kept rewards are applied to it."""
        self._need_cooperative("adopt")
        if len(policy.loads) != self.workers:
            raise partitioner_option(self.name, "policy", f"for {len(policy.loads)} workers", f"{self.workers}")
        homes = np.empty(len(policy.keys), np.int32)
        self._homes.first(frozen_view(policy.keys), homes)
        state = self._state
        while len(state.hot.key) <= state.hot.counters[ENTRIES] + len(policy.keys):
            state = with_room(state, more=True)
        adopt_values(frozen_view(policy.keys), homes, frozen_view(policy.values), state, self._learning)
        self._state = state
        state.hot.counters[LOAD] = policy.rows
        self._even_out_loads(policy)
        self._heavy_rounds = dict(zip(policy.keys.tolist(), policy.heavy.tolist(), strict=True))
        self._round, self._interval = policy.round, policy.interval
        state.clock[AWAITING] = state.clock[BUFFERED] = 0

    def _even_out_loads(self, policy: Policy) -> None:
        """Counts an equal part of what all have sent instead of what oneself sent.

        Rewards are then about the workers, not about one's own rows. Each evens out its part of what is uneven: if
        every one took the whole load for its own, all of them together would overshoot.
        """
        loads = self._state.loads
        head = loads.slides[loads.counters[HEAD]]
        # What has left the current slide since the export is not taken back: no slide may hold less than nothing.
        change = np.maximum(policy.loads // policy.members - self._reported, -head)
        head += change
        loads.window[:] += change
        loads.counters[TOTAL] += change.sum()
        self._reported[:] = 0

    def _need_cooperative(self, what: str) -> None:
        if not self.settings.cooperative:
            raise partitioner_option(self.name, "cooperative", False, f"True, to {what}")


_NO_TIMES = frozen_view(np.zeros(0, np.int64))


def make(workers: int, *, choices: int, estimator: str, seed: int, **options: Any) -> Dalton:
    """`choices` and `estimator` limit nothing here: a hot key may go to any worker."""
    name = Dalton.name
    workers = worker_count(name, workers)
    whole_number(name, "choices", choices, 1, 2**31, "a whole number above 0")
    estimator_name(name, estimator)
    reject_unknown(name, options, tuple(field.name for field in fields(DaltonSettings)))
    settings = DaltonSettings(**options)
    check_windows(name, settings)
    whole_number(name, "sync_rows", settings.sync_rows, 1, 2**40, "a whole number above 0")
    shares = ("epsilon", "step", "balance", "hot_share")
    checked: dict[str, Any] = {share: probability(name, share, getattr(settings, share)) for share in shares}
    settings = replace(settings, **checked)
    whole_number(name, "member", settings.member, 0, 2**31, "a whole number from 0")
    for option in ("micro_batch", "cooperative"):
        if not isinstance(getattr(settings, option), bool):
            raise partitioner_option(name, option, getattr(settings, option), "True or False")
    return Dalton(workers, seed_word(name, seed), settings)
