"""Random worlds of queries over the same rows, with as many kinds of columns, keys, predicates and aggregates as rows
can be told apart by: as SQL for the engine and for DuckDB.

Doubles are small multiples of 0.25, event times are unique, and only `q` comes near the bounds of its type: what
differs is a mistake.
"""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass, replace
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from thalweg.frontend import analysis
from thalweg.frontend.bind import bind
from thalweg.model.query import Query, SinkSpec
from thalweg.model.stream import Field, Schema, SourceSpec, Stream

SECOND = 1_000_000
BASE = 1000 * SECOND
DELAY = 3 * SECOND
TYPES = {
    "ts": "timestamp",
    "a": "int",
    "b": "string",
    "c": "bigint",
    "d": "date",
    "f": "boolean",
    "h": "smallint",
    "i": "int",
    "m": "decimal(10,2)",
    "q": "bigint",
    "r": "float",
    "t": "timestamp",
    "x": "double",
    "y": "tinyint",
}
ARROW = {
    "ts": pa.timestamp("us"),
    "a": pa.int32(),
    "b": pa.string(),
    "c": pa.int64(),
    "d": pa.date32(),
    "f": pa.bool_(),
    "h": pa.int16(),
    "i": pa.int32(),
    "m": pa.decimal128(10, 2),
    "q": pa.int64(),
    "r": pa.float32(),
    "t": pa.timestamp("us"),
    "x": pa.float64(),
    "y": pa.int8(),
}
STREAMS = {
    name: Stream(name, Schema(tuple(Field(n, t) for n, t in TYPES.items())), "ts", DELAY, SourceSpec("memory", {}))
    for name in ("s", "u")
}
WINDOWS = ((10, 10), (20, 5), (7, 7), (60, 1), (32, 2))
"""Width and slide in seconds."""
KEYS = ("a", "b", "c", "d", "f", "h", "m", "t", "x", "y", "i % 3", "coalesce(a, -1)", "upper(b)")
KEY_TYPES = {"i % 3": "int", "coalesce(a, -1)": "int", "upper(b)": "string"}
BOUNDS = (2**7 - 1, -(2**7), 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63) + 1)
SHARED = {
    "count(*)": "bigint",
    "count(i)": "bigint",
    "count(b)": "bigint",
    "sum(i)": "bigint",
    "sum(y)": "bigint",
    "sum(h)": "bigint",
    "sum(x)": "double",
    "sum(r)": "double",
    "sum(m)": "decimal(20,2)",
    "min(i)": "int",
    "max(c)": "bigint",
    "max(q)": "bigint",
    "min(q)": "bigint",
    "min(x)": "double",
    "max(x)": "double",
    "max(r)": "float",
    "min(y)": "tinyint",
    "max(h)": "smallint",
    "min(b)": "string",
    "max(d)": "date",
    "min(m)": "decimal(10,2)",
    "max(f)": "boolean",
    "avg(i)": "double",
    "sum(i + 1)": "bigint",
    "sum(i) + count(*)": "bigint",
    "count(DISTINCT b)": "bigint",
    "count(DISTINCT i)": "bigint",
    "bool_or(f)": "boolean",
    "median(i)": "double",
    "max_by(i, ts)": "int",
    "min_by(b, ts)": "string",
}
"""Aggregates that DuckDB has by the same name and with the same result."""
ENGINES_OWN = {
    "count_if(f)": "bigint",
    "avg(m)": "decimal(14,6)",
    "stddev(i)": "double",
    "var_pop(i)": "double",
    "first(i)": "int",
    "last(x)": "double",
    "max(t)": "timestamp",
    "approx_count_distinct(c)": "bigint",
    "percentile(i, 0.9)": "double",
}
ROUNDED = ("stddev", "var_pop")
"""Merged in another order they differ in the last bits."""
POISON = ("10 / i > 2", "CAST(b AS INT) > 0", "h % a = 0", "b > 3")
"""Predicates that fail on some rows."""
FAILING = {"sum(q)": "bigint", "10 / (count(*) - 3)": "double", "CAST(max(b) AS INT)": "int"}


