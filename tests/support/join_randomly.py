"""What to try of joins: random streams and random join queries over them, the same for the same seed everywhere.

The streams have the same columns, so names must be qualified, in types that differ a little, so keys must be
brought to one type. The queries draw their equalities and bounds from a small pool of edges: some join the same
streams in the same way and then go on differently, some share nothing. Bounds are chosen so narrow that the rows
a query gives stay near `Crowd.output`, whatever the skew of its keys.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from tests.support.randomly import RandomQuery

from thalweg.testing.oracle import Feed

_SECOND = 1_000_000
_BASE = int(datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()) * _SECOND
_STREAMS = ("amber", "basalt", "chalk", "dune", "esker")
_ALIASES = ("p", "q", "r", "s", "t")
_SPANS_MS = (250, 500, 1000, 1500, 2000, 3000, 4000, 6000)
_OUTER = ("LEFT", "LEFT OUTER", "RIGHT", "FULL OUTER", "LEFT SEMI", "LEFT ANTI")


@dataclass(frozen=True)
class Crowd:
    """How random streams flow."""

    batches: int = 7
    rows: int = 24
    """Rows of a batch of one stream, on average; some batches bring some streams nothing."""
    batch_seconds: float = 5.0
    disorder_seconds: float = 2.0
    late_share: float = 0.06
    empty_share: float = 0.15
    null_share: float = 0.06
    skew: float = 1.6
    """Keys are drawn so that the first of them are frequent; 1 is uniform."""
    output: int = 2500
    """Rows that a query gives, about, before its selections."""


@dataclass(frozen=True)
class Key:
    """One side of an equality: as SQL over `{0}.`, and as Python over a row."""

    text: str
    value: Callable[[dict[str, Any]], Any]


def _plus_one(value: int | None) -> int | None:
    return None if value is None else value + 1


_K = Key("{0}.k", lambda row: row["k"])
_J = Key("{0}.j", lambda row: row["j"])
_NAME = Key("{0}.name", lambda row: row["name"])
_FLAG = Key("{0}.flag", lambda row: row["flag"])
_UPPER = Key("upper({0}.name)", lambda row: None if row["name"] is None else row["name"].upper())
_THIRD = Key("{0}.j % 13", lambda row: None if row["j"] is None else row["j"] % 13)
_FILLED = Key("coalesce({0}.k, -1)", lambda row: -1 if row["k"] is None else row["k"])
_NEXT = Key("{0}.j + 1", lambda row: _plus_one(row["j"]))
_SHIFTED = Key("{0}.k + 1", lambda row: _plus_one(row["k"]))
_EQUALITIES: tuple[tuple[tuple[Key, Key], ...], ...] = (
    ((_K, _K),),
    ((_J, _J),),
    ((_NAME, _NAME),),
    ((_K, _K), (_NAME, _NAME)),
    ((_K, _J),),
    ((_UPPER, _UPPER),),
    ((_THIRD, _THIRD),),
    ((_FILLED, _FILLED),),
    ((_NEXT, _J),),
    ((_UPPER, _UPPER), (_FLAG, _FLAG)),
    ((_SHIFTED, _K),),
)
_PLAIN = 5
"""The first of them have no expressions, and are drawn more often."""


@dataclass(frozen=True)
class Edge:
    """Two streams and what is equal: what queries have in common if they have anything."""

    left: str
    right: str
    keys: tuple[tuple[Key, Key], ...]
    matches: float
    """Rows of `right` per row of `left` and second of event time."""
    spans_ms: tuple[int, ...]
    """Drawn in advance, so that some queries bound an edge alike."""

    def from_(self, stream: str) -> tuple[str, tuple[tuple[Key, Key], ...]]:
        """(the other stream, keys with those of `stream` first)."""
        if stream == self.left:
            return self.right, self.keys
        return self.left, tuple((right, left) for left, right in self.keys)


@dataclass(frozen=True)
class World:
    feeds: tuple[Feed, ...]
    queries: tuple[RandomQuery, ...]

    def feed(self, stream: str) -> Feed:
        return next(feed for feed in self.feeds if feed.stream == stream)

    def closed(self) -> World:
        """As a test feeds it that calls `run_available()` for every batch."""
        return World(tuple(feed.closed() for feed in self.feeds), self.queries)


def random_world(seed: int, crowd: Crowd | None = None, *, queries: int = 8, inner: bool = False) -> World:
    """Three to five streams, and queries q0, q1, ... over them; `inner`: plain inner joins only.

    Some queries are there twice: what two ask alike is shared, and must not count twice.
    """
    rng = random.Random(f"joins {seed}")
    crowd = crowd or Crowd()
    feeds = tuple(_feed(rng, crowd, name) for name in _STREAMS[: rng.randint(3, 5)])
    edges = _edges(rng, crowd, feeds)
    writers = [_Writer(rng, crowd, feeds, edges) for _ in range(queries)]
    selects = [writer.query(inner) for writer in writers]
    twins = random.Random(f"twins {seed}")
    for i in range(1, queries):
        if twins.random() < 0.25:
            selects[i] = selects[twins.randrange(i)]
    return World(feeds, tuple(RandomQuery(f"q{i}", select) for i, select in enumerate(selects)))


# rows


def _feed(rng: random.Random, crowd: Crowd, stream: str) -> Feed:
    time = rng.choice(("ts", "ts", "at"))
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("k", rng.choice((pa.int16(), pa.int32(), pa.int64()))),
            pa.field("j", rng.choice((pa.int32(), pa.int64()))),
            pa.field("name", pa.string()),
            pa.field("x", pa.int32()),
            pa.field("price", pa.float64()),
            pa.field("flag", pa.bool_()),
            pa.field(time, pa.timestamp("us", tz="UTC")),
        ]
    )
    delay = rng.choice((0, 1, 2, 4, 6))
    batches = []
    serial = 0
    for batch in range(crowd.batches):
        count = 0 if rng.random() < crowd.empty_share else rng.randint(1, 2 * crowd.rows - 1)
        rows = []
        for _ in range(count):
            serial += 1
            rows.append({"id": serial, **_values(rng, crowd), time: _time(rng, crowd, batch, delay)})
        instants = pa.array([row[time] for row in rows], pa.int64()).cast(schema.field(time).type)
        arrays = [pa.array([row[f.name] for row in rows], f.type) for f in list(schema)[:-1]]
        batches.append(pa.Table.from_arrays([*arrays, instants], schema=schema))
    return Feed(stream, time, delay * _SECOND, tuple(batches))


def _values(rng: random.Random, crowd: Crowd) -> dict[str, Any]:
    def skewed(count: int) -> int:
        return int(count * rng.random() ** crowd.skew)

    values: dict[str, Any] = {
        "k": skewed(8),
        "j": skewed(25),
        "name": f"{rng.choice('nnnN')}{skewed(12)}",
        "x": rng.randint(-50, 50),
        "price": rng.randint(-400, 400) / 4,
        "flag": rng.random() < 0.7,
    }
    return {name: None if rng.random() < crowd.null_share else value for name, value in values.items()}


def _time(rng: random.Random, crowd: Crowd, batch: int, delay: int) -> int | None:
    """Around the batch's place in event time; on a grid of 50 ms, so that differences fall on bounds too."""
    if rng.random() < 0.02:
        return None
    seconds = batch * crowd.batch_seconds + rng.uniform(0, crowd.batch_seconds)
    seconds -= rng.uniform(0, crowd.disorder_seconds)
    if rng.random() < crowd.late_share:
        seconds -= rng.uniform(0.5, 4) * (delay + crowd.batch_seconds)
    return _BASE + round(seconds * 20) * 50_000 + rng.choice((0, 0, 0, 0, 0, 0, 1, -1))


