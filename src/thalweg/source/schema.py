"""The schema of a source: from DDL text, from Arrow, or from the first file that is there."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.ipc as pa_ipc
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from thalweg import errors
from thalweg.model.split import CsvOptions
from thalweg.model.stream import Field, Schema
from thalweg.model.types import check_flat, from_arrow
from thalweg.source.json_lines import ARRAY

_ALIASES = {
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "bool": "boolean",
    "timestamp_ltz": "timestamp",
    "decimal": "decimal(10,0)",
    "dec": "decimal(10,0)",
    "numeric": "decimal(10,0)",
}
_COLUMN = re.compile(r"\s*(`[^`]+`|\w+)\s*:?\s+(.+?)\s*", re.DOTALL)
_INFER_BYTES = 4 << 20
_CHANGED = re.compile(r"Column\(/(.+?)\) changed from (\w+) to (\w+) in row (\d+)")


def parse_schema(text: str) -> Schema:
    """The schema that DDL text such as `a bigint, price decimal(10,2), ts timestamp` means."""
    fields = []
    for part in re.split(r",(?![^(]*\))", text):
        match = _COLUMN.fullmatch(part)
        if match is None:
            raise errors.source_schema_invalid(text, f"{part.strip()!r} is not a name and a type")
        kind = re.sub(r"\s+", "", match[2].lower())
        kind = _ALIASES.get(kind, re.sub(r"^(dec|numeric)\(", "decimal(", kind))
        kind = re.sub(r"^decimal\((\d+)\)$", r"decimal(\1,0)", kind)
        try:
            check_flat(kind)
        except ValueError:
            raise errors.source_schema_invalid(text, f"{match[2]!r} is not a flat type") from None
        fields.append(Field(match[1].strip("`"), kind))
    return _without_doubles(fields, text)


def as_schema(value: Schema | pa.Schema | str) -> Schema:
    """A schema in any of the forms a user may give it in."""
    if isinstance(value, str):
        return parse_schema(value)
    if isinstance(value, Schema):
        return _without_doubles(value.fields, ", ".join(f"{f.name} {f.type}" for f in value.fields))
    fields = []
    for field in value:
        try:
            fields.append(Field(field.name, from_arrow(field.type)))
        except ValueError as failure:
            raise errors.source_schema_invalid(str(field), str(failure)) from None
    return _without_doubles(fields, str(value))


def _without_doubles(fields: Sequence[Field], text: str) -> Schema:
    if (doubled := _doubled(fields)) is not None:
        raise errors.source_schema_invalid(text, doubled)
    return Schema(tuple(fields))


def _doubled(fields: Sequence[Field]) -> str | None:
    """What to say if two columns have one name, as Spark tells names: without regard to case."""
    names = [field.name.lower() for field in fields]
    doubled = min((name for name in names if names.count(name) > 1), default=None)
    return None if doubled is None else f"column {doubled} is there twice; upper and lower case are the same"


def schema_of_file(path: str, kind: str, options: CsvOptions) -> Schema:
    """What the file says (Parquet, Arrow) or looks like (CSV, JSON). Columns of types that cannot be read are left
    out, and a warning names them."""
    try:
        arrow = _READERS[kind](path, options)
    except (pa.ArrowException, OSError, ValueError) as failure:
        reason, known = _what_changed(path, str(failure)) if kind == "json" else (str(failure), None)
        raise errors.source_schema_unreadable(path, reason, known) from failure
    fields, left_out = [], []
    for field in arrow:
        try:
            spark_type = from_arrow(field.type)
        except ValueError:
            left_out.append(f"{field.name} ({field.type})")
            continue
        if kind in ("csv", "json"):
            spark_type = _widen_guess(spark_type)
        # Nothing but nulls may be anything.
        fields.append(Field(field.name, "string" if spark_type == "void" else spark_type))
    if not fields:
        raise errors.source_schema_unreadable(path, "it has no column of a flat type")
    if (doubled := _doubled(fields)) is not None:
        raise errors.source_schema_unreadable(path, doubled)
    if left_out:
        warnings.warn(errors.columns_left_out(path, left_out), stacklevel=2)
    return Schema(tuple(fields))


def _widen_guess(spark_type: str) -> str:
    """A guess from text: a time without a zone is an instant in UTC."""
    return "timestamp" if spark_type == "timestamp_ntz" else spark_type


def _parquet(path: str, options: CsvOptions) -> pa.Schema:
    return pq.read_schema(path)


def _arrow(path: str, options: CsvOptions) -> pa.Schema:
    with pa.OSFile(path) as file:
        try:
            return pa_ipc.open_file(file).schema
        except pa.ArrowInvalid:
            file.seek(0)
            return pa_ipc.open_stream(file).schema


def _json(path: str, options: CsvOptions) -> pa.Schema:
    head = _head(path)
    if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        raise ValueError(f"{ARRAY}: one object a line")
    return pa_json.read_json(pa.BufferReader(head)).schema


def _what_changed(path: str, reason: str) -> tuple[str, str | None]:
    """Of a column with values of several types: the line that has the other one, and the columns as DDL."""
    match = _CHANGED.search(reason)
    if match is None:
        return reason, None
    number = int(match[4])
    lines = [line for line in _head(path).splitlines() if line.strip()]
    try:
        before = pa_json.read_json(pa.BufferReader(b"\n".join(lines[:number]) + b"\n")).schema
        fields = [Field(f.name, _widen_guess(from_arrow(f.type))) for f in before if not pa.types.is_nested(f.type)]
    except (pa.ArrowException, ValueError):
        return reason, None
    line = lines[number].decode(errors="replace").strip()
    told = f"column {match[1]} is a {match[2]} in line {number}, and a {match[3]} in line {number + 1}: {line[:200]}"
    return told, to_ddl(Schema(tuple(fields)))


def to_ddl(schema: Schema) -> str:
    """As `parse_schema` reads it."""
    return ", ".join(f"{f.name if f.name.isidentifier() else f'`{f.name}`'} {f.type}" for f in schema.fields)


def _csv(path: str, options: CsvOptions) -> pa.Schema:
    if not options.header:
        raise ValueError("a CSV file without a header does not name its columns")
    table = pa_csv.read_csv(
        pa.BufferReader(_head(path)),
        parse_options=pa_csv.ParseOptions(
            delimiter=options.delimiter,
            newlines_in_values=options.multiline,
            invalid_row_handler=lambda row: "skip",
        ),
        convert_options=pa_csv.ConvertOptions(null_values=[options.null_value]),
    )
    return table.schema


def _head(path: str) -> bytes:
    """The complete lines among the first few megabytes."""
    with pa.input_stream(path, compression="detect") as file:
        data: bytes = file.read(_INFER_BYTES)
    if len(data) == _INFER_BYTES:
        data = data[: data.rfind(b"\n") + 1]
    if not data.strip():
        raise ValueError("the file is empty")
    return data


_READERS = {"parquet": _parquet, "arrow": _arrow, "json": _json, "csv": _csv}
