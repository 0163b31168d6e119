"""What to try: random streams and random queries over them, the same for the same seed on every machine.

The data is made so that a correct engine has no excuse. Floats are small multiples of 0.25, so sums are exact
in any order; event times are unique, so first, last, min_by and max_by have one answer; integers stay far
from overflow; a top-k is ordered by all its keys in the end. What differs from the oracle is a mistake.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from thalweg.testing.oracle import Feed

_SECOND = 1_000_000
_BASE = int(datetime(2026, 3, 1, 12, 0, tzinfo=UTC).timestamp()) * _SECOND
_WORDS = ("amber", "Basalt", "chalk", "dune", "esker", "fjord", "gorge", "héron", "", "O'Neill")


@dataclass(frozen=True)
class Column:
    """One column of a random stream: its type, how a value is drawn, and what it can be used for."""

    name: str
    type: pa.DataType
    draw: Callable[[random.Random], Any]
    kind: str
    """integer | float | decimal | string | boolean | date | instant | binary."""


def _columns() -> tuple[Column, ...]:
    def integers(low: int, high: int) -> Callable[[random.Random], int]:
        return lambda rng: rng.randint(low, high)

    def quarters(limit: int) -> Callable[[random.Random], float]:
        return lambda rng: rng.randint(-limit, limit) / 4

    def cents(limit: int, scale: int) -> Callable[[random.Random], Decimal]:
        return lambda rng: Decimal(rng.randint(-limit, limit)).scaleb(-scale)

    def instant(rng: random.Random) -> datetime:
        return datetime(2025, 12, 31, 23, 0, tzinfo=UTC) + timedelta(seconds=rng.randint(0, 7200))

    def naive(rng: random.Random) -> datetime:
        return instant(rng).replace(tzinfo=None)

    return (
        Column("flag", pa.bool_(), lambda rng: rng.random() < 0.6, "boolean"),
        Column("tiny", pa.int8(), integers(-100, 100), "integer"),
        Column("small", pa.int16(), integers(-3000, 3000), "integer"),
        Column("amount", pa.int32(), integers(-50, 50), "integer"),
        Column("userID", pa.int64(), integers(0, 40), "integer"),
        Column("big", pa.int64(), integers(-(10**9), 10**9), "integer"),
        Column("ratio", pa.float32(), quarters(64), "float"),
        Column("price", pa.float64(), quarters(400), "float"),
        Column("cost", pa.decimal128(10, 2), cents(10_000, 2), "decimal"),
        Column("exact", pa.decimal128(24, 6), cents(10**9, 6), "decimal"),
        Column("word", pa.string(), lambda rng: rng.choice(_WORDS), "string"),
        Column("raw", pa.binary(), lambda rng: bytes([rng.randint(0, 255) for _ in range(2)]), "binary"),
        Column("day", pa.date32(), lambda rng: date(2024, 2, 27) + timedelta(days=rng.randint(0, 4)), "date"),
        Column("seen", pa.timestamp("us", tz="UTC"), instant, "instant"),
        Column("local", pa.timestamp("us"), naive, "instant"),
    )


COLUMNS = _columns()
_KEY_INTEGER = Column("k", pa.int32(), lambda rng: rng.randint(0, 5), "integer")
_KEY_STRING = Column("gemPackID", pa.string(), lambda rng: f"g{rng.randint(0, 8)}", "string")


@dataclass(frozen=True)
class Shape:
    """How a random stream flows."""

    batches: int = 6
    rows: int = 80
    """Rows of a batch, on average; some batches are empty."""
    batch_seconds: float = 7.0
    """How far event time moves on with a batch."""
    delay_seconds: int = 4
    disorder_seconds: float = 3.0
    """Rows come out of order by up to this much."""
    late_share: float = 0.08
    """Rows that come so late that windows they belong to may have closed."""
    empty_share: float = 0.15
    null_share: float = 0.1
    null_times: bool = True
    """Whether a few rows have no event time: they are in no window, and plain queries see them."""
    nans: bool = False
    skew: float = 2.0
    """Keys are drawn so that the first of them are frequent; 1 is uniform."""


@dataclass(frozen=True)
class RandomQuery:
    name: str
    select: str
    approximate: frozenset[str] = frozenset()
    """Columns that are estimates: compare them with a tolerance."""


def random_feed(seed: int, shape: Shape | None = None, *, stream: str = "events") -> Feed:
    """A stream's batches: two key columns, the event time, and a random choice of `COLUMNS`."""
    rng = random.Random(f"feed {seed}")
    shape = shape or Shape()
    columns = [_KEY_INTEGER, _KEY_STRING, *rng.sample(COLUMNS, rng.randint(5, len(COLUMNS)))]
    instant = rng.random() < 0.85
    time = pa.timestamp("us", tz="UTC") if instant else pa.timestamp("us")
    schema = pa.schema([pa.field("ts", time), *(pa.field(c.name, c.type) for c in columns)])
    used: set[int] = set()
    batches = []
    for number in range(shape.batches):
        count = 0 if rng.random() < shape.empty_share else rng.randint(1, 2 * shape.rows - 1)
        data = {"ts": [_event_time(rng, shape, number, used) for _ in range(count)]}
        for column in columns:
            data[column.name] = [_value(rng, shape, column) for _ in range(count)]
        batches.append(_table(data, schema))
    return Feed(stream, "ts", shape.delay_seconds * _SECOND, tuple(batches))


