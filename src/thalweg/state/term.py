"""Whose state it is, over time.

    timeline                  the name of this state's life, until it is forked from a copy; sinks know it by that
    terms/000000000007        one connect's hold on it, created once

A term only fences: what a batch gives out is keyed by timeline and batch, so that a repeat after a kill has the same
key. Only the newest term commits and deletes."""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Collection
from dataclasses import dataclass

from msgspec import Struct

from thalweg.errors import corrupt_file, missing_file, newer_term
from thalweg.state.migrate import find_old_identity
from thalweg.state.sealed import create_value, find_value, read_value, write_value
from thalweg.state.storage import Storage

_KEPT = 64
"""Terms that are remembered: a sink says which one wrote to it last."""


class _Timeline(Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    forked_from: str = ""


class _Term(Struct, frozen=True, forbid_unknown_fields=True):
    token: str
    host: str
    process: int


@dataclass(frozen=True)
class Term:
    """What a session writes under."""

    timeline: str
    number: int
    token: str
    known: Collection[str] = ()
    """Tokens of the terms before it, as far as they are remembered."""

    @property
    def oldest(self) -> int:
        """The first number that is remembered."""
        return max(1, self.number - _KEPT + 1)


def take_term(storage: Storage, fork: bool = False) -> Term:
    """The next one. Whoever had the one before finds out."""
    timeline = _timeline(storage, fork)
    mine = _Term(secrets.token_hex(8), socket.gethostname(), os.getpid())
    number = newest_term(storage) + 1
    while not create_value(storage, _name(number), "term", mine):
        number = newest_term(storage) + 1
    known = frozenset(read_value(storage, _name(n), "term", _Term).token for n in _numbers(storage))
    return Term(timeline, number, mine.token, known)


def check_term(storage: Storage, term: Term) -> None:
    """Raises once there is a newer one."""
    newest = newest_term(storage)
    if newest > term.number:
        raise newer_term(storage.place, term.number, newest)


def newest_term(storage: Storage) -> int:
    return max(_numbers(storage), default=0)


def forget_terms(storage: Storage, term: Term) -> None:
    for number in _numbers(storage):
        if number <= term.number - _KEPT:
            storage.delete(_name(number))


def _timeline(storage: Storage, fork: bool) -> str:
    found = find_value(storage, "timeline", "timeline", _Timeline)
    known = found.id if found is not None else find_old_identity(storage) or ""
    if found is not None and not fork:
        if not found.id:
            raise corrupt_file(storage.locate("timeline"), "the name of a timeline", "none")
        return found.id
    if not known and not fork and _numbers(storage):
        raise missing_file(storage.locate("timeline"))
    made = _Timeline(secrets.token_hex(16), known) if fork or not known else _Timeline(known)
    write_value(storage, "timeline", "timeline", made)
    return made.id


def _name(number: int) -> str:
    return f"terms/{number:012d}"


def _numbers(storage: Storage) -> list[int]:
    found = (name.rpartition("/")[2] for name in storage.names("terms/"))
    return [int(number) for number in found if number.isdigit()]
