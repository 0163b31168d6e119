"""What one statement of a task may cost: beyond it, it is given up, and the query stopped that it was for."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg.errors import bad_memory
from thalweg.model.size import parse_size

LEAST_MEMORY = 64_000_000


@dataclass(frozen=True)
class Budget:
    seconds: float | None = 60.0
    """Of a processor's time; None: any."""
    memory: int | None = None
    """Bytes; None: this process's share of the machine's."""
    owns_process: bool = False
    """Whether nothing else runs in the process: then the system itself can hold a statement to its memory."""


def parse_bytes(given: int | str) -> int:
    """A number of bytes, or a text such as "512 MB" or "2 GiB"."""
    found = parse_size(given)
    if found is None or found < LEAST_MEMORY:
        raise bad_memory(given)
    return found
