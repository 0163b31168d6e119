"""Algorithm 1 of Dalton over the rows of one call: count, choose, reward, learn; windows turn as rows pass them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thalweg.partition import frequencies as frequencies_part
from thalweg.partition import heavy_hitters as heavy_hitters_part
from thalweg.partition import loads as loads_part
from thalweg.partition import q_table as q_table_part
from thalweg.partition.contract import Keys, Times, Workers
from thalweg.partition.frequencies import (
    SIZE,
    USED,
    Frequencies,
    count,
    estimate,
    forget,
    grown,
    is_crowded,
    mix,
    new_frequencies,
)
from thalweg.partition.heavy_hitters import (
    ENTRIES,
    LOAD,
    LONG_AGO,
    SO_FAR,
    WINDOW,
    HotKeys,
    end_window,
    enter,
    find,
    hot_load,
    index,
    is_heavy,
    move_entry,
    new_hot_keys,
    set_heavy,
)
from thalweg.partition.joint_kernel import joint_kernel, part
from thalweg.partition.loads import (
    TOTAL,
    Fragments,
    Loads,
    add_row,
    is_whole_at,
    mark,
    move_fragments,
    new_fragments,
    new_loads,
    slide_fragments,
    slide_loads,
    start_fragments,
)
from thalweg.partition.q_table import (
    Learning,
    QTable,
    choose,
    find_best,
    learn,
    move_values,
    new_q_table,
    random_bits,
    reward,
    start_value,
    start_values,
)

ROW, SLIDE_END, STATS_END, AWAITING, BUFFERED, REPORTS = 0, 1, 2, 3, 4, 5
"""Places in `BanditState.clock`: rows seen in all; when the slide ends; at which row the statistics window does;
whether a merged policy is awaited, and how many rewards wait for it; whether frequent keys are reported by name."""
EARLIEST, LATEST = -(2**63), 2**63 - 1

PARTS = (frequencies_part, heavy_hitters_part, loads_part, q_table_part)


class Spans(NamedTuple):
    """The windows, in microseconds where rows have times, otherwise in rows."""

    timed: bool
    slide: int
    slides: int
    stats_rows: int
    """Rows of a statistics window; 0 where only `export` or a micro-batch ends it."""
    by_batch: bool
    """Micro-batches (Dalton 3.4): keys are counted before rows are assigned, and lie whole or split in a batch."""
    reports: bool
    """Whether `export` tells others of frequent keys, and ends the statistics window."""


class Waiting(NamedTuple):
    """Rewards that came while a merged policy was awaited (Alg. 2, line 10), in their order."""

    key: npt.NDArray[np.int64]
    worker: npt.NDArray[np.int32]
    reward: npt.NDArray[np.float64]


class BanditState(NamedTuple):
    hot: HotKeys
    frequencies: Frequencies
    loads: Loads
    fragments: Fragments
    table: QTable
    waiting: Waiting
    clock: npt.NDArray[np.int64]


def new_state(
    workers: int, slides: int, structure: str, *, reports: bool = False, arms: int | None = None
) -> BanditState:
    """`arms`: of the Q-table, if not one for each worker."""
    entries = 1 << (2 * workers).bit_length()
    return BanditState(
        new_hot_keys(entries),
        new_frequencies(workers, structure),
        new_loads(workers, slides),
        new_fragments(workers, entries),
        new_q_table(arms or workers, entries),
        new_waiting(1),
        np.array([0, EARLIEST, LATEST if reports else EARLIEST, 0, 0, reports], np.int64),
    )


def state_bytes(state: BanditState) -> int:
    parts = state[:-1]
    return sum(array.nbytes for part_of in parts for array in part_of) + state.clock.nbytes


def with_room(state: BanditState, more: bool = False) -> BanditState:
    """Makes room where a kernel came to its end; with `more`, for twice as many hot keys in any case."""
    if 2 * state.frequencies.counters[USED] >= state.frequencies.counters[SIZE]:
        state = state._replace(frequencies=grown(state.frequencies))
    used, entries = state.hot.counters[ENTRIES], len(state.hot.key)
    if used == entries or more:
        workers = len(state.loads.window)
        hot = _copied(state.hot, new_hot_keys(2 * entries))
        fragments = _copied(state.fragments, new_fragments(workers, 2 * entries))
        table = _copied(state.table, new_q_table(state.table.values.shape[1], 2 * entries))
        state = state._replace(hot=hot, fragments=fragments, table=table)
        index_again(state)
    if state.clock[BUFFERED] == len(state.waiting.key):
        state = state._replace(waiting=_copied(state.waiting, new_waiting(4 * len(state.waiting.key))))
    return state


def _copied(old: Any, new: Any) -> Any:
    """The longer arrays of `new` with what was in `old`."""
    for source, target in zip(old, new, strict=True):
        target[: len(source)] = source
    return new


def new_waiting(rewards: int) -> Waiting:
    return Waiting(np.zeros(rewards, np.int64), np.zeros(rewards, np.int32), np.zeros(rewards))


@joint_kernel(*PARTS)
def assign_rows(
    keys: Keys, times: Times, out: Workers, start: int, state: BanditState, spans: Spans, learning: Learning
) -> int:
    """Assigns rows from `start` on. `out` holds the home workers. Returns how far it came before it needed room."""
    for row in range(start, len(keys)):
        number = state.clock[ROW]
        order = times[row] if spans.timed else number
        if order >= state.clock[SLIDE_END]:
            slide_on(state, spans, order)
        if number >= state.clock[STATS_END] and not spans.by_batch:
            end_statistics(state, spans, number)
        key = keys[row]
        mixed = mix(key)
        entry = find(state.hot, key, mixed)
        if not spans.by_batch:
            entry = observe(state, entry, key, mixed, out[row], learning.hot_share)
        if entry < 0:
            add_row(state.loads, out[row])
        else:
            out[row] = assign_hot(state, entry, number, learning)
        state.clock[ROW] = number + 1
        if needs_room(state):
            return row + 1
    return len(keys)


@joint_kernel(*PARTS)
def observe_rows(keys: Keys, homes: Workers, start: int, state: BanditState, learning: Learning) -> int:
    """Counts the keys of a micro-batch from `start` on, before any of its rows is assigned."""
    for row in range(start, len(keys)):
        mixed = mix(keys[row])
        entry = find(state.hot, keys[row], mixed)
        observe(state, entry, keys[row], mixed, homes[row], learning.hot_share)
        if needs_room(state):
            return row + 1
    return len(keys)


@part
def observe(state: BanditState, entry: int, key: int, mixed: int, home: int, share: float) -> int:
    """Counts a row and makes its key hot where it has become a heavy hitter. Returns the key's entry, or -1."""
    hot = state.hot
    workers = len(state.loads.window)
    hot.counters[SO_FAR] += 1
    if entry < 0:
        # What the others may find heavy with their rows of it: a quarter of what is heavy here.
        noteworthy = hot_load(hot, workers, share) / (4 * workers) if state.clock[REPORTS] else np.inf
        rows = count(state.frequencies, key, mixed, noteworthy)
        if not is_heavy(hot, rows, workers, share):
            return -1
        entry = enter(hot, key, mixed, home, rows)
        start_fragments(state.fragments, entry, home)
    else:
        hot.rows[entry] += 1
        if hot.heavy[entry] == hot.counters[WINDOW] or not is_heavy(hot, hot.rows[entry], workers, share):
            return entry
    set_heavy(hot, entry)
    if not hot.learned[entry]:
        hot.learned[entry] = True
        start_values(state.table, entry)
    return entry


