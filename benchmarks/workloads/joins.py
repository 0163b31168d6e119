"""The streams that the join figures are measured on, and the queries over them.

Columns carry the stream's name (`r_ts`, `s_a3`), so that `SELECT *` of a join names each once. Event times rise
evenly and alike in all streams: row i of each is at i / rate seconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise

import numpy as np
import pyarrow as pa

from benchmarks.workloads.model import Query, Stream, Workload

ROWS_PER_FILE = 50_000
START_US = 1_700_000_000_000_000
DELAY_SECONDS = 1
"""The watermark delay of every stream."""
SIX = tuple(f"a{i}" for i in range(6))
TYPES = {"id": pa.int64(), "v": pa.float64()}
"""Any other column is an int."""

NAMES = {
    "interval": "one join of two streams within 2 s, key of 100,000 values",
    "ajoin-N": "N queries of AJoin's template over two streams, at most 10 rows out per row in all together",
    "ajoinM-N": "the same, at most M rows out per row in",
    "nway-N": "one linear join of N streams, each step on attributes of its own within 1 s",
}


def named(name: str) -> Workload | None:
    joins = joins_named(name)
    return None if joins is None else joins.workload(name)


def joins_named(name: str) -> Joins | None:
    """What is joined, for who asks more than the workload says."""
    if name == "interval":
        return interval()
    ajoin_name = re.fullmatch(r"ajoin(\d*)-(\d+)", name)
    if ajoin_name is not None:
        return ajoin(int(ajoin_name[2]), int(ajoin_name[1] or MAX_OUTPUT))
    nway_name = re.fullmatch(r"nway-([2-5])", name)
    return None if nway_name is None else nway(int(nway_name[1]))


@dataclass(frozen=True)
class Data:
    """Streams alike but for their seed."""

    name: str
    streams: tuple[str, ...]
    columns: tuple[str, ...]
    """`id` counts rows, `v` is a double, any other an int of `values` values."""
    values: int
    rows_per_second: int
    """Of event time, of each stream."""

    def stream(self, name: str) -> Stream:
        return Stream(name, self.schema(name), f"{name}_ts", DELAY_SECONDS, partial(self.table, name))

    def schema(self, stream: str) -> pa.Schema:
        columns = [(f"{stream}_{c}", TYPES.get(c, pa.int32())) for c in self.columns]
        return pa.schema([*columns, (f"{stream}_ts", pa.timestamp("us", tz="UTC"))])

    def table(self, stream: str, number: int) -> pa.Table:
        """Rows of one file."""
        rng = np.random.default_rng((ord(stream), number))
        ids = np.arange(number * ROWS_PER_FILE, (number + 1) * ROWS_PER_FILE, dtype=np.int64)
        columns = {f"{stream}_{c}": self._column(c, ids, rng) for c in self.columns}
        times = START_US + ids * 1_000_000 // self.rows_per_second
        columns[f"{stream}_ts"] = pa.array(times, pa.timestamp("us", tz="UTC"))
        return pa.table(columns, schema=self.schema(stream))

    def _column(self, name: str, ids: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        if name == "id":
            return ids
        if name == "v":
            return rng.integers(0, 40_000, len(ids)) / 4
        return rng.integers(0, self.values, len(ids), dtype=np.int32)

    def names(self, stream: str) -> list[str]:
        return self.schema(stream).names

    @property
    def row_bytes(self) -> float:
        """The Arrow size of one row."""
        table = self.table(self.streams[0], 0)
        return float(table.nbytes / table.num_rows)


@dataclass(frozen=True)
class Step:
    """`left` is joined with `right` where the columns are equal and the times at most `seconds` apart."""

    left: str
    right: str
    on: tuple[str, str]
    seconds: int

    @property
    def equality(self) -> str:
        return f"{self.left}_{self.on[0]} = {self.right}_{self.on[1]}"

    def between(self, reach: str) -> str:
        time = f"{self.left}_ts"
        return f"{self.right}_ts BETWEEN {time} - {reach} AND {time} + {reach}"


def _interval(step: Step) -> str:
    return step.between(f"INTERVAL {step.seconds} SECONDS")


def _flink_interval(step: Step) -> str:
    return step.between(f"INTERVAL '{step.seconds}' SECOND")


@dataclass(frozen=True)
class JoinQuery:
    steps: tuple[Step, ...]
    where: tuple[str, ...] = ()

    def reach_seconds(self, stream: str) -> int:
        """How long a row waits for the rest of a result: the time to the farther end of the chain of joins."""
        place = [self.steps[0].left, *(step.right for step in self.steps)].index(stream)
        before, after = self.steps[:place], self.steps[place:]
        return max(sum(step.seconds for step in before), sum(step.seconds for step in after))

    def query(self, name: str, data: Data) -> Query:
        # Which earlier stream WITHIN is about is a question once there are several; BETWEEN says it.
        text = self._chain(_within if len(self.steps) == 1 else _and(_interval))
        return Query(
            name,
            text,
            spark=self._cascade(data),
            flink=self._chain(_and(_flink_interval)),
            batch=self._chain(_and(_interval)),
        )

    def _chain(self, bound: Callable[[Step], str]) -> str:
        text = f"SELECT * FROM {self.steps[0].left}"
        for step in self.steps:
            text += f" JOIN {step.right} ON {step.equality} {bound(step)}"
        return text + self._condition()

    def _cascade(self, data: Data) -> str:
        """For plain Spark: joins in a chain, which append mode runs as one query.

        A chained join must find one event time in what the join before it yields (else Spark 4.3 refuses with
        MULTIPLE_EVENT_TIME_COLUMNS): all but the time that the next step needs lose their mark.
        """
        first, *rest = self.steps
        text, known = f"{first.left} JOIN {first.right} ON {first.equality} AND {_interval(first)}", [first.left]
        for step in rest:
            known.append(step.left)
            times = {f"{k}_ts": f"timestamp_micros(unix_micros({k}_ts)) AS {k}_ts" for k in known[-2:-1]}
            columns = ", ".join(times.get(c, c) for stream in known for c in data.names(stream))
            text = f"(SELECT {columns} FROM {text}) JOIN {step.right} ON {step.equality} AND {_interval(step)}"
        return f"SELECT * FROM {text}{self._condition()}"

    def _condition(self) -> str:
        return f" WHERE {' AND '.join(self.where)}" if self.where else ""


def _within(step: Step) -> str:
    return f"WITHIN {step.seconds} SECONDS"


def _and(bound: Callable[[Step], str]) -> Callable[[Step], str]:
    return lambda step: f"AND {bound(step)}"


@dataclass(frozen=True)
class Joins:
    data: Data
    queries: tuple[JoinQuery, ...]

    def workload(self, name: str) -> Workload:
        return Workload(
            name,
            tuple(self.data.stream(stream) for stream in self.data.streams),
            tuple(query.query(f"q{i}", self.data) for i, query in enumerate(self.queries)),
            ROWS_PER_FILE,
            5,
            data=self.data.name,
        )

    def window_bytes(self, rows: int, open_seconds: float) -> float:
        """The Arrow size of the rows inside the windows once each stream has shown `rows`, of which the newest is
        `open_seconds` ahead of the watermark: a row that is not late may still ask for any of them."""
        reaches = [max(query.reach_seconds(s) for query in self.queries) for s in self.data.streams]
        inside = (min(rows, self.data.rows_per_second * (reach + open_seconds)) for reach in reaches)
        return sum(inside) * self.data.row_bytes


def interval() -> Joins:
    """2M rows at 100,000 rows/s are 20 s, in which pairs at most 2 s apart are 20 * 4 - 4 of 20 * 20 square
    seconds: 76 * 100,000^2 / 100,000 keys = 7.6M results."""
    data = Data("join-interval", ("r", "s"), ("id", "k", "v"), 100_000, 100_000)
    return Joins(data, (JoinQuery((Step("r", "s", ("k", "k"), 2),)),))


# -- AJoin's template --------------------------------------------------------------------------------------

AJOIN_RATE = 50_000
MAX_OUTPUT = 10
"""Rows out per row in, of all queries together."""
OPERATORS = ("=", ">", "<", ">=", "<=")
NEAR = 5_000


@dataclass(frozen=True)
class Selection:
    """`attribute op constant`, the constant a fraction of ATR_MAX: as selective whatever ATR_MAX is."""

    attribute: str
    operator: str
    fraction: float

    def text(self, stream: str, atr_max: int) -> str:
        return f"{stream}_{self.attribute} {self.operator} {int(self.fraction * atr_max)}"

    def selectivity(self, atr_max: int) -> float:
        value = int(self.fraction * atr_max)
        below = {"=": 1, ">": atr_max - 1 - value, "<": value, ">=": atr_max - value, "<=": value + 1}
        return below[self.operator] / atr_max


@dataclass(frozen=True)
class Template:
    """AJoin Fig. 14 for two streams, filled in."""

    step: Step
    selections: tuple[Selection, Selection]

    def output(self, atr_max: int) -> float:
        """Rows out per row in: a row meets 2 * seconds * rate rows of the other stream, two rows in a pair."""
        kept = [s.selectivity(atr_max) for s in self.selections]
        # Where both select on what they are joined by, one selection implies much of the other.
        same = all(s.attribute == on for s, on in zip(self.selections, self.step.on, strict=True))
        return (min(kept) if same else math.prod(kept)) * self.step.seconds * AJOIN_RATE / atr_max

    def query(self, atr_max: int) -> JoinQuery:
        sides = zip(("r", "s"), self.selections, strict=True)
        return JoinQuery((self.step,), tuple(s.text(stream, atr_max) for stream, s in sides))


def templates(n: int) -> list[Template]:
    """50 % similar to r.a0 = s.a0: both sources in common and one join attribute, 2 * 1 / 2^2 (AJoin Eq. 3)."""
    rng = np.random.default_rng(14)
    made = []
    for _ in range(n):
        other = SIX[rng.integers(1, len(SIX))]
        on = ("a0", other) if rng.random() < 0.5 else (other, "a0")
        step = Step("r", "s", on, int(rng.integers(1, 4)))
        first, second = (
            Selection(SIX[rng.integers(len(SIX))], OPERATORS[rng.integers(len(OPERATORS))], float(rng.random()))
            for _ in range(2)
        )
        made.append(Template(step, (first, second)))
    return made


@cache
def atr_max(n: int, output: int) -> int:
    """The least ATR_MAX, in hundreds, with which n queries give at most so many rows per row."""
    made = templates(n)
    size = 100
    # By bisection to where it is near, then one by one: the sum falls with the size, but for rounding.
    while sum(t.output(size) for t in made) > output:
        size *= 2
    low = size // 2
    while size - low > NEAR:
        middle = (low + size) // 200 * 100
        low, size = (middle, size) if sum(t.output(middle) for t in made) > output else (low, middle)
    size = max(100, low - NEAR)
    while sum(t.output(size) for t in made) > output:
        size += 100
    return size


def ajoin(n: int, output: int = MAX_OUTPUT) -> Joins:
    """The first n queries. Fewer than 20 run on the data of 20."""
    size = atr_max(max(n, 20), output)
    data = Data(f"join-six-{size}", ("r", "s"), SIX, size, AJOIN_RATE)
    return Joins(data, tuple(t.query(size) for t in templates(n)))


# -- joins of more streams ---------------------------------------------------------------------------------

NWAY_RATE = 50_000


def nway(n: int) -> Joins:
    """r.a1 = s.a0, s.a1 = t.a0, ... each within 1 s. With 2 s * rate values a row finds one partner at every
    step, and there are about as many results as rows in one stream."""
    streams = ("r", "s", "t", "u", "v")[:n]
    data = Data(f"join-{n}way", streams, SIX, 2 * NWAY_RATE, NWAY_RATE)
    steps = tuple(Step(a, b, ("a1", "a0"), 1) for a, b in pairwise(streams))
    return Joins(data, (JoinQuery(steps),))
