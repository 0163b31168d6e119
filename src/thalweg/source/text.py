"""JSON lines and CSV: blocks of whole lines, parsed at full speed while nothing is wrong with them.

A block that the fast parser refuses is cut into smaller ones; only the small ones that still fail are looked
at line by line, and even that by DuckDB, not in Python. The slow way accepts all that the fast way accepts,
with the same values, so what a row becomes does not depend on its neighbours.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from thalweg.model.split import CsvOptions, Split
from thalweg.model.stream import Schema
from thalweg.model.types import FLOATING, INTEGRAL, TIMES, decimal_parts, is_string, to_duck, to_inner_arrow
from thalweg.source.conform import REJECTED_SCHEMA, Conformed, conform, connection, convert, match_names

_BLOCK = 16 << 20
_SMALL_BLOCK = 1 << 20
_MARK = b"\xef\xbb\xbf"
"""The byte order mark that some programs put before UTF-8."""

Result = tuple[Conformed, int]


def read_json(split: Split, schema: Schema, columns: Sequence[str]) -> Iterator[Result]:
    """One object a line. Fields that the stream does not have are ignored, missing ones are null."""
    fast = _json_schema(schema, columns)
    for block in _line_blocks(split, 0):
        yield from _parse(
            block,
            lambda part: _parse_json(part, fast, schema, columns),
            lambda part: _examine_json(part, schema, columns),
        )


def read_csv(split: Split, schema: Schema, columns: Sequence[str]) -> Iterator[Result]:
    """By header (names decide) or without one (the stream's columns in their order)."""
    layout = _csv_layout(split, schema, columns)
    if split.csv.multiline:
        yield from _stream_csv(split, layout, schema, columns)
        return
    for block in _line_blocks(split, layout.header_bytes):
        yield from _parse(
            block,
            lambda part: _parse_csv(part, layout, schema, columns),
            lambda part: _examine_csv(part, layout, schema, columns),
        )


def _parse(
    block: bytes, fast: Callable[[bytes], Result | None], examine: Callable[[bytes], Result]
) -> Iterator[Result]:
    """Fast if possible; otherwise in smaller parts, so that one bad line slows down few others."""
    if not block.strip():
        return
    result = fast(block)
    if result is not None:
        yield result
    elif len(block) <= _SMALL_BLOCK:
        yield examine(block)
    else:
        for part in _cut_lines(block):
            yield from _parse(part, fast, examine)


def _cut_lines(block: bytes) -> Iterator[bytes]:
    step = max(_SMALL_BLOCK // 2, len(block) // 8)
    start = 0
    while start < len(block):
        end = block.find(b"\n", min(len(block), start + step)) + 1 or len(block)
        yield block[start:end]
        start = end


def _line_blocks(split: Split, header_bytes: int) -> Iterator[bytes]:
    """The lines that begin inside the split's byte range, in blocks.

    A line belongs to the range in which its first byte lies: a range that does not begin at the start of
    the file leaves out everything up to the first line end at or after the byte before it.
    """
    with _open(split.path) as file:
        position = split.start
        if position > header_bytes:
            file.seek(position - 1)
            position += len(file.readline()) - 1
        else:
            # The first line may be a header, or carry the mark; a stream that is unpacked cannot seek.
            file.read(header_bytes)
            position = header_bytes
        while split.end < 0 or position < split.end:
            wanted = _BLOCK if split.end < 0 else min(_BLOCK, split.end - position)
            block = file.read(wanted)
            if not block:
                return
            if not block.endswith(b"\n"):
                block += file.readline()
            yield block.removeprefix(_MARK) if position == 0 else block
            position += len(block)


def _open(path: str) -> io.BufferedReader:
    return io.BufferedReader(pa.input_stream(path, compression="detect"), 1 << 16)


def _lines(block: bytes) -> pa.Array:
    """The lines of the block that are not blank, without copying them one by one."""
    if not block.endswith(b"\n"):
        block += b"\n"
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + 1
    offsets = np.concatenate([np.zeros(1, np.int32), ends.astype(np.int32)])
    lines = pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(block)])
    return lines.filter(pc.greater(pc.binary_length(_trim(lines)), 0))


def _trim(lines: pa.Array) -> pa.Array:
    """Without the white space around each line; works on bytes that may not be UTF-8."""
    text = lines.view(pa.string())
    return pc.ascii_trim_whitespace(text)


