"""One continuous SELECT, parsed, bound to its stream and compiled: what `sql` hands to `optimize`.

Expressions are DuckDB text already, with Spark's semantics and types made explicit in it. Two expressions
are the same exactly when their texts are: that is how queries come to share work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from thalweg.model.canonical import canonical
from thalweg.model.expr import Expr, expr_from_json
from thalweg.model.join import Join, join_from_json
from thalweg.model.own import Own


@canonical("Window(range_us, slide_us, start_us)")
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
    bool_or; own: one that the user has defined."""
    args: tuple[Expr, ...]
    type: str
    """Spark's type of the result."""
    filter: Expr | None = None
    """FILTER (WHERE ...); the query's own WHERE is not repeated here."""
    parameters: tuple[float, ...] = ()
    """percentile: the one percentage; approx_count_distinct: the relative standard deviation."""
    ignore_nulls: bool = False
    """first / last IGNORE NULLS."""
    own: Own | None = None


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
    """memory | console | files | callable | spark | noop."""
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Query:
    name: str
    text: str
    """The SELECT as the user wrote it."""
    stream: str
    """The stream its expressions are over; joins: the stream of joined rows."""
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
    join: Join | None = None
    """What `stream` is made of, where it is not one that a user created."""
    time: str = ""
    """Joins: the joined column whose windows these are; empty without a window."""

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams it reads."""
        return (self.stream,) if self.join is None else self.join.streams

    @cached_property
    def json(self) -> dict[str, Any]:
        """What the log of changes and every manifest keep of it: made once, and not to be changed."""
        return asdict(self)


def query_from_json(value: Mapping[str, Any]) -> Query:
    return Query(
        name=value["name"],
        text=value["text"],
        stream=value["stream"],
        outputs=tuple(Output(o["name"], expr_from_json(o["expr"])) for o in value["outputs"]),
        where=_optional(value["where"]),
        window=None if value["window"] is None else Window(**value["window"]),
        keys=tuple(expr_from_json(key) for key in value["keys"]),
        aggregates=tuple(_aggregate(a) for a in value["aggregates"]),
        having=_optional(value["having"]),
        order=tuple(Order(expr_from_json(o["expr"]), o["descending"], o["nulls_first"]) for o in value["order"]),
        limit=value["limit"],
        emit=value["emit"],
        sink=SinkSpec(value["sink"]["kind"], _pairs(value["sink"]["options"])),
        options=_pairs(value["options"]),
        join=None if value.get("join") is None else join_from_json(value["join"]),
        time=value.get("time", ""),
    )


def _optional(value: Mapping[str, Any] | None) -> Expr | None:
    return None if value is None else expr_from_json(value)


def _aggregate(value: Mapping[str, Any]) -> Aggregate:
    return Aggregate(
        function=value["function"],
        args=tuple(expr_from_json(arg) for arg in value["args"]),
        type=value["type"],
        filter=_optional(value["filter"]),
        parameters=tuple(value["parameters"]),
        ignore_nulls=value["ignore_nulls"],
        own=_own(value.get("own")),
    )


def _own(value: Mapping[str, Any] | None) -> Own | None:
    return None if value is None else Own(value["name"], tuple(value["columns"]), value["version"])


def _pairs(value: Iterable[Sequence[Any]]) -> tuple[tuple[str, Any], ...]:
    return tuple((name, option) for name, option in value)


def query_id(name: str, sequence: int) -> str:
    """Names can be used again after a drop; ids cannot."""
    return f"{name}@{sequence}"


def query_name(id_: str) -> str:
    """The name in an id."""
    return id_.rpartition("@")[0] or id_