@dataclass(frozen=True)
class WorldQuery:
    query: Query
    sql: str | None
    """For DuckDB, over a table `rows` with the columns of the stream and `mark`; None: it has no such thing."""
    may_fail: bool
    rounded: frozenset[int]
    """Columns that are equal but for the last bits."""
    stays: bool = False
    """Whether it is never dropped."""

    @property
    def name(self) -> str:
        return self.query.name


class Writer:
    """Writes queries; every choice comes from `rng`."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.number = 0
        self.windows = rng.sample(WINDOWS, rng.choice((1, 2, 3)))
        self.keys = [tuple(rng.sample(KEYS, rng.choice((0, 1, 1, 2, 3)))) for _ in range(rng.choice((1, 2, 4)))]
        self.failing = rng.choice((0.0, 0.0, 0.1, 0.3))
        self.columns = rng.sample(("simple", "simple", "bounds", "typed", "any"), 2)

    def unfailing(self, stream: str) -> WorldQuery:
        text = f"SELECT window.start AS w, count(*) AS x0 FROM {stream} GROUP BY window(ts, '10 seconds')"
        made = bound(self.name(), text, [("w", "timestamp"), ("x0", "bigint")])
        return WorldQuery(made, None, False, frozenset(), stays=True)

    def name(self) -> str:
        self.number += 1
        return f"q{self.number}"

    def query(self) -> WorldQuery:
        rng = self.rng
        stream = "u" if rng.random() < 0.15 else "s"
        keys, (width, slide) = rng.choice(self.keys), rng.choice(self.windows)
        aggregates, may_fail = self.aggregates()
        where = ""
        if rng.random() < 0.85:
            text, fails = self.predicate()
            where, may_fail = f" WHERE {text}", may_fail or fails
        having = rng.choice((" HAVING count(*) > 2", " HAVING max(i) > 0")) if rng.random() < 0.1 else ""
        order = " ORDER BY count(*) DESC LIMIT 2" if keys and not having and rng.random() < 0.05 else ""
        if order:
            order = f" ORDER BY count(*) DESC, {', '.join(keys)} LIMIT 2"
        columns = [("w", "timestamp"), *((f"k{n}", KEY_TYPES.get(k, TYPES.get(k, ""))) for n, k in enumerate(keys))]
        columns += [(f"x{n}", type_) for n, (_, type_) in enumerate(aggregates)]
        shown = [
            *(f"{k} AS k{n}" for n, k in enumerate(keys)),
            *(f"{a} AS x{n}" for n, (a, _) in enumerate(aggregates)),
        ]
        sliding = f", '{slide} seconds'" if slide < width else ""
        by = ", ".join([*keys, f"window(ts, '{width} seconds'{sliding})"])
        listed = ", ".join(["window.start AS w", *shown])
        text = f"SELECT {listed} FROM {stream}{where} GROUP BY {by}{having}{order}"
        query = bound(self.name(), text, columns)
        if rng.random() < 0.05:
            query = replace(query, sink=SinkSpec("noop"))
        sql = None
        if not order and all(a in SHARED or a.partition(" FILTER")[0] in SHARED for a, _ in aggregates):
            grouped = ", ".join(["w", *keys])
            rows = _windowed(stream, width, slide)
            sql = f"SELECT {', '.join(['w', *shown])} FROM {rows}{where} GROUP BY {grouped}{having}"
            sql = (
                _DOUBLE.sub(r"CAST(\1 AS DOUBLE)", sql)
                .replace("max_by(", "arg_max_null(")
                .replace("min_by(", "arg_min_null(")
            )
        first = 1 + len(keys)
        rounded = frozenset(first + n for n, (a, _) in enumerate(aggregates) if a.startswith(ROUNDED))
        return WorldQuery(query, sql, may_fail, rounded)

    def aggregates(self) -> tuple[list[tuple[str, str]], bool]:
        rng, made, may_fail = self.rng, [], False
        for _ in range(rng.choice((1, 1, 2, 3, 5))):
            family = ENGINES_OWN if rng.random() < 0.12 else SHARED
            if rng.random() < self.failing / 2:
                family, may_fail = FAILING, True
            call, type_ = rng.choice(sorted(family.items()))
            if rng.random() < 0.2 and " + " not in call and family is not FAILING:
                text, fails = self.predicate()
                call, may_fail = f"{call} FILTER (WHERE {text})", may_fail or fails
            made.append((call, type_))
        return made, may_fail

    def predicate(self, depth: int = 0) -> tuple[str, bool]:
        rng = self.rng
        if depth < 3 and rng.random() < 0.3:
            word = rng.choice(("AND", "AND", "OR"))
            (left, a), (right, b) = self.predicate(depth + 1), self.predicate(depth + 1)
            return f"({left} {word} {right})", a or b
        if depth < 3 and rng.random() < 0.07:
            text, fails = self.predicate(depth + 1)
            return f"NOT ({text})", fails
        if rng.random() < self.failing / 3:
            return rng.choice(POISON), True
        return self.comparison(), False

    def comparison(self) -> str:
        rng, op = self.rng, self.rng.choice(("=", "<>", "<", "<=", ">", ">="))
        kind = rng.choice(self.columns)
        number = rng.choice(("i", "c", "h", "y", "a", "q"))
        if kind == "simple":
            return rng.choice((f"i {op} {rng.randint(-12, 12)}", f"x {op} {rng.randint(-40, 40) / 4}D"))
        if kind == "bounds":
            constant = rng.choice(BOUNDS) + rng.choice((-1, 0, 0, 1, 1))
            return rng.choice((f"{number} {op} {constant}", f"{constant} {op} {number}"))
        choices = [
            f"{number} {op} {rng.randint(-12, 12)}",
            f"{number} {op} {rng.randint(-12, 12)}.5",
            f"{number} {op} {rng.randint(-12, 12)}.25D",
            f"x {op} {rng.randint(-10, 10)}",
            f"x {op} {rng.choice(('1e300D', '-1e300D', '0.0D', '-0.0D', '1e-320D', '1.7976931348623157e308D'))}",
            f"r {op} {rng.randint(-40, 40) / 4}D",
            f"r {op} CAST({rng.randint(-40, 40) / 4} AS FLOAT)",
            f"m {op} {rng.randint(-999, 999) / 100}",
            f"m {op} {rng.randint(-9, 9)}",
            f"m {op} CAST({rng.randint(-999, 999) / 100} AS DECIMAL(10,2))",
            f"d {op} DATE '1970-01-0{rng.randint(1, 5)}'",
            f"b {op} '{rng.choice(('x', 'y', 'z', ''))}'",
            f"b LIKE '%{rng.choice('xyz')}%'",
        ]
        if kind == "any":
            low, high = rng.randint(-12, 0), rng.randint(-3, 12)
            choices += [
                f"{number} BETWEEN {low} AND {high}",
                f"x BETWEEN {low}D AND {high}D",
                f"{number} IN ({low}, {high}, {low + 3})",
                f"{number} NOT IN ({low}, {high})",
                "b IN ('x', 'xyz', 'nothing')",
                f"{rng.choice(('a', 'b', 'i', 'x', 'm', 'd', 'f'))} IS {rng.choice(('', 'NOT '))}NULL",
                "f",
                "NOT f",
                f"f = {rng.choice(('true', 'false'))}",
                f"i {op} h",
                f"x {op} i",
                f"a + i {op} {high}",
                "true",
                "false",
            ]
        return rng.choice(choices)


def bound(name: str, text: str, columns: list[tuple[str, str]]) -> Query:
    answers: Any = SimpleNamespace(analyze=lambda sql: columns, learned={})
    with patch.object(analysis, "_check_scope"):  # types of what is inside are what the engine takes them for
        return bind(name, text, STREAMS, answers)


_DOUBLE = re.compile(r"(-?\d+(?:\.\d+)?(?:e-?\d+)?)D\b")


def _windowed(stream: str, width: int, slide: int) -> str:
    """A row for each window that a row is in and that had not closed when it came."""
    last = f"(epoch_us(ts) - epoch_us(ts) % {slide * SECOND})"
    starts = f"unnest(range(0, {-(-width // slide)})) AS n, {last} - n * {slide * SECOND} AS us"
    rows = f"(SELECT *, {starts} FROM rows_of_{stream})"
    inside = f"epoch_us(ts) < us + {width * SECOND} AND us + {width * SECOND} > mark"
    return f"(SELECT *, make_timestamp(us) AS w FROM {rows} WHERE {inside})"


class Rows:
    """Draws batches of rows."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.used: set[int] = set()
        self.nulls = rng.choice((0.0, 0.1, 0.1, 0.5))
        self.null_keys = rng.choice((0.0, self.nulls))
        self.sizes = rng.choice(((0, 1, 30), (0, 20, 120), (0, 1, 60, 300)))
        self.huge = rng.choice((0.0, 0.02))
        self.late = rng.choice((0.0, 0.15))
        self.step = rng.choice((2, 6, 6, 15)) * SECOND
        self.odd = rng.choice((0.0, 0.1))

    def batch(self, number: int) -> pa.Table:
        rng, n = self.rng, self.rng.choice(self.sizes)
        times = [self._time(number) for _ in range(n)]
        data = {name: [self._value(name) for _ in range(n)] for name in TYPES if name != "ts"}
        arrays = [pa.array(times, pa.int64()).cast(ARROW["ts"])]
        for name, values in data.items():
            kind = ARROW[name]
            if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
                whole = pa.int64() if pa.types.is_timestamp(kind) else pa.int32()
                arrays.append(pa.array(values, whole).cast(kind))
            else:
                arrays.append(pa.array(values, kind))
        table = pa.Table.from_arrays(arrays, names=list(TYPES))
        return table if rng.random() < 0.5 else table.sort_by("ts")

    def _time(self, number: int) -> int | None:
        rng = self.rng
        if rng.random() < 0.01:
            return None
        time = BASE + number * self.step + rng.randrange(self.step)
        if rng.random() < self.late:
            time -= rng.randrange(40 * SECOND)
        time -= time % (SECOND // 4) if rng.random() < 0.5 else 0
        while time in self.used:
            time += 1
        self.used.add(time)
        return time

    def _value(self, name: str) -> Any:
        rng = self.rng
        if rng.random() < (self.null_keys if name in "abcd" else self.nulls):
            return None
        if name == "a":
            return rng.randint(0, 4)
        if name == "b":
            return rng.choice(("x", "y", "z", "xyz", "", "7"))
        if name == "c":
            return rng.randint(0, 6) * 10 ** rng.choice((0, 0, 0, 12))
        if name == "d":
            return rng.randint(0, 4)
        if name == "f":
            return rng.random() < 0.5
        if name == "m":
            return Decimal(rng.randint(-999, 999)).scaleb(-2) if rng.random() < 0.5 else Decimal(rng.randint(-1, 1))
        if name == "t":
            return rng.randint(0, 3) * SECOND
        if name == "q":
            return 3 << 61 if rng.random() < self.huge else rng.randint(-9, 9)
        if name in "rx":
            if rng.random() < self.odd:
                return rng.choice((math.nan, math.inf, -0.0, -math.inf if name == "r" else math.nan))
            return rng.randint(-40, 40) / 4
        edges = {"h": (2**15 - 1, -(2**15)), "i": (2**31 - 1, -(2**31)), "y": (2**7 - 1, -(2**7))}[name]
        if name != "i" and rng.random() < 0.02:
            return rng.choice(edges)
        return rng.randint(-10, 10)
