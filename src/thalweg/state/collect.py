"""Deleting what no manifest names.

    buckets/<batch>-<slot>-<unique>.arrow
    spill/<batch>-<slot>-<unique>.arrow

Tasks write files before the driver commits them, and a task may be tried again, so files that no manifest
will ever name are normal. A file's name says which batch wrote it: files of a batch after the newest manifest
may still be committed and are left alone.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from pathlib import Path

from thalweg.state.container import forget_file
from thalweg.state.durable import delete, is_temporary
from thalweg.state.manifest import Manifest, manifest_batches, prune, read_manifest

_BATCH = re.compile(r"\.?(\d{12,})[-.]")
_SPILL = re.compile(r"\d{12,}-\d+-[0-9a-f]{12}\.arrow")
_WRITTEN = ("buckets", "manifests", "intents", "results", "sources/*", "rejected/*")
_TEMPORARIES = (".*", *(f"{place}/.*" for place in _WRITTEN))
"""Where files are written that get their names when they are whole. Tables look after their own."""


def unique() -> str:
    """What no other name of a file has in it."""
    return secrets.token_hex(6)


def bucket_name(batch: int, slot: int, unique: Callable[[], str] = unique) -> str:
    """A new name for a bucket file, relative to the state directory. Two attempts of a task get two names."""
    return f"buckets/{batch:012d}-{slot}-{unique()}.arrow"


def unreferenced(state_dir: Path | str, manifest: Manifest) -> list[Path]:
    """Bucket files, and temporaries of them, that neither `manifest` nor the one before it names."""
    state_dir = Path(state_dir)
    named = set(manifest.files())
    before = [batch for batch in manifest_batches(state_dir) if batch < manifest.batch]
    if before:
        named |= read_manifest(state_dir, before[-1]).files()
    names = {Path(file).name for file in named}
    return sorted(
        path
        for path in (state_dir / "buckets").glob("*")
        if path.name not in names and _batch_of(path) <= manifest.batch
    )


def leftover_temporaries(state_dir: Path | str) -> list[Path]:
    """Half-written files of a process that died: all temporaries, so only for one that holds the lock and
    has started no task yet."""
    root = Path(state_dir)
    return sorted(path for pattern in _TEMPORARIES for path in root.glob(pattern) if is_temporary(path))


def leftover_spills(state_dir: Path | str) -> list[Path]:
    """Results that a process which died had put aside: the batch is run again."""
    found = (Path(state_dir) / "spill").glob("*")
    return sorted(path for path in found if _SPILL.fullmatch(path.name) or is_temporary(path))


def late_spills(state_dir: Path | str, manifest: Manifest) -> list[Path]:
    """Results that attempts which did not count had put aside, in batches that have happened."""
    return sorted(path for path in (Path(state_dir) / "spill").glob("*") if _batch_of(path) <= manifest.batch)


def collect_garbage(state_dir: Path | str, manifest: Manifest | None, *, starting: bool = False) -> list[Path]:
    """Delete what is unreferenced; what was deleted. `starting`: leftovers of every kind too."""
    doomed = [] if manifest is None else unreferenced(state_dir, manifest) + late_spills(state_dir, manifest)
    if starting:
        prune(state_dir)
        doomed += leftover_temporaries(state_dir) + leftover_spills(state_dir)
    for path in doomed:
        forget_file(path)
        delete(path)
    return doomed


def _batch_of(path: Path) -> float:
    """The batch that wrote a file; a name that is not ours is never old enough."""
    match = _BATCH.match(path.name)
    return int(match[1]) if match else float("inf")
