"""The M candidate workers of a key (Holistic Section 4: hash functions H1 ... HM), always different workers.

Independent hashes would at times name one worker twice and leave the key with less choice than was asked for. Here
the second one picks among the workers that the first left over, and so on. Fixed by the key and the seed alone, so
partitioners in different tasks agree without talking, on every platform.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from thalweg.kernel import inlined, kernel
from thalweg.partition.contract import Keys, Workers

Candidates = npt.NDArray[np.int32]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
_S27, _S30, _S31, _S32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@inlined
def _mix(h: Any) -> Any:
    """Every input bit reaches every output bit; one to one."""
    h = (h ^ (h >> _S30)) * _M1
    h = (h ^ (h >> _S27)) * _M2
    return h ^ (h >> _S31)


@kernel
def _only(keys: Any, word: Any, workers: Any, out: Any) -> None:
    for row in range(keys.size):
        h = _mix(np.uint64(keys[row]) + word)
        out[row] = np.int32(((h >> _S32) * workers) >> _S32)


@kernel
def _pairs(keys: Any, word: Any, workers: Any, out: Any) -> None:
    one = np.uint64(1)
    for row in range(keys.size):
        h = _mix(np.uint64(keys[row]) + word)
        first = ((h >> _S32) * workers) >> _S32
        second = ((h & _LOW) * (workers - one)) >> _S32
        out[0, row] = np.int32(first)
        out[1, row] = np.int32(second + np.uint64(second >= first))


@kernel
def _several(keys: Any, word: Any, workers: Any, out: Any) -> None:
    """Choice after choice for all rows at once: loops without branches over rows use the wide registers.

    Every mixed word gives two choices, one from either half; the next two mix it again.
    """
    choices, rows = out.shape
    mixed = np.empty(rows, np.uint64)
    ascending = np.empty((choices, rows), np.int32)
    for choice in range(choices):
        left = workers - np.uint64(choice)
        if choice % 2 == 0:
            for row in range(rows):
                h = _mix(mixed[row] + _STEP if choice else np.uint64(keys[row]) + word)
                mixed[row] = h
                out[choice, row] = np.int32(((h >> _S32) * left) >> _S32)
        else:
            for row in range(rows):
                out[choice, row] = np.int32(((mixed[row] & _LOW) * left) >> _S32)
        _skip_taken(ascending, choice, out[choice])


@inlined
def _skip_taken(ascending: Any, used: Any, picks: Any) -> None:
    """Turns the n-th of the workers left over into a worker. The first `used` of `ascending` are taken, in order."""
    for i in range(used):
        taken = ascending[i]
        for row in range(picks.size):
            picks[row] += np.int32(taken[row] <= picks[row])
    moving = ascending[used]
    moving[:] = picks
    for i in range(used):
        taken = ascending[i]
        for row in range(picks.size):
            held, moved = taken[row], moving[row]
            taken[row] = min(held, moved)
            moving[row] = max(held, moved)


class CandidateWorkers:
    """Names the candidates of keys, in the order of the choices."""

    def __init__(self, workers: int, choices: int, seed: int) -> None:
        self.workers = workers
        self.choices = choices
        self._word = np.uint64(_seed_mix(seed))

    def first(self, keys: Keys, out: Workers) -> None:
        """The first choice of every key: what hashing alone would take."""
        _only(keys, self._word, np.uint64(self.workers), out)

    def all(self, keys: Keys) -> Candidates:
        """The worker of each choice and key: one line per choice."""
        out = np.empty((self.choices, keys.size), np.int32)
        if self.choices == 1:
            self.first(keys, out.reshape(-1))
        else:
            name = _pairs if self.choices == 2 else _several
            name(keys, self._word, np.uint64(self.workers), out)
        return out


def _seed_mix(seed: int) -> int:
    """Neighbouring seeds give words far apart."""
    mask = 2**64 - 1
    h = (seed + int(_STEP)) & mask
    h = ((h ^ (h >> 30)) * int(_M1)) & mask
    h = ((h ^ (h >> 27)) * int(_M2)) & mask
    return h ^ (h >> 31)
