"""What a state directory is called by those to whom its path says too little."""

from __future__ import annotations

import secrets
from pathlib import Path

from thalweg.state.durable import sync_directory, write_atomic

_FILE = "identity"


def identity(state_dir: Path) -> str:
    """A name that no other state directory has, nor one made anew in its place. Made once, it goes where the
    directory goes."""
    place = state_dir / _FILE
    if place.exists():
        sync_directory(state_dir)  # who made it may have died before that, and others will know it by this name
    else:
        write_atomic(place, secrets.token_hex(16).encode())
    return place.read_text(encoding="utf-8")
