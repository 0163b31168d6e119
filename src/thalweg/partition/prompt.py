"""Prompt, for micro-batches: the rows of a batch into equal blocks, its keys into as few of them as that allows.

Abdelhamid et al., "Prompt" (2020), as Dalton compares with it. A batch is seen whole and its keys are taken by
falling frequency. One with more than its part of a block gets that part first, in turn over the blocks; the others
follow whole, from the first block to the last and back; what is left of the frequent ones goes where it fits best.
Where nothing fits, the emptiest block is filled and the rest goes on. Nothing is remembered from batch to batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.kernel import inlined, kernel
from thalweg.partition.contract import Keys, Times, Workers
from thalweg.partition.options import (
    estimator_name,
    key_array,
    reject_unknown,
    seed_word,
    whole_number,
    window_span,
    worker_count,
)

Ids = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]


@inlined
def _mix(key: int) -> int:
    z = np.uint64(key)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(z ^ (z >> np.uint64(31)))  # type: ignore[return-value]


@kernel
def _number_keys(keys: Keys, ids: Ids, counts: Counts, places: Ids, found: Keys) -> int:
    """Numbers the keys in the order of their first rows and counts them. Returns how many there are."""
    mask = len(places) - 1
    known = 0
    for row in range(len(keys)):
        key = keys[row]
        place = _mix(key) & mask
        while places[place] >= 0 and found[places[place]] != key:
            place = (place + 1) & mask
        if places[place] < 0:
            places[place] = known
            found[known] = key
            known += 1
        ids[row] = places[place]
        counts[places[place]] += 1
    return known


@inlined
def _fill(pieces: Ids, rows: Counts, free: int, tail: Ids, key: int, worker: int, part: int, room: Counts) -> int:
    """Notes that `part` rows of the key go to the worker, after those noted before. Returns the next free piece."""
    pieces[free, 0] = worker
    pieces[free, 1] = -1
    rows[free] = part
    if tail[key] >= 0:
        pieces[tail[key], 1] = free
    tail[key] = free
    room[worker] -= part
    return free + 1


@inlined
def _best_fit(room: Counts, part: int, own: int) -> int:
    """The own block if `part` fits there, else the one it fits best, else the one with most room."""
    if room[own] >= part:
        return own
    fitting = -1
    emptiest = 0
    for worker in range(len(room)):
        if room[worker] >= part and (fitting < 0 or room[worker] < room[fitting]):
            fitting = worker
        if room[worker] > room[emptiest]:
            emptiest = worker
    return fitting if fitting >= 0 else emptiest


@kernel
def _plan(order: Counts, counts: Counts, room: Counts, cut: int, pieces: Ids, rows: Counts, tail: Ids) -> None:
    """Which rows of each key go where, as lists: piece -> worker, next piece of the key. A key's first piece is its
    own number; further ones follow after those of all keys."""
    workers = len(room)
    free = len(order)
    frequent = 0
    while frequent < len(order) and counts[order[frequent]] > cut:
        key = order[frequent]
        _fill(pieces, rows, key, tail, key, frequent % workers, cut, room)
        frequent += 1
    at, step = 0, 1
    for i in range(frequent, len(order)):
        _fill(pieces, rows, order[i], tail, order[i], at, counts[order[i]], room)
        if 0 <= at + step < workers:
            at += step
        else:
            step = -step
    for i in range(frequent):
        key = order[i]
        left = counts[key] - cut
        while left > 0:
            worker = _best_fit(room, left, i % workers)
            part = min(left, max(room[worker], 1))
            free = _fill(pieces, rows, free, tail, key, worker, part, room)
            left -= part


@kernel
def _assign(ids: Ids, pieces: Ids, rows: Counts, current: Ids, out: Workers) -> None:
    for row in range(len(ids)):
        key = ids[row]
        piece = current[key]
        if rows[piece] == 0:
            piece = pieces[piece, 1]
            current[key] = piece
        rows[piece] -= 1
        out[row] = pieces[piece, 0]


class Prompt:
    name = "prompt"

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def assign(self, keys: Keys, times: Times | None = None) -> Workers:
        """The rows of one micro-batch; `times` do not matter."""
        batch = key_array(self.name, keys)
        out = np.empty(len(batch), np.int32)
        if not len(batch):
            return out
        ids = np.empty(len(batch), np.int32)
        counts = np.zeros(len(batch), np.int64)
        places = np.full(1 << (2 * len(batch) - 1).bit_length(), -1, np.int32)
        known = _number_keys(batch, ids, counts, places, np.empty(len(batch), np.int64))
        counts = counts[:known]
        room = np.full(self.workers, -(-len(batch) // self.workers), np.int64)
        cut = max(int(room[0]) // max(known // self.workers, 1), 1)
        # Every further piece of a key fills a block or ends the key.
        most = known + np.count_nonzero(counts > cut) + self.workers
        pieces, rows = np.full((most, 2), -1, np.int32), np.zeros(most, np.int64)
        order = np.argsort(-counts, kind="stable")
        _plan(order, counts, room, cut, pieces, rows, np.full(known, -1, np.int32))
        _assign(ids, pieces, rows, np.arange(known, dtype=np.int32), out)
        return out

    def reset(self) -> None:
        pass

    @property
    def state_bytes(self) -> int:
        return 0


def make(workers: int, *, choices: int, estimator: str, seed: int, **options: Any) -> Prompt:
    """Only `workers` matters: a batch's keys decide the rest."""
    name = Prompt.name
    workers = worker_count(name, workers)
    whole_number(name, "choices", choices, 1, 2**31, "a whole number above 0")
    estimator_name(name, estimator)
    seed_word(name, seed)
    reject_unknown(name, options)
    window_span(name, options.get("window_us"))
    return Prompt(workers)
