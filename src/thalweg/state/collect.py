"""Deleting what no manifest names.

    buckets/<batch>-<slot>-<unique>.arrow

Tasks write files before the driver commits them, and a task may be tried again, so files that no manifest
will ever name are normal. A file's name says which batch wrote it: files of a batch after the newest manifest
may still be committed and are left alone.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from thalweg.state.container import forget_file
from thalweg.state.durable import is_temporary
from thalweg.state.manifest import Manifest, manifest_batches, read_manifest

_BATCH = re.compile(r"\.?(\d{12,})[-.]")
_DIRECTORIES = ("", "buckets", "manifests", "intents", "results")


def bucket_name(batch: int, slot: int) -> str:
    """A new name for a bucket file, relative to the state directory. Two attempts of a task get two names."""
    return f"buckets/{batch:012d}-{slot}-{secrets.token_hex(6)}.arrow"


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
    return sorted(path for name in _DIRECTORIES for path in (root / name).glob(".*") if is_temporary(path))


def collect_garbage(state_dir: Path | str, manifest: Manifest | None, *, starting: bool = False) -> list[Path]:
    """Delete what is unreferenced; what was deleted. `starting`: leftover temporaries of every kind too."""
    doomed = unreferenced(state_dir, manifest) if manifest is not None else []
    if starting:
        doomed += leftover_temporaries(state_dir)
    for path in doomed:
        forget_file(path)
        path.unlink(missing_ok=True)
    return doomed


def _batch_of(path: Path) -> float:
    """The batch that wrote a file; a name that is not ours is never old enough."""
    match = _BATCH.match(path.name)
    return int(match[1]) if match else float("inf")
