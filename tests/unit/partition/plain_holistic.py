"""The partitioners of the Holistic paper in plain Python, row by row as its algorithms say: slow and obvious."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable

MASK = 2**64 - 1
REGISTERS = 4096


def mix(h: int) -> int:
    h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & MASK
    return h ^ (h >> 31)


def other_mix(h: int) -> int:
    h = ((h ^ (h >> 33)) * 0xFF51AFD7ED558CCD) & MASK
    h = ((h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53) & MASK
    return h ^ (h >> 33)


def candidates(key: int, workers: int, choices: int, seed: int) -> list[int]:
    """Each choice picks one of the workers that are left."""
    golden = 0x9E3779B97F4A7C15
    h = mix((key + mix((seed + golden) & MASK)) & MASK)
    left = list(range(workers))
    found = []
    for choice in range(choices):
        if choice and choice % 2 == 0:
            h = mix((h + golden) & MASK)
        half = h & 0xFFFFFFFF if choice % 2 else h >> 32
        found.append(left.pop((half * len(left)) >> 32))
    return found


class Naive:
    """Section 3.2.1: a set."""

    def __init__(self) -> None:
        self.keys: set[int] = set()

    def contains(self, key: int) -> bool:
        return key in self.keys

    def update(self, key: int) -> None:
        self.keys.add(key)

    def estimate(self) -> float:
        return len(self.keys)


class HyperLogLog:
    """Section 3.2.2: 4096 registers of 5 bits, and the optimistic contains."""

    def __init__(self) -> None:
        self.registers = [0] * REGISTERS
        self.tally = Counter({0: REGISTERS})

    @staticmethod
    def place(key: int) -> tuple[int, int]:
        h = other_mix((key & MASK) ^ 0x2545F4914F6CDD1D)
        zeros = 0
        while zeros < 30 and not h >> zeros & 1:
            zeros += 1
        return h >> 52, zeros + 1

    @staticmethod
    def harmonic(tally: Counter[int]) -> float:
        total = sum(count * 2.0**-rank for rank, count in tally.items())
        return 0.7213 / (1 + 1.079 / REGISTERS) * REGISTERS * REGISTERS / total

    def estimate(self) -> float:
        zeros = self.tally[0]
        raw = self.harmonic(self.tally)
        return REGISTERS * math.log(REGISTERS / zeros) if zeros and raw <= 2.5 * REGISTERS else raw

    def contains(self, key: int) -> bool:
        """A trial update: no difference between the estimates before and after it means that the key was there."""
        register, rank = self.place(key)
        held = self.registers[register]
        trial = self.tally.copy()
        trial[held] -= 1
        trial[max(held, rank)] += 1
        return self.harmonic(trial) == self.harmonic(self.tally)

    def update(self, key: int) -> None:
        register, rank = self.place(key)
        held = self.registers[register]
        if rank > held:
            self.tally[held] -= 1
            self.tally[rank] += 1
            self.registers[register] = rank


class Plain:
    """Algorithm 1; `decide` is the paper's, for any number of candidates."""

    def __init__(
        self,
        name: str,
        workers: int,
        choices: int = 2,
        estimator: str = "exact",
        seed: int = 0,
        window_us: int | None = None,
        p: float = 0.5,
    ) -> None:
        self.name, self.workers, self.choices, self.seed, self.p = name, workers, choices, seed, p
        self.estimator = Naive if estimator == "exact" else HyperLogLog
        self.window_us = window_us
        self.window: int | None = None
        self.turn = seed % workers
        self.reset()

    def reset(self) -> None:
        self.cards = [self.estimator() for _ in range(self.workers)]
        self.loads = [0] * self.workers

    def assign(self, keys: Iterable[int], times: Iterable[int] | None = None) -> list[int]:
        if times is None or self.window_us is None:
            return [self.partition(int(key)) for key in keys]
        out = []
        for key, time in zip(keys, times, strict=True):
            window = int(time) // self.window_us
            if self.window is not None and window > self.window:
                self.reset()
            self.window = window if self.window is None else max(window, self.window)
            out.append(self.partition(int(key)))
        return out

    def partition(self, key: int) -> int:
        if self.name == "shuffle":
            worker = self.turn
            self.turn = (self.turn + 1) % self.workers
            return worker
        names = candidates(key, self.workers, self.choices, self.seed)
        if self.name == "hash":
            return names[0]
        worker = self.decide(key, names)
        self.loads[worker] += 1
        return worker

    def decide(self, key: int, names: list[int]) -> int:
        if self.name == "partial_key":
            return min(names, key=lambda c: self.loads[c])
        if self.name in ("affinity", "affinity_count"):
            for c in names:
                if self.cards[c].contains(key):
                    return c
        if self.name in ("cardinality", "affinity"):
            worker = min(names, key=lambda c: self.cards[c].estimate())
        elif self.name == "affinity_count":
            worker = min(names, key=lambda c: self.loads[c])
        else:
            worker = self.least_hybrid(names)
        self.cards[worker].update(key)
        return worker

    def least_hybrid(self, names: list[int]) -> int:
        """Equations 7 to 9."""
        cards = [card.estimate() for card in self.cards]
        rows, keys = scaled(self.loads), scaled(cards)
        return min(names, key=lambda c: self.p * rows[c] + (1.0 - self.p) * keys[c])


def scaled(values: list[int] | list[float]) -> list[float]:
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.0 for value in values]
