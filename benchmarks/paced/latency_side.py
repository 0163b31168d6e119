"""One system fed at a pace with all queries of a workload: how late its results are."""

from __future__ import annotations

import time
from dataclasses import replace
from statistics import median
from typing import Any

from benchmarks.paced.feed import Feeder, fill
from benchmarks.paced.latencies import closing_seconds, latencies, over_time, summary
from benchmarks.paced.spark import Spark
from benchmarks.paced.sustained import Pace, Place, event_rate, expected_rows, prepared, rates
from benchmarks.paced.thalweg import Thalweg
from benchmarks.workloads.model import Workload

ENDS = 2
"""Of windows, that come by however slow the pace is."""


def run(system: str, work: Workload, pace: Pace) -> dict[str, Any]:
    sustained, rate = rates(system, work, pace)
    speed = rate / len(work.streams) / event_rate(work)
    pace = replace(pace, seconds=max(pace.seconds, closing_seconds(work, ENDS) / speed))
    with prepared(work, rate, pace) as place:
        side = (Thalweg if system == "thalweg" else Spark)(work, place.root, place.state)
        try:
            found = _fed(side, work, place, rate, pace)
        finally:
            side.stop()
        expected = expected_rows(work.queries, work, place.supply)
    delay = max(stream.delay_seconds for stream in work.streams)
    return {
        "sustained_rows_per_second": sustained,
        "rows_per_second": rate,
        "event_seconds_per_second": speed,
        "delay_seconds": delay / speed,
        "expected_rows": expected,
        **found,
    }


def _fed(side: Thalweg | Spark, work: Workload, place: Place, rate: float, pace: Pace) -> dict[str, Any]:
    supply = place.supply
    for query in work.queries:
        side.create(query)
    if isinstance(side, Thalweg):
        side.start()
    fill(supply, place.root, side.settle, pace.files_per_batch)
    schedule = supply.schedule(rate)
    feeder = Feeder(supply, schedule, lambda: [place.root])
    feeder.start()
    feeder.join()
    side.settle(supply.all_rows)
    behind = time.time() - feeder.began - schedule.seconds
    found = latencies(side.arrivals, schedule, feeder.began)
    seen = summary(found)
    if seen is None:
        raise SystemExit(f"{work.name}: {schedule.seconds:.0f} s at {rate:,.0f} rows/s brought no result")
    batches = _batch_seconds(side, feeder.began)
    return {
        **seen.to_json(),
        "seconds": schedule.seconds,
        "files": len(schedule.releases),
        "behind_seconds": behind,
        "feeder_late_seconds": feeder.late_seconds,
        "output_rows": side.rows_out.total(),
        "batches": len(batches),
        "batch_seconds": median(batches),
        "slowest_batch_seconds": max(batches),
        "over_time": over_time(found, schedule.seconds, max(0.25, schedule.seconds / 40)),
    }


def _batch_seconds(side: Thalweg | Spark, began: float) -> list[float]:
    """Of batches with rows since the pace began; of Spark those of all queries."""
    if isinstance(side, Thalweg):
        return [b.seconds for b in side.batches_since(began) if b.rows]
    spans = [span for name in side.queries for span in side.batches(name)]
    return [ended - start for start, ended, rows in spans if rows and ended >= began]
