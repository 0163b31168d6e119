"""One continuous SELECT, parsed, bound to its stream and compiled: what `sql` hands to `optimize`.

Expressions are DuckDB text already, with Spark's semantics and types made explicit in it. Two expressions
are the same exactly when their texts are: that is how queries come to share work.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from thalweg.foreign import is_secret, redact
from thalweg.model.expr import Expr
from thalweg.model.join import Join
from thalweg.model.own import Own
from thalweg.model.window import Window


@dataclass(frozen=True)
class Aggregate:
    """One aggregate call of a query."""

    function: str
    """count_all, count, count_distinct, sum, min, max, avg, var_pop, var_samp, stddev_pop, stddev_samp,
    approx_count_distinct, percentile (of which median is 0.5), min_row, max_row, bool_and, bool_or; own: one
    that the user has defined. min_row, max_row: a value of the row with the least or greatest order, of which there
    is one; arguments are the value, the order, and all that is taken of the row. Queries of earlier releases have
    min_by, max_by, first, last, which break ties each by its own value."""
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
class SortKey:
    expr: Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class SinkSpec:
    """A sink as plain data; a callable is `kind='callable'` and must be given again after a restart."""

    kind: str = "memory"
    """The name of one of the kinds of `sink/`."""
    options: tuple[tuple[str, Any], ...] = ()

    def option(self, name: str) -> str:
        """As text; empty where it is not given."""
        return next((str(value) for given, value in self.options if given == name), "")

    def __repr__(self) -> str:
        """Without secrets."""
        shown = ", ".join(f"{name}={_shown_option(name, value)}" for name, value in self.options)
        return f"SinkSpec({self.kind}{': ' if shown else ''}{shown})"


def _shown_option(name: str, value: object) -> str:
    return "***" if is_secret(name) else redact(repr(value))


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
    order: tuple[SortKey, ...] = ()
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


def query_from_json(value: object) -> Query:
    """A query whose JSON has been read: dictionaries, lists and texts. ValueError where they are none."""
    return msgspec.convert(value, Query)


def query_id(name: str, sequence: int) -> str:
    """Names can be used again after a drop; ids cannot."""
    return f"{name}@{sequence}"


def query_name(id_: str) -> str:
    """The name in an id."""
    return id_.rpartition("@")[0] or id_


def is_same_query(known: Query, given: Query) -> bool:
    """Whether both say the same, over the same columns. What a release makes of it may differ: a query goes on as it
    was bound at first, and so does its state."""
    return known == given or _said(known) == _said(given)


def _said(query: Query) -> tuple[object, ...]:
    results = [(output.name, output.expr.type) for output in query.outputs]
    own = [aggregate.own for aggregate in query.aggregates]
    return query.name, query.text, query.streams, query.emit, query.sink, query.options, results, own
