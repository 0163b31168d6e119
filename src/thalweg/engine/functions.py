"""A user's functions as bytes that a worker can load, wherever they were written."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

from pyspark import cloudpickle


def pickled(value: Any, functions: tuple[Any, ...]) -> bytes:
    """`value`, which is made of `functions`. Code that workers could not import travels with it."""
    with _by_value({module for f in functions if (module := _own_module(f)) is not None}):
        code: bytes = cloudpickle.dumps(value)
    return code


def dump_by_value(state: Any) -> bytes:
    """Earlier releases pickled states by it, and its name is in the code of every aggregate. There it stays: an
    aggregate has the version that it had, and queries of one version share their states."""
    raise NotImplementedError("states are not pickled")


@contextmanager
def _by_value(modules: set[ModuleType]) -> Iterator[None]:
    listed = [m for m in modules if m.__name__ not in cloudpickle.list_registry_pickle_by_value()]
    for module in listed:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in listed:
            cloudpickle.unregister_pickle_by_value(module)


def _own_module(function: Any) -> ModuleType | None:
    """The module of a function that lies beside the program: a worker's search path need not lead there."""
    module = sys.modules.get(function.__module__) if isinstance(function, FunctionType) else None
    file = getattr(module, "__file__", None)
    if module is None or file is None or module.__name__ == "__main__":
        return None
    installed = (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    ours = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    path = os.path.realpath(file)
    below = (os.path.join(os.path.realpath(directory), "") for directory in (*installed, ours))
    return None if path.startswith(tuple(below)) else module
