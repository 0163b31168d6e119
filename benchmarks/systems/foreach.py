"""One query of Structured Streaming whose foreachBatch caches the batch and runs N aggregations over it.

What a good engineer would write by hand to share a scan among many windowed aggregations:

- The columns that some query uses are cached once for every batch, the event time as a number: in a
  trial with one query that took somewhat less CPU time than a timestamp.
- A query aggregates the batch by slices of time as long as its window slides, not by windows: a row falls into one
  slice but into several windows. The slices of a batch are a small table, cached, never changed afterwards.
- When the watermark passes the end of windows, the slices that they are made of are put together and emitted; slices
  that no open window needs are let go.
- Several queries at a time, so that one's small stages fill the gaps of another's; `bench settings` tries how many,
  and adaptive execution, which is off.

The slices are in memory only: one that survives a failure would have to write them, too, and could not be faster.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

from benchmarks.systems import Given, eventlog, linked
from benchmarks.systems.spark import Ends, plain_spark, shuffled, steady, streaming_frame, text_of
from benchmarks.systems.usage import CpuWatch
from benchmarks.workloads.model import Stream
from benchmarks.workloads.windowed import MERGED

AT_A_TIME = 8
_QUERY = re.compile(
    r"SELECT (?P<outputs>.+?) FROM (?P<stream>\w+)(?: WHERE (?P<where>.+?))? "
    r"GROUP BY (?P<keys>.+?), window\((?P<time>\w+), '(?P<size>[^']+)'(?:, '(?P<slide>[^']+)')?\)",
    re.IGNORECASE,
)
_AGGREGATE = re.compile(r"(?P<name>count|sum|min|max)\((?P<of>[^()]*)\) AS (?P<alias>\w+)", re.IGNORECASE)
_UNITS = {"second": 1, "minute": 60, "hour": 3600}


@dataclass(frozen=True)
class Aggregation:
    """A windowed aggregation taken apart."""

    outputs: tuple[str, ...]
    """Names, in order."""
    keys: tuple[str, ...]
    """Names of all outputs but aggregates and the start of the window."""
    merges: dict[str, str]
    """Name of an aggregate -> what puts its parts together."""
    start: str
    """Name of the window's start."""
    size_us: int
    slide_us: int
    slices: str
    """SQL over one batch, `{rows}`; `slice` counts slides since the epoch."""


def taken_apart(text: str) -> Aggregation:
    found = _QUERY.fullmatch(text.strip())
    if found is None:
        raise RuntimeError(f"not a windowed aggregation of one stream: {text}")
    size, slide = _microseconds(found["size"]), _microseconds(found["slide"] or found["size"])
    outputs, keys, merges, start, selected = [], [], {}, "", []
    for part in re.split(r",\s*(?![^()]*\))", found["outputs"]):
        name = part.split()[-1]
        outputs.append(name)
        aggregate = _AGGREGATE.fullmatch(part.strip())
        if aggregate is not None:
            merges[name] = MERGED[aggregate["name"].lower()]
            selected.append(part)
        elif part.lower().startswith("window.start"):
            start = name
        else:
            keys.append(name)
            selected.append(part)
    condition = f" WHERE {found['where']}" if found["where"] else ""
    slice_ = f"{found['time']} div {slide}"
    slices = (
        f"SELECT {slice_} AS slice, {', '.join(selected)} FROM {{rows}}{condition} GROUP BY {found['keys']}, {slice_}"
    )
    if not start or size % slide or re.search(rf"\b{found['time']}\b", condition):
        raise RuntimeError(f"no start of the window, not a whole number of slides, or a condition on time: {text}")
    return Aggregation(tuple(outputs), tuple(keys), merges, start, size, slide, slices)


def _microseconds(text: str) -> int:
    number, unit = text.split()
    return int(number) * _UNITS[unit.rstrip("s")] * 1_000_000


