"""Which predicates a row satisfies: an index over their constants.

The distinct constants of all atoms on a column cut its domain into pieces: below the first, equal to it, between
it and the second, and so on. All values of a piece satisfy the same atoms, so a row needs one search per column,
and a table says which predicates the piece does not contradict. What a row satisfies is the AND over its columns:
hundreds of predicates cost no more comparisons than a few.

Who asks for queries instead of predicates has a table of his own over the same pieces (`PredicateIndex.table`): one
search serves all who look at a row.

Comparisons are Spark's: NaN is greater than every number and equal to itself, -0.0 equals 0.0, null satisfies
nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.kernel import frozen_view, kernel
from thalweg.model.join import Atom
from thalweg.model.probe import Predicate

Bits = npt.NDArray[np.uint8]
"""[rows, bytes]: bit i % 8 of byte i // 8 is predicate i."""
Codes = npt.NDArray[np.uint32]
"""For each row a line of a table."""
Array = npt.NDArray[Any]

_BLOCK = 1024
"""Rows that are worked on together; what is known of them stays in the first-level cache."""
_INT64 = np.iinfo(np.int64)
_NO_BITS: Array = frozen_view(np.empty(0, dtype=np.uint8))


@kernel
def _search(values: Any, validity: Any, bit: Any, constants: Any, base: Any, codes: Any) -> None:
    """Writes which line of the table each row reads; `base` is the column's first, the line of nulls its last.

    Of the others, 2i + 1 is the constant i, 2i what lies before it, and the last but one NaN. All rows of a block
    take a step of the search before any takes the next: then they are independent, and the compiler does several
    at once.
    """
    for start in range(0, values.size, _BLOCK):
        block, found = values[start : start + _BLOCK], codes[start : start + _BLOCK]
        found[:] = 0
        length = constants.size
        while length > 1:
            half = length >> 1
            for i in range(found.size):
                # Written this way round, NaN passes every constant.
                passed = not constants[np.uint32(found[i] + half - 1)] >= block[i]
                found[i] += np.uint32(half) * np.uint32(passed)
            length -= half
        for i in range(found.size):
            value, constant = block[i], constants[found[i]]
            piece = 2 * np.int64(not constant >= value) + np.int64(constant == value) + np.int64(value != value)
            found[i] = base + 2 * np.int64(found[i]) + piece
    if validity.size > 0:
        null = base + 2 * constants.size + 2
        for i in range(values.size):
            if not (validity[(bit + i) >> 3] >> ((bit + i) & 7)) & 1:
                codes[i] = null


@kernel
def _meet(codes: Any, table: Any, full: Any, out: Any) -> None:
    """The AND of the lines that each row reads, 64 predicates at a time."""
    words = np.empty(_BLOCK, dtype=np.uint64)
    for start in range(0, out.shape[0], _BLOCK):
        rows = out[start : start + _BLOCK]
        for w in range(table.shape[1]):
            words[:] = full[w]
            for c in range(codes.shape[0]):
                lines = codes[c, start : start + _BLOCK]
                for i in range(lines.size):
                    words[i] &= table[lines[i], w]
            if rows.shape[1] >= 8 * w + 8:
                for i in range(rows.shape[0]):
                    for b in range(8):  # a constant number of bytes becomes one store
                        rows[i, 8 * w + b] = np.uint8(words[i] >> np.uint64(8 * b))
            else:
                for i in range(rows.shape[0]):
                    for b in range(8 * w, rows.shape[1]):
                        rows[i, b] = np.uint8(words[i] >> np.uint64(8 * (b - 8 * w)))


@kernel
def _any(bits: Any, out: Any) -> None:
    for i in range(out.size):
        seen = np.uint8(0)
        for b in range(bits.shape[1]):
            seen |= bits[i, b]
        out[i] = seen != 0


