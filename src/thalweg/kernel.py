"""How Thalweg compiles its sequential loops: Numba without the interpreter lock, kept on disk.

A Spark worker must not spend seconds compiling what another one compiled before. Numba keeps machine code
beside the source, or in the user's cache directory where the package is read-only. Where neither can be
written (a container without a home), it refuses to define the function at all; then we compile in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy.typing as npt

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile `function` on first use, or load it from the disk cache."""
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


def frozen_view(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """`array` as every kernel expects its inputs: contiguous, aligned, read-only.

    Numba compiles once for each mix of these traits; with one mix there is one compilation.
    """
    if not (array.flags.aligned and array.flags.c_contiguous):
        array = array.copy()
    view = array.view()
    view.flags.writeable = False
    return view
