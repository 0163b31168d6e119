"""The hash is part of every stored state: pinned vectors, and a plain twin that must agree (differential)."""

from __future__ import annotations

import datetime as dt
import math
import struct
import subprocess
import sys
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.route.hash import hash_rows, key_groups

MASK = (1 << 64) - 1


def mix(h: int) -> int:
    h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & MASK
    return h ^ (h >> 31)


def fold(h: int, word: int) -> int:
    h ^= (word * 0x9E3779B97F4A7C15) & MASK
    return (((h << 29) | (h >> 35)) & MASK) * 0xC2B2AE3D27D4EB4F & MASK


def bytes_word(data: bytes) -> int:
    n = len(data)
    h = (n * 0xA0761D6478BD642F) & MASK
    if n >= 8:
        for p in range(0, n - 8, 8):
            h = fold(h, int.from_bytes(data[p : p + 8], "little"))
        h = fold(h, int.from_bytes(data[-8:], "little"))
    elif n >= 4:
        h = fold(h, int.from_bytes(data[:4], "little") | int.from_bytes(data[-4:], "little") << 32)
    elif n:
        h = fold(h, data[0] | data[n // 2] << 8 | data[-1] << 16)
    return mix(h)


def word(value: Any) -> int:
    if value is None:
        return 0xD1B54A32D192ED03
    if isinstance(value, float):
        if math.isnan(value):
            return 0x7FF8000000000000
        return int.from_bytes(struct.pack("<d", value + 0.0), "little")
    if isinstance(value, str):
        return bytes_word(value.encode())
    if isinstance(value, bytes):
        return bytes_word(value)
    if isinstance(value, Decimal):
        whole = int(value.scaleb(2, Context(prec=40))) & ((1 << 128) - 1)
        low, high = whole & MASK, whole >> 64
        return low ^ mix(high ^ (MASK if low >> 63 else 0))
    return int(value) & MASK


def plain_hash(rows: list[tuple[Any, ...]]) -> list[int]:
    hashes = []
    for row in rows:
        h = 0x5448414C57454731
        for value in row:
            h = mix(((h * 0xC2B2AE3D27D4EB4F) & MASK) ^ ((word(value) * 0x9E3779B97F4A7C15) & MASK))
        hashes.append(h)
    return hashes


def one(value: Any, kind: pa.DataType) -> int:
    return int(hash_rows([pa.array([value], kind)])[0])


VECTORS: list[tuple[Any, pa.DataType, int]] = [
    (0, pa.int64(), 0x1FCF1F256FCC0E7B),
    (1, pa.int64(), 0xAFD12D0EAFFA323E),
    (-1, pa.int64(), 0x631DDEC12E00C389),
    (2**63 - 1, pa.int64(), 0xB6AD3525D6ADD703),
    (None, pa.int64(), 0x916EC38865DB3876),
    (5, pa.int32(), 0xD61AA9A8197B0A92),
    (True, pa.bool_(), 0xAFD12D0EAFFA323E),
    (0.0, pa.float64(), 0x1FCF1F256FCC0E7B),
    (1.5, pa.float64(), 0xFCBBDF9245810B81),
    (float("nan"), pa.float64(), 0x7FC9202CD766395E),
    (float("-inf"), pa.float32(), 0xB909F849A11436D9),
    (dt.date(2024, 2, 29), pa.date32(), 0x45D6271DB8729281),
    (dt.datetime(2024, 2, 29, 12), pa.timestamp("us"), 0x0613C2BFC7CDB0D7),
    ("", pa.string(), 0x1FCF1F256FCC0E7B),
    ("a", pa.string(), 0xE93D29DEFD07700E),
    ("ab", pa.string(), 0xFE4137A004754539),
    ("abc", pa.string(), 0xE34593F08D91CF84),
    ("abcd", pa.string(), 0xB79893F07A86B924),
    ("abcdefg", pa.string(), 0x9B71EEC309CAAE10),
    ("abcdefgh", pa.string(), 0xFE6909D93E9C9D1B),
    ("abcdefghi", pa.string(), 0xE49D55AA120A8B18),
    ("Thalweg: où le courant est le plus fort", pa.string(), 0xB3E440F441085648),
    (b"\x00\xff", pa.binary(), 0x7DA3FBB80EE63109),
    (Decimal("12.34"), pa.decimal128(10, 2), 0x96BDE42956E7478B),
    (Decimal("-12345678901234567890123456789012345.67"), pa.decimal128(38, 2), 0x2B6169FA6722225C),
]


@pytest.mark.parametrize(("value", "kind", "expected"), VECTORS)
def test_pinned_vectors(value: Any, kind: pa.DataType, expected: int) -> None:
    assert one(value, kind) == expected


def test_pinned_vector_of_several_columns() -> None:
    columns = [pa.array([1, None]), pa.array(["a", "b"]), pa.array([0.5, None])]
    assert [int(h) for h in hash_rows(columns)] == [0x9768B48DB553278C, 0x489636B5A972F1C9]


def test_the_order_of_columns_counts() -> None:
    a, b = pa.array([1, 2]), pa.array([2, 1])
    assert hash_rows([a, b]).tolist() == hash_rows([b, a]).tolist()[::-1]
    assert hash_rows([a, b])[0] != hash_rows([b, a])[0]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
)
def test_integers_hash_by_value_whatever_their_width(kind: pa.DataType) -> None:
    assert one(5, kind) == one(5, pa.int64())


def test_equal_values_of_other_forms_hash_alike() -> None:
    assert one(-0.0, pa.float64()) == one(0.0, pa.float64())
    assert one(1.5, pa.float32()) == one(1.5, pa.float64())
    assert one(-7, pa.int8()) == one(-7, pa.int64())
    assert one("abc", pa.large_string()) == one("abc", pa.string_view()) == one("abc", pa.string())
    assert one(b"abc", pa.binary(3)) == one(b"abc", pa.binary())
    assert one(True, pa.bool_()) == one(1, pa.int32())
    assert one(dt.date(1970, 1, 6), pa.date32()) == one(5, pa.int64())
    assert one(5, pa.timestamp("us", "UTC")) == one(5, pa.timestamp("us"))
    wide, narrow = pa.decimal128(38, 2), pa.decimal128(10, 2)
    assert one(Decimal("-1.25"), wide) == one(Decimal("-1.25"), narrow) == one(-125, pa.int64())
    words = pa.array(["x", None, "yy"])
    assert hash_rows([words.dictionary_encode()]).tolist() == hash_rows([words]).tolist()


def test_all_nans_are_one_value() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], dtype=np.uint64)
    assert len(set(hash_rows([pa.array(bits.view(np.float64))]).tolist())) == 1


