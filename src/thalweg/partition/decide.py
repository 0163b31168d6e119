"""Algorithms 2 to 5 of Holistic as one loop, once for exact and once for sketched cardinalities.

They differ in two things: whether a key goes where it has been (affinity), and by which measure the least loaded
candidate is found otherwise.

| | measure: different keys | rows | hybrid |
|---|---|---|---|
| no affinity | CM, Alg. 2 | (PK) | LM, Alg. 5 |
| affinity | AM, Alg. 3 | cAM, Alg. 4 | |

Equally loaded candidates: the first choice wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np

from thalweg.kernel import inlined, kernel
from thalweg.partition.candidates import CandidateWorkers
from thalweg.partition.cardinalities import HARMONIC, LINEAR_COUNTING, ExactCardinalities, HyperLogLogs
from thalweg.partition.contract import Keys, Workers
from thalweg.partition.options import choice_count, estimator_name, seed_word, worker_count
from thalweg.partition.windowed import Windowed


class Measure(IntEnum):
    """What a worker's load is counted in."""

    KEYS = 0
    ROWS = 1
    HYBRID = 2


_KEYS, _ROWS, _HYBRID = int(Measure.KEYS), int(Measure.ROWS), int(Measure.HYBRID)
_MARKS = 7
"""The word of a line of keys where their marks begin."""
_ONE = np.uint64(1)
_REGISTER = 31
"""The most that a register of a sketch holds; as wide a mask."""
_UNIT = 2.0**-_REGISTER
"""Of the sums over registers."""


@dataclass(frozen=True)
class Rule:
    """How a row's worker is found among the candidates of its key."""

    measure: Measure
    affinity: bool
    rows_weight: float = 0.0
    """p of Holistic Eq. 9: 1 counts rows alone, 0 different keys alone. For the hybrid measure."""


@inlined
def _least(candidates: Any, row: Any, values: Any) -> Any:
    """The choice whose worker has the least value."""
    best = 0
    least = values[candidates[0, row]]
    for choice in range(1, candidates.shape[0]):
        value = values[candidates[choice, row]]
        less = value < least
        least = value if less else least
        best = choice if less else best
    return best


@inlined
def _scaled(value: Any, low: Any, high: Any) -> float:
    """Holistic Eq. 7 and 8; 0 while all workers are equal."""
    return (value - low) / (high - low) if high > low else 0.0


@inlined
def _least_hybrid(candidates: Any, row: Any, loads: Any, keys: Any, load_range: Any, key_range: Any, p: Any) -> Any:
    """The choice whose worker has the least hybrid load (Holistic Eq. 9)."""
    best = 0
    least = np.inf
    for choice in range(candidates.shape[0]):
        worker = candidates[choice, row]
        rows_part = _scaled(loads[worker], load_range[0], load_range[2])
        keys_part = _scaled(keys[worker], key_range[0], key_range[2])
        load = p * rows_part + (1.0 - p) * keys_part
        less = load < least
        least = load if less else least
        best = choice if less else best
    return best


@inlined
def _range(values: Any) -> Any:
    """The least of `values`, how many have it, and the most."""
    low, lows, high = values[0], np.int64(0), values[0]
    for value in values:
        low, high = min(low, value), max(high, value)
    for value in values:
        lows += np.int64(value == low)
    return low, lows, high


@inlined
def _raised(values: Any, old: Any, new: Any, known: Any) -> Any:
    """`_range` after one of `values` rose from `old` to `new`. Only when the last low one rose are all looked at."""
    low, lows, high = known
    if old == low:
        lows -= 1
        if lows == 0:
            return _range(values)
    return low, lows, max(high, new)


@kernel
def _decide_exact(
    candidates: Any, slots: Any, lines: Any, counts: Any, loads: Any, measure: Any, affinity: Any, p: Any, out: Any
) -> None:
    load_range, key_range = _range(loads), _range(counts)
    for row in range(out.size):
        line, byte = slots[row] >> 3, 8 * (slots[row] & 7)
        best = -1
        if affinity:
            for choice in range(candidates.shape[0]):
                if lines[line, _MARKS + (choice >> 3)] >> np.uint64(byte + (choice & 7)) & _ONE:
                    best = choice
                    break
        if best < 0:
            if measure == _KEYS:
                best = _least(candidates, row, counts)
            elif measure == _ROWS:
                best = _least(candidates, row, loads)
            else:
                best = _least_hybrid(candidates, row, loads, counts, load_range, key_range, p)
        worker = candidates[best, row]
        out[row] = worker
        loads[worker] += 1
        if measure == _HYBRID:
            load_range = _raised(loads, loads[worker] - 1, loads[worker], load_range)
        marks = lines[line, _MARKS + (best >> 3)]
        mark = _ONE << np.uint64(byte + (best & 7))
        if not marks & mark:
            lines[line, _MARKS + (best >> 3)] = marks | mark
            counts[worker] += 1
            if measure == _HYBRID:
                key_range = _raised(counts, counts[worker] - 1, counts[worker], key_range)


