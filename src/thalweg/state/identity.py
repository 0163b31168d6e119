"""What a state directory is called by those to whom its path says too little."""

from __future__ import annotations

import secrets
from pathlib import Path

from thalweg.state.durable import write_atomic

_FILE = "identity"


def identity(state_dir: Path) -> str:
    """A name that no other state directory has, nor one made anew in its place. Made once, it goes where the
    directory goes."""
    place = state_dir / _FILE
    try:
        return place.read_text(encoding="utf-8")
    except FileNotFoundError:
        write_atomic(place, secrets.token_hex(16).encode())
        return place.read_text(encoding="utf-8")
