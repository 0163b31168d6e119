"""Comparisons of a column of numbers with a constant, and what AND, OR and NOT make of them, as NumPy works them out:
DuckDB plans longer than it compares.

Most predicates are no more than that, and there are as many as queries. Only the text that `frontend/operators` gives
for one is understood, and only where the result is DuckDB's to the last bit; everything else is left to DuckDB.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Flags = npt.NDArray[np.bool_]
MOST_KNOWN = 1 << 14
"""Texts that are remembered."""
_MOST_CHARACTERS = 1000
"""Of a text that is taken apart: brackets in brackets are so many at most."""
_COLUMN = r'"(?P<column>(?:[^"]|"")+)"'
_INTEGER = re.compile(
    rf"\((?:{_COLUMN}|CAST\({_COLUMN.replace('column', 'cast')} AS (?P<to>\w+)\)) (?P<op>=|<>|<=?|>=?) "
    r"CAST\((?P<constant>-?\d+) AS (?P<type>TINYINT|SMALLINT|INTEGER|BIGINT)\)\)"
)
_DOUBLE = re.compile(
    rf"\({_COLUMN} (?P<op>=|<>|<=?|>=?) CAST\('(?P<constant>-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)' AS DOUBLE\)\)"
)
_TOKEN = re.compile(r'"(?:[^"]|"")*"|\'(?:[^\']|\'\')*\'|[()]| AND | OR |[^"\'() ]+| ')
"""Of the text of a condition: names and constants whole, whatever is in them."""
_TYPES = {"TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INTEGER": pa.int32(), "BIGINT": pa.int64()}
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    # NaN is greater than every number in Spark and in DuckDB.
    ">": lambda values, constant: ~np.less_equal(values, constant),
    ">=": lambda values, constant: ~np.less(values, constant),
}


@dataclass(frozen=True)
class _Comparison:
    column: str
    kinds: tuple[pa.DataType, ...]
    """Of the column, for which the text means what is done here."""
    op: str
    constant: int | float


@dataclass(frozen=True)
class _Connected:
    """Conditions that a word connects; NOT has one."""

    word: str
    of: tuple[_Comparison | _Connected, ...]


@dataclass(frozen=True)
class Truth:
    """Of a condition, row by row."""

    is_true: Flags
    is_null: Flags | None
    """None: nowhere. Where it is NULL, it is not true."""


@dataclass(frozen=True)
class Ranges:
    """The values of a column that a comparison admits: some half-open ranges, None: without an end."""

    column: str
    kinds: tuple[pa.DataType, ...]
    """Of the column, for which the text means this."""
    within: tuple[tuple[int | float | None, int | float | None], ...]


@lru_cache(maxsize=MOST_KNOWN)
def ranges_of(sql: str) -> Ranges | None:
    """None where the text is not a comparison that is understood. NaN is in every range without an upper end."""
    found = _read(sql)
    if found is None or found.constant == _GREATEST:
        return None
    here, after = found.constant, _next(found.constant)
    within = _WITHIN[found.op]
    return Ranges(found.column, found.kinds, tuple((_end(a, here, after), _end(b, here, after)) for a, b in within))


def _next(constant: int | float) -> int | float:
    """The least value that is greater."""
    return math.nextafter(constant, math.inf) if isinstance(constant, float) else constant + 1


def _end(of: str, here: int | float, after: int | float) -> int | float | None:
    return {"": None, "here": here, "after": after}[of]


_GREATEST = (1 << 63) - 1
"""Nothing of 64 bits is above it."""
_WITHIN = {
    "=": (("here", "after"),),
    "<>": (("", "here"), ("after", "")),
    "<": (("", "here"),),
    "<=": (("", "after"),),
    ">": (("after", ""),),
    ">=": (("here", ""),),
}


@lru_cache(maxsize=MOST_KNOWN)
def _condition(sql: str) -> _Comparison | _Connected | None:
    """A comparison, or several that are connected; None where the text is anything else."""
    found = _read(sql)
    if found is not None or not (sql.startswith("(") and sql.endswith(")")) or len(sql) > _MOST_CHARACTERS:
        return found
    inner = sql[1:-1]
    word, parts = ("NOT", [inner[4:]]) if inner.startswith("NOT ") else _parts(inner)
    of = [_condition(part) for part in parts]
    known = tuple(one for one in of if one is not None)
    return _Connected(word, known) if parts and len(known) == len(parts) else None


def _parts(text: str) -> tuple[str, list[str]]:
    """The word between conditions in brackets, and these; none where the text is not made like that."""
    words, parts, depth, begins = set(), [], 0, 0
    for token in _TOKEN.finditer(text):
        if token[0] == "(":
            begins = token.start() if depth == 0 else begins
            depth += 1
        elif token[0] == ")":
            depth -= 1
            if depth == 0:
                parts.append(text[begins : token.end()])
        elif depth == 0:
            words.add(token[0])
    word = words.pop() if len(words) == 1 else ""
    is_whole = word in (" AND ", " OR ") and word.join(parts) == text
    return (word.strip(), parts) if is_whole else ("", [])


@lru_cache(maxsize=MOST_KNOWN)
def _read(sql: str) -> _Comparison | None:
    match = _INTEGER.fullmatch(sql)
    if match:
        return _integer(match)
    match = _DOUBLE.fullmatch(sql)
    if match is None:
        return None
    column, op, text = match.group("column", "op", "constant")
    constant = float(text)
    return _Comparison(_unquoted(column), (pa.float64(),), op, constant) if math.isfinite(constant) else None


def _integer(match: re.Match[str]) -> _Comparison | None:
    """A column may be of fewer bytes than the constant where the text casts it to the constant's type."""
    column, cast, to, op, of, text = match.group("column", "cast", "to", "op", "type", "constant")
    type_, constant = _TYPES[of], int(text)
    bound = 1 << (type_.bit_width - 1)
    if not -bound <= constant < bound:
        return None
    if to is None:
        return _Comparison(_unquoted(column), (type_,), op, constant)
    if to != of:
        return None
    narrower = tuple(kind for kind in _TYPES.values() if kind.bit_width <= type_.bit_width)
    return _Comparison(_unquoted(cast), narrower, op, constant)


