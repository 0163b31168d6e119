"""How Thalweg compiles its sequential loops: Numba without the interpreter lock, kept on disk.

A Spark worker must not spend seconds compiling what another one compiled before. Numba keeps machine code
beside the source, or in the user's cache directory where the package is read-only. Where neither can be
written (a container without a home), it refuses to define the function at all; then we compile in memory.
What was kept by another release, or was torn, is passed over and written again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import numba
import numpy.typing as npt
from numba.core.caching import FunctionCache

F = TypeVar("F", bound=Callable[..., Any])


class _Cache(FunctionCache):  # type: ignore[misc]
    """Numba reads the types of a kernel's arguments before it looks whether the source is still the same. A type that
    has another name by now, or half a file, would fail the call."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # whatever a pickle of other code raises
            with suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(Exception):  # it is compiled, and will be again by the next process
            super().save_overload(sig, data)


def kernel(function: F) -> F:
    """Compile `function` on first use, or load it from the disk cache."""
    compiled: Any = numba.njit(nogil=True)(function)
    with suppress(RuntimeError):
        compiled._cache = _Cache(function)  # as `cache=True` does it, with Numba's own
    return compiled  # type: ignore[no-any-return]


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
