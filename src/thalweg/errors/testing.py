"""Tests, recorded answers, benchmarks."""

from __future__ import annotations

from collections.abc import Iterable

from thalweg.errors.family import UsageError


def bad_fault_setting(variable: str, setting: str) -> UsageError:
    return UsageError(
        f"{variable} names no fault point: {setting!r}",
        hint="Write the name of a point, or name:n for its n-th passage, such as manifest:2.",
    )


def oracle_select_unsupported(reason: str, select: str) -> UsageError:
    return UsageError(f"the oracle cannot evaluate this SELECT: {reason}", detail=select)


def bench_tree_missing(folder: str) -> UsageError:
    return UsageError(
        f"there are no benchmarks in {folder}",
        hint="Benchmarks come with the source tree, not with the installed package: run ./dev bench there.",
    )


def bench_unknown(name: str, known: list[str]) -> UsageError:
    return UsageError(f"unknown benchmark {name}", hint=f"Known: {', '.join(known) or 'none yet'}.")


def needs_spark(what: str, instead: str) -> UsageError:
    """Of a session that runs in the calling process."""
    return UsageError(
        f"{what} needs Spark",
        detail="a LocalSession runs in the calling process, without a JVM",
        hint=f"{instead}, or use thalweg.connect",
    )


def answer_not_recorded(asked: str, path: object, chore: str) -> UsageError:
    """Of a session that has no Spark to ask. `path`: of the answers; None where it was given none. `chore`: what
    records them in Thalweg itself."""
    return UsageError(
        "what Spark's analyser says to this is not recorded",
        detail=f"{path or 'LocalSession without recorded=DIRECTORY'} has no answer to: {asked}",
        hint="call thalweg.testing.record(...) once, or LocalSession(..., record=True), where Spark is installed; "
        f"in the tests of Thalweg itself: {chore}",
    )


def result_not_recorded(select: str, streams: Iterable[str], path: object) -> UsageError:
    """Of a test that compares with what batch Spark SQL gives, and has no Spark to ask."""
    return UsageError(
        "what batch Spark SQL gives for this query is not recorded",
        detail=f"{path} has no result, over these rows of {', '.join(streams)}, of: {select}",
        hint="./dev test --record asks Spark; commit what it writes",
    )
