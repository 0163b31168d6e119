"""The session and its pipeline."""

from __future__ import annotations

from collections.abc import Sequence

from thalweg.errors.family import ThalwegError, UsageError


def pipeline_failed(
    reason: str,
    batch: int | None = None,
    times: int = 1,
    *,
    file: str | None = None,
    stream: str | None = None,
    queries: Sequence[str] = (),
) -> ThalwegError:
    """`times`: how often this batch has failed since the session was opened. `file`, `stream`, `queries`: what the
    task was at, where it is known."""
    what = "the batch" if batch is None else f"batch {batch}"
    if times > 1:
        hint = f"{what} has failed {times} times: starting again will not help by itself. "
        hint += _way_out(file, stream, queries)
    else:
        hint = f"mend what the detail says, then start again: {what} is run again from its beginning"
    return ThalwegError(
        "the pipeline has stopped" + ("" if batch is None else f" in batch {batch}"),
        detail=reason.strip() or "unknown reason",
        hint=hint,
    )


def _way_out(file: str | None, stream: str | None, queries: Sequence[str]) -> str:
    """What lets the other queries go on."""
    if queries:
        others = ", and so on with the others that the detail names," if len(queries) > 1 else ""
        return f"PAUSE QUERY {queries[0]} or DROP QUERY {queries[0]}{others} then start again"
    over = f"pause or drop the queries over stream '{stream}'"
    if file is not None:
        return f"Mend the file {file} or move it away, or {over}, then start again"
    if stream is not None:
        return f"{over[0].upper()}{over[1:]} (PAUSE QUERY, DROP QUERY), then start again"
    return (
        "If the detail names a file of input, move it away or mend it; else pause or drop the queries that it is "
        "about (PAUSE QUERY, DROP QUERY), then start again"
    )


def not_a_span(given: object) -> UsageError:
    return UsageError(
        f"{given!r} is not a length of time",
        hint="write a number and a unit, such as '10 seconds', or give a datetime.timedelta",
    )


def already_running() -> UsageError:
    return UsageError(
        "the pipeline is already running",
        hint="there is nothing to start: new queries take part from the next batch on, and progress() says how far "
        "it is. session.await_termination() waits for its end. session.stop() ends the session; after it, "
        "thalweg.connect(...) to the same directory goes on",
    )


def bad_trigger(given: str) -> UsageError:
    return UsageError(
        f"the trigger {given!r} is below 0",
        hint="give the least time between two batches, such as '1 second'; '0 seconds' for none",
    )


def session_stopped() -> UsageError:
    return UsageError("the session is stopped", hint="thalweg.connect(...) again")


def only_rehearsed() -> UsageError:
    return UsageError("the session only tries statements out", hint="thalweg.connect(...) makes one that can run")


def wrong_directory(kind: str) -> UsageError:
    return UsageError(
        f"the first argument of connect is the state directory, not a {kind}",
        hint='thalweg.connect("state/", spark=spark)',
    )


def wrong_spark(kind: str) -> UsageError:
    return UsageError(
        f"spark= is a SparkSession of yours, not a {kind}",
        hint='left out, thalweg.connect("state/") makes a local one; **{"spark.master": "local[4]"} sets it up',
    )


def state_directory_wanted() -> UsageError:
    return UsageError("there is nothing to run", hint="Name a file of statements, or a --state to go on with.")


def wrong_listener(given: object) -> UsageError:
    return UsageError(
        f"{given!r} is not a listener",
        hint="give an object with a method on_progress(progress), and on_terminated(error) if you like",
    )


def stopped_inside_batch() -> UsageError:
    return UsageError(
        "a sink or a listener cannot stop the session that is calling it",
        hint="note that it is time to stop, and call stop() from elsewhere",
    )


def unknown_form(given: object, known: tuple[str, ...]) -> UsageError:
    return UsageError(f"there is no form {given!r} of EXPLAIN", hint=f"use one of {', '.join(known)}")


def bad_slots(given: object) -> UsageError:
    return UsageError(
        f"slots={given!r} is not a number of slots", hint='give a whole number above 0, "auto", or None: one per core'
    )


def bad_memory(given: object) -> UsageError:
    return UsageError(
        f"worker_memory={given!r} is not an amount of memory",
        hint='give bytes, or a text such as "2 GB"; 64 MB at least',
    )


def bad_small_batches(given: object, known: tuple[str, ...]) -> UsageError:
    return UsageError(
        f"small_batches={given!r} does not say where small batches run", hint=f"give one of {', '.join(known)}"
    )


def bad_join_epoch(given: object) -> UsageError:
    return UsageError(
        f"join_epoch={given!r} is not a number of batches",
        hint="give a whole number of 1 or more, or None to leave the orders of joins unplanned",
    )
