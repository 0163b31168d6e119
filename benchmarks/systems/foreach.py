"""One query of Structured Streaming whose foreachBatch caches the batch and runs N aggregations over it.

What a good engineer would write by hand to share a scan among many windowed aggregations:

- The columns that some query uses are cached once for every batch.
- A query aggregates the batch by slices of time as long as its window slides, not by windows: a row falls into one
  slice but into several windows. The slices of a batch are a small table, cached, never changed afterwards.
- When the watermark passes the end of windows, the slices that they are made of are put together and emitted; slices
  that no open window needs are let go.
- Several queries at a time, so that one's small stages fill the gaps of another's.

The slices are in memory only: one that survives a failure would have to write them, too, and could not be faster.
"""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import Any

from benchmarks.systems import Given, eventlog, linked
from benchmarks.systems.spark import Ends, plain_spark, shuffled, steady, streaming_frame, text_of
from benchmarks.systems.usage import CpuWatch
from benchmarks.workloads.model import Stream

AT_A_TIME = 4
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MERGES = {"count": "sum", "sum": "sum", "min": "min", "max": "max"}
"""An aggregate -> what puts its parts together."""
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
    size: timedelta
    slide: timedelta
    slices: str
    """SQL over one batch; `slice` is the start of one."""


def taken_apart(text: str) -> Aggregation:
    found = _QUERY.fullmatch(text.strip())
    if found is None:
        raise RuntimeError(f"not a windowed aggregation of one stream: {text}")
    size = found["size"]
    slide = found["slide"] or size
    outputs, keys, merges, start, selected = [], [], {}, "", []
    for part in re.split(r",\s*(?![^()]*\))", found["outputs"]):
        name = part.split()[-1]
        outputs.append(name)
        aggregate = _AGGREGATE.fullmatch(part.strip())
        if aggregate is not None:
            merges[name] = MERGES[aggregate["name"].lower()]
            selected.append(part)
        elif part.lower().startswith("window.start"):
            start = name
        else:
            keys.append(name)
            selected.append(part)
    condition = f" WHERE {found['where']}" if found["where"] else ""
    slices = (
        f"SELECT window.start AS slice, {', '.join(selected)} FROM {found['stream']}{condition} "
        f"GROUP BY {found['keys']}, window({found['time']}, '{slide}')"
    )
    if not start or _span(size) % _span(slide):
        raise RuntimeError(f"no start of the window, or not a whole number of slides: {text}")
    return Aggregation(tuple(outputs), tuple(keys), merges, start, _span(size), _span(slide), slices)


def _span(text: str) -> timedelta:
    number, unit = text.split()
    return timedelta(seconds=int(number) * _UNITS[unit.rstrip("s")])


@dataclass
class Running:
    """One aggregation while it runs: the slices that open windows need, and how far windows have been emitted."""

    aggregation: Aggregation
    out: Path | None
    kept: list[tuple[datetime, Any]] = field(default_factory=list)
    """(end of the newest slice, cached slices of a batch)"""
    emitted_until: datetime = EPOCH

    def take(self, spark: Any, newest: datetime, watermark: datetime) -> None:
        """A batch, whose view `spark` has; `newest` is the greatest event time."""
        slices = spark.sql(self.aggregation.slices).persist()
        self.kept.append((newest + self.aggregation.slide, slices))
        slide = self.aggregation.slide
        if (watermark - EPOCH) // slide > (self.emitted_until - EPOCH) // slide:
            self._emit(watermark)
        else:
            slices.count()
        oldest = watermark - self.aggregation.size
        for end, old in self.kept:
            if end <= oldest:
                old.unpersist()
        self.kept = [(end, old) for end, old in self.kept if end > oldest]

    def _emit(self, watermark: datetime) -> None:
        """The windows that have closed since the last time."""
        from pyspark.sql import functions

        a = self.aggregation
        rows = reduce(lambda one, other: one.unionAll(other), [slices for _, slices in self.kept])
        if a.size > a.slide:
            first = functions.col("slice") - functions.lit(a.size - a.slide)
            windows = functions.sequence(first, functions.col("slice"), functions.lit(a.slide))
            rows = rows.withColumn(a.start, functions.explode(windows))
        else:
            rows = rows.withColumnRenamed("slice", a.start)
        end = functions.col(a.start) + functions.lit(a.size)
        rows = rows.where((end > functions.lit(self.emitted_until)) & (end <= functions.lit(watermark)))
        merged = [getattr(functions, how)(name).alias(name) for name, how in a.merges.items()]
        results = rows.groupBy(a.start, *a.keys).agg(*merged).select(*a.outputs)
        if self.out is None:
            results.write.format("noop").mode("overwrite").save()
        else:
            results.write.mode("append").parquet(str(self.out))
        self.emitted_until = watermark


class Batches:
    """What foreachBatch is given: all aggregations over each batch."""

    def __init__(self, given: Given) -> None:
        self._stream = given.work.streams[0]
        texts = [text_of(query) for query in given.work.queries]
        self._columns = used_columns(self._stream, texts)
        self._running = [
            Running(taken_apart(text), given.out / f"q{i}" if given.out else None) for i, text in enumerate(texts)
        ]
        self._newest = EPOCH
        self.spans: list[tuple[float, float]] = []

    def __call__(self, frame: Any, batch: int) -> None:
        from pyspark.sql import functions

        began = time.time()
        rows = frame.select(*self._columns).persist()
        rows.createOrReplaceTempView(self._stream.name)
        newest = rows.agg(functions.unix_micros(functions.max(self._stream.time))).first()[0]
        if newest is not None:
            moment = datetime.fromtimestamp(newest // 1000 / 1000, UTC)
            self._newest = max(self._newest, moment)
            watermark = self._newest - timedelta(seconds=self._stream.delay_seconds)
            with ThreadPoolExecutor(AT_A_TIME) as pool:
                # The batch belongs to a session of its own, which alone has the view.
                taken = [pool.submit(one.take, frame.sparkSession, self._newest, watermark) for one in self._running]
                for one in taken:
                    one.result()
        rows.unpersist()
        self.spans.append((began, time.time()))


def used_columns(stream: Stream, texts: Sequence[str]) -> list[str]:
    words = {word for text in texts for word in re.findall(r"\w+", text)}
    return [name for name in stream.schema.names if name in words]


def run_foreach(given: Given) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name, linked(given) as files, CpuWatch() as cpu:
        directory = Path(name)
        shuffles = directory / "events" if given.settings.get("shuffle") else None
        # The stages of a batch are small and alike: planning them anew from what they read only takes time.
        settings = {"spark.sql.adaptive.enabled": given.settings.get("adaptive", "false")}
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
