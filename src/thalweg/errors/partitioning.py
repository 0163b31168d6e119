"""Partitioners, and the assignment of key groups to slots."""

from __future__ import annotations

from thalweg.errors.family import ThalwegError, UsageError


def nothing_to_partition(query: str, partitioner: str) -> UsageError:
    return UsageError(
        f"query '{query}' cannot have the partitioner '{partitioner}'",
        detail="a partitioner deals out the rows of keys, and the query has no GROUP BY with keys beside its window",
        hint="leave the option out, or group by a key",
    )


def updates_stay_whole(query: str, partitioner: str) -> UsageError:
    return UsageError(
        f"query '{query}' cannot have the partitioner '{partitioner}'",
        detail="with EMIT UPDATES every batch tells what has changed, so all rows of a key have to be in one slot",
        hint="use 'hash', 'combine' or 'auto', or emit final results",
    )


def bad_counts(route_key: object, reason: str) -> UsageError:
    return UsageError(
        f"the counts of route key {_route_key(route_key)} cannot be used",
        detail=reason,
        hint="give the rows of every key group: one finite number of 0 or more each, as many for every route key",
    )


def bad_joint(first: object, second: object, reason: str) -> UsageError:
    return UsageError(
        f"the joint counts of {_route_key(first)} and {_route_key(second)} cannot be used",
        detail=reason,
        hint="joint[g, h] is the rows in key group g of the first and h of the second, both of one stream",
    )


def bad_equal(route_key: object) -> UsageError:
    return UsageError(
        f"an unknown route key is to have the slots of another: {_route_key(route_key)}",
        hint="give its counts too",
    )


def bad_assignment(route_key: object, reason: str) -> UsageError:
    return UsageError(
        f"the slots of route key {_route_key(route_key)} cannot be used",
        detail=reason,
        hint="give a slot for every key group of every route key",
    )


def bad_partitioning(name: str, value: object, needed: str) -> UsageError:
    return UsageError(f"partitioning: {name} is {value!r}", hint=f"{name} must be {needed}")


def _route_key(route_key: object) -> str:
    """purchases(userID), or what was given instead of a route key."""
    if isinstance(route_key, tuple) and len(route_key) == 2:
        return f"{route_key[0]}({route_key[1]})"
    return repr(route_key)


def partitioner_unknown(name: str, known: tuple[str, ...]) -> ThalwegError:
    return ThalwegError(
        f"there is no partitioner {name!r}", detail=f"known: {', '.join(known)}", hint="names are lower case"
    )


def partitioner_option(name: str, option: str, value: object, wanted: str) -> ThalwegError:
    return ThalwegError(f"partitioner {name}: {option} = {value!r} cannot be", detail=f"wanted: {wanted}")