def _unquoted(name: str) -> str:
    return name.replace('""', '"')


@dataclass
class Comparisons:
    """Over the rows of one table, each column of which is converted once."""

    rows: pa.Table
    _values: dict[str, tuple[npt.NDArray[Any], Flags | None]] = field(default_factory=dict)

    def compare(self, sql: str) -> pa.ChunkedArray | None:
        """What the expression gives; None where it is left to DuckDB."""
        found = self.truth(sql)
        return None if found is None else pa.chunked_array([pa.array(found.is_true, mask=found.is_null)])

    def truth(self, sql: str) -> Truth | None:
        """The same, without what Arrow needs for its columns."""
        found = _condition(sql)
        return self._truth(found) if found is not None and self._fits(found) else None

    def understands(self, sql: str) -> bool:
        """Whether it is not left to DuckDB."""
        found = _condition(sql)
        return found is not None and self._fits(found)

    def _fits(self, condition: _Comparison | _Connected) -> bool:
        """Whether the columns are there, and are what the text takes them for."""
        if isinstance(condition, _Connected):
            return all(map(self._fits, condition.of))
        at = self.rows.schema.get_field_index(condition.column)
        return at >= 0 and self.rows.schema.field(at).type in condition.kinds

    def _truth(self, condition: _Comparison | _Connected) -> Truth:
        if isinstance(condition, _Connected):
            found = [self._truth(one) for one in condition.of]
            return _not(*found) if condition.word == "NOT" else reduce(_CONNECTED[condition.word], found)
        values, null = self._column(condition.column)
        made = _OPERATORS[condition.op](values, condition.constant)
        return Truth(made if null is None else made & ~null, null)

    def _column(self, name: str) -> tuple[npt.NDArray[Any], Flags | None]:
        """Its values, and which are NULL; None: none."""
        if name not in self._values:
            column = self.rows.column(name)
            null = pc.is_null(column).to_numpy() if column.null_count else None
            self._values[name] = (pc.fill_null(column, 0) if column.null_count else column).to_numpy(), null
        return self._values[name]


def _and(one: Truth, other: Truth) -> Truth:
    is_true = one.is_true & other.is_true
    if one.is_null is None and other.is_null is None:
        return Truth(is_true, None)
    return Truth(is_true, _may_be_true(one) & _may_be_true(other) & ~is_true)


def _or(one: Truth, other: Truth) -> Truth:
    is_true = one.is_true | other.is_true
    if one.is_null is None and other.is_null is None:
        return Truth(is_true, None)
    return Truth(is_true, (_may_be_true(one) | _may_be_true(other)) & ~is_true)


def _not(one: Truth) -> Truth:
    return Truth(~_may_be_true(one), one.is_null)


def _may_be_true(one: Truth) -> Flags:
    return one.is_true if one.is_null is None else one.is_true | one.is_null


_CONNECTED = {"AND": _and, "OR": _or}
