"""Requests: queries created, dropped, replaced, paused and resumed; streams altered and dropped; watermarks that
begin anew. They are durable before they are acknowledged, until a batch takes them up.

    requests/000000000007     one request, or several that were made as one; created once
    requests/last             the number of the last one: so a request that went missing is noticed

A manifest says through which number requests were applied; those are deleted then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct

from thalweg.errors import StateError, corrupt_file, missing_file, unwritable_request
from thalweg.model.query import Query
from thalweg.model.stream import Stream
from thalweg.state.migrate import read_old_requests
from thalweg.state.sealed import create_value, find_value, read_value, write_value
from thalweg.state.storage import Storage

_LAST = "requests/last"


class CreateRequest(Struct, frozen=True, forbid_unknown_fields=True, tag="create"):
    query: Query


class DropRequest(Struct, frozen=True, forbid_unknown_fields=True, tag="drop"):
    name: str


class PauseRequest(Struct, frozen=True, forbid_unknown_fields=True, tag="pause"):
    name: str


class ResumeRequest(Struct, frozen=True, forbid_unknown_fields=True, tag="resume"):
    name: str


class ResetRequest(Struct, frozen=True, forbid_unknown_fields=True, tag="reset"):
    stream: str


class ReplaceRequest(Struct, frozen=True, forbid_unknown_fields=True, tag="replace"):
    """Drops the query of the name, and creates this one."""

    query: Query


class StreamRequest(Struct, frozen=True, forbid_unknown_fields=True, tag="stream"):
    """A stream is altered, dropped, or created after one of its name was dropped."""

    name: str
    was: Stream | None
    now: Stream | None

    @property
    def is_drop(self) -> bool:
        """Whether what was is no more: another one of the name, if there is one, begins with nothing."""
        return self.was is not None and (self.now is None or self.now.place != self.was.place)


Request = CreateRequest | DropRequest | ReplaceRequest | PauseRequest | ResumeRequest | ResetRequest | StreamRequest


class _StoredRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Requests as they are written. Their number is in it, so that no other object passes for it."""

    number: int
    request: (
        CreateRequest | DropRequest | ReplaceRequest | PauseRequest | ResumeRequest | ResetRequest | StreamRequest
    )
    more: tuple[CreateRequest | ReplaceRequest, ...] = ()
    """Made together with it, of other queries: all of them are there, or none."""

    @property
    def requests(self) -> tuple[Request, ...]:
        return (self.request, *self.more)


class RequestLog:
    """Any thread may append; the thread of batches reads and forgets."""

    def __init__(
        self, storage: Storage, through: int, let_go: Callable[[Request], None] = lambda request: None
    ) -> None:
        """`through`: the last request that the newest manifest has applied. `let_go` is called with one that was
        applied, before it is forgotten; after a crash once more."""
        self._let_go = let_go
        self._storage = storage
        self._lock = threading.Lock()
        self._failure: OSError | None = None
        self._is_open = True
        self._has_old = storage.stamp("changes.log") is not None
        self._requests: dict[int, _StoredRequest] = {}
        """In order."""
        self._forgotten = through
        for number, stored in _read(storage, through, let_go):
            self._requests[number] = stored
        self._last = max(through, *self._requests) if self._requests else through

    def append(self, request: Request, then: Callable[[int], None] = lambda number: None) -> int:
        """Makes a request durable; its number. `then` is called with it before a batch can see the request; a session
        that begins again does it, if a crash came between. A request of which `then` failed stays: it may have been
        done in part, and is done whole then."""
        return self._append(request, (), then)

    def append_all(self, requests: Sequence[CreateRequest | ReplaceRequest]) -> int:
        """Makes requests of different queries durable, all of them or none; the number that they share."""
        return self._append(requests[0], tuple(requests[1:]), lambda number: None)

    def _append(
        self, request: Request, more: tuple[CreateRequest | ReplaceRequest, ...], then: Callable[[int], None]
    ) -> int:
        with self._lock:
            self._check()
            number, is_counted = self._last + 1, False
            stored = _StoredRequest(number, request, more)
            try:
                if not self._create(stored):
                    raise unwritable_request(self._storage.locate(_name(number)), "another session has made it")
                write_value(self._storage, _LAST, "count", number)
                is_counted = True
                then(number)
            except OSError as error:
                # It may be durable all the same: nothing more is acknowledged before a new session has looked.
                self._failure = error
                if not is_counted:
                    self._take_back(number)
                raise unwritable_request(self._storage.locate(_name(number)), error) from error
            self._last = number
            self._requests[number] = stored
            return number

    def _take_back(self, number: int) -> None:
        with suppress(OSError):
            write_value(self._storage, _LAST, "count", number - 1)  # first: what it counts must be there
            self._storage.delete(_name(number))

    def read_after(self, number: int) -> list[tuple[int, Request]]:
        """Those with a greater number, in order. Several that were made as one share theirs."""
        with self._lock:
            return [(n, request) for n, stored in self._requests.items() if n > number for request in stored.requests]

    @property
    def last(self) -> int:
        """The number of the last one, 0 before the first."""
        return self._last

    def forget_through(self, number: int) -> None:
        """A manifest that is durable has applied them."""
        with self._lock:
            done = [n for n in self._requests if n <= number]
        for n in done:
            for request in self._requests[n].requests:
                self._let_go(request)
            self._storage.delete(_name(n))
        if self._has_old:
            self._forget_old(number)
        with self._lock:
            for n in done:
                del self._requests[n]

    def _forget_old(self, number: int) -> None:
        """Those of `changes.log` that are still to be applied become objects before it goes."""
        with self._lock:
            waiting = [n for n in self._requests if n > number]
            for n in waiting:
                self._create(self._requests[n])
            if waiting:
                write_value(self._storage, _LAST, "count", self._last)
        self._storage.delete("changes.log")
        self._has_old = False

    def _create(self, stored: _StoredRequest) -> bool:
        return create_value(self._storage, _name(stored.number), "request", stored)

    def close(self) -> None:
        with self._lock:
            self._is_open = False

    def _check(self) -> None:
        if self._failure is not None:
            raise unwritable_request(self._storage.place, self._failure) from self._failure
        if not self._is_open:
            raise unwritable_request(self._storage.place, "the session was stopped")


def _name(number: int) -> str:
    return f"requests/{number:012d}"


def _read(storage: Storage, through: int, let_go: Callable[[Request], None]) -> list[tuple[int, _StoredRequest]]:
    """Those that are to be applied, without a gap. What was applied and is still there goes."""
    found: dict[int, _StoredRequest] = {}
    for number, record in read_old_requests(storage):
        if number > through:
            found[number] = _StoredRequest(
                number, DropRequest(record) if isinstance(record, str) else CreateRequest(record)
            )
    for name in storage.names("requests/"):
        _, _, digits = name.rpartition("/")
        if not digits.isdigit():
            continue
        number = int(digits)
        if number <= through:
            with suppress(StateError):  # a damaged one has nothing more to say
                for request in _read_one(storage, number).requests:
                    let_go(request)
            storage.delete(name)
        else:
            found[number] = _read_one(storage, number)
    last = find_value(storage, _LAST, "count", int) or 0
    for number in range(through + 1, max(last, *found, through) + 1 if found else last + 1):
        if number not in found:
            raise missing_file(storage.locate(_name(number)))
    return sorted(found.items())


def _read_one(storage: Storage, number: int) -> _StoredRequest:
    stored = read_value(storage, _name(number), "request", _StoredRequest)
    if stored.number != number:
        raise corrupt_file(storage.locate(_name(number)), f"request {number}", f"request {stored.number}")
    return stored
