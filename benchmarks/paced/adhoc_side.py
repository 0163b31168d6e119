"""One system fed at a pace while queries come and go."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.paced.feed import Feeder, fill
from benchmarks.paced.latencies import latencies, over_time, summary
from benchmarks.paced.scenario import CREATE, DROP, Answered, Request, Scenario, told
from benchmarks.paced.schedule import Schedule
from benchmarks.paced.spark import Spark
from benchmarks.paced.sustained import Pace, Place, expected_rows, prepared, rates
from benchmarks.paced.thalweg import Batch, Thalweg
from benchmarks.workloads.model import Query, Workload


def run(system: str, work: Workload, scenario: Scenario, pace: Pace) -> dict[str, Any]:
    work = replace(work, queries=work.queries[: scenario.queries])
    sustained, rate = rates(system, work, pace)
    pace = replace(pace, seconds=scenario.seconds)
    measured = _run_thalweg if system == "thalweg" else _run_spark
    with prepared(work, rate, pace) as place:
        found = measured(work, scenario, place, rate, pace)
        lasting = _lasting(work, scenario)
        found["expected_rows"] = expected_rows(lasting, work, place.supply)
    by_query = found.pop("rows_by_query")
    found["checked_rows"] = sum(by_query.get(query.name, 0) for query in lasting)
    return {"scenario": scenario.name, "sustained_rows_per_second": sustained, "rows_per_second": rate, **found}


def _lasting(work: Workload, scenario: Scenario) -> Sequence[Query]:
    """Queries that were there all the time: whoever comes and goes, their results are those of all rows."""
    dropped = {request.query for request in scenario.requests if request.op == DROP}
    return [query for i, query in enumerate(work.queries[: scenario.before]) if i not in dropped]


@dataclass(frozen=True)
class _Call:
    request: Request
    id: str
    called: float
    acked: float
    late: float


# -- Thalweg -----------------------------------------------------------------------------------------------


def _run_thalweg(work: Workload, scenario: Scenario, place: Place, rate: float, pace: Pace) -> dict[str, Any]:
    side = Thalweg(work, place.root, place.state)
    try:
        handles = {i: side.create(work.queries[i]) for i in range(scenario.before)}
        side.start()
        fill(place.supply, place.root, side.settle, pace.files_per_batch)
        schedule = place.supply.schedule(rate)
        feeder = Feeder(place.supply, schedule, lambda: [place.root])
        feeder.start()
        calls = _ask(side, work, scenario, handles, feeder.began)
        feeder.join()
        side.settle(place.supply.all_rows)
        behind = time.time() - feeder.began - schedule.seconds
        left = {handle.id for handle in side.session.queries.values()}
        side.wait_for(lambda manifest: set(manifest.queries) == left)
        batches = side.batches_since(feeder.began)
        answers = [_answered(call, batches, side.first_results, work) for call in calls]
        found = _seen(side, schedule, feeder) | told(answers) | _batches(batches, schedule, feeder.began)
        found |= _afterwards(
            side, schedule, feeder.began, batches, max((c.called + c.acked for c in calls), default=0)
        )
        failed = side.failed()
        freed = _free_all(side)
    finally:
        side.stop()
    return {**found, "behind_seconds": behind, "failed": failed, "all_freed_seconds": freed}


def _ask(side: Thalweg, work: Workload, scenario: Scenario, handles: dict[int, Any], began: float) -> list[_Call]:
    calls = []
    for request in scenario.requests:
        time.sleep(max(0.0, began + request.moment - time.time()))
        called = time.time()
        if request.op == CREATE:
            handles[request.query] = side.create(work.queries[request.query])
        else:
            handles[request.query].drop()
        calls.append(
            _Call(request, handles[request.query].id, called, time.time() - called, called - began - request.moment)
        )
    return calls


def _answered(call: _Call, batches: Sequence[Batch], first_results: dict[str, float], work: Workload) -> Answered:
    """A batch runs with what was asked for before it began, and its manifest says so."""
    wanted = call.request.op == CREATE
    batch = next((b for b in batches if b.ended > call.called and (call.id in b.queries) == wanted), None)
    first = first_results.get(work.queries[call.request.query].name) if wanted else None
    return Answered(
        call.request,
        call.late,
        call.acked,
        None if batch is None else batch.began - call.called,
        None if batch is None else batch.ended - call.called,
        None if first is None else first - call.called,
    )


def _seen(side: Thalweg | Spark, schedule: Schedule, feeder: Feeder) -> dict[str, Any]:
    found = latencies(side.arrivals, schedule, feeder.began)
    seen = summary(found)
    return {
        **({} if seen is None else seen.to_json()),
        "seconds": schedule.seconds,
        "feeder_late_seconds": feeder.late_seconds,
        "output_rows": side.rows_out.total(),
        "rows_by_query": dict(side.rows_out),
        "over_time": over_time(found, schedule.seconds, max(0.5, schedule.seconds / 60)),
    }


def _batches(batches: Sequence[Batch], schedule: Schedule, began: float) -> dict[str, Any]:
    """How long batches took, and with how many queries how fast they were and what they held."""
    full = [b for b in batches if b.rows]
    end = max([began + schedule.seconds, *(b.ended for b in full)])
    return {
        "busy_share": sum(b.seconds for b in batches) / (end - began),
        "batches": len(full),
        "batch_seconds": median(b.seconds for b in full),
        "slowest_batch_seconds": max(b.seconds for b in full),
        "by_queries": _by_queries(full),
    }


def _afterwards(
    side: Thalweg, schedule: Schedule, began: float, batches: Sequence[Batch], since: float
) -> dict[str, Any]:
    """Once all that was asked for is there: comparable with the same queries up front."""
    start = max(0.0, since - began)
    seen = summary(latencies(side.arrivals, schedule, began).between(start, float("inf")))
    full = [b for b in batches if b.rows and b.began >= since]
    found: dict[str, Any] = {} if seen is None else {"after_p50": seen.p50, "after_p99": seen.p99}
    if full:
        found["after_busy_rows_per_second"] = sum(b.rows for b in full) / sum(b.seconds for b in full)
    return found


def _by_queries(batches: Sequence[Batch]) -> list[tuple[int, float, float]]:
    """(queries, rows a second while a batch runs, bytes held), medians."""
    found = []
    for count in sorted({len(b.queries) for b in batches}):
        some = [b for b in batches if len(b.queries) == count]
        rate = median(b.rows / b.seconds for b in some)
        found.append((count, rate, median(b.state_bytes for b in some)))
    return found


def _free_all(side: Thalweg) -> float:
    """From the drop of all queries that are left until the manifest names no state at all."""
    began = time.time()
    for handle in list(side.session.queries.values()):
        handle.drop()
    side.wait_for(lambda manifest: not (manifest.queries or manifest.buckets or manifest.stores))
    return time.time() - began


# -- plain Spark -------------------------------------------------------------------------------------------


def _run_spark(work: Workload, scenario: Scenario, place: Place, rate: float, pace: Pace) -> dict[str, Any]:
    """Every query reads a directory of its own, into which files go from its start on. Those that are there from the
    beginning work through what fills the windows first: Spark is warm when the pace begins."""
    side = Spark(work, place.root, place.state)
    roots: list[Path] = []
    try:
        for i in range(scenario.before):
            _start(side, work, i, place, roots)
            fill(place.supply, roots[i], side.settle, pace.files_per_batch)
        schedule = place.supply.schedule(rate)
        feeder = Feeder(place.supply, schedule, lambda: tuple(roots))
        feeder.start()
        calls = []
        for request in scenario.requests:
            time.sleep(max(0.0, feeder.began + request.moment - time.time()))
            called = time.time()
            _start(side, work, request.query, place, roots)
            late = called - feeder.began - request.moment
            calls.append(_Call(request, work.queries[request.query].name, called, time.time() - called, late))
        feeder.join()
        side.settle()
        behind = time.time() - feeder.began - schedule.seconds
        found = _seen(side, schedule, feeder) | told([_first_batch(side, call) for call in calls])
    finally:
        side.stop()
    return {**found, "behind_seconds": behind}


def _start(side: Spark, work: Workload, number: int, place: Place, roots: list[Path]) -> None:
    root = place.new_root(f"in-{number}")
    roots.append(root)
    side.create(work.queries[number], root)


def _first_batch(side: Spark, call: _Call) -> Answered:
    spans = side.batches(call.id)
    began, ended = (spans[0][0] - call.called, spans[0][1] - call.called) if spans else (None, None)
    firsts = side.first_results
    first = firsts[call.id] - call.called if call.id in firsts else None
    return Answered(call.request, call.late, call.acked, began, ended, first)
