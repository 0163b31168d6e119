"""JSON lines and CSV follow what Spark 4.3 was seen to write for values of these types, but for the digits
of a timestamp and the blanks that it cuts off, and CSV's way of quoting. Binary in CSV was not compared."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.sink.text import csv_lines, json_lines

UTC = pa.timestamp("us", "UTC")
WINDOW = pa.struct([("start", UTC), ("end", UTC)])
NOON = dt.datetime(2024, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def one(kind: pa.DataType, *values: Any) -> pa.Table:
    return pa.table({"c": pa.array(values, kind)})


@pytest.mark.parametrize(
    ("kind", "value", "in_json", "in_csv"),
    [
        (UTC, NOON, '"2024-01-02T03:04:05.000Z"', "2024-01-02T03:04:05.000Z"),
        (UTC, -1, '"1969-12-31T23:59:59.999999Z"', "1969-12-31T23:59:59.999999Z"),
        (UTC, 120_000, '"1970-01-01T00:00:00.120Z"', "1970-01-01T00:00:00.120Z"),
        (pa.timestamp("us"), dt.datetime(1, 1, 1), '"0001-01-01T00:00:00.000"', "0001-01-01T00:00:00.000"),
        (pa.date32(), dt.date(1, 1, 2), '"0001-01-02"', "0001-01-02"),
        (pa.decimal128(10, 2), Decimal("1.50"), "1.50", "1.50"),
        (pa.decimal128(10, 2), Decimal("-0.01"), "-0.01", "-0.01"),
        (pa.decimal128(20, 10), Decimal("1E-8"), "1.00E-8", "1.00E-8"),
        (pa.decimal128(20, 10), Decimal(100000), "100000.0000000000", "100000.0000000000"),
        (pa.float64(), 1.0, "1.0", "1.0"),
        (pa.float32(), 0.1, "0.1", "0.1"),
        (pa.float64(), float("nan"), '"NaN"', "NaN"),
        (pa.float64(), float("-inf"), '"-Infinity"', "-Infinity"),
        (pa.bool_(), True, "true", "true"),
        (pa.binary(), b"\x00\xff", '"AP8="', "AP8="),
        (pa.string(), 'a"b\\,\n\t\x01é/', r'"a\"b\\,\n\t\u0001é/"', '"a""b\\,\n\t\x01é/"'),
        (pa.string(), "", '""', '""'),
        (pa.string(), " lead", '" lead"', '" lead"'),
        (WINDOW, {"start": NOON, "end": None}, '{"start":"2024-01-02T03:04:05.000Z"}', None),
    ],
)
def test_values(kind: pa.DataType, value: Any, in_json: str, in_csv: str | None) -> None:
    assert json_lines(one(kind, value)).decode() == '{"c":' + in_json + "}\n"
    if in_csv is not None:
        assert csv_lines(one(kind, value), header=False).decode() == in_csv + "\n"


def test_nulls_are_left_out_of_json_and_empty_in_csv() -> None:
    table = pa.table({"a": pa.array([None, 1, None]), "b": pa.array([None, None, "x"]), "v": pa.nulls(3)})
    assert json_lines(table) == b'{}\n{"a":1}\n{"b":"x"}\n'
    assert csv_lines(table) == b"a,b,v\n,,\n1,,\n,x,\n"


def test_a_window_is_nested_in_json_and_two_columns_in_csv() -> None:
    table = pa.table({"window": pa.array([{"start": 0, "end": 1_000_000}, None], WINDOW), "n": [1, 2]})
    start, end = "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:01.000Z"
    assert csv_lines(table).decode() == f"window.start,window.end,n\n{start},{end},1\n,,2\n"
    objects = [json.loads(line) for line in json_lines(table).splitlines()]
    assert objects == [{"window": {"start": start, "end": end}, "n": 1}, {"n": 2}]


def test_chunks_and_slices() -> None:
    whole = pa.table({"n": range(6), "s": ["a", "b", None, "d", "e", "f"]})
    parts = pa.concat_tables([whole.slice(1, 2), whole.slice(4, 1)])
    assert csv_lines(parts, header=False) == b"1,b\n2,\n4,e\n"
    assert json_lines(parts.slice(0, 0)) == b""
    assert csv_lines(parts.slice(0, 0)) == b"n,s\n"


ROWS = st.lists(
    st.tuples(
        st.none() | st.text(max_size=8),
        st.none() | st.floats(allow_nan=False, allow_infinity=False),
        st.none() | st.integers(-(1 << 63), (1 << 63) - 1),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=examples(100))
@given(ROWS)
def test_a_reader_gets_back_what_was_written(rows: list[tuple[Any, ...]]) -> None:
    kinds = (pa.string(), pa.float64(), pa.int64())
    columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(kinds)]
    table = pa.table(columns, names=['na"me', "x", "n"])

    objects = [json.loads(line) for line in json_lines(table).decode().split("\n")[:-1]]
    assert [(o.get('na"me'), o.get("x"), o.get("n")) for o in objects] == rows

    text = io.StringIO(csv_lines(table).decode(), newline="")
    header, *found = csv.reader(text, strict=True)
    assert header == ['na"me', "x", "n"]
    assert [row[0] for row in found] == [row[0] or "" for row in rows]
    assert [row[1] and float(row[1]) for row in found] == ["" if r[1] is None else r[1] for r in rows]
    assert [row[2] for row in found] == ["" if r[2] is None else str(r[2]) for r in rows]


def test_a_list_has_no_text_form() -> None:
    with pytest.raises(TypeError, match="list"):
        json_lines(one(pa.list_(pa.int64()), [1]))
