"""JSON lines: one object a line (`source/text` says how blocks of lines are read)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from thalweg.model.split import Split
from thalweg.model.types import FLOATING, INTEGRAL, TIMES, decimal_parts, is_string, to_duck, to_inner_arrow
from thalweg.source.conform import (
    MISFIT,
    REJECTED_SCHEMA,
    Conformed,
    Fault,
    conform,
    connection,
    convert,
    sort_out,
)
from thalweg.source.text import (
    MARK,
    LineBlock,
    LineNumbers,
    Result,
    TextLines,
    WantedText,
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

ARRAY = "an array; JSON lines are wanted"
FOREIGN = "it has none of the columns of the stream"


def read_json(split: Split, wanted: WantedText) -> Iterator[Result]:
    """One object a line. Fields that the stream does not have are ignored, missing ones are null, unless all are."""
    if _is_array(split.path):
        if split.start:  # once of each file
            return
        raise ValueError(f"{ARRAY}: one object a line")
    fast = _json_schema(wanted)
    lines = LineNumbers(split.path)
    for position, block in line_blocks(split, 0, wanted.until):
        yield from parse(
            LineBlock(position, block),
            lambda part: _parse_json(part, fast, wanted),
            lambda part: _examine_json(part, wanted),
            lines,
        )


def _is_array(path: str) -> bool:
    """Whether it looks like one array over many lines; one line may well be of another kind than the others."""
    with open_file(path) as file:
        return file.readline(64).removeprefix(MARK).strip() == b"["


def _json_schema(wanted: WantedText) -> pa.Schema:
    """What the fast parser is asked for: times and bytes as text, since it reads fewer forms of them."""
    as_text = (*TIMES, "binary", "void")
    types = {name: wanted.schema.type_of(name) for name in wanted.columns}
    return pa.schema(
        [(name, pa.string() if kind in as_text else to_inner_arrow(kind)) for name, kind in types.items()]
    )


def _parse_json(block: bytes, fast: pa.Schema, wanted: WantedText) -> Result | None:
    if not is_utf8(block):
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
    if (table.num_rows != rows and table.num_rows != len(lines_of(block).text)) or has_infinite(table):
        return None
    if _has_empty_row(table):
        return None
    result = conform(table, wanted.schema, wanted.columns, wanted.admission)
    return None if result.rejected is not None else (result, table.num_rows)


def _has_empty_row(table: pa.Table) -> bool:
    if not all(column.null_count for column in table.columns):
        return False
    return bool(np.logical_and.reduce([column.is_null().to_numpy() for column in table.columns]).any())


def _examine_json(block: bytes, wanted: WantedText) -> Result:
    """Each line by itself: broken ones set aside, every value checked against its column."""
    lines, unreadable = readable_lines(block)
    text, columns = lines.text, wanted.columns
    paths = ", ".join(f"'{_pointer(name)}'" for name in columns)
    items = ["x", "ok", "known"]
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
    names = ", ".join("'" + name.replace("'", "''") + "'" for name in wanted.schema.names)
    known = f"coalesce(list_has_any(json_keys(j), [{names}]), false)"
    parsed = objects.project(
        f"x, j IS NOT NULL AS ok, {known} AS known, json_type(j, [{paths}]) AS kinds, "
        f"json_extract_string(j, [{paths}]) AS vals"
    )
    found = connection().from_arrow(parsed.to_arrow_table()).project(", ".join(items)).to_arrow_table()
    found = found.combine_chunks()
    is_object = np.asarray(found.column("ok"))
    others = lines.pick(~is_object)
    arrays = np.asarray(pc.starts_with(pc.utf8_ltrim_whitespace(others.text), "["), dtype=bool)
    broken = others.pick(~arrays).rejected("not JSON", "not a JSON object")
    listed = others.pick(arrays).rejected("not JSON", f"{ARRAY}: one object a line")
    is_known = np.asarray(found.column("known"))
    foreign = lines.pick(is_object & ~is_known).rejected("columns", FOREIGN)
    result = _check_values(found.filter(found.column("known")), lines.pick(is_known), wanted)
    return counted(result, together([unreadable, broken, listed, foreign]), len(text) + length(unreadable))


def _check_values(found: pa.Table, lines: TextLines, wanted: WantedText) -> Conformed:
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
    parts = {"kind": kinds, "reason": reasons, "line": shown.column("line"), "row": shown.column("row")}
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
