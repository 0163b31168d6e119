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
from thalweg.source.conform import (
    MISFIT,
    NOT_UTF8,
    REJECTED_SCHEMA,
    Admission,
    Conformed,
    Fault,
    conform,
    connection,
    convert,
    match_names,
    sort_out,
)

_BLOCK = 16 << 20
_SMALL_BLOCK = 1 << 20
ARRAY = "an array; JSON lines are wanted"
_MARK = b"\xef\xbb\xbf"
"""The byte order mark that some programs put before UTF-8."""

Result = tuple[Conformed, int]


@dataclass(frozen=True)
class Wanted:
    """What is read from a file of text."""

    schema: Schema
    columns: Sequence[str]
    admission: Admission | None = None
    until: int | None = None
    """Lines that do not end within so many bytes are left out; None: the last one may lack its end."""


def read_json(split: Split, wanted: Wanted) -> Iterator[Result]:
    """One object a line. Fields that the stream does not have are ignored, missing ones are null."""
    if _is_array(split.path):
        if split.start:  # once of each file
            return
        raise ValueError(f"{ARRAY}: one object a line")
    fast = _json_schema(wanted)
    lines = _LineNumbers(split.path)
    for position, block in _line_blocks(split, 0, wanted.until):
        yield from _parse(
            _Part(position, block),
            lambda part: _parse_json(part, fast, wanted),
            lambda part: _examine_json(part, wanted),
            lines,
        )


def read_csv(split: Split, wanted: Wanted, names: tuple[str, ...], header_bytes: int) -> Iterator[Result]:
    """By header (names decide) or without one (the stream's columns in their order): see `csv_header`."""
    layout = _csv_layout(names, header_bytes, split.csv, wanted)
    if split.csv.multiline:
        yield from _stream_csv(split, layout, wanted)
        return
    lines = _LineNumbers(split.path)
    for position, block in _line_blocks(split, layout.header_bytes, wanted.until):
        yield from _parse(
            _Part(position, block),
            lambda part: _parse_csv(part, layout, wanted),
            lambda part: _examine_csv(part, layout, wanted),
            lines,
        )


@dataclass(frozen=True)
class _Part:
    """Whole lines of a file."""

    position: int
    """Bytes before them."""
    data: bytes


def _parse(
    part: _Part,
    fast: Callable[[bytes], Result | None],
    examine: Callable[[bytes], Result],
    lines: _LineNumbers,
) -> Iterator[Result]:
    """Fast if possible; otherwise in smaller parts, so that one bad line slows down few others."""
    if not part.data.strip():
        return
    result = fast(part.data)
    if result is None and len(part.data) > _SMALL_BLOCK:
        for smaller in _cut_lines(part):
            yield from _parse(smaller, fast, examine, lines)
        return
    found, rows = result or examine(part.data)
    if found.rejected is not None:
        at = found.rejected.schema.get_field_index("line")
        placed = pc.add(found.rejected.column(at), lines.before(part.position) + 1)
        found = Conformed(found.table, found.rejected.set_column(at, "line", placed))
    yield found, rows


class _LineNumbers:
    """How many lines end before a place of a file: it is only asked where something is set aside."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: io.BufferedReader | None = None
        self._position = self._lines = 0

    def before(self, position: int) -> int:
        if self._file is None or position < self._position:
            self._file, self._position, self._lines = _open(self._path), 0, 0
        while self._position < position:
            block = self._file.read(min(_SMALL_BLOCK, position - self._position))
            if not block:
                break
            self._position += len(block)
            self._lines += block.count(b"\n")
        return self._lines


def _cut_lines(part: _Part) -> Iterator[_Part]:
    block = part.data
    step = max(_SMALL_BLOCK // 2, len(block) // 8)
    start = 0
    while start < len(block):
        end = block.find(b"\n", min(len(block), start + step)) + 1 or len(block)
        yield _Part(part.position + start, block[start:end])
        start = end


def _line_blocks(split: Split, header_bytes: int, until: int | None) -> Iterator[tuple[int, bytes]]:
    """The lines that begin inside the split's byte range, in blocks, each with the bytes before it.

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
        while (split.end < 0 or position < split.end) and (until is None or position < until):
            wanted = _BLOCK if split.end < 0 else min(_BLOCK, split.end - position)
            block = file.read(wanted)
            if not block:
                return
            if not block.endswith(b"\n"):
                block += file.readline()
            after = position + len(block)
            if until is not None and (after > until or not block.endswith(b"\n")):
                block = block[: block.rfind(b"\n", 0, max(0, until - position)) + 1]
            marked = position == 0 and block.startswith(_MARK)
            yield (len(_MARK), block[len(_MARK) :]) if marked else (position, block)
            position = after


def _open(path: str) -> io.BufferedReader:
    return io.BufferedReader(pa.input_stream(path, compression="detect"), 1 << 16)


