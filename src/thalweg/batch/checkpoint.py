"""How far earlier releases had got: Spark kept their offsets, in a checkpoint of its own.

    checkpoint/offsets/N     a line `v1`, a line of Spark's own, and the offset of batch N in JSON

The checkpoint is read as long as the newest manifest says nothing of offsets. The first batch that this release runs
keeps its offset in its manifest; then the checkpoint is deleted.
"""

from __future__ import annotations

import json
from pathlib import Path

from thalweg.errors import missing_offsets, unreadable_offsets
from thalweg.source.split_planner import Offset
from thalweg.state.durable import delete, delete_tree

_VERSION = "v1"
_LINES = 3


def read_offset(state_dir: Path, batch: int) -> Offset:
    """The offset that batch `batch` goes up to."""
    path = state_dir / "checkpoint" / "offsets" / str(batch)
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError:
        raise missing_offsets(path, batch) from None
    except UnicodeDecodeError as error:
        raise unreadable_offsets(path, batch, str(error)) from None
    lines = text.splitlines()
    if len(lines) != _LINES or lines[0] != _VERSION:
        raise unreadable_offsets(path, batch, f"{len(lines)} lines, the first is {''.join(lines[:1])[:20]!r}")
    return _parse(path, batch, lines[-1])


def _parse(path: Path, batch: int, text: str) -> Offset:
    try:
        found = json.loads(text)
        streams = {str(name): int(units) for name, units in found["streams"].items()}
        return {"tick": int(found["tick"]), "streams": streams}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable_offsets(path, batch, f"{type(error).__name__}: {error}") from None


def forget_checkpoint(state_dir: Path) -> None:
    """What is of no use once a manifest has the offset."""
    if (state_dir / "checkpoint").is_dir():
        delete_tree(state_dir / "checkpoint")
    if (state_dir / "control.json").is_file():
        delete(state_dir / "control.json")
