"""Names, tables, and options of queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thalweg.errors.family import NamingError, SinkError, SourceError, UsageError


def name_taken(kind: str, name: str) -> NamingError:
    return NamingError(f"there is already a {kind} named '{name}'", hint=_WAYS_OUT[kind].format(name))


_WAYS_OUT = {
    "query": "choose another name, or CREATE OR REPLACE QUERY {0} (replace=True), which begins anew; DROP QUERY {0} "
    "ends it",
    "stream": "choose another name, ALTER STREAM {0} SET (...) to change it, or CREATE OR REPLACE STREAM {0} "
    "(replace=True), which begins anew once no query reads it",
    "table": "choose another name, or CREATE OR REPLACE TABLE {0} (replace=True)",
}


def name_differs_by_case(kind: str, there: str) -> NamingError:
    return NamingError(
        f"there is already a {kind} named '{there}' (names do not differ by case)",
        hint=f"choose another name, or write {there}",
    )


def definition_differs(kind: str, name: str) -> NamingError:
    return NamingError(
        f"the {kind} '{name}' in the state directory is defined differently",
        detail="a restarted program must define what it had before in the same way",
        hint=f"CREATE OR REPLACE QUERY {name}, which begins anew with the rows from then on; or use another name"
        if kind == "query"
        else f"ALTER STREAM {name}, CREATE OR REPLACE STREAM {name}, or use another name"
        if kind == "stream"
        else "use another name or another state directory",
    )


def unknown_name(kind: str, name: str, near: list[str], known: Iterable[str] = ()) -> NamingError:
    """`known`: those that there are."""
    listed = sorted(known)
    more = f" and {len(listed) - 10} more" if len(listed) > 10 else ""
    there = f"there are {', '.join(listed[:10])}{more}" if listed else f"there is no {kind} yet"
    hint = f"did you mean {' or '.join(near)}?" if near else there
    return NamingError(f"there is no {kind} named '{name}'", hint=hint)


def bad_name(kind: str, name: object) -> NamingError:
    return NamingError(
        f"{name!r} cannot be the name of a {kind}",
        hint="use letters, digits and underscores, not starting with a digit",
    )


def bad_columns(kind: str, name: str, reason: str) -> SourceError:
    return SourceError(
        f"the columns of {kind} '{name}' cannot be used",
        detail=reason,
        hint="give every column a name that differs in more than case, and a type that Spark knows",
    )


def updates_are_unordered(query: str) -> UsageError:
    return UsageError(
        f"query '{query}' cannot order or limit its updates",
        detail="EMIT UPDATES gives the rows that changed, and a change can move others in or out of a top-k",
        hint="leave out ORDER BY and LIMIT, or EMIT UPDATES",
    )


def repeated_column(query: str, column: str) -> SinkError:
    return SinkError(
        f"the results of query '{query}' have two columns named '{column}'",
        detail="a file cannot hold them both",
        hint="give one of them another name with AS",
    )


def bad_table(table: str, reason: str, hint: str | None) -> UsageError:
    return UsageError(f"the table '{table}' cannot be made: {reason}", hint=hint)


def table_in_use(table: str, what: str, queries: Sequence[str]) -> UsageError:
    return UsageError(
        f"queries are joined with the table '{table}': {what}",
        detail=f"it is joined by {_listed(queries)}",
        hint="drop those queries first",
    )


def stream_in_use(stream: str, queries: Sequence[str], what: str) -> UsageError:
    return UsageError(
        f"queries read the stream '{stream}': {what}",
        detail=f"it is read by {_listed(queries)}",
        hint="; ".join(f"DROP QUERY {name}" for name in queries[:3]) + (" and so on" if len(queries) > 3 else ""),
    )


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def bad_option(query: str, option: str, value: str, meaning: str, wanted: str = "a number above 0") -> UsageError:
    return UsageError(f"query '{query}': {option} = '{value}' is not {wanted}", detail=f"{option}: {meaning}")


def unknown_option(query: str, option: str, near: Sequence[str], known: Sequence[str]) -> UsageError:
    instead = f"did you mean {', '.join(near)}? " if near else ""
    return UsageError(
        f"query '{query}' has no option '{option}'", hint=f"{instead}options of queries: {', '.join(sorted(known))}"
    )


def nothing_to_retain(query: str, kind: str) -> UsageError:
    return UsageError(
        f"query '{query}' keeps no results of which retain_results could be some",
        detail=f"they go to its sink of kind {kind}",
        hint="it is an option of queries without a sink",
    )


def bad_size(query: str, option: str, value: str) -> UsageError:
    return UsageError(
        f"query '{query}': {option} = '{value}' is not a size",
        hint="give a number of bytes above 0, or one with a unit, such as '500 MB' or '1 GiB'",
    )


def wrong_query(place: int, given: object, why: str) -> UsageError:
    """One of a list of queries."""
    return UsageError(
        f"query {place + 1:,} of the list is {given!r}",
        detail=why,
        hint="give (name, select), (name, select, sink), or the arguments of create_query by their names: "
        "{'name': ..., 'select': ..., 'sink': ..., 'emit': ..., 'options': ...}",
    )
