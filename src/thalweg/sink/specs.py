"""What users write to say where a query's results go."""

from __future__ import annotations

import os
from collections.abc import Mapping

import msgspec

from thalweg.errors import bad_sink_option, unknown_sink
from thalweg.model.query import SinkSpec

FILE_FORMATS = ("parquet", "json", "csv")
SPARK_FILE_FORMATS = ("parquet", "orc", "csv", "json", "text")
"""Of Spark's writers, those whose files are staged by batch."""
_OTHER_WRITERS = ("delta", "iceberg", "hudi", "kafka", "jdbc", "avro", "mongodb")
_CALLED_HERE = {"postgres": "jdbc", "postgresql": "jdbc", "mysql": "jdbc", "deltalake": "delta"}
"""What a writer is called elsewhere -> what Spark calls it."""
_EXACTLY_ONCE, _AT_LEAST_ONCE = "exactly once", "at least once"
KINDS = ("memory", "console", "files", "spark", "noop")
"""Sinks that SQL can name; a callable is given in Python."""


class ConsoleOptions(msgspec.Struct, frozen=True):
    rows: int = 20


class FilesOptions(msgspec.Struct, frozen=True):
    path: str
    format: str
    header: bool = True


def to_memory() -> SinkSpec:
    """Keep results with the state; `query.results()` gives them."""
    return SinkSpec("memory")


def to_console(rows: int = 20) -> SinkSpec:
    """Print the first `rows` results of every batch."""
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise bad_sink_option("console", "rows", f"must be a number above 0, not {rows!r}")
    return SinkSpec("console", (("rows", rows),))


def to_files(path: str | os.PathLike[str], format: str = "parquet", *, header: bool = True) -> SinkSpec:
    """One file per batch in the directory `path`: `parquet`, `json` (lines) or `csv` (with a header line)."""
    if format not in FILE_FORMATS:
        raise bad_sink_option("files", "format", f"must be one of {', '.join(FILE_FORMATS)}, not {format!r}")
    # Absolute, so that a restart from another working directory goes on in the same place.
    options = (("format", format), ("path", os.path.abspath(path)))
    return SinkSpec("files", (*options, ("header", header)) if format == "csv" else options)


def to_spark(format: str, **options: object) -> SinkSpec:
    """Any batch writer that Spark knows, such as `delta` or `kafka`, with its options."""
    if not format:
        raise bad_sink_option("spark", "format", "must name a Spark writer")
    texts = ((name, _option_text(value)) for name, value in sorted(options.items()))
    return SinkSpec("spark", (("format", format), *texts))


def delivery_of(spec: SinkSpec) -> str:
    """How often a row of results is to be seen, after crashes and failures too."""
    kind, format_ = spec.kind, spec.option("format").lower()
    if kind == "spark":
        return _EXACTLY_ONCE if format_ in (*SPARK_FILE_FORMATS, "delta") else _AT_LEAST_ONCE
    return _EXACTLY_ONCE if kind in ("memory", "files", "noop") else _AT_LEAST_ONCE


def to_noop() -> SinkSpec:
    """Make results and drop them where they were made, counted: for measuring, as Spark's `noop`."""
    return SinkSpec("noop")


def to_callable() -> SinkSpec:
    """Marks a query whose results go to a Python callable; the callable itself is kept by the session."""
    return SinkSpec("callable")


def parse_spec(kind: str, options: Mapping[str, str]) -> SinkSpec:
    """The sink of `CREATE QUERY ... INTO kind OPTIONS (...)`, whose options are all text."""
    rest = dict(options)
    match kind.lower():
        case "memory":
            spec = to_memory()
        case "console":
            spec = to_console(_number(rest.pop("rows", "20")))
        case "files":
            if "path" not in rest:
                raise bad_sink_option("files", "path", "is missing")
            header = _truth(rest.pop("header", "true"))
            spec = to_files(rest.pop("path"), rest.pop("format", "parquet").lower(), header=header)
        case "spark":
            spec, rest = to_spark(rest.pop("format", ""), **rest), {}
        case "noop":
            spec = to_noop()
        case other:
            raise unknown_sink(kind, KINDS, _meant(other))
    for name in rest:
        raise bad_sink_option(kind.lower(), name, "is not known")
    return spec


def _meant(kind: str) -> str | None:
    """What to write instead, where the name of a format was given."""
    kind = _CALLED_HERE.get(kind, kind)
    if kind in FILE_FORMATS:
        return f"INTO files OPTIONS (format = '{kind}', path = '...')"
    if kind in (*SPARK_FILE_FORMATS, *_OTHER_WRITERS):
        return f"INTO spark OPTIONS (format = '{kind}', ...)"
    return None


def _option_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise bad_sink_option("console", "rows", f"must be a number, not {text!r}") from error


def _truth(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise bad_sink_option("files", "header", f"must be true or false, not {text!r}")
    return text.lower() == "true"
