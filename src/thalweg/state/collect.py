"""Deleting what no manifest names.

    buckets/<batch>-<slot>-<unique>.arrow      state
    results/<batch>-<unique>.arrow             results of memory queries
    prepared/<batch>-<slot>-<unique>.arrow     results on their way to a sink

Tasks write objects before the driver commits them, and a task may be tried again, so objects that no manifest will
ever name are normal. A name says which batch made it: what is of a batch after the newest manifest may still be
committed and is left alone."""

from __future__ import annotations

import re
import secrets

from thalweg.model.manifest import Manifest
from thalweg.state.container import delete_container
from thalweg.state.storage import Storage

_NAME = re.compile(r"(?:buckets|results|prepared|spill)/(\d{12,})[-.][^/]*")
_PLACES = ("buckets/", "results/", "prepared/", "spill/")
"""The last is of earlier releases."""


def bucket_name(batch: int, place: int, unique: str) -> str:
    """`unique`: two attempts of a task get two names."""
    return f"buckets/{batch:012d}-{place}-{unique}.arrow"


def prepared_name(batch: int, place: int, unique: str) -> str:
    return f"prepared/{batch:012d}-{place}-{unique}.arrow"


def result_name(batch: int) -> str:
    return f"results/{batch:012d}-{secrets.token_hex(6)}.arrow"


def unreferenced(storage: Storage, newest: Manifest, before: Manifest | None) -> list[str]:
    """Containers of batches that have happened which neither of the last two manifests names."""
    named = newest.files() | (before.files() if before is not None else frozenset())
    return [
        name
        for place in _PLACES
        for name in storage.names(place)
        if name not in named and _batch_of(name) <= newest.batch
    ]


def collect_garbage(storage: Storage, newest: Manifest, before: Manifest | None = None) -> list[str]:
    """Deletes what is unreferenced; what was deleted."""
    doomed = unreferenced(storage, newest, before)
    for name in doomed:
        delete_container(storage, name)
    return doomed


def _batch_of(name: str) -> float:
    """The batch that made an object; a name that is not ours is never old enough."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else float("inf")