@dataclass(frozen=True)
class _Lines:
    """Some lines of a block, and which these are, from 0 on."""

    text: pa.Array
    numbers: np.ndarray

    def pick(self, which: np.ndarray) -> _Lines:
        return _Lines(self.text.filter(pa.array(which)), self.numbers[which])

    def rejected(self, kind: str, reason: str) -> pa.Table:
        count = len(self.numbers)
        parts = ([kind] * count, [reason] * count, self.numbers, self.text)
        return pa.Table.from_arrays(
            [pa.array(p, f.type) for p, f in zip(parts, REJECTED_SCHEMA, strict=True)], schema=REJECTED_SCHEMA
        )

    def shown(self, which: np.ndarray) -> pa.Table:
        """As `conform` shows rows."""
        return pa.table({"line": pa.array(self.numbers[which], pa.int64()), "row": self.text.take(pa.array(which))})


def _all_lines(block: bytes) -> pa.Array:
    """The lines of the block, without copying them one by one."""
    if not block.endswith(b"\n"):
        block += b"\n"
    ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + 1
    offsets = np.concatenate([np.zeros(1, np.int32), ends.astype(np.int32)])
    return pa.Array.from_buffers(pa.binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(block)])


def _lines(block: bytes) -> _Lines:
    """Those that are not blank, as bytes."""
    lines = _all_lines(block)
    full = np.asarray(pc.greater(pc.binary_length(_trim(lines)), 0))
    return _Lines(lines.filter(pa.array(full)), np.flatnonzero(full))


def _trim(lines: pa.Array) -> pa.Array:
    """Without the white space around each line; works on bytes that may not be UTF-8."""
    text = lines.view(pa.string())
    return pc.ascii_trim_whitespace(text)


def _readable_lines(block: bytes) -> tuple[_Lines, pa.Table | None]:
    """The lines as text, and those that are no UTF-8 set aside."""
    lines = _lines(block)
    text, bad = convert(pa.chunked_array([lines.text]), "string")
    whole = _Lines(pc.utf8_rtrim(text.combine_chunks(), "\r\n"), lines.numbers)
    if bad is None:
        return whole, None
    which = np.asarray(bad)
    escaped = connection().from_arrow(pa.table({"x": lines.text.filter(bad)})).project("x::VARCHAR AS y")
    rows = escaped.to_arrow_table().column(0).cast(pa.string()).combine_chunks()
    return whole.pick(~which), _Lines(rows, lines.numbers[which]).rejected(NOT_UTF8, "not UTF-8")


def _is_utf8(block: bytes) -> bool:
    """All of it, also what nobody reads: what is set aside must not depend on where the input is cut."""
    ends = pa.py_buffer(np.array([0, len(block)], np.int64))
    text = pa.Array.from_buffers(pa.large_string(), 1, [None, ends, pa.py_buffer(block)])
    try:
        text.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _together(tables: Sequence[pa.Table | None]) -> pa.Table | None:
    given = [table for table in tables if table is not None and table.num_rows]
    return pa.concat_tables(given) if given else None


def _count(result: Conformed, other: pa.Table | None, rows: int) -> Result:
    """Adds what was set aside before the types were looked at; `rows` counts all lines."""
    return Conformed(result.table, _together([other, result.rejected])), rows


# JSON


def _is_array(path: str) -> bool:
    """Whether it looks like one array over many lines; one line may well be of another kind than the others."""
    with _open(path) as file:
        return file.readline(64).removeprefix(_MARK).strip() == b"["


def _json_schema(wanted: Wanted) -> pa.Schema:
    """What the fast parser is asked for: times and bytes as text, since it reads fewer forms of them."""
    as_text = (*TIMES, "binary", "void")
    types = {name: wanted.schema.type_of(name) for name in wanted.columns}
    return pa.schema(
        [(name, pa.string() if kind in as_text else to_inner_arrow(kind)) for name, kind in types.items()]
    )


def _parse_json(block: bytes, fast: pa.Schema, wanted: Wanted) -> Result | None:
    if not _is_utf8(block):
        return None
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
    if (table.num_rows != rows and table.num_rows != len(_lines(block).text)) or _has_infinite(table):
        return None
    result = conform(table, wanted.schema, wanted.columns, wanted.admission)
    return None if result.rejected is not None else (result, table.num_rows)


def _has_infinite(table: pa.Table) -> bool:
    """A number beyond its type is read as that: the slow way tells it from one that the text names so."""
    floating = (column for column in table.columns if pa.types.is_floating(column.type))
    return any(pc.any(pc.is_inf(column)).as_py() for column in floating)


