"""Aggregates of one's own: defined for the whole program, called in SQL like any other."""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from thalweg import errors
from thalweg.engine.functions import dump_by_value, pickled
from thalweg.errors import SqlError
from thalweg.frontend.functions import is_reserved
from thalweg.frontend.literals import parse_result_type
from thalweg.model import aggregate_state
from thalweg.model.aggregate_state import UnfitStateError
from thalweg.model.own import Definition, Functions, Own, State
from thalweg.model.query import Aggregate, Query
from thalweg.model.types import from_arrow

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_defined: dict[str, Definition] = {}
_mutex = threading.Lock()


def aggregate(
    name: str,
    init: Callable[[], State],
    update: Callable[[State, Any], State],
    merge: Callable[[State, State], State],
    finish: Callable[[State], Any],
    *,
    returns: str | None = None,
    encode: Callable[[State], Any] | None = None,
    decode: Callable[[Any], State] | None = None,
) -> None:
    """Defines an aggregate that queries may call as `name(x, ...)`, before or after `connect`.

    `init()` gives the state of no rows; `update(state, batch)` adds the rows of one group, a `pyarrow.RecordBatch`
    with one column per argument; `merge(state, other)` joins two states, in any order; `finish(state)` gives the
    value, a Python value or a `pyarrow.Scalar`. `returns` is the SQL type of the value; left out, it is that of
    `finish(init())`.

    A state is made of plain Python values and collections, NumPy arrays and Arrow values. For any other,
    `encode(state)` gives one that is, and `decode(value)` gives the state again.

    Defining a name again replaces it for queries that are created later; those that run go on as they are. After a
    restart a query goes on from its state with what is then defined.
    """
    functions = Functions(init, update, merge, finish, dump_by_value, encode, decode)
    _check(name, functions)
    kind = _type_of(name, functions) if returns is None else _parsed(name, returns)
    _check_state(name, functions)
    try:
        code = pickled(functions, (init, update, merge, finish, encode, decode))
    except Exception as error:
        reason = f"its functions cannot be sent to workers ({type(error).__name__}: {error})"
        hint = "do not refer to open files, locks or sessions"
        raise errors.bad_aggregate(name, reason, hint) from error
    version = hashlib.blake2b(code, digest_size=8).hexdigest()
    with _mutex:
        _defined[name.lower()] = Definition(name.lower(), kind, version, code)


def _check(name: object, functions: Functions) -> None:
    if not isinstance(name, str) or not _NAME.match(name):
        raise errors.bad_aggregate(name, "a name is letters, digits and _", "for example: my_mean")
    if is_reserved(name.lower()):
        raise errors.bad_aggregate(name, "the name has a meaning in SQL already", "choose another name")
    for step in ("init", "update", "merge", "finish"):
        if not callable(getattr(functions, step)):
            reason = f"{step} is {getattr(functions, step)!r}, not a function"
            raise errors.bad_aggregate(name, reason, "give init, update, merge and finish, in this order")
    for step in ("encode", "decode"):
        found = getattr(functions, step)
        if found is not None and not callable(found):
            raise errors.bad_aggregate(name, f"{step} is {found!r}, not a function", "give both, or neither")
    if (functions.encode is None) != (functions.decode is None):
        raise errors.bad_aggregate(name, "encode and decode belong together", "give both, or neither")


def _check_state(name: str, functions: Functions) -> None:
    """Whether the state of no rows can be kept. An `init` that works on workers only is not held against it."""
    try:
        state = functions.init()
    except Exception:
        return
    try:
        value = state if functions.encode is None else functions.encode(state)
        kept = aggregate_state.decode(aggregate_state.encode(value))
        if functions.decode is not None:
            functions.decode(kept)
    except UnfitStateError as error:
        raise errors.aggregate_state_unfit(name, error.found) from None
    except Exception as error:
        reason = f"its first state cannot be encoded and decoded ({type(error).__name__}: {error})"
        raise errors.bad_aggregate(name, reason, "decode(encode(init())) should give the state of no rows") from error


def _parsed(name: str, returns: object) -> str:
    if not isinstance(returns, str):
        raise errors.bad_aggregate(name, f"returns is {returns!r}, not the name of a type", "for example: 'double'")
    try:
        return parse_result_type(returns)
    except SqlError as error:
        reason = f"returns = {returns!r} is not a type that it can give"
        raise errors.bad_aggregate(name, reason, error.hint or "for example: double, string, array<bigint>") from None


def _type_of(name: str, functions: Functions) -> str:
    """The type of the value of no rows."""
    try:
        value = functions.finish(functions.init())
    except Exception as error:
        detail = f"finish(init()) raised {type(error).__name__}: {error}"
        raise errors.aggregate_of_unknown_type(name, detail) from error
    try:
        kind = value.type if isinstance(value, pa.Scalar) else pa.scalar(value).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise errors.aggregate_of_unknown_type(name, f"finish(init()) is {value!r}, of no type of SQL") from None
    found = _spark_type(kind)
    # The digits of one Decimal say nothing of the next.
    if found is None or (pa.types.is_decimal(kind) and not isinstance(value, pa.Scalar)):
        raise errors.aggregate_of_unknown_type(name, f"finish(init()) is {value!r}, which does not tell it")
    return found


def _spark_type(kind: pa.DataType) -> str | None:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = _spark_type(kind.value_type)
        return None if inner is None else f"array<{inner}>"
    try:
        found = from_arrow(kind)
    except ValueError:
        return None
    return None if found == "void" else found


class InUse:
    """With which definitions the queries of one session run: those of the time when each was created or taken up."""

    def __init__(self) -> None:
        self._by_version: dict[str, Definition] = {}

    def offered(self) -> dict[str, Definition]:
        """What a new query may call. A version that stands for other code here is not given twice."""
        with _mutex:
            return {name: self._distinct(definition) for name, definition in _defined.items()}

    def _distinct(self, definition: Definition) -> Definition:
        used = self._by_version.get(definition.version)
        if used is None or used.code == definition.code:
            return definition
        version = hashlib.blake2b(definition.version.encode(), digest_size=8).hexdigest()
        return self._distinct(replace(definition, version=version))

    def take(self, query: Query, offered: Mapping[str, Definition]) -> None:
        """The query runs with these from now on. Raises where one is missing or gives another type than it did."""
        for call, own in _calls(query):
            if own.version in self._by_version:
                continue
            definition = offered.get(own.name)
            if definition is None:
                raise errors.aggregate_missing(query.name, own.name)
            if definition.type != call.type:
                raise errors.aggregate_type_differs(query.name, own.name, call.type, definition.type)
            self._by_version[own.version] = definition

    def code(self, queries: Iterable[Query]) -> dict[str, bytes]:
        """version -> code, of what the queries call. A repeated batch may run one that has been dropped since."""
        used: set[str] = set()
        for query in queries:
            versions = {own.version for _, own in _calls(query)}
            if not versions <= self._by_version.keys():
                self.take(query, self.offered())
            used |= versions
        return {version: self._by_version[version].code for version in sorted(used)}


def _calls(query: Query) -> list[tuple[Aggregate, Own]]:
    return [(call, call.own) for call in query.aggregates if call.own is not None]