def test_null_is_a_value_of_its_own() -> None:
    assert len({one(None, pa.int64()), one(0, pa.int64()), one("", pa.string()), one(0.0, pa.float64())}) >= 2
    assert one(None, pa.int64()) != one(0, pa.int64())
    assert one(None, pa.string()) != one("", pa.string())
    assert one(None, pa.null()) == one(None, pa.int64()) == one(None, pa.string())


def test_without_columns_every_row_is_alike() -> None:
    assert hash_rows([], rows=3).tolist() == [0, 0, 0]
    assert hash_rows([pa.array([], pa.int64())]).tolist() == []


def test_a_nested_type_is_refused_and_a_struct_is_its_fields() -> None:
    with pytest.raises(TypeError):
        hash_rows([pa.array([[1]])])
    struct_array = pa.array([{"a": 1, "b": "x"}])
    assert hash_rows([struct_array])[0] == hash_rows([pa.array([1]), pa.array(["x"])])[0]


CELLS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "long": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "short": (pa.int16(), st.integers(-(1 << 15), (1 << 15) - 1)),
    "double": (pa.float64(), st.floats()),
    "string": (pa.string(), st.text(max_size=40)),
    "binary": (pa.large_binary(), st.binary(max_size=40)),
    "bool": (pa.bool_(), st.booleans()),
    "decimal": (
        pa.decimal128(38, 2),
        st.integers(-(10**37), 10**37).map(lambda n: Decimal(n).scaleb(-2, Context(prec=40))),
    ),
}


@settings(max_examples=examples(150))
@given(st.data())
def test_agrees_with_the_plain_twin_on_slices_and_chunks(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(CELLS)), min_size=1, max_size=3))
    cells = st.tuples(*(st.none() | CELLS[name][1] for name in names))
    rows = data.draw(st.lists(cells, min_size=1, max_size=30))
    start = data.draw(st.integers(0, len(rows)))
    cut = data.draw(st.integers(0, len(rows) - start))
    columns = []
    for index, name in enumerate(names):
        whole = pa.array([row[index] for row in rows], CELLS[name][0])[start:]
        columns.append(pa.chunked_array([whole[:cut], whole[cut:]], CELLS[name][0]))
    assert hash_rows(columns).tolist() == plain_hash(rows[start:])


def test_buffers_at_odd_addresses() -> None:
    raw = pa.py_buffer(b"\0" + np.arange(5, dtype=np.int64).tobytes())
    odd = pa.Array.from_buffers(pa.int64(), 5, [None, raw.slice(1)])
    assert hash_rows([odd]).tolist() == hash_rows([pa.array(range(5))]).tolist()


@pytest.mark.parametrize("groups", [1, 2, 7, 256, 65536])
def test_key_groups_are_even(groups: int) -> None:
    found = key_groups(hash_rows([pa.array(range(200_000))]), groups)
    assert found.dtype == np.uint16
    counts = np.bincount(found, minlength=groups)
    assert len(counts) == groups
    mean = 200_000 / groups
    assert counts.max() <= mean + 8 * math.sqrt(mean) + 1


def test_key_groups_of_similar_strings_are_even() -> None:
    names = pa.array([f"customer-{n:08d}" for n in range(100_000)])
    counts = np.bincount(key_groups(hash_rows([names]), 64), minlength=64)
    assert counts.min() > 1_300
    assert counts.max() < 1_830
    assert len(np.unique(hash_rows([names]))) == 100_000


def test_key_groups_are_the_scaled_high_half() -> None:
    hashes = np.array([0, 1 << 63, (1 << 64) - 1, 1 << 32], dtype=np.uint64)
    assert key_groups(hashes, 1000).tolist() == [0, 500, 999, 0]
    with pytest.raises(ValueError, match="65537"):
        key_groups(hashes, 65_537)


@pytest.mark.slow
def test_kernels_compile_where_no_cache_can_be_written(tmp_path: Any) -> None:
    """A read-only package and a home that does not exist: slower, not broken."""
    source = (
        "import numba.core.caching as c\n"
        "for l in c.CacheImpl._locator_classes: l.from_function = classmethod(lambda *a: None)\n"
        "import pyarrow as pa\n"
        "from thalweg.route.hash import hash_rows\n"
        "print(int(hash_rows([pa.array([5])])[0]))\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert int(done.stdout) == one(5, pa.int64())
