"""AJoin's generated queries at any similarity (AJoin, Eq. 3 and Fig. 14), over two to five streams.

    ajoin-20@75      20 joins of two streams, 75 % similar to the pattern r.a0 = s.a0
    ajoin-20@75x3    20 joins of three streams, 75 % similar to r.a0 = s.a0 AND s.a1 = t.a0

Similarity is (sources in common) * (join attributes in common) / (sources of the pattern)^2. A query of less
similarity has sources that the pattern has not: the next of the streams r, s, t, u, v, as far as there are some.
One query can have only some similarities (two streams: 0, 25, 50 or 100 %); the mean over many is the one asked for.
`ajoin-N` (50 % over two streams, another seed) is in joins.py.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from benchmarks.workloads.joins import (
    AJOIN_RATE,
    MAX_OUTPUT,
    OPERATORS,
    SIX,
    Data,
    JoinQuery,
    Joins,
    Selection,
    Step,
)
from benchmarks.workloads.model import Workload

NAMES = {
    "ajoin-N@SIMILARITY": "N joins of two streams from AJoin's template, so many percent similar (0 to 100)",
    "ajoin-N@SIMILARITYxSTREAMS": "the same with three to five streams",
}
STREAMS = ("r", "s", "t", "u", "v")
SEED = 15


def named(name: str) -> Workload | None:
    found = re.fullmatch(r"ajoin-(\d+)@(\d+)(?:x([2-5]))?", name)
    if found is None or int(found[2]) > 100:
        return None
    return ajoin(int(found[1]), int(found[2]) / 100, int(found[3] or 2)).workload(name)


@dataclass(frozen=True)
class Place:
    """A stream in a query with the attributes it is joined by: to the left and to the right, None at an end."""

    stream: str
    left: str | None
    right: str | None

    @property
    def attributes(self) -> tuple[tuple[str, str, str], ...]:
        """(stream, side, attribute)"""
        sides = (("left", self.left), ("right", self.right))
        return tuple((self.stream, side, attribute) for side, attribute in sides if attribute is not None)


@dataclass(frozen=True)
class Template:
    """AJoin Fig. 14, filled in."""

    places: tuple[Place, ...]
    seconds: int
    selections: tuple[Selection, ...]

    def output(self, atr_max: int) -> float:
        """Rows out per row in: a row finds so many partners at every step, and a result has a row of every stream.

        A selection on what a stream is joined by counts as any other: an estimate, not a bound.
        """
        kept = math.prod(selection.selectivity(atr_max) for selection in self.selections)
        partners = 2 * self.seconds * AJOIN_RATE / atr_max
        return kept * partners ** (len(self.places) - 1) / len(self.places)

    def query(self, atr_max: int) -> JoinQuery:
        steps = tuple(
            Step(one.stream, other.stream, (one.right or "", other.left or ""), self.seconds)
            for one, other in pairwise(self.places)
        )
        chosen = zip(self.places, self.selections, strict=True)
        return JoinQuery(steps, tuple(s.text(place.stream, atr_max) for place, s in chosen))


def pattern(streams: int) -> tuple[Place, ...]:
    """PQ: r.a0 = s.a0 AND s.a1 = t.a0 AND ..."""
    last = streams - 1
    return tuple(
        Place(name, "a0" if i else None, ("a1" if i else "a0") if i < last else None)
        for i, name in enumerate(STREAMS[:streams])
    )


def similarity(places: tuple[Place, ...]) -> float:
    """To the pattern over as many streams (AJoin, Eq. 3)."""
    asked = pattern(len(places))
    sources = {place.stream for place in places} & {place.stream for place in asked}
    attributes = {a for place in places for a in place.attributes} & {a for place in asked for a in place.attributes}
    return len(sources) * len(attributes) / len(places) ** 2


def template(rng: np.random.Generator, wanted: float, streams: int) -> Template:
    """AJoin, Steps 1 to 3; then a window, and a selection on every stream."""
    asked = pattern(streams)
    # Others can stand in only as far as there are others.
    least = max(1, 2 * streams - len(STREAMS))
    sources = int(rng.integers(least, streams + 1))
    while sources < streams and wanted * streams**2 / sources > _most(sources):
        sources += 1
    begin = int(rng.integers(0, streams - sources + 1))
    kept = asked[begin : begin + sources]
    slots = [a for place in kept for a in place.attributes]
    # Eq. 3, solved for the join attributes in common; a fraction is the chance of one more.
    common = min(int(wanted * streams**2 / sources + rng.random()), len(slots))
    same = {slots[i] for i in rng.permutation(len(slots))[:common]}
    others = iter(rng.permutation(np.array(STREAMS[streams:])))
    chosen = [place.stream if place in kept else str(next(others)) for place in asked]
    places = tuple(_drawn(rng, name, place, same) for name, place in zip(chosen, asked, strict=True))
    selections = tuple(_selection(rng) for _ in places)
    return Template(places, int(rng.integers(1, 4)), selections)


def _most(sources: int) -> int:
    """Join attributes that so many neighbours can have in common: two for each, but one end of the chain has one."""
    return 2 * sources - 1


def _drawn(rng: np.random.Generator, name: str, place: Place, same: set[tuple[str, str, str]]) -> Place:
    """The pattern's attribute where it is to be the same, else any other."""

    def side(which: str, attribute: str | None) -> str | None:
        if attribute is None or (name, which, attribute) in same:
            return attribute
        return str(rng.choice([a for a in SIX if a != attribute]))

    return Place(name, side("left", place.left), side("right", place.right))


def _selection(rng: np.random.Generator) -> Selection:
    attribute, operator = SIX[rng.integers(len(SIX))], OPERATORS[rng.integers(len(OPERATORS))]
    return Selection(attribute, operator, float(rng.random()))


@cache
def templates(n: int, wanted: float, streams: int) -> tuple[Template, ...]:
    rng = np.random.default_rng((SEED, round(wanted * 100), streams))
    return tuple(template(rng, wanted, streams) for _ in range(n))


@cache
def atr_max(n: int, wanted: float, streams: int) -> int:
    """The least ATR_MAX, in hundreds, with which n queries give at most MAX_OUTPUT rows per row. (AJoin has 500.)"""
    made = templates(n, wanted, streams)
    size = 100
    while sum(t.output(size) for t in made) > MAX_OUTPUT:
        size += 100
    return size


def ajoin(n: int, wanted: float, streams: int = 2) -> Joins:
    """The first n queries. Fewer than 20 run on the data of 20."""
    size = atr_max(max(n, 20), wanted, streams)
    made = templates(n, wanted, streams)
    used = [s for s in STREAMS if any(s == place.stream for t in made for place in t.places)]
    # Values do not depend on which streams are read, so data of one size share their files.
    data = Data(f"join-six-{size}", tuple(used), SIX, size, AJOIN_RATE)
    return Joins(data, tuple(t.query(size) for t in made))
