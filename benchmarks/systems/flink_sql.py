"""What Flink is told: its tables over CSV files, and the workloads' texts made exact.

Flink's event time has milliseconds only. So a timestamp `t` of a workload is the column `t_us`, microseconds since
the epoch, in the CSV file, and `t`, computed from it, in the table. A condition on event times is said a second time
on the microseconds, and a result that has both columns gives the exact one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

import pyarrow as pa

from benchmarks.workloads.model import Query, Stream

EXACT = "_us"
TYPES = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "STRING",
    "large_string": "STRING",
    "date32[day]": "DATE",
}
BOUND = re.compile(
    r"(?P<time>[\w.]+) BETWEEN (?P<low>[\w.]+) - INTERVAL '(?P<before>\d+)' (?P<unit>SECOND|MINUTE)(\(\d+\))? "
    r"AND (?P<high>[\w.]+) \+ INTERVAL '(?P<after>\d+)' (?P=unit)(\(\d+\))?"
)
"""How the workloads bound a join in time."""
UNIT_US = {"SECOND": 1_000_000, "MINUTE": 60_000_000}


def table_ddl(name: str, schema: pa.Schema, path: str, watermark: tuple[str, float] | None) -> str:
    """A table over CSV files; `watermark`: the event-time column and the delay in seconds."""
    columns = [_column(field) for field in schema]
    if watermark is not None:
        time, delay = watermark
        columns.append(f"WATERMARK FOR `{time}` AS `{time}` - {_interval(delay)}")
    return f"CREATE TABLE `{name}` ({', '.join(columns)}) WITH ({_options(path)})"


def _column(field: pa.Field) -> str:
    if pa.types.is_timestamp(field.type):
        exact = f"`{field.name}{EXACT}`"
        return f"{exact} BIGINT, `{field.name}` AS TO_TIMESTAMP_LTZ({exact} / 1000, 3)"
    if pa.types.is_decimal(field.type):
        return f"`{field.name}` DECIMAL({field.type.precision}, {field.type.scale})"
    return f"`{field.name}` {TYPES[str(field.type)]}"


def _interval(seconds: float) -> str:
    """The digits before the point are two unless more are asked for."""
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    return f"INTERVAL '{whole}.{thousandths:03d}' SECOND({len(str(whole))}, 3)"


def _options(path: str) -> str:
    options = {"connector": "filesystem", "path": path, "format": "csv", "csv.null-literal": ""}
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())


def sink_ddl(name: str, columns: Iterable[tuple[str, str]], path: str | None) -> str:
    """For results of these names and types; without a path they go nowhere."""
    listed = ", ".join(f"`{column}` {type_}" for column, type_ in columns)
    options = "'connector' = 'blackhole'" if path is None else _options(path)
    return f"CREATE TABLE `{name}` ({listed}) WITH ({options})"


def plain_type(type_: str) -> str:
    """A result's type as a sink's column has it: `TIMESTAMP_LTZ(3) *ROWTIME* NOT NULL` loses its marks."""
    return type_.replace(" *ROWTIME*", "").replace(" NOT NULL", "").strip()


def csv_select(schema: pa.Schema) -> str:
    """DuckDB's list of what a CSV file has, in the order of the table's physical columns."""
    return ", ".join(
        f'epoch_us("{field.name}")' if pa.types.is_timestamp(field.type) else f'"{field.name}"' for field in schema
    )


def text_of(query: Query, streams: Collection[Stream]) -> str:
    text = query.text if query.flink is None else query.flink
    if not text:
        raise RuntimeError(f"{query.name} cannot be said in Flink SQL")
    return exact(text, {stream.time for stream in streams})


def exact(text: str, times: Collection[str]) -> str:
    """With every bound between two event times said on the microseconds, too. What is near enough by microseconds is
    so by milliseconds: the first bound keeps all, and is the one that Flink takes for an interval join."""

    def both(bound: re.Match[str]) -> str:
        names = [bound[part].rpartition(".")[2] for part in ("time", "low", "high")]
        if not all(name in times for name in names):
            return bound[0]
        unit = UNIT_US[bound["unit"]]
        low = f"{bound['low']}{EXACT} - {int(bound['before']) * unit}"
        high = f"{bound['high']}{EXACT} + {int(bound['after']) * unit}"
        return f"{bound[0]} AND {bound['time']}{EXACT} BETWEEN {low} AND {high}"

    return BOUND.sub(both, text)


def parsed_columns(stream: Stream, texts: Iterable[str]) -> list[str]:
    """The columns of the CSV file that the texts need: others Flink skips without parsing them."""
    joined = " ".join(texts)
    words = set(re.findall(r"\w+", joined)) | {stream.time}
    everything = re.search(r"SELECT \*", joined) is not None
    return [
        f"{field.name}{EXACT}" if pa.types.is_timestamp(field.type) else field.name
        for field in stream.schema
        if everything or field.name in words
    ]


def result_select(columns: Iterable[tuple[str, str]]) -> str:
    """DuckDB's list that turns a CSV result into what other systems give: times in UTC, with their microseconds."""
    types = dict(columns)
    exacts = {name + EXACT for name in types if name + EXACT in types}
    return ", ".join(_result(name, type_, types) for name, type_ in types.items() if name not in exacts)


def _result(name: str, type_: str, types: Collection[str]) -> str:
    if name + EXACT in types:
        return f'make_timestamptz("{name}{EXACT}") AS "{name}"'
    if type_.startswith("TIMESTAMP"):
        return f'"{name}"::TIMESTAMPTZ AS "{name}"'
    return f'"{name}"'


def result_columns(columns: Iterable[tuple[str, str]]) -> str:
    """DuckDB's `columns` of read_csv."""
    return "{" + ", ".join(f"'{name}': '{_read_as(type_)}'" for name, type_ in columns) + "}"


def _read_as(type_: str) -> str:
    """Times as Flink writes them: without a zone, or in UTC with a `Z`."""
    if type_.startswith("TIMESTAMP"):
        return "TIMESTAMPTZ"
    return {"STRING": "VARCHAR", "INT": "INTEGER"}.get(type_, type_)