def _examine_json(block: bytes, wanted: Wanted) -> Result:
    """Each line by itself: broken ones set aside, every value checked against its column."""
    lines, unreadable = _readable_lines(block)
    text, columns = lines.text, wanted.columns
    paths = ", ".join(f"'{_pointer(name)}'" for name in columns)
    items = ["x", "ok"]
    for number, name in enumerate(columns):
        kind, value = f"kinds[{number + 1}]", f"vals[{number + 1}]"
        spark_type = wanted.schema.type_of(name)
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
    is_object = np.asarray(found["ok"])
    others = lines.pick(~is_object)
    arrays = np.asarray(pc.starts_with(pc.utf8_ltrim_whitespace(others.text), "["), dtype=bool)
    broken = others.pick(~arrays).rejected("not JSON", "not a JSON object")
    listed = others.pick(arrays).rejected("not JSON", f"{ARRAY}: one object a line")
    result = _check_values(found.filter(found["ok"]), lines.pick(is_object), wanted)
    return _count(result, _together([unreadable, broken, listed]), len(text) + _length(unreadable))


def _check_values(found: pa.Table, lines: _Lines, wanted: Wanted) -> Conformed:
    """A value that was given but is null now was of the wrong type."""
    faults, arrays = [], []
    for number, name in enumerate(wanted.columns):
        kind = wanted.schema.type_of(name)
        array, lost = convert(found.column(f"v{number}"), kind)
        wrong = pc.and_(found.column(f"g{number}"), pc.is_null(array))
        wrong = wrong if lost is None else pc.or_(wrong, lost)
        faults.append(Fault(np.asarray(wrong, dtype=bool), MISFIT, f"column {name}: not a {kind}"))
        if wanted.admission is not None and name == wanted.admission.time:
            faults += wanted.admission.refused(array)
        arrays.append(array)
    types = pa.schema([(name, to_inner_arrow(wanted.schema.type_of(name))) for name in wanted.columns])
    table = pa.Table.from_arrays(arrays, schema=types)
    if not faults:
        return Conformed(table, None)
    which, kinds, reasons = sort_out(faults)
    if not len(which):
        return Conformed(table, None)
    shown = lines.shown(which)
    parts = {"kind": kinds, "reason": reasons, "line": shown["line"], "row": shown["row"]}
    kept = np.ones(table.num_rows, bool)
    kept[which] = False
    return Conformed(table.filter(pa.array(kept)), pa.table(parts, schema=REJECTED_SCHEMA))


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
        held = f"{number} AND NOT isinf(TRY_CAST({value} AS {duck}))"
        return f"CASE WHEN ({held}) OR {named} THEN TRY_CAST({value} AS {duck}) END"
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


def csv_header(split: Split, schema: Schema) -> tuple[tuple[str, ...], int]:
    """The names of a file's columns, and the bytes of its header."""
    if not split.csv.header:
        return schema.names, 0
    with _open(split.path) as file:
        line = file.readline()
    return _header_names(line, split.csv), len(line)


def _csv_layout(names: tuple[str, ...], header_bytes: int, options: CsvOptions, wanted: Wanted) -> _Layout:
    read = tuple(match_names(names, wanted.columns).values())
    if doubled := [name for name in read if names.count(name) > 1]:
        raise ValueError(f"column {doubled[0]} is there twice")
    return _Layout(names, header_bytes, read, options)


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


def _parse_csv(block: bytes, layout: _Layout, wanted: Wanted) -> Result | None:
    if layout.options.quote.encode() in block and _has_open_quote(block, layout):
        return None
    types = {}
    for name, present in match_names(layout.names, wanted.columns).items():
        kind = wanted.schema.type_of(name)
        types[present] = pa.string() if kind in (*TIMES, "binary", "void", "boolean") else to_inner_arrow(kind)
    if not _is_utf8(block):
        return None
    wrong: list[_WrongLength] = []
    try:
        table = _call_csv(block, layout, types, layout.wanted, wrong)
    except pa.ArrowException:
        return None
    if _has_infinite(table):
        return None
    result = conform(table, wanted.schema, wanted.columns, wanted.admission)
    if result.rejected is not None:
        return None
    numbers = _not_empty(block) if wrong else np.zeros(0, np.int64)
    return _count(result, _wrong_lengths(wrong, numbers), table.num_rows + len(wrong))


def _not_empty(block: bytes) -> np.ndarray:
    """The numbers of the lines that the parser takes for rows."""
    lines = _all_lines(block)
    text = pc.ascii_rtrim(lines.view(pa.string()), "\r\n")
    return np.flatnonzero(np.asarray(pc.greater(pc.binary_length(text), 0)))


def _examine_csv(block: bytes, layout: _Layout, wanted: Wanted) -> Result:
    """Lines with an open quote set aside first, since they would swallow others; then all values as text."""
    lines, unreadable = _readable_lines(block)
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
    before = _together([unreadable, opened, _wrong_lengths(wrong, closed.numbers if is_known else None)])
    return _count(result, before, table.num_rows + _length(before))


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
    counts = pc.count_substring(_lines(block).text, layout.options.quote.encode())
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


def _stream_csv(split: Split, layout: _Layout, wanted: Wanted) -> Iterator[Result]:
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
        result = conform(pa.Table.from_batches([batch]), wanted.schema, wanted.columns, wanted.admission, first=None)
        yield _count(result, _wrong_lengths(wrong, None), batch.num_rows + len(wrong))
        wrong.clear()