# edges


def _edges(rng: random.Random, crowd: Crowd, feeds: Sequence[Feed]) -> list[Edge]:
    """A tree over all streams, two more edges, and one of a stream with itself."""
    pairs = [(rng.choice(feeds[:i]), feed) for i, feed in enumerate(feeds) if i]
    pairs += [(one, other) for one, other in (rng.sample(feeds, 2) for _ in range(2))]
    pairs.append((feeds[0], feeds[0]))
    edges = []
    for left, right in pairs:
        choices = _EQUALITIES[:_PLAIN] if rng.random() < 0.7 else _EQUALITIES[_PLAIN:]
        keys = rng.choice(choices)
        matches = _matches(crowd, left, right, keys)
        spans = rng.sample(_SPANS_MS, 2)
        edges.append(Edge(left.stream, right.stream, keys, matches, tuple(spans)))
    return edges


def _matches(crowd: Crowd, left: Feed, right: Feed, keys: tuple[tuple[Key, Key], ...]) -> float:
    def count(feed: Feed, side: int) -> Counter[tuple[Any, ...]]:
        rows = pa.concat_tables(feed.batches).to_pylist()
        found = (tuple(pair[side].value(row) for pair in keys) for row in rows)
        return Counter(key for key in found if None not in key)

    mine, theirs = count(left, 0), count(right, 1)
    pairs = sum(n * theirs[key] for key, n in mine.items())
    return pairs / max(1, left.rows) / (crowd.batches * crowd.batch_seconds)


# queries


