"""A copy of what a state says of its streams, tables and queries, without the rest.

Enough to plan what would run, and small. The state itself is only read, and may be in use.
"""

from __future__ import annotations

import os

from thalweg.model.manifest import Manifest
from thalweg.state.manifest import manifest_batches, manifest_name, read_manifest
from thalweg.state.places import open_storage
from thalweg.state.storage import Storage

# The requests before the manifest: one that is in neither of them would be lost, one that is in both is passed over.
_OBJECTS = ("catalog.json", "tables.json", "changes.log")


def copy_state(place: str | os.PathLike[str], into: str | os.PathLike[str]) -> None:
    """What a state says of streams, tables and queries, into a directory that is not there yet. The state is only
    read, and may be in use."""
    storage = open_storage(place)
    storage.check()
    copy_definitions(storage, open_storage(into))


def copy_definitions(storage: Storage, into: Storage) -> None:
    """Into a place that holds nothing. Of a state that is not there yet there is nothing to copy."""
    into.claim()
    for name in (*_OBJECTS, *storage.names("requests/")):
        _copy(storage, into, name)
    batches = manifest_batches(storage)
    if batches:
        manifest, named = read_manifest(storage, batches[-1])
        for name in (*named, *_names_of(manifest)):
            _copy(storage, into, name)


def _names_of(manifest: Manifest) -> tuple[str, ...]:
    name = manifest_name(manifest.batch)
    return name, f"{name}.json", f"checkpoint/offsets/{manifest.batch}"


def _copy(storage: Storage, into: Storage, name: str) -> None:
    data = storage.find(name)
    if data is not None:
        into.write(name, data, durable=False)
