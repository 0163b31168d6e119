"""Results to Spark's own writers: what users say of them. The engine opens and writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from thalweg.model.query import SinkSpec
from thalweg.sink.contract import AT_LEAST_ONCE, EXACTLY_ONCE, Sink, SinkContext, SinkKind

FILE_FORMATS = ("parquet", "orc", "csv", "json", "text")
"""Of Spark's writers, those whose files are staged by batch."""
_OTHER_WRITERS = ("delta", "iceberg", "hudi", "kafka", "jdbc", "avro", "mongodb")
_CALLED_HERE = {"postgres": "jdbc", "postgresql": "jdbc", "mysql": "jdbc", "deltalake": "delta"}
"""What a writer is called elsewhere -> what Spark calls it."""


class SparkOptions(Struct, frozen=True):
    format: Annotated[str, Meta(description="The writer, such as `delta` or `kafka`. All other options are its own.")]


class SparkSinkKind(SinkKind[SparkOptions]):
    """Any batch writer that Spark knows, called once for every batch with results."""

    name = "spark"
    options = SparkOptions
    unique_columns = True
    opens_early = False
    is_engines = True

    def pairs(self, given: Mapping[str, object]) -> tuple[tuple[str, Any], ...]:
        format_ = given.get("format")
        if not isinstance(format_, str) or not format_:
            raise self.refuse("format", "must name a Spark writer")
        rest = sorted((name, value) for name, value in given.items() if name != "format")
        return (("format", format_), *((name, _option_text(value)) for name, value in rest))

    def options_of(self, spec: SinkSpec) -> SparkOptions:
        return SparkOptions(spec.option("format"))

    def delivery(self, options: SparkOptions) -> str:
        return EXACTLY_ONCE if options.format.lower() in (*FILE_FORMATS, "delta") else AT_LEAST_ONCE

    def open(self, options: SparkOptions, context: SinkContext) -> Sink:
        raise NotImplementedError("the engine opens Spark's writers")

    def meant_by(self, word: str) -> str | None:
        writer = _CALLED_HERE.get(word, word)
        known = writer in (*FILE_FORMATS, *_OTHER_WRITERS)
        return f"INTO spark OPTIONS (format = '{writer}', ...)" if known else None


SPARK = SparkSinkKind()


def to_spark(format: str, **options: object) -> SinkSpec:
    """Any batch writer that Spark knows, such as `delta` or `kafka`, with its options."""
    return SPARK.spec(format=format, **options)


def _option_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