class _Writer:
    """Writes one query; every choice comes from `rng`."""

    def __init__(self, rng: random.Random, crowd: Crowd, feeds: Sequence[Feed], edges: Sequence[Edge]) -> None:
        self.rng = rng
        self.crowd = crowd
        self.feeds = {feed.stream: feed for feed in feeds}
        self.edges = edges
        self.steps: list[tuple[int, Edge, str]] = []
        """(place of the relation it is joined with, edge, stream) of every relation but the first."""
        self.streams: list[str] = []
        self.names: list[str] = []

    def query(self, inner: bool) -> str:
        ways = self.rng.choices((2, 3, 4, 5), (45, 30, 15, 10))[0]
        self._draw_steps(ways)
        kind = "JOIN"
        if not inner and ways == 2 and self.rng.random() < 0.4:
            kind = f"{self.rng.choice(_OUTER)} JOIN"
        shown = self.names[:1] if "SEMI" in kind or "ANTI" in kind else self.names
        grouped = not inner and kind == "JOIN" and self.rng.random() < 0.3
        source, where = self._from(kind)
        where += self._selections(kind)
        self.rng.shuffle(where)
        text = f"FROM {source}" + (f" WHERE {' AND '.join(where)}" if where else "")
        if grouped:
            return self._grouped(text)
        items = [f"{name}.id AS i{i}" for i, name in enumerate(shown) if self.rng.random() < 0.8]
        items += [f"{self._scalar(shown)} AS c{i}" for i in range(self.rng.randint(1, 4))]
        self.rng.shuffle(items)
        return f"SELECT {', '.join(items)} {text}"

    def _draw_steps(self, ways: int) -> None:
        self.streams = [self.rng.choice(list(self.feeds))]
        while len(self.streams) < ways:
            place = self.rng.randrange(len(self.streams))
            known = self.streams[place]
            edge = self.rng.choice([e for e in self.edges if known in (e.left, e.right)])
            other, _ = edge.from_(known)
            self.steps.append((place, edge, other))
            self.streams.append(other)
        bare = self.rng.random() < 0.4
        for place, stream in enumerate(self.streams):
            alone = bare and self.streams.count(stream) == 1
            self.names.append(stream if alone else _ALIASES[place])

    def _from(self, kind: str) -> tuple[str, list[str]]:
        """(what follows FROM, conjuncts for WHERE)."""
        comma = kind == "JOIN" and self.rng.random() < 0.25
        text = self._relation(0)
        where = []
        for place, (known, edge, stream) in enumerate(self.steps, 1):
            _, keys = edge.from_(self.streams[known])
            equal = [f"{a.text.format(self.names[known])} = {b.text.format(self.names[place])}" for a, b in keys]
            span = self._span(edge)
            bound = self._bound(known, place, span)
            if comma:
                text += f", {self._relation(place)}"
                where += [*equal, bound]
                continue
            on = [*equal, *self._residuals(known, place, kind)]
            within = self.rng.random() < 0.55
            if not within:
                on.append(bound)
            self.rng.shuffle(on)
            text += f" {kind} {self._relation(place)} ON {' AND '.join(on)}"
            if within:
                text += f" WITHIN {_written(span)}"
            assert stream == self.streams[place]
        if len(self.names) > 2 and self.rng.random() < 0.3:
            first, last = self.names[0], self.names[-1]
            where.append(self.rng.choice((f"{first}.flag = {last}.flag", f"{first}.x + {last}.x > -40")))
        return text, where

    def _relation(self, place: int) -> str:
        stream, name = self.streams[place], self.names[place]
        if stream == name:
            return stream
        return f"{stream} {self.rng.choice(('', 'AS '))}{name}"

    def _span(self, edge: Edge) -> int:
        """A span in milliseconds that keeps the output near what the crowd allows."""
        rows = max(1, self.feeds[self.streams[0]].rows)
        factor = (self.crowd.output / rows) ** (1 / (len(self.streams) - 1))
        most = factor / max(edge.matches, 1e-9) * 1000 / 2
        if self.rng.random() < 0.5 and any(most / 4 <= span <= most for span in edge.spans_ms):
            return self.rng.choice([span for span in edge.spans_ms if most / 4 <= span <= most])
        return self.rng.choice([span for span in _SPANS_MS if span <= most][-2:] or [_SPANS_MS[0]])

    def _bound(self, known: int, place: int, span: int) -> str:
        one, other = self._time(known), self._time(place)
        shape = self.rng.random()
        if shape < 0.15 and span >= 500:
            size = _written(2 * span).lower()
            return f"window({one}, '{size}') = window({other}, '{size}')"
        if self.rng.random() < 0.5:
            one, other = other, one
        low, high = sorted(self.rng.sample((-span, -span // 2, 0, span // 2, span), 2))
        if shape < 0.7:
            return f"{one} BETWEEN {_shifted(other, low)} AND {_shifted(other, high)}"
        return f"{one} >= {_shifted(other, low)} AND {one} <= {_shifted(other, high)}"

    def _time(self, place: int) -> str:
        return f"{self.names[place]}.{self.feeds[self.streams[place]].time}"

    def _residuals(self, known: int, place: int, kind: str) -> list[str]:
        a, b = self.names[known], self.names[place]
        if self.rng.random() < 0.7:
            return []
        choices = [f"{a}.x + {b}.x > -20", f"{a}.price < {b}.price + 40", f"{a}.x <> {b}.x", f"{b}.x > -30"]
        if kind != "JOIN":
            choices.append(f"{a}.flag")
        return [self.rng.choice(choices)]

    def _selections(self, kind: str) -> list[str]:
        """Conjuncts over one relation each. Those of outer joins are over relations that have no nulls added."""
        places = {"JOIN": self.names, "FULL OUTER JOIN": [], "RIGHT JOIN": self.names[1:]}.get(kind, self.names[:1])
        found = []
        for name in places:
            while self.rng.random() < 0.6 / len(self.names):
                found.append(self._selection(name))
        return found

    def _selection(self, name: str) -> str:
        operator = self.rng.choice(("<", "<=", ">", ">=", "="))
        choices = (
            f"{name}.x {operator} {self.rng.randint(-20, 20)}" if operator != "=" else f"{name}.flag",
            f"{name}.k {operator} {self.rng.randint(0, 3)}",
            f"{name}.price > {self.rng.randint(-60, 20)}.5",
            f"{name}.x BETWEEN {self.rng.randint(-50, -10)} AND {self.rng.randint(10, 50)}",
            f"{name}.name LIKE 'n%'",
            f"({name}.flag OR {name}.x > 0)",
            f"{name}.k IN (0, 1, {self.rng.randint(2, 9)})",
            f"{name}.name IS NOT NULL",
            f"{name}.k % 2 = 0",
        )
        return self.rng.choice(choices)

    def _scalar(self, names: Sequence[str]) -> str:
        a, b = (self.rng.choice(names) for _ in range(2))
        clock = self._time(self.names.index(a))
        forms = (
            *(f"{a}.k", f"{a}.j", f"{a}.name", f"{a}.x", f"{a}.price", f"{a}.flag", clock),
            *(f"{a}.x + {b}.x", f"{a}.price * 2 - {b}.price", f"concat({a}.name, '/', {b}.name)"),
            *(f"coalesce({a}.k, {b}.k)", f"CASE WHEN {a}.x > {b}.x THEN {a}.name ELSE {b}.name END"),
            *(f"{a}.name IS NULL", f"upper({b}.name)"),
        )
        return self.rng.choice(forms)

    def _grouped(self, text: str) -> str:
        names = self.names
        clock = self._time(self.rng.randrange(len(names)))
        size = self.rng.choice((2, 4, 6, 10))
        slide = f", '{self.rng.choice((1, size // 2))} seconds'" if self.rng.random() < 0.4 else ""
        keys = [f"{self.rng.choice(names)}.{column}" for column in self.rng.sample(("k", "name", "flag"), 2)]
        keys = keys[: self.rng.randint(0, 2)]
        items = [f"{key} AS g{i}" for i, key in enumerate(keys)]
        items += [f"{self._aggregate()} AS a{i}" for i in range(self.rng.randint(1, 3))]
        items += self.rng.choice((["window.end AS until"], ["window"], ["window.start AS since"]))
        groups = [*keys, f"window({clock}, '{size} seconds'{slide})"]
        self.rng.shuffle(groups)
        having = " HAVING count(*) > 1" if self.rng.random() < 0.2 else ""
        return f"SELECT {', '.join(items)} {text} GROUP BY {', '.join(groups)}{having}"

    def _aggregate(self) -> str:
        a, b = (self.rng.choice(self.names) for _ in range(2))
        calls = (
            *("count(*)", f"count({a}.name)", f"count(DISTINCT {b}.k)", f"sum({a}.x)", f"sum({a}.x * {b}.x)"),
            *(f"min({a}.id)", f"max({b}.name)", f"avg({a}.price)", f"sum({a}.price + {b}.price)"),
            *(f"median({a}.x)", f"count(*) FILTER (WHERE {a}.flag)", f"max({b}.price - {a}.price)"),
        )
        return self.rng.choice(calls)


def _written(span_ms: int) -> str:
    if span_ms % 1000:
        return f"{span_ms} MILLISECONDS"
    return f"{span_ms // 1000} SECOND{'S' if span_ms > 1000 else ''}"


def _shifted(time: str, span_ms: int) -> str:
    if span_ms == 0:
        return time
    return f"{time} {'-' if span_ms < 0 else '+'} INTERVAL {_written(abs(span_ms))}"
