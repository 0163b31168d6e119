"""A kind of each sort, as a package of somebody else would bring it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, ClassVar

import pyarrow as pa
from msgspec import Meta, Struct

from thalweg.aggregates.contract import AggregateCall, AggregateFamily, Arity, Calling, Parts, partial
from thalweg.frontend.window_kinds import WindowKind
from thalweg.model.expr import quote
from thalweg.model.query import Aggregate
from thalweg.model.split import Split
from thalweg.model.stream import Stream
from thalweg.model.window import Window
from thalweg.sink.contract import RowSink, SinkContext, SinkKind
from thalweg.source.contract import SourceKind, Units
from thalweg.state.storage import Storage

FIRST_US = 1_700_000_040_000_000
"""A whole minute."""


class TicksOptions(Struct, frozen=True):
    rows: Annotated[int, Meta(ge=1, description="How many.")]
    step: Annotated[float, Meta(gt=0, description="Seconds from one to the next.")] = 1.0


class TicksUnits(Units):
    """A unit is a row."""

    def __init__(self, stream: Stream, storage: Storage, rows: int) -> None:
        super().__init__(stream, storage)
        self._rows = rows

    def available(self) -> int:
        return self._rows

    def splits(self, start: int, end: int, parts: int) -> list[Split]:
        middle = (start + end) // 2
        cuts = [(low, high) for low, high in ((start, middle), (middle, end)) if high > low]
        return [Split(self.stream, "ticks", "", low, high, high - low) for low, high in cuts]


class Ticks(SourceKind[TicksOptions]):
    """Numbers, one after another."""

    name = "ticks"
    options = TicksOptions
    changeable = frozenset({"rows"})

    def schema(self, options: TicksOptions) -> str:
        return "ts timestamp, n bigint"

    def units(self, stream: Stream, storage: Storage) -> TicksUnits:
        return TicksUnits(stream, storage, self.options_of(stream.source).rows)

    def rows(self, options: TicksOptions, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
        times = [FIRST_US + round(n * options.step * 1e6) for n in range(split.start, split.end)]
        numbers = pa.array(range(split.start, split.end), pa.int64())
        yield pa.table({"ts": pa.array(times, pa.timestamp("us", tz="UTC")), "n": numbers})


class LinesOptions(Struct, frozen=True):
    path: Annotated[str, Meta(min_length=1, description="The directory.")]
    end: Annotated[str, Meta(description="What comes after every row.")] = "\n"


class LinesSink(RowSink):
    """One text for every batch: a batch that comes again writes the same text."""

    kind = "lines"

    def __init__(self, options: LinesOptions) -> None:
        self._options = options
        Path(options.path).mkdir(exist_ok=True)

    def commit(self, batch_id: int, token: str, table: pa.Table | None) -> None:
        rows = [] if table is None else [", ".join(str(value) for value in row.values()) for row in table.to_pylist()]
        text = "".join(row + self._options.end for row in sorted(rows))
        Path(self._options.path, f"{batch_id}.txt").write_text(text, encoding="utf-8")


class Lines(SinkKind[LinesOptions]):
    """Rows as lines of text."""

    name = "lines"
    options = LinesOptions

    def open(self, options: LinesOptions, context: SinkContext) -> LinesSink:
        return LinesSink(options)


class Products(AggregateFamily):
    name = "products"
    names: ClassVar = {"product": Arity(1, 1)}
    functions = ("product",)
    returns = "double"

    def signature(self, call: Calling) -> Aggregate:
        return Aggregate("product", (call.cast(call.arg(0), "double").to_expr(),), "double")

    def parts(self, asked: AggregateCall) -> Parts:
        text = f"product({quote(asked.column(0))})"
        product = partial(text, asked.filter_column, "product({})", "DOUBLE")
        return Parts((product,), quote(product.name))


class Hop(WindowKind):
    """Windows as Flink spells them: the slide comes first."""

    name = "hop"
    lengths = (2, 2)
    form = "hop takes a time, a slide and a size"

    def window(self, *lengths_us: int) -> Window:
        slide, size = lengths_us
        if size % slide:
            raise ValueError("the size of a hop is a multiple of its slide")
        return Window(size, slide)
