"""Independent queries of Structured Streaming that run continuously over directories that are being filled.

Results go to the `noop` sink, the cheapest there is; how many there are and which events they waited for is observed
on the way (`DataFrame.observe`), inside the batch's own job.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paced.latencies import Arrived, Newest, newest_of
from benchmarks.systems import Given
from benchmarks.systems.spark import STORES, columns_of, plain_spark, text_of
from benchmarks.workloads.model import Query, Workload

POINTS = 200
"""Of the event times of a batch's results: each stands for as many rows."""
OBSERVED = "results"


PROGRESS = {"spark.sql.streaming.numRecentProgressUpdates": "100000"}
"""All of it: it says what was observed."""


class Spark:
    """Every query reads for itself."""

    def __init__(self, work: Workload, root: Path, state: Path) -> None:
        self.work = work
        self.spark = plain_spark(Given(work, root, 0), {**STORES["spark"], **PROGRESS})
        self.root = root
        self.state = state
        self.queries: dict[str, Any] = {}
        self._newest: dict[str, Newest] = {}

    def create(self, query: Query, root: Path | None = None) -> Any:
        """Starts a query over `<root>/<stream>`."""
        newest = self._newest[query.name] = newest_of(query, self.work)
        self._register(root or self.root)
        frame = self.spark.sql(text_of(query))
        writer = _observed(frame, newest).writeStream.outputMode("append").trigger(processingTime="0 seconds")
        writer = writer.option("checkpointLocation", str(self.state / query.name)).format("noop")
        self.queries[query.name] = writer.start()
        return self.queries[query.name]

    def _register(self, root: Path) -> None:
        for stream in self.work.streams:
            frame = self.spark.readStream.schema(columns_of(stream.schema)).parquet(f"{root}/{stream.name}")
            delay = f"{round(stream.delay_seconds * 1000)} milliseconds"
            frame.withWatermark(stream.time, delay).createOrReplaceTempView(stream.name)

    def settle(self, rows: int = 0) -> None:
        """Waits until all that is there has been worked through by all queries."""
        for query in self.queries.values():
            query.processAllAvailable()

    @property
    def arrivals(self) -> list[Arrived]:
        return [a for name, query in self.queries.items() for a in _arrivals(query, self._newest[name])]

    @property
    def rows_out(self) -> Counter[str]:
        """Result rows of every query."""
        found = {name: _arrivals(query, self._newest[name]) for name, query in self.queries.items()}
        return Counter({name: sum(int(a.rows.sum()) for a in arrivals) for name, arrivals in found.items()})

    @property
    def first_results(self) -> dict[str, float]:
        """query -> when its sink got something first."""
        found = {name: _arrivals(query, self._newest[name]) for name, query in self.queries.items()}
        return {name: arrivals[0].at for name, arrivals in found.items() if arrivals}

    def batches(self, name: str) -> list[tuple[float, float, int]]:
        """(began, ended, rows) of the batches of a query; looking for input and finding none is no batch."""
        ran = [p for p in self.queries[name].recentProgress if "addBatch" in p.durationMs]
        return [(*_span(p), int(p.numInputRows)) for p in ran]

    def stop(self) -> None:
        for query in self.queries.values():
            query.stop()
        self.spark.stop()


def _observed(frame: Any, newest: Newest) -> Any:
    from pyspark.sql import functions as f

    shares = ", ".join(f"{(i + 0.5) / POINTS:g}" for i in range(POINTS))
    points = f.expr(f"percentile_approx({newest.spark}, array({shares}), 10000)")
    return frame.observe(OBSERVED, f.count(f.lit(1)).alias("rows"), points.alias("points"))


def _arrivals(query: Any, newest: Newest) -> list[Arrived]:
    found = []
    for progress in query.recentProgress:
        seen = progress.observedMetrics.get(OBSERVED)
        if seen is not None and seen["rows"]:
            found.append(arrived(_sunk(progress), seen["rows"], seen["points"], newest.delay_us))
    return found


def arrived(at: float, rows: int, points: list[int], delay_us: int) -> Arrived:
    """Evenly spaced quantiles stand for all rows; whole rows, none lost."""
    edges = np.linspace(0, rows, len(points) + 1).round().astype(np.int64)
    return Arrived(at, np.asarray(points, np.int64), np.diff(edges), delay_us)


def _span(progress: Any) -> tuple[float, float]:
    began = datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp()
    return began, began + progress.batchDuration / 1000


def _sunk(progress: Any) -> float:
    """When the sink had the rows: the batch is over but for the log that says so."""
    after = sum(progress.durationMs.get(name, 0) for name in ("commitBatch", "commitOffsets"))
    return float(_span(progress)[1] - after / 1000)