def _readable_lines(block: bytes) -> tuple[pa.Array, pa.Table | None]:
    """The lines as text, and those that are no UTF-8 set aside."""
    lines = _lines(block)
    text, bad = convert(pa.chunked_array([lines]), "string")
    text = pc.utf8_rtrim(text.combine_chunks(), "\r\n")
    if bad is None:
        return text, None
    escaped = connection().from_arrow(pa.table({"x": lines.filter(bad)})).project("x::VARCHAR AS y")
    rows = escaped.to_arrow_table().column(0).cast(pa.string())
    return text.filter(pc.invert(bad)), _rejected("not UTF-8", rows)


def _rejected(reason: str, rows: pa.Array | pa.ChunkedArray) -> pa.Table:
    return pa.Table.from_arrays([pa.array([reason] * len(rows), pa.string()), rows], schema=REJECTED_SCHEMA)


def _together(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    given = [table for table in tables if table is not None and table.num_rows]
    return pa.concat_tables(given) if given else None


def _count(result: Conformed, other: pa.Table | None, rows: int) -> Result:
    """Adds what was set aside before the types were looked at; `rows` counts all lines."""
    return Conformed(result.table, _together([other, result.rejected])), rows


# JSON


def _json_schema(schema: Schema, columns: Sequence[str]) -> pa.Schema:
    """What the fast parser is asked for: times and bytes as text, since it reads fewer forms of them."""
    as_text = (*TIMES, "binary", "void")
    types = {name: schema.type_of(name) for name in columns}
    return pa.schema(
        [(name, pa.string() if kind in as_text else to_inner_arrow(kind)) for name, kind in types.items()]
    )


def _parse_json(block: bytes, fast: pa.Schema, schema: Schema, columns: Sequence[str]) -> Result | None:
    try:
        table = pa_json.read_json(
            pa.BufferReader(block),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=len(block) + 1),
            parse_options=pa_json.ParseOptions(explicit_schema=fast, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowException:
        return None
    # The parser does not care about line ends; a row of ours is one line.
    rows = block.count(b"\n") + (not block.endswith(b"\n"))
    if table.num_rows != rows and table.num_rows != len(_lines(block)):
        return None
    result = conform(table, schema, columns)
    return None if result.rejected is not None else (result, table.num_rows)


def _examine_json(block: bytes, schema: Schema, columns: Sequence[str]) -> Result:
    """Each line by itself: broken ones set aside, every value checked against its column."""
    text, unreadable = _readable_lines(block)
    paths = ", ".join(f"'{_pointer(name)}'" for name in columns)
    items = ["x", "ok"]
    for number, name in enumerate(columns):
        kind, value = f"kinds[{number + 1}]", f"vals[{number + 1}]"
        spark_type = schema.type_of(name)
        value = _exact(name, value) if decimal_parts(spark_type) else value
        items.append(f"{_json_value(spark_type, kind, value)} AS v{number}")
        items.append(f"coalesce({kind} <> 'NULL', false) AS g{number}")
    # Each call parses the line again, so there is one for all columns; and only whole objects get there.
    valid = connection().from_arrow(pa.table({"x": text})).project("x, CASE WHEN json_valid(x) THEN x END AS j")
    object_or_null = "CASE WHEN json_type(j) = 'OBJECT' THEN j END"
    objects = connection().from_arrow(valid.project(f"x, {object_or_null} AS j").to_arrow_table())
    parsed = objects.project(
        f"x, j IS NOT NULL AS ok, json_type(j, [{paths}]) AS kinds, json_extract_string(j, [{paths}]) AS vals"
    )
    found = connection().from_arrow(parsed.to_arrow_table()).project(", ".join(items)).to_arrow_table()
    found = found.combine_chunks()
    broken = _rejected("not a JSON object", found.filter(pc.invert(found["ok"]))["x"].cast(pa.string()))
    found = found.filter(found["ok"])
    result = _check_values(found, schema, columns)
    return _count(result, _together([unreadable, broken]), len(text) + _length(unreadable))


def _check_values(found: pa.Table, schema: Schema, columns: Sequence[str]) -> Conformed:
    """A value that was given but is null now was of the wrong type."""
    reasons = pa.nulls(found.num_rows, pa.string())
    arrays = []
    for number, name in enumerate(columns):
        kind = schema.type_of(name)
        array, lost = convert(found.column(f"v{number}"), kind)
        wrong = pc.and_(found.column(f"g{number}"), pc.is_null(array))
        wrong = wrong if lost is None else pc.or_(wrong, lost)
        reasons = pc.coalesce(
            reasons, pc.if_else(wrong, f"column {name}: not a {kind}", pa.scalar(None, pa.string()))
        )
        arrays.append(array)
    types = pa.schema([(name, to_inner_arrow(schema.type_of(name))) for name in columns])
    table = pa.Table.from_arrays(arrays, schema=types)
    bad = pc.is_valid(reasons)
    rejected = pa.table(
        {"reason": reasons.filter(bad), "row": found["x"].filter(bad).cast(pa.string())},
        schema=REJECTED_SCHEMA,
    )
    return Conformed(table.filter(pc.invert(bad)), rejected if rejected.num_rows else None)


def _pointer(name: str) -> str:
    """The JSON pointer of a field, inside SQL quotes."""
    return "/" + name.replace("~", "~0").replace("/", "~1").replace("'", "''")


def _exact(name: str, value: str) -> str:
    """DuckDB text: the digits of a number as they stand in the line.

    DuckDB reads a number with a fraction as a double; a decimal may have more digits than that. What the
    line says is taken if it is the same double, so a field of the same name further inside does no harm.
    """
    key = re.escape(name).replace("'", "''")
    said = f"regexp_extract_all(x, '\"{key}\"\\s*:\\s*(-?[0-9][0-9.eE+-]*)', 1)"
    same = f"list_filter({said}, lambda s: TRY_CAST(s AS DOUBLE) = TRY_CAST({value} AS DOUBLE))"
    return f"coalesce({same}[1], {value})"


def _json_value(spark_type: str, kind: str, value: str) -> str:
    """DuckDB text: the field as its column's type, null if it is none. Numbers must be numbers, not text."""
    number = f"{kind} IN ('UBIGINT', 'BIGINT', 'HUGEINT', 'UHUGEINT', 'DOUBLE')"
    duck = to_duck(spark_type)
    if spark_type in INTEGRAL:
        # A number with a fraction or an exponent is no integer, even if its value is whole.
        whole = f"{number} AND regexp_full_match({value}, '-?[0-9]+')"
        return f"CASE WHEN {whole} THEN TRY_CAST({value} AS {duck}) END"
    if spark_type in FLOATING:
        named = f"{value} IN ('NaN', 'Infinity', '-Infinity')"
        return f"CASE WHEN {number} OR {named} THEN TRY_CAST({value} AS {duck}) END"
    if decimal_parts(spark_type):
        return f"CASE WHEN {number} OR {kind} = 'VARCHAR' THEN TRY_CAST({value} AS {duck}) END"
    if spark_type == "boolean":
        return f"CASE WHEN {kind} = 'BOOLEAN' THEN {value} = 'true' END"
    if is_string(spark_type):
        return value
    # Times, dates and bytes stay text here: their own conversion follows.
    return f"CASE WHEN {kind} = 'VARCHAR' THEN {value} END"


def _length(table: pa.Table | None) -> int:
    return 0 if table is None else int(table.num_rows)


# CSV


@dataclass(frozen=True)
class _Layout:
    """The columns of one CSV file."""

    names: tuple[str, ...]
    header_bytes: int
    wanted: tuple[str, ...]
    """The names among them that are read."""
    options: CsvOptions


def _csv_layout(split: Split, schema: Schema, columns: Sequence[str]) -> _Layout:
    options = split.csv
    if not options.header:
        names, size = schema.names, 0
    else:
        with _open(split.path) as file:
            line = file.readline()
        names, size = _header_names(line, options), len(line)
    wanted = tuple(match_names(names, columns).values())
    if doubled := [name for name in wanted if names.count(name) > 1]:
        raise ValueError(f"column {doubled[0]} is there twice")
    return _Layout(tuple(names), size, wanted, options)


def _header_names(line: bytes, options: CsvOptions) -> tuple[str, ...]:
    if not line.strip():
        return ()
    table = pa_csv.read_csv(
        pa.BufferReader(line.removeprefix(_MARK).rstrip(b"\r\n") + b"\n"),  # of a line without its end it reads none
        read_options=pa_csv.ReadOptions(autogenerate_column_names=True, use_threads=False),
        parse_options=pa_csv.ParseOptions(delimiter=options.delimiter, quote_char=options.quote),
        convert_options=pa_csv.ConvertOptions(column_types={"f0": pa.string()}, null_values=[]),
    )
    return tuple(str(column[0].as_py()).strip() for column in table.columns)


def _parse_csv(block: bytes, layout: _Layout, schema: Schema, columns: Sequence[str]) -> Result | None:
    if layout.options.quote.encode() in block and _has_open_quote(block, layout):
        return None
    types = {}
    for name, present in match_names(layout.names, columns).items():
        kind = schema.type_of(name)
        types[present] = pa.string() if kind in (*TIMES, "binary", "void", "boolean") else to_inner_arrow(kind)
    wrong: list[tuple[str, str]] = []
    try:
        table = _call_csv(block, layout, types, layout.wanted, wrong)
    except pa.ArrowException:
        return None
    result = conform(table, schema, columns)
    if result.rejected is not None:
        return None
    return _count(result, _wrong_lengths(wrong), table.num_rows + len(wrong))


def _examine_csv(block: bytes, layout: _Layout, schema: Schema, columns: Sequence[str]) -> Result:
    """Lines with an open quote set aside first, since they would swallow others; then all values as text."""
    text, unreadable = _readable_lines(block)
    quotes = pc.count_substring(text, layout.options.quote)
    is_open = pc.equal(pc.bit_wise_and(quotes, pa.scalar(1, quotes.type)), 1)
    opened = _rejected("quote is not closed; a value with a line break needs multiline=true", text.filter(is_open))
    closed = text.filter(pc.invert(is_open))
    wrong: list[tuple[str, str]] = []
    types = {name: pa.string() for name in layout.names}
    table = _call_csv(_joined(closed), layout, types, layout.names, wrong)
    result = conform(table, schema, columns, show=lambda rows: _as_csv(rows, layout))
    before = _together([unreadable, opened, _wrong_lengths(wrong)])
    return _count(result, before, table.num_rows + _length(before))


def _as_csv(rows: pa.Table, layout: _Layout) -> pa.Array:
    return pc.binary_join_element_wise(
        *[column.combine_chunks().cast(pa.string()) for column in rows.columns],
        layout.options.delimiter,
        null_handling="replace",
        null_replacement=layout.options.null_value,
    )


def _call_csv(
    block: bytes,
    layout: _Layout,
    types: dict[str, pa.DataType],
    include: Sequence[str],
    wrong: list[tuple[str, str]],
) -> pa.Table:
    """Arrow's parser; lines with too few or too many fields go to `wrong`."""

    def set_aside(row: pa_csv.InvalidRow) -> str:
        wrong.append((f"expected {row.expected_columns} fields, got {row.actual_columns}", row.text))
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
    counts = pc.count_substring(_lines(block), layout.options.quote.encode())
    return bool(pc.any(pc.equal(pc.bit_wise_and(counts, pa.scalar(1, counts.type)), 1), min_count=0).as_py())


def _joined(lines: pa.Array) -> bytes:
    return str(pc.binary_join(pa.ListArray.from_arrays([0, len(lines)], lines), "\n")[0].as_py()).encode() + b"\n"


def _wrong_lengths(wrong: list[tuple[str, str]]) -> pa.Table | None:
    if not wrong:
        return None
    reasons, rows = zip(*wrong, strict=True)
    return pa.table({"reason": reasons, "row": rows}, schema=REJECTED_SCHEMA)


def _stream_csv(split: Split, layout: _Layout, schema: Schema, columns: Sequence[str]) -> Iterator[Result]:
    """A whole file whose values may hold line breaks: all values as text, types checked afterwards."""
    wrong: list[tuple[str, str]] = []

    def set_aside(row: pa_csv.InvalidRow) -> str:
        wrong.append((f"expected {row.expected_columns} fields, got {row.actual_columns}", row.text))
        return "skip"

    reader = pa_csv.open_csv(
        pa.input_stream(split.path, compression="detect"),
        read_options=pa_csv.ReadOptions(
            column_names=list(layout.names),
            skip_rows=1 if layout.options.header else 0,
            use_threads=False,
            block_size=_BLOCK,
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
        result = conform(pa.Table.from_batches([batch]), schema, columns)
        yield _count(result, _wrong_lengths(wrong), batch.num_rows + len(wrong))
        wrong.clear()
