"""Streams whose joins turn: keys that seldom match begin to match often, and others cease to.

What is a good order for one stretch of batches is a bad one for the next, so a pipeline that plans its joins by what
it measures must change orders and intermediates again and again. Queries join two to five of the streams along edges
from a small pool: many share sub-joins, some close a cycle, some see a stream twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from thalweg.testing.oracle import Feed

STREAMS = ("r", "s", "t", "u", "v")
KEYS = ("a", "b", "c", "d")
EDGES = (("r", "s", "a"), ("s", "t", "b"), ("t", "u", "c"), ("u", "v", "d"), ("r", "t", "d"), ("s", "u", "a"))
"""(stream, stream, key): the last two close cycles."""
_SPANS = ("500 MILLISECONDS", "1 SECOND", "1 SECOND", "1500 MILLISECONDS")
_SECOND = 1_000_000


@dataclass(frozen=True)
class Turning:
    """How the streams flow."""

    batches: int = 14
    rows: int = 60
    """Of each stream in a batch, about."""
    batch_us: int = 4 * _SECOND
    """Of event time: all that a row of five may reach, so that a new intermediate is soon complete."""
    stretch: int = 5
    """Batches after which keys that matched often match seldom."""
    many: int = 100
    few: int = 8
    """Values that a key has while rows match seldom, and often."""
    delay_us: int = _SECOND // 2
    late_share: float = 0.04
    null_share: float = 0.04


def turning_feeds(seed: int, turning: Turning) -> list[Feed]:
    rng = random.Random(f"turning {seed}")
    first = dict.fromkeys(rng.sample(KEYS, 2), True)
    return [_feed(random.Random(f"{seed} {stream}"), stream, first, turning) for stream in STREAMS]


def often(key: str, batch: int, first: dict[str, bool], turning: Turning) -> bool:
    """Whether rows of a batch match often by a key."""
    return first.get(key, False) == (batch // turning.stretch % 2 == 0)


def _feed(rng: random.Random, stream: str, first: dict[str, bool], turning: Turning) -> Feed:
    tables = []
    serial = 0
    for batch in range(turning.batches):
        count = rng.randint(turning.rows * 3 // 4, turning.rows * 5 // 4)
        columns: dict[str, pa.Array] = {"id": pa.array(range(serial, serial + count), pa.int64())}
        serial += count
        for key in KEYS:
            values = turning.few if often(key, batch, first, turning) else turning.many
            drawn = [None if rng.random() < turning.null_share else rng.randrange(values) for _ in range(count)]
            columns[key] = pa.array(drawn, pa.int64())
        columns["x"] = pa.array([rng.randint(-50, 50) for _ in range(count)], pa.int32())
        times = [_time(rng, batch, turning) for _ in range(count)]
        columns["ts"] = pa.array(times, pa.int64()).cast(pa.timestamp("us", "UTC"))
        tables.append(pa.table(columns))
    return Feed(stream, "ts", turning.delay_us, tuple(tables))


def _time(rng: random.Random, batch: int, turning: Turning) -> int:
    """On a grid, so that differences fall on bounds too."""
    late = rng.uniform(0.5, 2) * turning.batch_us if rng.random() < turning.late_share else 0
    return 1_000 * _SECOND + round((batch + rng.random()) * turning.batch_us - late) // 50_000 * 50_000


def turning_queries(seed: int) -> Iterator[str]:
    """SELECTs without end."""
    rng = random.Random(f"queries {seed}")
    while True:
        yield _Writer(rng).select()


@dataclass
class _Writer:
    """Writes one query; every choice comes from `rng`."""

    rng: random.Random
    names: dict[str, str] = field(default_factory=dict)
    """relation -> stream."""
    text: str = ""
    where: list[str] = field(default_factory=list)

    def select(self) -> str:
        ways = self.rng.choices((2, 3, 4, 5), (15, 35, 30, 20))[0]
        start = self.rng.choice(STREAMS)
        self.names = {start: start}
        self.text = f"FROM {start}"
        while len(self.names) < ways:
            self._join()
        for name in self.names:
            if self.rng.random() < 0.25:
                self.where.append(self._selection(name))
        items = [f"{name}.id AS i{place}" for place, name in enumerate(self.names)]
        if self.rng.random() < 0.3:
            one, other = self.rng.sample(sorted(self.names), 2)
            items.append(f"{one}.x + {other}.x AS more")
        where = f" WHERE {' AND '.join(self.where)}" if self.where else ""
        return f"SELECT {', '.join(items)} {self.text}{where}"

    def _join(self) -> None:
        """One more relation, by an edge of the pool; where another edge closes a cycle, often by that too."""
        known, stream, key = self.rng.choice(sorted(self._reachable()))
        twice = stream in self.names.values()
        name = f"{stream}{len(self.names)}" if twice else stream
        on = [f"{known}.{key} = {name}.{key}"]
        further = [
            f"{other}.{k} = {name}.{k}"
            for other, end, k in sorted(self._reachable(fresh=False))
            if end == stream and (other, k) != (known, key) and other != known
        ]
        for equal in further if self.rng.random() < 0.6 else ():
            (on if self.rng.random() < 0.5 else self.where).append(equal)
        self.names[name] = stream
        relation = stream if name == stream else f"{stream} AS {name}"
        self.text += f" JOIN {relation} ON {' AND '.join(on)} WITHIN {self.rng.choice(_SPANS)}"

    def _reachable(self, fresh: bool = True) -> set[tuple[str, str, str]]:
        """(known relation, stream, key). `fresh`: mostly of streams that the query does not have yet."""
        again = not fresh or self.rng.random() < 0.1
        found = set()
        for name, stream in self.names.items():
            for one, other, key in EDGES:
                if stream in (one, other):
                    end = other if stream == one else one
                    if again or end not in self.names.values():
                        found.add((name, end, key))
        return found or self._reachable(fresh=False)

    def _selection(self, name: str) -> str:
        bound = self.rng.randint(-30, 30)
        return self.rng.choice((f"{name}.x > {bound}", f"{name}.x <= {bound}", f"{name}.x % 3 = 0"))
