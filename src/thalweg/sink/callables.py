"""Results handed to a Python callable, once per batch that has any."""

from __future__ import annotations

import functools
import inspect
from contextlib import suppress
from typing import Any

import pyarrow as pa

from thalweg.errors import ThalwegError, failed_callback, missing_callback, unusable_callback
from thalweg.kinds.options import NoOptions
from thalweg.model.query import SinkSpec
from thalweg.sink.contract import Callback, RowSink, SinkContext, SinkKind

_WAYS_OUT = {
    "a coroutine": "Give a plain function: def sink(table, batch_id). In it, asyncio.run(...) waits for a coroutine.",
    "a generator": "Give a plain function: def sink(table, batch_id), without yield.",
}


class CallbackSink(RowSink):
    """After a crash the callable may see its last batch again, under the same id: it can tell."""

    kind = "callable"

    def __init__(self, query: str, callback: Callback) -> None:
        self._query = query
        self._callback = callback

    def commit(self, batch_id: int, token: str, table: pa.Table | None) -> None:
        if table is None or table.num_rows == 0:
            return
        try:
            given = self._callback(table, batch_id)
            _check_is_done(given)
        except BaseException as error:  # whatever it raises is no wish to end other queries
            raise failed_callback(self._query, batch_id, error) from error


class CallableKind(SinkKind[NoOptions]):
    """A Python callable `(table, batch_id)`, which must be given again after a restart."""

    name = "callable"
    options = NoOptions
    opens_early = False
    in_sql = False

    def missing(self, query: str, callback: Callback | None) -> ThalwegError | None:
        return missing_callback(query) if callback is None else None

    def open(self, options: NoOptions, context: SinkContext) -> CallbackSink:
        if context.callback is None:
            raise missing_callback(context.query)
        return CallbackSink(context.query, context.callback)


CALLABLE = CallableKind()


def to_callable() -> SinkSpec:
    """Marks a query whose results go to a Python callable; the callable itself is kept by the session."""
    return CALLABLE.spec()


def _check_is_done(given: object) -> None:
    """What has only been begun took no rows, and nobody would go on with it."""
    if inspect.iscoroutine(given) or inspect.isgenerator(given):
        given.close()  # else Python complains that nobody waited for it
    elif inspect.isawaitable(given):
        raise TypeError(f"it returned {type(given).__name__}, which nobody waits for: the rows count as not taken")
    elif not (inspect.isasyncgen(given) or isinstance(given, map | filter)):
        return
    raise TypeError(f"it returned {type(given).__name__.replace('_', ' ')}, which nobody runs: no rows were taken")


def check_callback(query: str, callback: Callback) -> None:
    """Refuses what would take no rows when it is called with a table and the number of its batch."""
    function = _function_of(callback)
    for kind, is_kind in (
        ("a coroutine", inspect.iscoroutinefunction),
        ("a generator", inspect.isgeneratorfunction),
        ("a generator", inspect.isasyncgenfunction),
    ):
        if is_kind(function):
            reason = f"is {kind} function, which does nothing when it is called"
            raise unusable_callback(query, reason, _WAYS_OUT[kind])
    with suppress(ValueError):  # some builtins do not tell
        signature = inspect.signature(callback)
        try:
            signature.bind(None, 0)
        except TypeError as error:
            hint = "It is called as sink(table, batch_id), for every batch that has rows."
            raise unusable_callback(query, f"cannot be called with a table and a batch id: {error}", hint) from None


def _function_of(callback: Any) -> Any:
    """What runs in the end: below partial applications, the method of an object that can be called."""
    while isinstance(callback, functools.partial):
        callback = callback.func
    if inspect.isroutine(callback) or inspect.isclass(callback):
        return callback
    return _function_of(type(callback).__call__)
