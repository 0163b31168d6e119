"""Aggregates that users define, as functions of the workers' DuckDB: states are pickled values in a column.

A user's code is called once for every group of a portion of rows, never once for a row; and once for every pair of
states that meet. A state that was never made (NULL: no row was admitted) is that of no rows.
"""

from __future__ import annotations

import io
import pickle
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from thalweg.errors import aggregate_failed, aggregate_wrong_value
from thalweg.model.expr import quote
from thalweg.model.own import Functions, OwnPartial, State
from thalweg.model.plan import Plan
from thalweg.model.types import to_arrow, to_duck, to_inner_arrow
from thalweg.operate import duck

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
            for partial in (*grouping.partials, *grouping.extra):
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
        duck.create_function(name, function, [takes], gives)
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
            states.append(self._state("update", _updated, functions, batch) if valid else None)
        return pa.array(states, pa.binary())

    def merge(self, lists: Column) -> pa.Array:
        functions = self._functions()
        merged = []
        for states in _whole(lists).to_pylist():
            present = [state for state in states or () if state is not None]
            if len(present) < 2:
                merged.append(present[0] if present else None)
            else:
                merged.append(self._state("merge", _merged, functions, present))
        return pa.array(merged, pa.binary())

    def finish(self, states: Column) -> pa.Array:
        functions = self._functions()
        values = [self._guard("finish", _finished, functions, state) for state in _whole(states).to_pylist()]
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

    def _state(self, step: str, function: Callable[..., State], *args: Any) -> bytes:
        state: bytes = self._guard(step, lambda: freeze(function(*args), args[0].dump))
        return state

    def _guard(self, step: str, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except (Exception, SystemExit) as error:  # a user's sys.exit() is a failure like any other
            raise aggregate_failed(self.own.name, step, error, _place(error)) from None


def freeze(state: State, dump: Callable[[State], bytes] | None = None) -> bytes:
    """The state as bytes. `dump` is for what plain pickling refuses."""
    out = io.BytesIO()
    try:
        _Pickler(out, protocol=pickle.HIGHEST_PROTOCOL).dump(state)
    except Exception:
        if dump is None:
            raise
        return dump(state)
    return out.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        return reduce_part(value)


def reduce_part(value: Any) -> Any:
    """Keeps of a part of an Arrow array that part only: by itself, pyarrow would pickle the rows of all groups."""
    if isinstance(value, pa.RecordBatch):
        return _read_batch, (_write(value),)
    if isinstance(value, pa.Array):
        return _read_array, (_write(pa.RecordBatch.from_arrays([value], names=[""])),)
    return NotImplemented


def _write(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _read_batch(data: bytes) -> pa.RecordBatch:
    return pa.ipc.open_stream(data).read_next_batch()


def _read_array(data: bytes) -> pa.Array:
    return _read_batch(data).column(0)


def _updated(functions: Functions, batch: pa.RecordBatch) -> State:
    return functions.update(functions.init(), batch)


def _merged(functions: Functions, states: Sequence[bytes]) -> State:
    return reduce(functions.merge, map(pickle.loads, states))


def _finished(functions: Functions, state: bytes | None) -> Any:
    value = functions.finish(functions.init() if state is None else pickle.loads(state))
    return value.as_py() if isinstance(value, pa.Scalar) else value


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
    if last is None or Path(last.filename) == Path(__file__):
        return None
    return f"{Path(last.filename).name}, line {last.lineno}"