def _table(data: dict[str, list[Any]], schema: pa.Schema) -> pa.Table:
    times, *rest = schema
    arrays = [pa.array(data[times.name], pa.int64()).cast(times.type)]
    arrays += [pa.array(data[column.name], column.type) for column in rest]
    return pa.Table.from_arrays(arrays, schema=schema)


def _event_time(rng: random.Random, shape: Shape, batch: int, used: set[int]) -> int | None:
    """A time no other row has, around the batch's place in event time."""
    if shape.null_times and rng.random() < 0.02:
        return None
    seconds = batch * shape.batch_seconds + rng.uniform(0, shape.batch_seconds)
    seconds -= rng.uniform(0, shape.disorder_seconds)
    if rng.random() < shape.late_share:
        seconds -= rng.uniform(1, 5) * (shape.delay_seconds + shape.batch_seconds)
    # On a grid of 50 ms, so that times fall on the borders of windows too; made unique by microseconds.
    micros = _BASE + round(seconds * 20) * 50_000
    while micros in used:
        micros += 1
    used.add(micros)
    return micros


def _value(rng: random.Random, shape: Shape, column: Column) -> Any:
    if rng.random() < shape.null_share:
        return None
    if column is _KEY_INTEGER:
        return int(6 * rng.random() ** shape.skew)
    if column is _KEY_STRING:
        return f"g{int(9 * rng.random() ** shape.skew)}"
    if shape.nans and column.kind == "float" and rng.random() < 0.05:
        return float("nan")
    return column.draw(rng)


def random_queries(seed: int, feed: Feed, count: int) -> tuple[RandomQuery, ...]:
    """Queries over the feed, named q0, q1, ...; about one in six is a plain filter and projection."""
    rng = random.Random(f"queries {seed}")
    # A few windows and predicates for all of them, so that there is something to share.
    writer = _Writer(rng, feed, windows=[_window(rng) for _ in range(4)])
    return tuple(writer.plain(f"q{i}") if rng.random() < 0.17 else writer.windowed(f"q{i}") for i in range(count))


def _window(rng: random.Random) -> str:
    """`window(...)` over ts: tumbling, sliding, sliding by what does not divide the range, shifted."""
    span = rng.choice((2, 5, 6, 10, 12, 20))
    slides = [s for s in (1, 2, 3, 4, 5, 10) if s < span]
    shape = rng.random()
    if shape < 0.4:
        return f"window(ts, '{span} seconds')"
    slide = rng.choice(slides)
    if shape < 0.9:
        return f"window(ts, '{span} seconds', '{slide} seconds')"
    return f"window(ts, '{span} seconds', '{slide} seconds', '{rng.randint(1, 3) * 250} milliseconds')"


