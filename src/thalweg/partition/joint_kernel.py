"""Kernels that are put together from functions of several files and keep their state in tuples of arrays.

Two things differ from `kernel`. Numba's disk cache watches only the file of the kernel: the times and sizes of the
other files join the stamp under which it is kept. And taking an array out of a tuple would count a reference,
atomically, several times a row: these kernels make no arrays, so they are compiled without reference counts.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])


def joint_kernel(*parts: ModuleType) -> Callable[[F], F]:
    """For a function that calls functions of these files. It may make no arrays."""

    def compile_together(function: F) -> F:
        compiled: F = numba.njit(nogil=True, _nrt=False)(function)
        try:
            cached: F = numba.njit(nogil=True, cache=True, _nrt=False)(function)
        except RuntimeError:
            return compiled
        cache_file: Any = getattr(getattr(cached, "_cache", None), "_cache_file", None)
        if not hasattr(cache_file, "_source_stamp"):
            return compiled
        cache_file._source_stamp = (cache_file._source_stamp, *map(_stamp, parts))
        return cached

    return compile_together


def part(function: F) -> F:
    """A function that joint kernels call."""
    compiled: F = numba.njit(nogil=True, _nrt=False)(function)
    return compiled


def _stamp(module: ModuleType) -> tuple[float, int]:
    status = os.stat(str(module.__file__))
    return status.st_mtime, status.st_size
