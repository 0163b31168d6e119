"""That sinks have been given all that a manifest holds, for as long as no later manifest says so.

    delivered     the batch, and the queries whose sinks objected

Without it a pipeline that was stopped in good order would give its last results out again when it starts.
"""

from __future__ import annotations

from msgspec import Struct

from thalweg.state.sealed import find_value, write_value
from thalweg.state.storage import Storage


class Delivered(Struct, frozen=True, forbid_unknown_fields=True):
    batch: int
    failed: dict[str, str] = {}
    """Query id -> what its sink said."""


def find_delivered(storage: Storage) -> Delivered | None:
    return find_value(storage, "delivered", "delivery", Delivered)


def save_delivered(storage: Storage, done: Delivered) -> None:
    write_value(storage, "delivered", "delivery", done)