@inlined
def _estimate(total: Any, zeros: Any, harmonic: Any, counting: Any) -> Any:
    """Flajolet et al.: the harmonic mean of the registers, or, while keys are few, linear counting."""
    raw = harmonic / (total * _UNIT)
    return counting[zeros] if zeros > 0 and raw <= 2.5 * (counting.size - 1) else raw


@kernel
def _decide_sketched(
    candidates: Any, places: Any, sketches: Any, loads: Any, measure: Any, affinity: Any, p: Any, out: Any
) -> None:
    words, shifts, ranks = places
    registers, totals, zeros, estimates, harmonic, counting = sketches
    load_range, key_range = _range(loads), _range(estimates)
    for row in range(out.size):
        word, shift, rank = np.int64(words[row]), np.int64(shifts[row]), np.int64(ranks[row])
        best = -1
        if affinity:
            for choice in range(candidates.shape[0]):
                # The optimistic contains: would an update leave the sketch as it is? Asked of the register, because
                # the estimate does not see all of them grow while it counts zeros.
                if registers[candidates[choice, row], word] >> shift & _REGISTER >= rank:
                    best = choice
                    break
        if best < 0:
            if measure == _KEYS:
                best = _least(candidates, row, estimates)
            elif measure == _ROWS:
                best = _least(candidates, row, loads)
            else:
                best = _least_hybrid(candidates, row, loads, estimates, load_range, key_range, p)
        worker = candidates[best, row]
        out[row] = worker
        loads[worker] += 1
        if measure == _HYBRID:
            load_range = _raised(loads, loads[worker] - 1, loads[worker], load_range)
        held = np.int64(registers[worker, word]) >> shift & _REGISTER
        if rank > held:
            registers[worker, word] += (rank - held) << shift
            totals[worker] += (1 << _REGISTER - rank) - (1 << _REGISTER - held)
            zeros[worker] -= held == 0
            before = estimates[worker]
            estimates[worker] = _estimate(totals[worker], zeros[worker], harmonic, counting)
            if measure == _HYBRID:
                key_range = _raised(estimates, before, estimates[worker], key_range)


class CardinalityAware(Windowed):
    """A partitioner that knows which keys its workers have had, and decides by a rule."""

    def __init__(
        self, name: str, rule: Rule, workers: int, choices: int, estimator: str, seed: int, window_us: Any
    ) -> None:
        self.name = name
        super().__init__(workers, window_us)
        self._rule = rule
        self._choices = choices
        self._estimator = estimator
        self._candidates = CandidateWorkers(workers, choices, seed)
        self._loads = np.zeros(workers, np.int64)
        self._known = self._nothing_known()

    @property
    def state_bytes(self) -> int:
        return self._loads.nbytes + self._known.nbytes

    def _nothing_known(self) -> ExactCardinalities | HyperLogLogs:
        if self._estimator == "exact":
            return ExactCardinalities(self.workers, self._choices)
        return HyperLogLogs(self.workers)

    def _forget(self) -> None:
        self._loads.fill(0)
        self._known = self._nothing_known()

    def _forget_window(self) -> None:
        self._loads.fill(0)
        self._known.clear()

    def _decide(self, keys: Keys, out: Workers) -> None:
        candidates = self._candidates.all(keys)
        rule = (int(self._rule.measure), self._rule.affinity, self._rule.rows_weight)
        known = self._known
        if isinstance(known, ExactCardinalities):
            slots = known.place(keys)
            _decide_exact(candidates, slots, known.lines, known.counts, self._loads, *rule, out)
        else:
            sketches = (known.registers, known.sums, known.zeros, known.estimates, HARMONIC, LINEAR_COUNTING)
            _decide_sketched(candidates, known.place(keys), sketches, self._loads, *rule, out)


def make_by_rule(
    name: str, rule: Rule, workers: int, choices: int, estimator: str, seed: int, window_us: Any
) -> CardinalityAware:
    """Checks what was asked for, then builds it."""
    workers = worker_count(name, workers)
    choices = choice_count(name, choices, workers)
    return CardinalityAware(
        name, rule, workers, choices, estimator_name(name, estimator), seed_word(name, seed), window_us
    )
