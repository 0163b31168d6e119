"""What sinks have been given of what a manifest holds for them, for as long as no later manifest says so.

    delivered     the manifest's batch; how far each sink has got; the queries whose results are kept for later

Without it a pipeline that was stopped in good order would give its last results out again when it starts.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from thalweg.model.manifest import Prepared
from thalweg.state.sealed import find_value, write_value
from thalweg.state.storage import Storage


class Delivered(Struct, frozen=True, forbid_unknown_fields=True):
    batch: int
    """Of the manifest that this is about."""
    failed: dict[str, str] = {}
    """Query id -> what its sink said: as earlier releases wrote it. They gave such a query nothing more."""
    given: dict[str, int] | None = None
    """Query id -> the newest batch that its sink has. None: all sinks have all but the failed; earlier releases."""
    paused: dict[str, str] = {}
    """Query id -> why its results are kept; as of `Entry.paused`."""


def find_delivered(storage: Storage) -> Delivered | None:
    return find_value(storage, "delivered", "delivery", Delivered)


def still_waiting(waiting: Sequence[Prepared], done: Delivered | None) -> list[Prepared]:
    """Of what a manifest holds for sinks, what they have not been given."""
    if done is None:
        return list(waiting)
    if done.given is None:
        return [p for p in waiting if p.query in done.failed]
    return [p for p in waiting if p.batch > done.given.get(p.query, -1)]


def save_delivered(storage: Storage, done: Delivered) -> None:
    write_value(storage, "delivered", "delivery", done)