@dataclass
class _Writer:
    """Writes query texts over one feed; every choice comes from `rng`."""

    rng: random.Random
    feed: Feed
    windows: Sequence[str]
    columns: tuple[Column, ...] = field(init=False)

    def __post_init__(self) -> None:
        known = {column.name: column for column in (*COLUMNS, _KEY_INTEGER, _KEY_STRING)}
        self.columns = tuple(known[name] for name in self.feed.schema.names if name in known)

    def plain(self, name: str) -> RandomQuery:
        chosen = self.rng.sample(self.columns, self.rng.randint(1, min(4, len(self.columns))))
        items = [column.name for column in chosen]
        items += [f"{self.scalar()} AS e{i}" for i in range(self.rng.randint(0, 2))]
        if self.rng.random() < 0.5:
            items.append("ts")
        where = f" WHERE {self.predicate()}" if self.rng.random() < 0.8 else ""
        return RandomQuery(name, f"SELECT {', '.join(items)} FROM {self.feed.stream}{where}")

    def windowed(self, name: str) -> RandomQuery:
        keys = self.keys()
        having = f" HAVING {self.having()}" if self.rng.random() < 0.25 else ""
        measure, top = self.top(keys, by_name=bool(having)) if keys and self.rng.random() < 0.2 else ("", "")
        shown = [key for key in keys if top or self.rng.random() < 0.9]
        items = [f"{key} AS {alias}" if alias else key for key, alias in shown]
        aggregates = [self.aggregate() for _ in range(self.rng.randint(1, 4))]
        aliases = [f"a{i}" for i in range(len(aggregates))]
        items += [f"{call} AS {alias}" for (call, _), alias in zip(aggregates, aliases, strict=True)]
        items += self.window_items()
        if measure:
            items.append(f"{measure} AS measure")
        if self.rng.random() < 0.3:
            items.append(f"{self.over_aggregates()} AS derived")
        if self.rng.random() < 0.2:
            # Without a name: the result column is called what Spark calls it.
            items.append(f"sum({self.number()})")
        self.rng.shuffle(items)
        text = f"SELECT {', '.join(items)} FROM {self.feed.stream}"
        if self.rng.random() < 0.5:
            text += f" WHERE {self.predicate()}"
        groups = [key for key, _ in keys]
        groups.insert(self.rng.randint(0, len(groups)), self.rng.choice(self.windows))
        text += f" GROUP BY {', '.join(groups)}{having}{top}"
        approximate = frozenset(a for (_, estimate), a in zip(aggregates, aliases, strict=True) if estimate)
        return RandomQuery(name, text, approximate)

    def keys(self) -> list[tuple[str, str | None]]:
        """(expression, alias) of up to three different keys; a plain column needs no alias."""
        candidates: list[tuple[str, str | None]] = [("k", None), ("gemPackID", None)]
        candidates += [("k % 3", "third"), ("coalesce(k, -1)", "k_or_none"), ("upper(gemPackID)", "pack")]
        candidates += [(c.name, None) for c in self.columns if c.kind in ("boolean", "date", "binary")]
        candidates += [(c.name, None) for c in self.columns if c.name in ("userID", "word", "ratio", "cost")]
        return self.rng.sample(candidates, self.rng.choice((0, 1, 1, 1, 2, 2, 3)))

    def window_items(self) -> list[str]:
        start, end = "window.start AS since", "window.end AS until"
        choices: tuple[list[str], ...] = ([], [end], [start, end], ["window"])
        return self.rng.choice(choices)

    def having(self) -> str:
        number = self.one("integer", "float", "decimal")
        return self.rng.choice(
            ("count(*) > 2", f"max({number}) > 0", f"sum({number}) IS NOT NULL AND count({number}) >= 2")
        )

    def top(self, keys: Sequence[tuple[str, str | None]], *, by_name: bool) -> tuple[str, str]:
        """(measure, clauses): ORDER BY and LIMIT that leave no choice, as every key is in the order.

        Spark does not find an ORDER BY expression that is not in the result once there is a HAVING: then
        the order is `by_name`, and so it is in half of the other cases.
        """
        number, some = self.one("integer", "float", "decimal"), self.any()
        measure = self.rng.choice(("count(*)", f"sum({number})", f"max({some})"))
        direction = self.rng.choice(("", " DESC", " DESC NULLS LAST", " NULLS LAST", " ASC NULLS FIRST"))
        limit = f"LIMIT {self.rng.randint(1, 3)}"
        if by_name or self.rng.random() < 0.5:
            order = ["measure" + direction, *(alias or key for key, alias in keys)]
            return measure, f" ORDER BY {', '.join(order)} {limit}"
        order = [measure + direction, *(key for key, _ in keys)]
        return "", f" ORDER BY {', '.join(order)} {limit}"

    def over_aggregates(self) -> str:
        number = self.one("integer", "float")
        return self.rng.choice(
            (
                f"sum({number}) * 1.0D / count(*)",
                f"max({number}) - min({number})",
                f"CASE WHEN count(*) > 5 THEN 'many' WHEN sum({number}) > 0 THEN 'few' ELSE 'none' END",
                f"coalesce(sum({number}), 0)",
                f"sum({number}) / nullif(count({number}), 0)",
            )
        )

    def aggregate(self) -> tuple[str, bool]:
        """(call, whether it is an estimate)."""
        number = self.one("integer", "float", "decimal")
        some = self.any()
        calls = [
            ("count(*)", False),
            (f"count({some})", False),
            (f"count(DISTINCT {some})", False),
            (f"sum({self.number()})", False),
            (f"sum({number})", False),
            (f"min({some})", False),
            (f"max({some})", False),
            (f"avg({number})", False),
            (f"{self.rng.choice(('stddev', 'stddev_pop', 'variance', 'var_pop'))}({number})", False),
            (f"approx_count_distinct({some})", True),
            (f"median({number})", False),
            (f"percentile({number}, {self.rng.choice(('0.1', '0.25', '0.9'))})", False),
            (f"{self.rng.choice(('min_by', 'max_by'))}({some}, ts)", False),
            (f"{self.rng.choice(('first', 'last'))}({some})", False),
            (f"{self.rng.choice(('first', 'last'))}({some}) IGNORE NULLS", False),
            (f"{self.rng.choice(('bool_and', 'bool_or'))}({self.condition()})", False),
        ]
        call, estimate = self.rng.choice(calls)
        if self.rng.random() < 0.2 and not call.endswith("NULLS"):
            call += f" FILTER (WHERE {self.predicate()})"
        return call, estimate

    def any(self) -> str:
        return self.rng.choice(self.columns).name

    def one(self, *kinds: str) -> str:
        """A column of one of the kinds; the integer key where there is none."""
        return self.rng.choice([c for c in self.columns if c.kind in kinds] or [_KEY_INTEGER]).name

    def number(self) -> str:
        name = self.one("integer", "float", "decimal")
        forms = ("{0}", "{0} * 2", "{0} + 1", "abs({0})", "-{0}", "{0} - k")
        return self.rng.choice(forms).format(name)

    def scalar(self) -> str:
        integer, text = self.one("integer"), self.one("string")
        return self.rng.choice(
            (
                self.number(),
                f"{integer} % 7",
                f"CAST({integer} AS double) / 4",
                f"CAST({integer} AS string)",
                f"lower({text})",
                f"length({text})",
                f"substring({text}, 1, 2)",
                f"concat({text}, '-', {text})",
                f"coalesce({text}, 'none')",
                f"CASE WHEN {self.condition()} THEN {integer} ELSE 0 END",
                f"{self.any()} IS NULL",
                "hour(ts)",
                "year(ts)",
            )
        )

    def predicate(self) -> str:
        shape = self.rng.random()
        if shape < 0.6:
            return self.condition()
        if shape < 0.8:
            return f"{self.condition()} AND {self.condition()}"
        if shape < 0.93:
            return f"({self.condition()} OR {self.condition()})"
        return f"NOT ({self.condition()})"

    def condition(self) -> str:
        number, text = self.one("integer", "float", "decimal"), self.one("string")
        operator = self.rng.choice(("<", "<=", ">", ">=", "=", "<>"))
        choices = [
            f"k {operator} {self.rng.randint(0, 4)}",
            f"{number} {operator} {self.rng.randint(-10, 10)}",
            f"{number} BETWEEN -5 AND {self.rng.randint(0, 20)}",
            f"k IN (0, {self.rng.randint(1, 5)})",
            f"gemPackID = 'g{self.rng.randint(0, 3)}'",
            f"{text} LIKE '{self.rng.choice(('g%', '%e', '_a%', '%'))}'",
            f"{self.any()} IS NOT NULL",
            f"{number} <=> k",
            "length(gemPackID) > 1",
        ]
        choices += [c.name for c in self.columns if c.kind == "boolean"]
        choices += [f"{c.name} >= DATE '2024-02-29'" for c in self.columns if c.kind == "date"]
        return self.rng.choice(choices)
