"""Joins: their text, and what is asked of their planning."""

from __future__ import annotations

from thalweg.errors.family import SqlError, UsageError


def ambiguous_column(name: str, candidates: list[str], sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(f"column '{name}' is ambiguous", sql=sql, span=span, hint=f"write {' or '.join(candidates)}")


def repeated_relation(name: str, sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        f"FROM has two entries named '{name}'", sql=sql, span=span, hint=f"give one an alias: {name} AS other"
    )


def cross_product(name: str, others: list[str], sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        f"no equality connects '{name}' with {', '.join(others)}: a cross product is not supported",
        sql=sql,
        span=span,
        hint=f"add one, such as {others[0]}.key = {name}.key",
    )


def unbounded_join(
    name: str, other: str, times: tuple[str, str], detail: str, sql: str, span: tuple[int, int]
) -> SqlError:
    own, others = times
    return SqlError(
        f"a join without a time bound: rows of '{other}' and '{name}' would be kept for ever",
        detail=detail,
        sql=sql,
        span=span,
        hint=f"add WITHIN 5 SECONDS after ON, or {own} BETWEEN {others} - INTERVAL 5 SECONDS "
        f"AND {others} + INTERVAL 5 SECONDS",
    )


def empty_bound(names: list[str], sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        f"the time bounds of {' and '.join(names)} contradict each other: the join has no result",
        sql=sql,
        span=span,
    )


def bounds_nothing(name: str, sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        f"WITHIN bounds nothing here: the condition before it has no equality with '{name}'",
        sql=sql,
        span=span,
        hint="equate a column of it with one of another stream in the same ON",
    )


def incompatible_keys(left: str, right: str, sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        f"join keys of types {left} and {right} cannot be equal", sql=sql, span=span, hint="cast one of them"
    )


def too_many_streams(most: int, sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(f"a query joins at most {most} streams", sql=sql, span=span)


def no_stream(sql: str, span: tuple[int, int]) -> SqlError:
    return SqlError(
        "a continuous query reads at least one stream",
        sql=sql,
        span=span,
        hint="query tables alone with Spark itself",
    )


def bad_join_query(query: object, reason: str, hint: str | None = None) -> UsageError:
    return UsageError(f"the join query {query!r} cannot be planned", detail=reason, hint=hint)


def disconnected_join(query: str, parts: list[str]) -> UsageError:
    return UsageError(
        f"the join query {query!r} is not connected: a cross product is not supported",
        detail=f"no predicate joins {' with '.join(parts)}",
        hint="add a predicate between them, or make them queries of their own",
    )


def missing_rate(query: str, relation: str) -> UsageError:
    return UsageError(
        f"there is no rate of relation {relation!r}, which the join query {query!r} reads",
        hint="give its rows per window in Statistics.rates",
    )


def missing_selectivity(query: str, predicate: tuple[str, str]) -> UsageError:
    return UsageError(
        f"there is no selectivity of {predicate[0]} = {predicate[1]}, by which the join query {query!r} joins",
        hint="give it in Statistics.selectivity, either way round: the share of all pairs that are equal",
    )


def bad_join_planning(name: str, value: object, needed: str) -> UsageError:
    return UsageError(f"join planning: {name} is {value!r}", hint=f"{name} must be {needed}")


def not_in_join_plan(name: object, known: list[str]) -> UsageError:
    return UsageError(f"the plan has no join query {name!r}", hint=f"it has {', '.join(known) or 'none'}")
