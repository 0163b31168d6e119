"""SELECT text -> Query: parsed, held against the allow-list, analysed by Spark, compiled.

Order matters. Nothing reaches Spark's analyser before every function and every table has been found on the
list, because a text can do harm there; and nothing is compiled that Spark would refuse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from thalweg.errors import SqlError, bad_window, expression_too_large, moved, nested_too_deeply, too_many
from thalweg.frontend.analysis import SelectAnalyzer, analyze, check_typed, check_types, for_spark
from thalweg.frontend.checks import (
    check_depth,
    check_functions,
    check_names,
    check_shape,
    check_size,
    check_sources,
)
from thalweg.frontend.code import SizeError
from thalweg.frontend.compile_join import compile_join
from thalweg.frontend.joins import read_join
from thalweg.frontend.lex import only_tokens
from thalweg.frontend.outputs import grouped, plain, where_of
from thalweg.frontend.parse import parse_select
from thalweg.frontend.scope import Frame, read_from
from thalweg.frontend.tree import Select
from thalweg.model.join import Join, joined_name
from thalweg.model.own import Definition
from thalweg.model.query import Query, SinkSpec
from thalweg.model.stream import Schema, Stream

MOST_CHARACTERS = 500_000
_NO_TABLES: Mapping[str, Schema] = MappingProxyType({})


def bind(
    name: str,
    select: str,
    streams: Mapping[str, Stream],
    analyzer: SelectAnalyzer,
    *,
    sink: SinkSpec | None = None,
    options: Iterable[tuple[str, str]] = (),
    emit: str = "final",
    tables: Mapping[str, Schema] = _NO_TABLES,
    own: Mapping[str, Definition] | None = None,
    queries: Collection[str] = (),
) -> Query:
    """The query that a SELECT means. Raises SqlError with the place in `select` underlined. `queries`: those there
    are, for who takes one for a stream."""
    if len(select) > MOST_CHARACTERS:
        raise too_many("characters", len(select), MOST_CHARACTERS, select, (0, 1))
    try:
        query = _bind(name, only_tokens(select), streams, analyzer, tables, own, queries)
    except SqlError as error:
        raise moved(error, select, 0) from None
    except RecursionError:
        raise nested_too_deeply(select, (0, len(select))) from None
    except SizeError as reason:
        # Several conditions as one: no single place in the text.
        raise expression_too_large(str(reason), select, (0, len(select))) from None
    return replace(query, text=select, sink=sink or SinkSpec(), options=tuple(options), emit=emit)


def _bind(
    name: str,
    select: str,
    streams: Mapping[str, Stream],
    analyzer: SelectAnalyzer,
    tables: Mapping[str, Schema],
    own: Mapping[str, Definition] | None,
    queries: Collection[str],
) -> Query:
    tree = parse_select(select, own)
    check_size(tree, select)
    check_sources(tree, select, (*streams, *tables), queries)
    check_depth(tree, select)
    spark = for_spark(select, tree)
    frame = read_from(tree, select, spark, streams, tables)
    check_functions(tree, select)
    # First, since it refuses a join after which no event time is left.
    draft = read_join(tree, frame, select) if frame.joins else None
    check_shape(tree, frame, select)
    check_names(tree, frame)
    columns = analyze(spark, tree, frame, select, analyzer)
    join, where = (None, where_of(tree, frame)) if draft is None else compile_join(draft)
    query = (grouped if tree.group else plain)(name, tree, frame, where, columns)
    if join is not None:
        query = _over_join(query, join, tree, frame)
    check_types(query, columns, frame, analyzer)
    check_typed(query, tree, select)
    return query


def _over_join(query: Query, join: Join, tree: Select, frame: Frame) -> Query:
    """The query over the rows of its join."""
    if query.time and join.kind == "outer":
        owner = frame.final.times[query.time]
        if join.preserved != (owner.name,):
            raise bad_window(
                "after an outer join a window is over the event time of the side that keeps all its rows",
                frame.final.text, tree.group_span or (0, 1), "the other side's time can be NULL",
            )  # fmt: skip
    return replace(query, stream=joined_name(join, query.time), join=join)