@part
def assign_hot(state: BanditState, entry: int, number: int, learning: Learning) -> int:
    """The worker of a row whose key is or was hot."""
    loads, fragments = state.loads, state.fragments
    workers = len(loads.window)
    home = state.hot.home[entry]
    if not state.hot.learned[entry]:
        add_row(loads, home)
        mark(fragments, entry, home)
        return int(home)
    arm = choose(state.table, entry, random_bits(learning.seed, number), learning.explore)
    worker = home + arm
    if worker >= workers:
        worker -= workers
    add_row(loads, worker)
    mark(fragments, entry, worker)
    gained = reward(loads.window[worker], loads.counters[TOTAL], workers, fragments.spread[entry], learning.balance)
    if state.clock[AWAITING]:
        place = state.clock[BUFFERED]
        state.waiting.key[place] = state.hot.key[entry]
        state.waiting.worker[place] = worker
        state.waiting.reward[place] = gained
        state.clock[BUFFERED] += 1
    else:
        learn(state.table, entry, arm, gained, learning.step)
    return int(worker)


@part
def needs_room(state: BanditState) -> bool:
    return (
        is_crowded(state.frequencies)
        or state.hot.counters[ENTRIES] == len(state.hot.key)
        or state.clock[BUFFERED] == len(state.waiting.key)
    )


