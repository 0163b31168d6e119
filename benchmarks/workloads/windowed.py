"""A windowed aggregation in the words of every system."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.workloads.model import Query, Stream

MERGED = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}
"""An aggregate -> how partial ones of it are put together."""
NOWHERE = ""
"""In place of a text: the system cannot say it."""


@dataclass(frozen=True)
class Windowed:
    """Rows of one stream, grouped by keys and a window; `start` is the window's first moment in every result."""

    stream: Stream
    keys: Mapping[str, str]
    """Name -> expression that every system reads alike."""
    aggregates: Mapping[str, str]
    size: int
    """Seconds; a multiple of the slide."""
    slide: int
    where: str = ""

    def query(self, name: str, *, spark: str | None = None, flink: str | None = None) -> Query:
        """`spark`, `flink`: NOWHERE where they cannot say it."""
        return Query(
            name,
            self.text,
            spark=spark,
            flink=self.flink if flink is None else flink,
            batch=self.batch,
            closed=closed(self.size),
        )

    @property
    def text(self) -> str:
        groups = ", ".join([*self.keys.values(), window(self.stream.time, self.size, self.slide)])
        return f"SELECT window.start AS start, {self._listed} FROM {self._source} GROUP BY {groups}"

    @property
    def flink(self) -> str:
        hop = f"DESCRIPTOR({self.stream.time}), {_span(self.slide)}, {_span(self.size)}"
        if self.size == self.slide:
            hop = f"DESCRIPTOR({self.stream.time}), {_span(self.size)}"
        function = "TUMBLE" if self.size == self.slide else "HOP"
        table = f"TABLE({function}(TABLE {self.stream.name}, {hop})){self._condition}"
        groups = ", ".join(["window_start", "window_end", *self.keys.values()])
        return f"SELECT window_start AS `start`, {self._listed} FROM {table} GROUP BY {groups}"

    @property
    def batch(self) -> str:
        """For DuckDB: rows into slices and slices into windows where that can be done, else rows into windows."""
        kinds = [re.match(r"(\w+)\((?!DISTINCT)", text, re.IGNORECASE) for text in self.aggregates.values()]
        if all(kind is not None and kind[1] in MERGED for kind in kinds):
            return self._by_slices()
        rows = in_windows(self._source, self.stream.time, self.size, self.slide)
        return f"SELECT start, {self._listed} FROM ({rows}) GROUP BY {', '.join(['start', *self.keys.values()])}"

    def _by_slices(self) -> str:
        us = self.slide * 1_000_000
        slices = (
            f"SELECT epoch_us({self.stream.time}) // {us} AS slice, {self._listed} FROM {self._source} "
            f"GROUP BY {', '.join(['slice', *self.keys.values()])}"
        )
        if self.size == self.slide:
            names = ", ".join([*self.keys, *self.aggregates])
            return f"SELECT make_timestamptz(slice * {us}) AS start, {names} FROM ({slices})"
        merged = ", ".join([*self.keys, *(_merged(name, text) for name, text in self.aggregates.items())])
        return (
            f"SELECT make_timestamptz((slice - back) * {us}) AS start, {merged} "
            f"FROM ({slices}), range({self.size // self.slide}) AS past(back) "
            f"GROUP BY {', '.join(['start', *self.keys])}"
        )

    @property
    def _listed(self) -> str:
        named = {**self.keys, **self.aggregates}
        return ", ".join(text if text == name else f"{text} AS {name}" for name, text in named.items())

    @property
    def _source(self) -> str:
        return f"{self.stream.name}{self._condition}"

    @property
    def _condition(self) -> str:
        return f" WHERE {self.where}" if self.where else ""


def window(time: str, size: int, slide: int) -> str:
    """For Thalweg and Spark."""
    spans = [f"'{size} seconds'"] if size == slide else [f"'{size} seconds'", f"'{slide} seconds'"]
    return f"window({', '.join([time, *spans])})"


def in_windows(source: str, time: str, size: int, slide: int) -> str:
    """For DuckDB: every row once for each window that it is in, with the window's `start`."""
    us = slide * 1_000_000
    start = f"make_timestamptz((epoch_us({time}) // {us} - unnest(range({size // slide}))) * {us})"
    return f"SELECT *, {start} AS start FROM {source}"


def closed(size: int) -> str:
    return f"start + INTERVAL {size} SECONDS <= $watermark"


def _merged(name: str, text: str) -> str:
    function = text.split("(")[0]
    whole = "::BIGINT" if function == "count" else ""
    return f"{MERGED[function]}({name}){whole} AS {name}"


def _span(seconds: int) -> str:
    return f"INTERVAL '{seconds}' SECOND({len(str(seconds))})"
