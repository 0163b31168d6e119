"""The state: where it lies, whose it is, what is damaged."""

from __future__ import annotations

from collections.abc import Iterable

from thalweg.errors.family import InternalError, SinkRefusedError, SourceError, StateError


def no_canonical_form(name: str) -> InternalError:
    return InternalError(
        f"no id can be made from {name}",
        detail="Ids are durable, so everything in them has a form that is declared, which this class has not.",
        hint="Declare its form with @canonical (thalweg/model/canonical.py), or leave it out of the id.",
    )


def unusable_directory(path: object, error: OSError) -> StateError:
    return StateError(
        f"the state directory {path} cannot be used",
        detail=str(error),
        hint="Give a directory on a local disk that this user may write.",
    )


def landing_wanted(stream: str, place: object) -> SourceError:
    return SourceError(
        f"the streaming DataFrame of stream {stream!r} needs a directory to land in",
        detail=f"Spark writes its rows as files, and the state is in {place}",
        hint="connect(..., landing='/a/directory/that/all/workers/see')",
    )


def cannot_create_once(place: object, reason: str) -> StateError:
    return StateError(
        f"{place} cannot hold the state: of two writers of one name it cannot refuse the second",
        detail=reason,
        hint="Give a directory on a file system with hard links, or an object store with conditional writes.",
    )


def unknown_scheme(place: str, known: Iterable[str]) -> StateError:
    return StateError(
        f"{place} is not a place for state",
        detail=f"known are paths, file:// and {', '.join(f'{scheme}://' for scheme in known)}",
        hint="Give a directory, or the URL of a bucket and a prefix, such as s3://bucket/pipeline.",
    )


def url_as_path(place: str) -> StateError:
    return StateError(
        f"{place} is a path that was meant to be a URL",
        detail="a Path makes one slash of two",
        hint="Give the URL as a text, such as 's3://bucket/pipeline'.",
    )


def secrets_in_url(place: str) -> StateError:
    """`place`: without them."""
    return StateError(
        f"the URL of {place} holds a password or a query",
        detail="a URL is stored, sent and printed",
        hint="Give credentials by the environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
    )


def no_object_stores(place: str) -> StateError:
    return StateError(
        f"{place} cannot be opened: the library for object stores is missing",
        hint="Install it: pip install obstore.",
    )


def unusable_store(place: str, detail: str) -> StateError:
    return StateError(
        f"the object store of {place} cannot be used",
        detail=detail,
        hint="See what its URL, endpoint and region should be; they come from the URL and the environment.",
    )


def unreachable_store(place: str, detail: str) -> StateError:
    return StateError(
        f"the object store of {place} does not answer",
        detail=detail,
        hint="Check the network and the endpoint in the environment, such as AWS_ENDPOINT_URL (and AWS_ALLOW_HTTP).",
    )


def store_refuses(place: str, detail: str) -> StateError:
    return StateError(
        f"the object store of {place} does not let this user in",
        detail=detail,
        hint="Check the credentials in the environment; they must allow to list, read, write and delete objects.",
    )


def missing_bucket(place: str, detail: str) -> StateError:
    return StateError(
        f"the bucket of {place} does not exist",
        detail=detail,
        hint="Create it, or correct the URL.",
    )


def forked_store(place: str) -> StateError:
    return StateError(
        f"{place} cannot be used here: this process was forked from one that had opened an object store",
        detail="the threads of the library do not survive a fork; the first request would wait for ever",
        hint="Start processes with the method 'spawn' or 'forkserver'.",
    )


def unsafe_cache(path: object, reason: str) -> StateError:
    return StateError(
        f"the cache of objects {path} cannot be used",
        detail=reason,
        hint="Remove it, or name another directory in THALWEG_CACHE.",
    )


def dangling_link(path: object, link: object, target: str) -> StateError:
    return StateError(
        f"the state directory {path} cannot be made",
        detail=f"{link} is a symbolic link to {target}, which does not exist",
        hint=f"Create {target}, or remove the link.",
    )


def file_in_the_way(path: object, file: object) -> StateError:
    return StateError(
        f"the state directory {path} cannot be used",
        detail=f"{file} is a file",
        hint="Give a directory, or a path at which there is nothing yet.",
    )