@part
def slide_on(state: BanditState, spans: Spans, order: int) -> None:
    slide = order // spans.slide
    state.clock[SLIDE_END] = (slide + 1) * spans.slide
    slide_loads(state.loads, slide)
    if not spans.by_batch:
        slide_fragments(state.fragments, state.hot.counters[ENTRIES], slide, spans.slides)


@part
def end_statistics(state: BanditState, spans: Spans, number: int) -> None:
    """The next statistics window begins with row `number`."""
    state.clock[STATS_END] = number + spans.stats_rows if spans.stats_rows else LATEST
    end_window(state.hot)
    drop_idle(state)
    forget(state.frequencies)


@part
def drop_idle(state: BanditState) -> None:
    """Frees the entries of keys that are not hot and lie whole at home."""
    hot = state.hot
    entry = 0
    while entry < hot.counters[ENTRIES]:
        if hot.learned[entry] or not is_whole_at(state.fragments, entry, hot.home[entry]):
            entry += 1
            continue
        last = hot.counters[ENTRIES] - 1
        move_entry(hot, last, entry)
        move_fragments(state.fragments, last, entry)
        move_values(state.table, last, entry)
        hot.counters[ENTRIES] = last
    index(hot)


@joint_kernel(*PARTS)
def adopt_values(
    keys: Keys, homes: Workers, values: npt.NDArray[np.float64], state: BanditState, learning: Learning
) -> None:
    """Makes these keys the hot ones, with these values by worker, and applies the rewards that waited (Alg. 2)."""
    hot = state.hot
    workers = len(state.loads.window)
    for entry in range(hot.counters[ENTRIES]):
        hot.learned[entry] = False
        hot.heavy[entry] = LONG_AGO
    for i in range(len(keys)):
        mixed = mix(keys[i])
        entry = find(hot, keys[i], mixed)
        if entry < 0:
            entry = enter(hot, keys[i], mixed, homes[i], estimate(state.frequencies, keys[i], mixed))
            start_fragments(state.fragments, entry, homes[i])
        hot.learned[entry] = True
        hot.heavy[entry] = hot.counters[WINDOW]
        for arm in range(workers):
            start_value(state.table, entry, arm, values[i, (homes[i] + arm) % workers])
        find_best(state.table, entry)
    for i in range(state.clock[BUFFERED]):
        entry = find(hot, state.waiting.key[i], mix(state.waiting.key[i]))
        if entry >= 0 and hot.learned[entry]:
            arm = (state.waiting.worker[i] - hot.home[entry]) % workers
            learn(state.table, entry, arm, state.waiting.reward[i], learning.step)


@joint_kernel(*PARTS)
def turn_statistics(state: BanditState, spans: Spans) -> None:
    """Ends the statistics window now."""
    end_statistics(state, spans, state.clock[ROW])


@joint_kernel(*PARTS)
def index_again(state: BanditState) -> None:
    index(state.hot)


@joint_kernel(*PARTS)
def turn_batch(state: BanditState, spans: Spans, rows: int, batch: int) -> None:
    """A micro-batch of `rows` rows begins: nothing is split in it yet, and its load is known beforehand."""
    slide_fragments(state.fragments, state.hot.counters[ENTRIES], batch, 1)
    if spans.reports:
        state.hot.counters[LOAD] = max(state.hot.counters[LOAD], rows)
    else:
        end_statistics(state, spans, state.clock[ROW])
        state.hot.counters[LOAD] = rows
