"""CSV: rows of separated values, one a line or quoted over several (`source/text` says how blocks are read)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from thalweg.model.split import CsvOptions, Split
from thalweg.model.stream import Schema
from thalweg.model.types import TIMES, to_inner_arrow
from thalweg.source.conform import (
    REJECTED_SCHEMA,
    conform,
    match_names,
)
from thalweg.source.text import (
    BLOCK,
    MARK,
    LineBlock,
    LineNumbers,
    Result,
    WantedText,
    all_lines,
    counted,
    has_infinite,
    is_utf8,
    length,
    line_blocks,
    lines_of,
    open_file,
    parse,
    readable_lines,
    together,
)


def read_csv(split: Split, wanted: WantedText, names: tuple[str, ...], header_bytes: int) -> Iterator[Result]:
    """By header (names decide) or without one (the stream's columns in their order): see `csv_header`."""
    layout = _csv_layout(names, header_bytes, split.csv, wanted)
    if split.csv.multiline:
        yield from _stream_csv(split, layout, wanted)
        return
    lines = LineNumbers(split.path)
    for position, block in line_blocks(split, layout.header_bytes, wanted.until):
        yield from parse(
            LineBlock(position, block),
            lambda part: _parse_csv(part, layout, wanted),
            lambda part: _examine_csv(part, layout, wanted),
            lines,
        )


@dataclass(frozen=True)
class _Layout:
    """The columns of one CSV file."""

    names: tuple[str, ...]
    header_bytes: int
    wanted: tuple[str, ...]
    """The names among them that are read."""
    options: CsvOptions


def csv_header(split: Split, schema: Schema) -> tuple[tuple[str, ...], int]:
    """The names of a file's columns, and the bytes of its header."""
    if not split.csv.header:
        return schema.names, 0
    with open_file(split.path) as file:
        line = file.readline()
    return _header_names(line, split.csv), len(line)


def _csv_layout(names: tuple[str, ...], header_bytes: int, options: CsvOptions, wanted: WantedText) -> _Layout:
    read = tuple(match_names(names, wanted.columns).values())
    if doubled := [name for name in read if names.count(name) > 1]:
        raise ValueError(f"column {doubled[0]} is there twice")
    return _Layout(names, header_bytes, read, options)


def _header_names(line: bytes, options: CsvOptions) -> tuple[str, ...]:
    if not line.strip():
        return ()
    table = pa_csv.read_csv(
        pa.BufferReader(line.removeprefix(MARK).rstrip(b"\r\n") + b"\n"),  # of a line without its end it reads none
        read_options=pa_csv.ReadOptions(autogenerate_column_names=True, use_threads=False),
        parse_options=pa_csv.ParseOptions(delimiter=options.delimiter, quote_char=options.quote),
        convert_options=pa_csv.ConvertOptions(column_types={"f0": pa.string()}, null_values=[]),
    )
    return tuple(str(column[0].as_py()).strip() for column in table.columns)


def _parse_csv(block: bytes, layout: _Layout, wanted: WantedText) -> Result | None:
    if layout.options.quote.encode() in block and _has_open_quote(block, layout):
        return None
    types = {}
    for name, present in match_names(layout.names, wanted.columns).items():
        kind = wanted.schema.type_of(name)
        types[present] = pa.string() if kind in (*TIMES, "binary", "void", "boolean") else to_inner_arrow(kind)
    if not is_utf8(block):
        return None
    wrong: list[_WrongLength] = []
    try:
        table = _call_csv(block, layout, types, layout.wanted, wrong)
    except pa.ArrowException:
        return None
    if has_infinite(table):
        return None
    result = conform(table, wanted.schema, wanted.columns, wanted.admission)
    if result.rejected is not None:
        return None
    numbers = _not_empty(block) if wrong else np.zeros(0, np.int64)
    return counted(result, _wrong_lengths(wrong, numbers), table.num_rows + len(wrong))


def _not_empty(block: bytes) -> np.ndarray:
    """The numbers of the lines that the parser takes for rows."""
    lines = all_lines(block)
    text = pc.ascii_rtrim(lines.view(pa.string()), "\r\n")
    return np.flatnonzero(np.asarray(pc.greater(pc.binary_length(text), 0)))


def _examine_csv(block: bytes, layout: _Layout, wanted: WantedText) -> Result:
    """TextLines with an open quote set aside first, since they would swallow others; then all values as text."""
    lines, unreadable = readable_lines(block)
    quotes = pc.count_substring(lines.text, layout.options.quote)
    is_open = np.asarray(pc.equal(pc.bit_wise_and(quotes, pa.scalar(1, quotes.type)), 1), dtype=bool)
    opened = lines.pick(is_open).rejected(
        "quotes", "quote is not closed; a value with a line break needs multiline=true"
    )
    closed = lines.pick(~is_open)
    wrong: list[_WrongLength] = []
    types = {name: pa.string() for name in layout.names}
    table = _call_csv(_joined(closed.text), layout, types, layout.names, wrong)
    # A carriage return inside a line makes two rows of it: then nobody knows which line a row is.
    is_known = table.num_rows + len(wrong) == len(closed.numbers)
    right = np.ones(len(closed.numbers), bool)
    if is_known:
        right[[w.row - 1 for w in wrong]] = False
    result = conform(
        table, wanted.schema, wanted.columns, wanted.admission,
        first=None, show=closed.pick(right).shown if is_known else None,
    )  # fmt: skip
    before = together([unreadable, opened, _wrong_lengths(wrong, closed.numbers if is_known else None)])
    return counted(result, before, table.num_rows + length(before))


def _call_csv(
    block: bytes,
    layout: _Layout,
    types: dict[str, pa.DataType],
    include: Sequence[str],
    wrong: list[_WrongLength],
) -> pa.Table:
    """Arrow's parser; lines with too few or too many fields go to `wrong`."""

    def set_aside(row: pa_csv.InvalidRow) -> str:
        wrong.append(_WrongLength.of(row))
        return "skip"

    # Without a column to read the rows would not even be counted.
    include = include or layout.names[:1]
    return pa_csv.read_csv(
        pa.BufferReader(block),
        read_options=pa_csv.ReadOptions(
            column_names=list(layout.names), use_threads=False, block_size=max(len(block) + 1, 1024)
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=layout.options.delimiter,
            quote_char=layout.options.quote,
            invalid_row_handler=set_aside,
        ),
        convert_options=_convert_options(layout, types, include),
    )


def _convert_options(layout: _Layout, types: dict[str, pa.DataType], include: Sequence[str]) -> pa_csv.ConvertOptions:
    return pa_csv.ConvertOptions(
        column_types={name: types.get(name, pa.string()) for name in include},
        include_columns=list(include),
        null_values=[layout.options.null_value],
        strings_can_be_null=True,
        # "" is an empty text, nothing at all is null.
        quoted_strings_can_be_null=False,
    )


def _has_open_quote(block: bytes, layout: _Layout) -> bool:
    counts = pc.count_substring(lines_of(block).text, layout.options.quote.encode())
    return bool(pc.any(pc.equal(pc.bit_wise_and(counts, pa.scalar(1, counts.type)), 1), min_count=0).as_py())


def _joined(lines: pa.Array) -> bytes:
    return str(pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_py()).encode() + b"\n"


@dataclass(frozen=True)
class _WrongLength:
    """A line with too few or too many fields."""

    reason: str
    row: int
    """From 1 on, of those that are not empty."""
    text: str

    @classmethod
    def of(cls, row: pa_csv.InvalidRow) -> _WrongLength:
        reason = f"expected {row.expected_columns} fields, got {row.actual_columns}"
        return cls(reason, 0 if row.number is None else row.number, row.text)


def _wrong_lengths(wrong: Sequence[_WrongLength], numbers: np.ndarray | None) -> pa.Table | None:
    """`numbers`: of the lines that are not empty; None: unknown."""
    if not wrong:
        return None
    lines = [None if numbers is None else int(numbers[w.row - 1]) for w in wrong]
    parts = {"kind": ["fields"] * len(wrong), "reason": [w.reason for w in wrong], "line": lines}
    return pa.table({**parts, "row": [w.text for w in wrong]}, schema=REJECTED_SCHEMA)


def _stream_csv(split: Split, layout: _Layout, wanted: WantedText) -> Iterator[Result]:
    """A whole file whose values may hold line breaks: all values as text, types checked afterwards. On which line a
    row begins nobody knows."""
    wrong: list[_WrongLength] = []

    def set_aside(row: pa_csv.InvalidRow) -> str:
        wrong.append(_WrongLength.of(row))
        return "skip"

    reader = pa_csv.open_csv(
        pa.input_stream(split.path, compression="detect"),
        read_options=pa_csv.ReadOptions(
            column_names=list(layout.names),
            skip_rows=1 if layout.options.header else 0,
            use_threads=False,
            block_size=BLOCK,
        ),
        parse_options=pa_csv.ParseOptions(
            delimiter=layout.options.delimiter,
            quote_char=layout.options.quote,
            newlines_in_values=True,
            invalid_row_handler=set_aside,
        ),
        convert_options=_convert_options(layout, {}, layout.names),
    )
    for batch in reader:
        result = conform(pa.Table.from_batches([batch]), wanted.schema, wanted.columns, wanted.admission, first=None)
        yield counted(result, _wrong_lengths(wrong, None), batch.num_rows + len(wrong))
        wrong.clear()