@dataclass(frozen=True)
class _Constants:
    """The constants that atoms compare one column with."""

    floating: bool
    values: Array
    """Ascending and distinct; int64, or float64 without NaN."""

    @classmethod
    def of(cls, atoms: Sequence[Atom]) -> _Constants:
        floating = any(isinstance(a.value, float) for a in atoms)
        if floating:
            kept = {float(a.value) for a in atoms if not math.isnan(a.value)}
        else:
            kept = {a.value for a in atoms if _INT64.min <= a.value <= _INT64.max}
        # A constant that no atom asks for does no harm, and the search needs one.
        return cls(floating, np.array(sorted(kept or {0}), dtype=np.float64 if floating else np.int64))

    @property
    def lines(self) -> int:
        """Of the table: before, at and after the constants, NaN, null."""
        return 2 * len(self.values) + 3

    def span(self, atom: Atom) -> tuple[int, int]:
        """The lines in which `atom` is true, from the first up to, not including, the last. It never is in that of
        nulls."""
        place, nulls = self._place(atom.value), self.lines - 1
        first = {"<": 0, "<=": 0, ">": place + 1}.get(atom.op, place)
        last = {"<": place, "<=": place + 1, "=": place + 1}.get(atom.op, nulls)
        return min(max(first, 0), nulls), min(max(last, 0), nulls)

    def _place(self, value: float) -> int:
        """The constant's own line; before the first and after the last where no value of the column reaches it."""
        if self.floating and math.isnan(value):
            return self.lines - 2
        if not self.floating and value < _INT64.min:
            return -1
        if not self.floating and value > _INT64.max:
            return self.lines
        return 2 * bisect_left(self._sorted, value) + 1

    @cached_property
    def _sorted(self) -> list[float]:
        found: list[float] = self.values.tolist()
        return found


