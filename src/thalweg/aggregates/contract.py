"""The contract of aggregates: a family says how calls read (signature) and what they are made of (partials).

An aggregate becomes three texts: `combine` over rows, `merge` over partials, `finish` over merged partials.
Those that have no partials of bounded size group by the value as well (shape `values`): count distinct and
percentiles, which need to know how often each value came; or by the value's HyperLogLog register.

A new family is one file with an `AggregateFamily`, and one line in `aggregates/__init__`. From outside it is
`thalweg.register_aggregate`, or an entry point of the group "thalweg.aggregates".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, NamedTuple, Protocol

import pyarrow as pa

from thalweg.errors import SqlError
from thalweg.model.canonical import named
from thalweg.model.expr import Expr, quote
from thalweg.model.own import Definition
from thalweg.model.plan import Computed, Partial, Quantile
from thalweg.model.query import Aggregate


class Argument(Protocol):
    """A compiled expression: DuckDB's text with Spark's type."""

    @property
    def sql(self) -> str: ...

    @property
    def type(self) -> str: ...

    @property
    def literal(self) -> int | float | str | bool | Decimal | None:
        """The value of a literal other than NULL."""
        ...

    def to_expr(self) -> Expr: ...


class Calling(Protocol):
    """A call in a query, as a family sees it. Arguments are compiled when they are asked for."""

    @property
    def name(self) -> str: ...

    @property
    def many(self) -> int:
        """How many arguments; none where it is `*`."""
        ...

    @property
    def distinct(self) -> bool: ...

    @property
    def ignore_nulls(self) -> bool: ...

    @property
    def user(self) -> Definition | None:
        """Of an aggregate that the user has defined."""
        ...

    def arg(self, i: int) -> Argument: ...

    def column_name(self, i: int) -> str | None:
        """The name of the argument, if it is a column."""
        ...

    def cast(self, arg: Argument, type_: str) -> Argument: ...

    def emit(self, sql: str, type_: str, parts: Sequence[Argument]) -> Argument:
        """A text that is made from parts."""
        ...

    def refuse(self, what: str, i: int | None = None, hint: str | None = None) -> SqlError:
        """What is not supported; `i`: the argument that it is about."""
        ...

    def place(self, i: int) -> tuple[str, tuple[int, int]]:
        """The text of the query, and where the argument is in it."""
        ...


class Arity(NamedTuple):
    least: int
    most: int


class DuckFunction(NamedTuple):
    """A function over Arrow arrays that DuckDB has to know."""

    name: str
    function: Callable[..., pa.Array]
    takes: list[str]
    gives: str


class AggregateFamily(ABC):
    """Aggregates that are made alike. One object, without state."""

    name: ClassVar[str]
    """Of the family."""
    names: ClassVar[Mapping[str, Arity]]
    """What SQL calls its members -> how many arguments they take."""
    functions: ClassVar[tuple[str, ...]]
    """What `Aggregate.function` can be, as `signature` gives it or queries of earlier releases have it."""
    returns: ClassVar[str | None] = None
    """The type that its members give, where Spark does not know them. None: Spark knows them, and their types."""
    takes_distinct: ClassVar[bool] = False
    takes_star: ClassVar[bool] = False
    chooses_nulls: ClassVar[bool] = False
    """Whether IGNORE NULLS may be said."""
    duck_functions: ClassVar[tuple[DuckFunction, ...]] = ()

    def check(self, call: Calling) -> None:  # noqa: B027 - most have nothing that Spark must not see
        """What has to be refused before Spark's analyser sees the query."""

    @abstractmethod
    def signature(self, call: Calling) -> Aggregate:
        """The aggregate that a call stands for, arguments brought to Spark's types."""

    @abstractmethod
    def parts(self, asked: AggregateCall) -> Parts:
        """How it is combined, merged and finished. Names of partials are durable: they are made from their texts."""


@dataclass(frozen=True)
class Parts:
    """An aggregate taken apart."""

    partials: tuple[Partial, ...]
    finish: str
    """Over merged partials (shape `main`), or an aggregate over them (shape `values`)."""
    shape: str = "main"
    values: tuple[str, ...] = ()
    missing: str = "NULL"
    """What the aggregate is where a `values` grouping has nothing for a key."""
    quantile: Quantile | None = None
    """The same as `finish` says, for those who can do it faster."""


@dataclass(frozen=True)
class ComputedColumns:
    """Collects the computed columns that partials read; `of` gives the column that holds an expression."""

    computed: dict[str, Computed]
    used: Callable[[str], None] = lambda name: None
    """Told of every column that is handed out: whoever asked cannot do without it."""

    def of(self, expr: Expr, guard: Expr | None = None) -> str:
        """The column with the expression's value. One that can fail is evaluated only where `guard` holds."""
        if expr.is_column:
            self.used(expr.columns[0])
            return expr.columns[0]
        if expr.fails and guard is not None:
            columns = tuple(sorted({*expr.columns, *guard.columns}))
            expr = Expr(f"CASE WHEN {guard.sql} THEN {expr.sql} END", expr.type, columns, True)
        return self._add("sql", expr, 0)

    def register(self, expr: Expr, guard: Expr | None, precision: int) -> tuple[str, str]:
        """The two columns of a HyperLogLog observation: register number and rank."""
        column = self.of(expr, guard)
        source = Expr(quote(column), expr.type, (column,))
        return self._add("register", source, precision), self._add("rank", source, precision)

    def _add(self, kind: str, expr: Expr, precision: int) -> str:
        name = named("c", kind, expr.sql, expr.type, precision)
        self.used(name)
        self.computed.setdefault(name, Computed(name, expr, kind, precision))
        return name


def conjunction(left: Expr | None, right: Expr | None) -> Expr | None:
    """`left AND right`, where `right` is not evaluated for rows that `left` turns away."""
    if left is None or right is None:
        return left or right
    columns = tuple(sorted({*left.columns, *right.columns}))
    fails = left.fails or right.fails
    text = (
        f"CASE WHEN {left.sql} THEN {right.sql} ELSE FALSE END" if right.fails else f"({left.sql}) AND ({right.sql})"
    )
    return Expr(text, "boolean", columns, fails)


def partial(
    combine: str,
    filter_column: str | None,
    merge: str,
    duck_type: str,
    op: str = "",
    argument: str | None = None,
) -> Partial:
    """`merge` has `{}` where the partial's own column goes, `combine` FILTER where its filter goes."""
    name = named("p", combine, filter_column, duck_type)
    merged = merge.format(quote(name))
    return Partial(name, combine, filter_column, merged, duck_type, op=op, argument=argument)


def presence(filter_column: str | None) -> Partial:
    """The count of admitted rows: a group belongs to a query's result where it is not zero."""
    return partial("count(*)", filter_column, "sum({})::BIGINT", "BIGINT", "count")


def count_of(column: str, filter_column: str | None) -> Partial:
    text = f"count({quote(column)})"
    return partial(text, filter_column, "sum({})::BIGINT", "BIGINT", "count", column)


@dataclass(frozen=True)
class AggregateCall:
    """One aggregate of a query, over a stream, to be taken apart."""

    aggregate: Aggregate
    admitted: Expr | None
    """Which rows count: WHERE and FILTER."""
    filter_column: str | None
    """The column that holds it."""
    time: str
    """The event time of the stream."""
    columns: ComputedColumns

    def column(self, i: int) -> str:
        """The column that holds an argument."""
        return self.column_of(self.aggregate.args[i])

    def column_of(self, expr: Expr) -> str:
        return self.columns.of(expr, self.admitted)
