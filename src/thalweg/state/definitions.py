"""A copy of what a state directory says of its streams, tables and queries, without their state.

Enough to plan what would run, and small. The directory itself is only read, and may be in use.
"""

from __future__ import annotations

from pathlib import Path

from thalweg.state.durable import make_directory, write_atomic
from thalweg.state.manifest import latest_manifest
from thalweg.state.ownership import check_directory, claim_directory

# The requests before the manifest: one that is in neither of them would be lost, one that is in both is passed over.
_FILES = ("catalog.json", "tables.json", "changes.log")


def copy_definitions(state_dir: Path, into: Path) -> None:
    """Into a directory that is not there yet. Of a state directory that is not there yet there is nothing to copy."""
    claim_directory(into)
    if not state_dir.is_dir():
        return
    check_directory(state_dir)
    for name in _FILES:
        if (state_dir / name).exists():
            _copy(state_dir, into, name)
    newest = latest_manifest(state_dir)
    if newest is not None:
        name = f"manifests/{newest.batch:012d}.json"
        make_directory(into / "manifests")
        _copy(state_dir, into, name)


def _copy(state_dir: Path, into: Path, name: str) -> None:
    write_atomic(into / name, (state_dir / name).read_bytes(), sync=False)
