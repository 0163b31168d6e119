"""Made-up streams. Row i is a function of (seed, i) alone, so any range can be made anywhere and again.

`purchases` and `ads` are the two streams of SASPAR's Listing 1; `ajoin` is a stream of AJoin's generator
(six uniform integer attributes, a seed of its own per stream); `facts` is the eight-column stream that the
aggregation benchmark runs on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.model.generator import Ads, Facts, Generator, Purchases, name_of
from thalweg.model.stream import Schema
from thalweg.source.schema import parse_schema

_SECOND = 1_000_000
_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1

UInts = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]


_MEANING = {
    "purchases": "userID bigint, gemPackID bigint, price double, ts timestamp",
    "ads": "userID bigint, gemPackID bigint, ts timestamp",
    "ajoin": "a0 int, a1 int, a2 int, a3 int, a4 int, a5 int, ts timestamp",
    "facts": "id bigint, ts timestamp, a int, b int, c int, e int, d int, v double",
}


def schema_of(generator: Generator) -> Schema:
    return parse_schema(_MEANING[name_of(generator)])


def generate_rows(generator: Generator, start: int, end: int, columns: Sequence[str] | None = None) -> pa.Table:
    """Rows start..end-1, in the data path's types; all columns or only those asked for."""
    rows = np.arange(start, end, dtype=np.uint64)
    makers = _MAKERS[name_of(generator)]
    schema = schema_of(generator).to_inner_arrow()
    fields = [field for field in schema if columns is None or field.name in columns]
    arrays = [pa.array(makers[field.name](generator, rows)).view(field.type) for field in fields]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _user(of: Purchases | Ads, rows: UInts) -> Ints:
    return _keys(of, "userID", rows, of.users)


def _pack(of: Purchases | Ads, rows: UInts) -> Ints:
    """The gem pack that is bought or shown; known almost entirely from the user if packs_per_user says so."""
    per_user = of.packs_per_user
    if not per_user:
        return _keys(of, "gemPackID", rows, of.packs)
    pick = _draw(of, "gemPackID", rows) % np.uint64(per_user)
    bits = _mix(_user(of, rows).astype(np.uint64) * np.uint64(per_user) + pick, 2)
    return (bits % np.uint64(of.packs)).astype(np.int64)


def _price(of: Purchases, rows: UInts) -> npt.NDArray[np.float64]:
    """A pack has a price of its own; the discount is the buyer's luck."""
    base = 1 + (_mix(_pack(of, rows).astype(np.uint64), 1) % np.uint64(100)).astype(np.int64)
    discount = (_draw(of, "price", rows) % np.uint64(30)).astype(np.int64)
    return np.round(base - base * discount / 100 + 0.99, 2)


def _attribute(name: str) -> Maker:
    """Uniform in [0, keys), another seed for every stream: AJoin, section 4 (ATR_MAX is 500 there)."""
    return lambda of, rows: _keys(of, f"{of.stream}.{name}", rows, of.keys).astype(np.int32)


def _key(name: str, count: Callable[[Facts], int]) -> Maker:
    return lambda of, rows: _keys(of, name, rows, count(of)).astype(np.int32)


def _times(of: Generator, rows: UInts) -> Ints:
    """Evenly spaced event times in microseconds, or up to `out_of_order` seconds earlier."""
    origin = round(datetime.fromisoformat(of.start).timestamp() * _SECOND)
    rate = of.rows_per_second
    whole = float(rate).is_integer()
    # Integers as far as possible: a double is not exact to the microsecond after 2^53 of them.
    step = rows.astype(np.int64) * _SECOND // int(rate) if whole else rows * (_SECOND / rate)
    times = origin + step.astype(np.int64)
    disorder = int(of.out_of_order * _SECOND)
    if disorder:
        times -= (_draw(of, "out_of_order", rows) % np.uint64(disorder + 1)).astype(np.int64)
    return times


def _keys(of: Generator, column: str, rows: UInts, count: int) -> Ints:
    """Values in [0, count), uniform or by Zipf's law with 0 as the most frequent."""
    bits = _draw(of, column, rows)
    exponent = of.zipf
    if not exponent:
        return (bits % np.uint64(count)).astype(np.int64)
    return np.searchsorted(_zipf_steps(count, exponent), _uniform(bits), side="right").astype(np.int64)


@lru_cache(maxsize=8)
def _zipf_steps(count: int, exponent: float) -> npt.NDArray[np.float64]:
    weights = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    steps: npt.NDArray[np.float64] = np.cumsum(weights) / np.sum(weights)
    return steps[:-1]


def _uniform(bits: UInts) -> npt.NDArray[np.float64]:
    """[0, 1), from the upper 53 bits."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _draw(of: Generator, column: str, rows: UInts) -> UInts:
    """64 random bits a row, independent between columns, generators and seeds."""
    return _mix(rows, _salt(of.seed, f"{name_of(of)}.{column}"))


@lru_cache(maxsize=256)
def _salt(seed: int, text: str) -> int:
    """A fixed number per (seed, text), FNV-1a: Python's own hash differs from process to process."""
    value = 0xCBF29CE484222325 ^ (seed * _GOLDEN & _MASK)
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & _MASK
    return value


def _mix(values: UInts, salt: int) -> UInts:
    """Splitmix64's output function at counter `values`, starting from a state that depends on the salt."""
    state = values * np.uint64(_GOLDEN) + np.uint64(salt * 0xD1342543DE82EF95 + _GOLDEN & _MASK)
    state ^= state >> np.uint64(30)
    state *= np.uint64(0xBF58476D1CE4E5B9)
    state ^= state >> np.uint64(27)
    state *= np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return state


Maker = Callable[[Any, UInts], npt.NDArray[Any]]
"""One column, from a generator and the numbers of the rows."""
_MAKERS: dict[str, dict[str, Maker]] = {
    "purchases": {"userID": _user, "gemPackID": _pack, "price": _price, "ts": _times},
    "ads": {"userID": _user, "gemPackID": _pack, "ts": _times},
    "ajoin": {**{name: _attribute(name) for name in ("a0", "a1", "a2", "a3", "a4", "a5")}, "ts": _times},
    "facts": {
        "id": lambda of, rows: rows.astype(np.int64),
        "ts": _times,
        **{name: _key(name, lambda of: of.keys) for name in "abce"},
        "d": _key("d", lambda of: of.many),
        "v": lambda of, rows: _uniform(_draw(of, "v", rows)),
    },
}
