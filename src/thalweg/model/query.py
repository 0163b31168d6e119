"""One continuous SELECT, parsed, bound to its stream and compiled: what `sql` hands to `optimize`.

Expressions are DuckDB text already, with Spark's semantics and types made explicit in it. Two expressions
are the same exactly when their texts are: that is how queries come to share work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Expr:
    """A scalar expression compiled to DuckDB.

    Before grouping its free names are columns of the stream; after grouping they are `k0, k1, ...` (keys),
    `a0, a1, ...` (aggregate values), `window_start` and `window_end` (naive timestamps).
    """

    sql: str
    type: str
    columns: tuple[str, ...] = ()
    """The names it reads, sorted, unquoted."""
    fails: bool = False
    """Whether some value can make it raise (ANSI overflow, division by zero, a cast)."""

    @property
    def is_column(self) -> bool:
        return len(self.columns) == 1 and self.sql == quote(self.columns[0])


@dataclass(frozen=True)
class Window:
    """`window(time, range, slide, start)` in microseconds, aligned to the Unix epoch."""

    range_us: int
    slide_us: int
    start_us: int = 0


@dataclass(frozen=True)
class Aggregate:
    """One aggregate call of a query."""

    function: str
    """count_all, count, count_distinct, sum, min, max, avg, var_pop, var_samp, stddev_pop, stddev_samp,
    approx_count_distinct, percentile (of which median is 0.5), min_by, max_by, first, last, bool_and,
    bool_or."""
    args: tuple[Expr, ...]
    type: str
    """Spark's type of the result."""
    filter: Expr | None = None
    """FILTER (WHERE ...); the query's own WHERE is not repeated here."""
    parameters: tuple[float, ...] = ()
    """percentile: the one percentage; approx_count_distinct: the relative standard deviation."""
    ignore_nulls: bool = False
    """first / last IGNORE NULLS."""


@dataclass(frozen=True)
class Output:
    name: str
    expr: Expr


@dataclass(frozen=True)
class Order:
    expr: Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class SinkSpec:
    """A sink as plain data; a callable is `kind='callable'` and must be given again after a restart."""

    kind: str = "memory"
    """memory | console | files | callable | spark."""
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Query:
    name: str
    text: str
    """The SELECT as the user wrote it."""
    stream: str
    outputs: tuple[Output, ...]
    """Result columns in order, with the names and types that Spark's analyser gives."""
    where: Expr | None = None
    window: Window | None = None
    """None: a plain filter/projection query; then keys and aggregates are empty too."""
    keys: tuple[Expr, ...] = ()
    """Grouping expressions other than the window, each once, in order of appearance."""
    aggregates: tuple[Aggregate, ...] = ()
    """Each distinct aggregate call once."""
    having: Expr | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    """Per window, after ordering."""
    emit: str = "final"
    """final: once, when the window has closed; updates: changed rows of open windows every batch."""
    sink: SinkSpec = field(default_factory=SinkSpec)
    options: tuple[tuple[str, str], ...] = ()


def quote(name: str) -> str:
    """A column name as a DuckDB identifier."""
    return '"' + name.replace('"', '""') + '"'


def query_to_json(query: Query) -> dict[str, Any]:
    """A query as JSON values: what the log of changes and the manifest keep of it."""
    return asdict(query)


def query_from_json(value: Mapping[str, Any]) -> Query:
    return Query(
        name=value["name"],
        text=value["text"],
        stream=value["stream"],
        outputs=tuple(Output(o["name"], _expr(o["expr"])) for o in value["outputs"]),
        where=_optional(value["where"]),
        window=None if value["window"] is None else Window(**value["window"]),
        keys=tuple(_expr(key) for key in value["keys"]),
        aggregates=tuple(_aggregate(a) for a in value["aggregates"]),
        having=_optional(value["having"]),
        order=tuple(Order(_expr(o["expr"]), o["descending"], o["nulls_first"]) for o in value["order"]),
        limit=value["limit"],
        emit=value["emit"],
        sink=SinkSpec(value["sink"]["kind"], _pairs(value["sink"]["options"])),
        options=_pairs(value["options"]),
    )


def _expr(value: Mapping[str, Any]) -> Expr:
    return Expr(value["sql"], value["type"], tuple(value["columns"]), value["fails"])


def _optional(value: Mapping[str, Any] | None) -> Expr | None:
    return None if value is None else _expr(value)


def _aggregate(value: Mapping[str, Any]) -> Aggregate:
    return Aggregate(
        function=value["function"],
        args=tuple(_expr(arg) for arg in value["args"]),
        type=value["type"],
        filter=_optional(value["filter"]),
        parameters=tuple(value["parameters"]),
        ignore_nulls=value["ignore_nulls"],
    )


def _pairs(value: Iterable[Sequence[Any]]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, option) for name, option in value)