def foreign_directory(path: object, held: list[str]) -> StateError:
    more = f" and {len(held) - 5} more" if len(held) > 5 else ""
    return StateError(
        f"{path} is neither empty nor a state directory",
        detail=f"it holds {', '.join(held[:5])}{more}, and nothing that Thalweg has written",
        hint=f"Give a directory of its own, such as {path}/state: what lies in a state directory is Thalweg's.",
    )


def state_locked(path: object, holder: str) -> StateError:
    return StateError(
        f"the state directory {path} is in use by {holder}",
        detail="A state directory belongs to one session at a time.",
        hint="stop() the session that was connected to it before; in a notebook a new kernel helps, too."
        if holder.endswith("this one")
        else "Stop that session, or give this one a directory of its own.",
    )


def lost_lock(path: object) -> StateError:
    return StateError(
        f"this session no longer holds its state directory: {path} was removed or replaced",
        detail="Another session may have opened the directory since. Nothing of this batch was given to a sink.",
        hint="Stop this session, see to it that no other one uses the directory, then connect again.",
    )


def lost_manifest(path: object, batch: int) -> StateError:
    return StateError(
        f"another session has run batch {batch}: {path} is there already",
        detail="Of two sessions on one state the first to commit a batch counts. Nothing of this session's batch was "
        "given to a sink.",
        hint="Stop this session. The other one goes on; if there should be none, connect again once it has ended.",
    )


def newer_term(path: object, mine: int, newest: int) -> StateError:
    return StateError(
        f"another session has opened this state since: {path}",
        detail=f"this session is number {mine}, the newest is {newest}; nothing of this batch was given to a sink",
        hint="Stop this session. To go on here instead, end the other one and connect again.",
    )


def sink_ahead(query: str, place: object, batch: int, newest: int) -> SinkRefusedError:
    return SinkRefusedError(
        f"query {query}: {place} holds results of batch {newest}, but the state has got only as far as batch {batch}",
        detail="The state is a copy, or was restored from one: its batches would be other ones under the same names.",
        hint="Go on with the newest state, or connect(..., fork=True) and give the query a new place.",
    )


def sink_of_a_copy(query: str, place: object) -> SinkRefusedError:
    return SinkRefusedError(
        f"query {query}: another copy of this state writes to {place}",
        detail="Both would give the same names to other batches.",
        hint="Stop one of the two, or connect(..., fork=True) and give its queries new places.",
    )


def missing_file(path: object) -> StateError:
    return StateError(
        f"the state is incomplete: {path} is missing",
        detail="The manifest names this file, so it was there when the last batch was committed.",
        hint="Put the file back from a copy of the whole state directory, or start with an empty directory.",
    )


def missing_rejected(place: object, expected: int, found: int) -> StateError:
    return StateError(
        f"the state is incomplete: files in {place} are missing",
        detail=f"{expected} rows were set aside as unreadable, {found} are there",
        hint="Put the files back from a copy of the whole state directory.",
    )


def corrupt_file(path: object, expected: str, found: str) -> StateError:
    return StateError(
        f"the state is corrupt: {path} is not what was written",
        detail=f"expected {expected}, found {found}",
        hint="Restore the whole state directory from a copy, or start with an empty directory; check the disk.",
    )


def wrong_state_format(path: object, found: object, read: Iterable[int]) -> StateError:
    return StateError(
        f"the state directory was written in format {found}, this release reads {', '.join(map(str, read))}",
        detail=f"in {path}",
        hint="Open it with the release that wrote it, or start with an empty state directory.",
    )


def old_windows_of_joins(place: object, found: int, queries: Iterable[str]) -> StateError:
    return StateError(
        f"the state directory was written in format {found}: open windows of joins cannot be gone on with",
        detail=f"in {place}, of {', '.join(queries)}",
        hint="Drop these queries with the release that wrote it, or start with an empty state directory.",
    )


def unwritable_request(path: object, error: object) -> StateError:
    return StateError(
        f"the request could not be made durable in {path}",
        detail=str(error),
        hint="Free disk space or repair the disk, then start the session again; the request was not taken.",
    )


def unusable_entry(path: object, error: SourceError) -> StateError:
    return StateError(
        f"{path} holds what cannot be used: {error.message}",
        detail=error.detail,
        hint="an earlier release let it in: take the entry out of the file, or start with a new state directory",
    )


def wrong_hash(path: object, found: str, needed: str) -> StateError:
    return StateError(
        f"the state in {path} is laid out by another hash",
        detail=f"it says {found}, this release uses {needed}",
        hint="use the release that wrote it, or start with a new state directory",
    )
