"""Aggregates that users define, as functions of the workers' DuckDB: states are encoded values in a column.

A user's code is called once for every group of a portion of rows, never once for a row; and once for every pair of
states that meet. A state that was never made (NULL: no row was admitted) is that of no rows.

States come from the disk and are never unpickled. The functions are: they come from the driver, with the plan.
"""

from __future__ import annotations

import os
import pickle
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pyarrow as pa

from thalweg.errors import (
    aggregate_failed,
    aggregate_state_refused,
    aggregate_state_unfit,
    aggregate_state_unreadable,
    aggregate_wrong_value,
)
from thalweg.model import aggregate_state
from thalweg.model.aggregate_state import UnfitStateError
from thalweg.model.expr import quote
from thalweg.model.own import Functions, OwnPartial, State
from thalweg.model.plan import Plan
from thalweg.model.types import to_arrow, to_duck, to_inner_arrow
from thalweg.operate import duck, pickled_state
from thalweg.operate.allowance import interruptible
from thalweg.operate.pickled_state import RefusedPickleError

_UNFIT = (pa.ArrowException, OverflowError, TypeError, ValueError)
Column = Any
"""An Arrow array, whole or in chunks."""
_defining = threading.Lock()
_known: set[str] = set()
"""The calls whose functions the database has."""


class _Code(threading.local):
    """What the task that runs on this thread means by a version: sessions of one process may differ."""

    def __init__(self) -> None:
        self.of_version: dict[str, bytes] = {}


_code = _Code()


def define(plan: Plan) -> None:
    """Makes the plan's own aggregates known to this worker. What is known already costs nothing."""
    if not plan.functions:
        return
    _code.of_version.update(plan.functions)
    with _defining:
        for grouping in plan.groupings.values():
            for partial in (*grouping.partials, *grouping.partials_for_others):
                if partial.own is not None and partial.own.id not in _known:
                    _register(partial.own)


def _register(own: OwnPartial) -> None:
    call = _Call(own)
    fields = ", ".join(f"{quote(f'a{i}')} {to_duck(kind)}" for i, kind in enumerate(own.types))
    signatures: list[tuple[str, Callable[[Column], pa.Array], str, str]] = [
        (own.update, call.update, f"STRUCT({fields})[]", "BLOB"),
        (own.merge, call.merge, "BLOB[]", "BLOB"),
        (own.finish, call.finish, "BLOB", to_duck(own.type)),
    ]
    for name, function, takes, gives in signatures:
        duck.create_function(name, interruptible(function), [takes], gives)
    _known.add(own.id)


@lru_cache(maxsize=256)
def _load(code: bytes) -> Functions:
    functions: Functions = pickle.loads(code)
    return functions


@dataclass(frozen=True)
class _Call:
    """The functions of one call. DuckDB gives the groups in portions."""

    own: OwnPartial

    def update(self, lists: Column) -> pa.Array:
        functions = self._functions()
        found = _whole(lists)
        rows = self._rows(found.values)
        states = []
        for valid, (start, end) in zip(
            found.is_valid().to_pylist(), pairwise(found.offsets.to_pylist()), strict=True
        ):
            batch = rows.slice(start, end - start)
            states.append(self._updated(functions, batch) if valid else None)
        return pa.array(states, pa.binary())

    def merge(self, lists: Column) -> pa.Array:
        functions = self._functions()
        merged = []
        for states in _whole(lists).to_pylist():
            present = [state for state in states or () if state is not None]
            if len(present) < 2:
                merged.append(present[0] if present else None)
            else:
                merged.append(self._merged(functions, present))
        return pa.array(merged, pa.binary())

    def finish(self, states: Column) -> pa.Array:
        functions = self._functions()
        values = [self._finished(functions, state) for state in _whole(states).to_pylist()]
        kind = to_inner_arrow(self.own.type)
        try:
            return _array(values, kind)
        except _UNFIT as error:
            wrong = next((value for value in values if not _fits(value, kind)), values)
            raise aggregate_wrong_value(self.own.name, wrong, self.own.type) from error

    def _functions(self) -> Functions:
        functions: Functions = self._guard("loading", _load, _code.of_version[self.own.version])
        return functions

    def _rows(self, structs: pa.StructArray) -> pa.RecordBatch:
        """The rows of all groups, one after the other, as users know their types."""
        kinds = [to_arrow(kind) for kind in self.own.types]
        columns = [structs.field(i).cast(kind) for i, kind in enumerate(kinds)]
        return pa.RecordBatch.from_arrays(columns, names=list(self.own.columns))

    def _updated(self, functions: Functions, batch: pa.RecordBatch) -> bytes:
        return self._kept(functions, self._guard("update", lambda: functions.update(functions.init(), batch)))

    def _merged(self, functions: Functions, states: Sequence[bytes]) -> bytes:
        found = self._known(functions, states[0])
        for other in states[1:]:
            found = self._guard("merge", functions.merge, found, self._known(functions, other))
        return self._kept(functions, found)

    def _finished(self, functions: Functions, data: bytes | None) -> Any:
        if data is None:
            value = self._guard("finish", lambda: functions.finish(functions.init()))
        else:
            value = self._guard("finish", functions.finish, self._known(functions, data))
        return value.as_py() if isinstance(value, pa.Scalar) else value

    def _kept(self, functions: Functions, state: State) -> bytes:
        """The state as bytes, which may go to the disk."""
        value = state if functions.encode is None else self._guard("encode", functions.encode, state)
        try:
            return aggregate_state.encode(value)
        except UnfitStateError as error:
            raise aggregate_state_unfit(self.own.name, error.found) from None
        except Exception as error:
            raise aggregate_failed(self.own.name, "encoding the state", error, None) from None

    def _known(self, functions: Functions, data: bytes) -> State:
        """The state that was kept as these bytes. What is a pickle was kept by an earlier release, before there was
        an `encode`."""
        try:
            if data[:1] == pickled_state.FIRST:
                return pickled_state.read_pickled(data)
            value = aggregate_state.decode(data)
        except RefusedPickleError as error:
            raise aggregate_state_refused(self.own.name, error.found) from None
        except Exception as error:
            raise aggregate_state_unreadable(self.own.name, error) from None
        return value if functions.decode is None else self._guard("decode", functions.decode, value)

    def _guard(self, step: str, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except (
            BaseException
        ) as error:  # whatever it raises, sys.exit() and cancellations too, is a failure like any other
            raise aggregate_failed(self.own.name, step, error, _place(error)) from None


def _whole(column: Column) -> Any:
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The values as an array. Arrow would cut the digits off a fraction where a whole number is wanted."""
    if pa.types.is_integer(kind):
        values = [int(v) if isinstance(v, float) and v.is_integer() else v for v in values]
    if pa.types.is_integer(_innermost(kind)):
        found = pa.array(values)
        if pa.types.is_floating(_innermost(found.type)):
            return found.cast(kind)
    return pa.array(values, kind)


def _innermost(kind: pa.DataType) -> pa.DataType:
    return _innermost(kind.value_type) if pa.types.is_list(kind) else kind


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        _array([value], kind)
    except _UNFIT:
        return False
    return True


def _place(error: BaseException) -> str | None:
    """The line of the user's code that raised."""
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1] if frames else None
    if last is None or last.filename == __file__:
        return None
    return f"{os.path.basename(last.filename)}, line {last.lineno}"