class PredicateIndex:
    """Built once for predicates, in the order of their bits."""

    def __init__(self, predicates: Sequence[Predicate]) -> None:
        self.bytes = (len(predicates) + 7) // 8
        self._constants = _constants(predicates)
        self._bases: dict[str, int] = {}
        """column -> its first line of a table; of a computed one there are two: not true, true."""
        self.lines = 0
        for name, constants in self._constants.items():
            self._bases[name] = self.lines
            self.lines += constants.lines
        for name in dict.fromkeys(name for p in predicates for name in p.computed):
            self._bases[name] = self.lines
            self.lines += 2
        words = (len(predicates) + 63) // 64
        self._full = _words(np.arange(64 * words) < len(predicates))
        bits = np.ones((self.lines, 64 * words), dtype=np.bool_)
        for i, predicate in enumerate(predicates):
            for lines in self._contradicting(predicate):
                bits[lines, i] = False
        self._table = _words(bits)
        self._alone = self._enough_alone(predicates, bits)

    @property
    def columns(self) -> Collection[str]:
        """What predicates read."""
        return self._bases.keys()

    def evaluate(self, rows: pa.Table) -> Bits:
        out: Bits = np.empty((rows.num_rows, self.bytes), dtype=np.uint8)
        _meet(frozen_view(self._codes(rows)), self._table, self._full, out)
        return out

    def find_any(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """The rows that satisfy at least one predicate."""
        codes, found = self._codes(rows), np.zeros(rows.num_rows, dtype=np.bool_)
        for code in codes:
            found |= self._alone[code]
        rest = np.flatnonzero(~found)
        if len(rest):
            bits: Bits = np.empty((len(rest), self.bytes), dtype=np.uint8)
            _meet(frozen_view(codes[:, rest]), self._table, self._full, bits)
            found[rest] = any_of(bits)
        return found

    def table(self, asked: Iterable[tuple[Predicate, int]]) -> npt.NDArray[np.uint64]:
        """Line by line, the queries that it does not contradict; `asked`: (predicate, its queries)."""
        table: npt.NDArray[np.uint64] = np.full(self.lines, (1 << 64) - 1, dtype=np.uint64)
        for predicate, queries in asked:
            others = np.uint64(~queries & (1 << 64) - 1)
            for lines in self._contradicting(predicate):
                table[lines] &= others
        return frozen_view(table)

    def find_lines(self, name: str, column: pa.ChunkedArray) -> Codes:
        """Which line of a table the rows read, by this column of theirs."""
        codes: Codes = np.empty(len(column), dtype=np.uint32)
        self._find(column, name, codes)
        return codes

    def _codes(self, rows: pa.Table) -> Array:
        codes = np.empty((len(self._bases), rows.num_rows), dtype=np.uint32)
        for line, name in zip(codes, self._bases, strict=True):
            self._find(rows.column(name), name, line)
        return codes

    def _enough_alone(self, predicates: Sequence[Predicate], bits: Array) -> Array:
        """The lines by which a row satisfies some predicate whatever the other columns say."""
        found = np.zeros(self.lines, dtype=np.bool_)
        ends = [*self._bases.values(), self.lines][1:]
        for (name, base), end in zip(self._bases.items(), ends, strict=True):
            only = [i for i, p in enumerate(predicates) if p.reads <= {name}]
            found[base:end] = bits[base:end, only].any(axis=1)
        return found

    def _contradicting(self, predicate: Predicate) -> Iterator[slice]:
        """The lines in which it is not true, column by column."""
        for atom in predicate.atoms:
            base, constants = self._bases[atom.column], self._constants[atom.column]
            first, last = constants.span(atom)
            yield slice(base, base + first)
            yield slice(base + last, base + constants.lines)
        for name in predicate.computed:
            yield slice(self._bases[name], self._bases[name] + 1)

    def _find(self, column: pa.ChunkedArray, name: str, codes: Array) -> None:
        base, constants = self._bases[name], self._constants.get(name)
        if pa.types.is_null(column.type):  # an expression that failed
            codes[:] = base if constants is None else base + constants.lines - 1
            return
        if constants is None:
            np.add(pc.fill_null(column, False).to_numpy(), np.uint32(base), out=codes)
            return
        if pa.types.is_floating(column.type) != constants.floating:
            raise TypeError(f"the constants that {name} is compared with are not of its type, {column.type}")
        start = 0
        for chunk in column.chunks:
            if len(chunk):
                validity, bit = _validity(chunk)
                piece = codes[start : start + len(chunk)]
                _search(_values(chunk), validity, bit, frozen_view(constants.values), base, piece)
                start += len(chunk)


def any_of(bits: Bits) -> npt.NDArray[np.bool_]:
    """The rows that satisfy at least one predicate."""
    out = np.empty(len(bits), dtype=np.bool_)
    _any(frozen_view(bits), out)
    return out


def _constants(predicates: Sequence[Predicate]) -> dict[str, _Constants]:
    atoms: dict[str, list[Atom]] = {}
    for predicate in predicates:
        for atom in predicate.atoms:
            atoms.setdefault(atom.column, []).append(atom)
    return {column: _Constants.of(found) for column, found in atoms.items()}


def _words(bits: Array) -> Array:
    """Bits along the last axis, packed into 64-bit words, the first bit lowest."""
    packed = np.packbits(bits, axis=-1, bitorder="little")
    return frozen_view(packed.view("<u8").astype(np.uint64, copy=False))


def _values(array: pa.Array) -> Array:
    """The value buffer as it lies; what is under a null is arbitrary and never counts."""
    kind = array.type
    if pa.types.is_float32(kind) or pa.types.is_float64(kind):
        dtype = np.dtype(f"f{kind.bit_width // 8}")
    elif pa.types.is_signed_integer(kind) or pa.types.is_date32(kind) or _is_micros(kind):
        dtype = np.dtype(f"i{kind.bit_width // 8}")
    else:
        raise TypeError(f"a column of type {kind} cannot be compared with constants by an index")
    offset = array.offset * dtype.itemsize
    values = np.frombuffer(array.buffers()[1], dtype=dtype, count=len(array), offset=offset)
    return frozen_view(values.astype(np.int32) if dtype.itemsize < 4 else values)


def _is_micros(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind)) and kind.unit == "us"


def _validity(array: pa.Array) -> tuple[Array, int]:
    bitmap = array.buffers()[0]
    if bitmap is None or array.null_count == 0:
        return _NO_BITS, 0
    return frozen_view(np.frombuffer(bitmap, dtype=np.uint8)), array.offset