@dataclass
class Running:
    """One aggregation while it runs: the slices that open windows need, and how far windows have been emitted."""

    aggregation: Aggregation
    out: Path | None
    kept: list[tuple[int, Any]] = field(default_factory=list)
    """(end of the newest slice, cached slices of a batch)"""
    emitted_until_us: int = 0

    def take(self, spark: Any, view: str, newest_us: int, watermark_us: int) -> None:
        """A batch, whose view `spark` has; `newest_us` is the greatest event time."""
        size, slide = self.aggregation.size_us, self.aggregation.slide_us
        slices = spark.sql(self.aggregation.slices.format(rows=view)).persist()
        self.kept.append((newest_us + slide, slices))
        if watermark_us // slide > self.emitted_until_us // slide:
            self._emit(watermark_us)
        else:
            slices.count()
        for end, old in self.kept:
            if end <= watermark_us - size:
                old.unpersist()
        self.kept = [(end, old) for end, old in self.kept if end > watermark_us - size]

    def _emit(self, watermark_us: int) -> None:
        """The windows that have closed since the last time."""
        from pyspark.sql import functions

        a = self.aggregation
        rows = reduce(lambda one, other: one.unionAll(other), [slices for _, slices in self.kept])
        if a.size_us > a.slide_us:
            first = functions.col("slice") - functions.lit(a.size_us // a.slide_us - 1)
            rows = rows.withColumn("slice", functions.explode(functions.sequence(first, functions.col("slice"))))
        # A window has the number of its first slice; closed are those that end between the two watermarks.
        after, until = ((us - a.size_us) // a.slide_us for us in (self.emitted_until_us, watermark_us))
        rows = rows.where((functions.col("slice") > after) & (functions.col("slice") <= until))
        rows = rows.withColumn(a.start, functions.timestamp_micros(functions.col("slice") * a.slide_us))
        merged = [getattr(functions, how)(name).alias(name) for name, how in a.merges.items()]
        results = rows.groupBy(a.start, *a.keys).agg(*merged).select(*a.outputs)
        if self.out is None:
            results.write.format("noop").mode("overwrite").save()
        else:
            results.write.mode("append").parquet(str(self.out))
        self.emitted_until_us = watermark_us


class Batches:
    """What foreachBatch is given: all aggregations over each batch."""

    def __init__(self, given: Given) -> None:
        self._stream = given.work.streams[0]
        texts = [text_of(query) for query in given.work.queries]
        self._columns = used_columns(self._stream, texts)
        self._running = [
            Running(taken_apart(text), given.out / f"q{i}" if given.out else None) for i, text in enumerate(texts)
        ]
        self._newest_us = 0
        self._at_a_time = int(given.settings.get("at_a_time", AT_A_TIME))
        self.spans: list[tuple[float, float]] = []

    def __call__(self, frame: Any, batch: int) -> None:
        from pyspark.sql import functions

        began = time.time()
        at = self._stream.time
        rows = frame.withColumn(at, functions.unix_micros(at)).select(*self._columns).persist()
        # A name of its own: when a view is replaced, all that was cached of it is lost.
        view = f"{self._stream.name}_{batch}"
        rows.createTempView(view)
        newest_us = rows.agg(functions.max(at)).first()[0]
        if newest_us is not None:
            self._newest_us = max(self._newest_us, newest_us // 1000 * 1000)
            watermark_us = self._newest_us - round(self._stream.delay_seconds * 1e6)
            with ThreadPoolExecutor(self._at_a_time) as pool:
                # The batch belongs to a session of its own, which alone has the view.
                given = frame.sparkSession, view, self._newest_us, watermark_us
                for taken in [pool.submit(one.take, *given) for one in self._running]:
                    taken.result()
        rows.unpersist()
        self.spans.append((began, time.time()))


def used_columns(stream: Stream, texts: Sequence[str]) -> list[str]:
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    return [name for name in stream.schema.names if name in words]


def run_foreach(given: Given) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, linked(given) as files, CpuWatch() as cpu:
        directory = Path(name)
        shuffles = directory / "events" if given.settings.get("shuffle") else None
        settings = {"spark.sql.adaptive.enabled": "false"}
        spark = plain_spark(given, {**settings, **(eventlog.settings(shuffles) if shuffles else {})})
        batches = Batches(given)
        frame = streaming_frame(spark, given, given.work.streams[0], files)
        writer = frame.writeStream.foreachBatch(batches).trigger(availableNow=True)
        writer.option("checkpointLocation", str(directory / "checkpoint")).start().awaitTermination()
        ends = Ends(batches.spans[0][0], tuple(end for _, end in batches.spans))
        found = steady([ends], given, cpu)
        spark.stop()
        if shuffles is not None:
            found |= shuffled(shuffles, given)
    return found
