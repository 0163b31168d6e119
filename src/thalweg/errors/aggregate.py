"""Aggregates that users define."""

from __future__ import annotations

from thalweg.errors.family import SqlError, StateError, UsageError
from thalweg.foreign import said_by


def bad_aggregate(name: object, reason: str, hint: str | None = None) -> UsageError:
    return UsageError(f"the aggregate {name!r} cannot be defined: {reason}", hint=hint)


def aggregate_of_unknown_type(name: str, detail: str) -> UsageError:
    return UsageError(
        f"the aggregate {name!r} does not say what type it gives",
        detail=detail,
        hint="name the SQL type, for example returns='double'",
    )


def aggregate_missing(query: str, name: str) -> UsageError:
    return UsageError(
        f"query '{query}' uses the aggregate {name!r}, which this program has not defined",
        detail="Python functions are not part of the state directory and must be given again after a restart",
        hint=f"call thalweg.aggregate({name!r}, ...) first; nothing is lost",
    )


def aggregate_type_differs(query: str, name: str, was: str, is_: str) -> UsageError:
    return UsageError(
        f"query '{query}' was created with an aggregate {name!r} of type {was}, which is now {is_}",
        hint="define it with the type it had, or drop the query and create it anew",
    )


def aggregate_failed(name: str, step: str, error: BaseException, place: str | None) -> UsageError:
    where = "" if place is None else f" ({place})"
    return UsageError(f"aggregate {name}: {step} raised {said_by(error)}{where}")


def over_time(seconds: float) -> UsageError:
    return UsageError(
        f"it took more than {seconds:g} s of a processor for the rows of one task (connect: expression_time)"
    )


def over_memory(limit: int) -> UsageError:
    return UsageError(f"it needs more memory than the {limit / 2**20:,.0f} MiB of a worker (connect: worker_memory)")


def aggregate_wrong_value(name: str, value: object, wanted: str) -> UsageError:
    shown = " ".join(repr(value).split())
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return UsageError(f"aggregate {name}: finish gave {shown}, which is not of the type {wanted}")


def aggregate_state_unfit(name: str, found: str) -> UsageError:
    return UsageError(
        f"aggregate {name}: its state holds {found}, which cannot be kept: give encode= and decode=",
        detail="kept are plain Python values and collections, NumPy arrays and Arrow values: nothing that is code",
        hint="encode(state) gives such a value, and decode(value) gives the state again",
    )


def aggregate_state_refused(name: str, found: str) -> StateError:
    return StateError(
        f"aggregate {name}: a state in the state directory is a pickle that asks for {found}, which is not run",
        detail="earlier releases pickled states; of those, only plain values and NumPy arrays are read",
        hint="drop the query and create it anew",
    )


def aggregate_state_unreadable(name: str, error: Exception) -> StateError:
    return StateError(f"aggregate {name}: a state in the state directory cannot be read: {said_by(error)}")


def bad_clustering(name: str, value: object, needed: str) -> UsageError:
    return UsageError(f"correlation clustering: {name} is {value!r}", hint=f"{name} must be {needed}")


def aggregate_not_installed(name: str) -> SqlError:
    return SqlError(
        f"there is no aggregate {name!r} in this program",
        detail="The query was created by a program that had it.",
        hint="Install the package that brings it, or call thalweg.register_aggregate before connect.",
    )
