"""How the loops of this package are compiled: by Numba, without the interpreter lock, kept on disk.

Only the first process on a machine waits for the compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile on first use, or load from the disk cache; without a place for the cache, compile in memory."""
    compiled: F
    try:
        compiled = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:
        compiled = numba.njit(nogil=True)(function)
    return compiled


def inlined(function: F) -> F:
    """A function that only kernels of the same file call. It is cached with them: Numba watches one file."""
    compiled: F = numba.njit(nogil=True)(function)
    return compiled
