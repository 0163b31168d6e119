"""Kinds of sources, sinks, aggregates and windows, and their registries."""

from __future__ import annotations

from thalweg.errors.family import UsageError
from thalweg.foreign import said_by


def kind_taken(sort: str, name: str, by: str) -> UsageError:
    return UsageError(
        f"there is a {sort} {name!r} already: {by}",
        hint=f"Give the new one another name; register_{sort}(..., replace=True) replaces one that was registered.",
    )


def not_a_kind(sort: str, name: object, reason: str) -> UsageError:
    return UsageError(f"{name} cannot be registered as a {sort}", detail=reason)


def kind_broken(sort: str, name: str, package: str, error: BaseException) -> UsageError:
    return UsageError(f"the {sort} {name!r} of {package} cannot be loaded", detail=said_by(error))
