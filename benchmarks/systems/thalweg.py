"""Thalweg: files, a streaming DataFrame, with sharing off, or calling Python with results.

`thalweg-apart`: every query reads streams of its own over the same files, in one session, so that nothing is shared
but the loop of batches. `thalweg-unshared`: rows are read once, and that is all that aggregations share (`unshared`).
"""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.result import CORES
from benchmarks.systems import Given, eventlog, linked
from benchmarks.systems.spark import columns_of, streaming_frame
from benchmarks.systems.unshared import keep_apart
from benchmarks.systems.usage import CpuWatch, process_started
from benchmarks.workloads.model import Query, Stream

MEMORY = "2g"
COMPILER = "-XX:+UseParallelGC"
"""Java options that bring the JVM's optimising compiler back, as the guide has it where Spark reads the rows."""
CONNECT = {"slots", "repartition", "join_epoch", "small_batches"}
"""Settings that `thalweg.connect` takes; `none` is None."""


def missing() -> str | None:
    return None


def run(system: str, given: Given) -> dict[str, Any]:
    if system == "thalweg-unshared":
        keep_apart()
    if given.settings.get("empty"):
        return _run_empty(given, int(given.settings["empty"]))
    with tempfile.TemporaryDirectory() as name, linked(given) as files, CpuWatch() as cpu:
        directory = Path(name)
        shuffles = directory / "events" if given.settings.get("shuffle") else None
        session = _connect(given, directory / "state", shuffles, compiler=system == "thalweg-frame")
        if system == "thalweg-apart":
            queries = _create_streams_apart(session, given, files)
        else:
            _create_streams(session, given, files, system == "thalweg-frame")
            queries = list(given.work.queries)
        for static in given.work.statics:
            session.create_table(static.name, str(files / f"{static.name}.parquet"))
        began = time.perf_counter()
        _create_queries(session, queries, given, called=system == "thalweg-called")
        created = time.perf_counter() - began
        state = StateWatch(session)
        if system == "thalweg-frame":
            _run_until_done(session, given.rows)
        else:
            session.run_available()
        state.stop()
        found = _figures(session, cpu, given, lands=system == "thalweg-frame")
        if given.settings.get("drop"):
            found["drop_seconds"] = _drop(session, int(given.settings["drop"]))
        found |= {"create_seconds": created, **state.measured(), "dealt": _dealt(session)}
        session.stop()
        if shuffles is not None:
            # Tasks also hand over in files. Records are cells, each of many rows: only bytes can be compared.
            moved = eventlog.written(shuffles)["bytes"] + state.filed_bytes
            found |= {
                "shuffled_bytes_per_row": moved / given.rows,
                "filed_bytes_per_row": state.filed_bytes / given.rows,
            }
    return found


def _connect(given: Given, state: Path, shuffles: Path | None, compiler: bool = False) -> Any:
    import thalweg

    settings: dict[str, Any] = {"spark.driver.memory": given.settings.get("memory", MEMORY)}
    if compiler:
        settings["spark.driver.extraJavaOptions"] = COMPILER
    if shuffles is not None:
        settings |= eventlog.settings(shuffles)
    for name in CONNECT & given.settings.keys():
        settings[name] = None if given.settings[name] == "none" else _number(given.settings[name])
    return thalweg.connect(state, master=f"local[{CORES}]", **settings)


def _number(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def _create_streams(session: Any, given: Given, files: Path, frame: bool) -> None:
    for stream in given.work.streams:
        if frame:
            source = streaming_frame(session._parts.engine.spark, given, stream, files)
        else:
            source = _files(given, stream, files)
        session.create_stream(stream.name, source, time=stream.time, watermark=_delay(stream))


def _files(given: Given, stream: Stream, files: Path) -> Any:
    import thalweg

    return thalweg.files(f"{files}/{stream.name}/*.parquet", max_files_per_batch=given.files_per_batch)


def _delay(stream: Stream) -> str:
    return f"{round(stream.delay_seconds * 1000)} milliseconds"


def _create_streams_apart(session: Any, given: Given, files: Path) -> list[Query]:
    """Streams for every query; the queries that read them."""
    for number in range(len(given.work.queries)):
        for stream in given.work.streams:
            source = _files(given, stream, files)
            session.create_stream(f"{stream.name}_{number}", source, time=stream.time, watermark=_delay(stream))
    names = [stream.name for stream in given.work.streams]
    return [replace(q, text=apart(q.text, names, number)) for number, q in enumerate(given.work.queries)]


def apart(text: str, streams: Sequence[str], number: int) -> str:
    """A query over streams that carry its number."""
    return re.sub(rf"\b({'|'.join(streams)})\b", rf"\1_{number}", text)


def _create_queries(session: Any, queries: Sequence[Query], given: Given, called: bool = False) -> None:
    import thalweg

    # `partitioner`: how the rows of aggregations are dealt out to slots, instead of what the engine would choose.
    options = {name: given.settings[name] for name in ("partitioner",) if name in given.settings}
    for i, query in enumerate(queries):
        dropped = _ignore if called else thalweg.to_noop()
        sink = thalweg.to_files(given.out / f"q{i}") if given.out else dropped
        session.create_query(f"q{i}", query.text, sink, options=options or None)


def _ignore(table: Any, batch: int) -> None:
    """Results arrive, and that is all."""


def _run_until_done(session: Any, rows: int) -> None:
    """What lands while the pipeline runs is read as it comes; a last batch closes what the watermark closes."""
    session.start("0 seconds")
    runner = session._parts.runner
    while session.progress()["rows"] < rows or runner.has_more_to_close() or not has_ended(runner):
        time.sleep(0.05)


def has_ended(runner: Any) -> bool:
    """Whether the newest batch has: its manifest is there before its sinks are given anything."""
    return bool(runner.reports) and runner.reports[-1].batch == runner.manifest.batch


def _run_empty(given: Given, batches: int) -> dict[str, float]:
    """The time of a batch that brings nothing, with all queries running."""
    import thalweg

    with tempfile.TemporaryDirectory() as name:
        session = _connect(given, Path(name) / "state", None)
        for stream in given.work.streams:
            source = thalweg.memory(columns_of(stream.schema))
            session.create_stream(stream.name, source, time=stream.time, watermark=_delay(stream))
        _create_queries(session, given.work.queries, given)
        session.start("0 seconds")
        runner, nothing = session._parts.runner, stream.schema.empty_table()
        for n in range(batches):
            source.append(nothing)  # of the last stream: a batch that would change nothing is left out otherwise
            with runner.finished:
                runner.finished.wait_for(lambda n=n: len(runner.reports) > n, timeout=60)
        seconds = sorted(r.seconds for r in runner.reports[5:])
        session.stop()
    return {"empty_seconds": seconds[len(seconds) // 2]}


def _figures(session: Any, cpu: CpuWatch, given: Given, lands: bool) -> dict[str, Any]:
    """Rows are those of the files, each once, also where every query reads streams of its own. Where they land while
    batches run, those that land during the first one count, and so does its time."""
    states = session.progress()["queries"].items()
    failed = {n: s["error"] for n, s in states if s["state"] not in ("running", "idle")}
    if failed:
        raise RuntimeError(f"queries failed: {failed}")
    reports = session._parts.runner.reports
    full = [r for r in reports if r.rows]
    first, last = full[0], full[-1]
    found: dict[str, Any] = {
        "batches": len(full),
        "start_seconds": first.ended - first.seconds - process_started(),
        "first_batch_seconds": first.seconds,
        "output_rows": sum(r.emitted for r in reports),
        "phases": mean_phases(full[1:] or full),
    }
    if len(full) > 1:
        rows = given.rows * (1 - first.rows / sum(r.rows for r in full))
        since = first.ended - first.seconds if lands else first.ended
        seconds = last.ended - since
        found |= {
            "rows_per_second": rows / seconds,
            "seconds": seconds,
            "rows": rows,
            "cpu_seconds_per_million": cpu.seconds_between(since, last.ended) / rows * 1e6,
            "cpu_seconds_a_batch": cpu.seconds_between(since, last.ended) / (len(full) - 1),
            "batch_seconds": median(r.seconds for r in full[1:]),
        }
    return found


def _drop(session: Any, many: int) -> float:
    """Until the first queries are dropped, and a batch has run without them."""
    began = time.perf_counter()
    for number in range(many):
        session.drop_query(f"q{number}")
    session.run_available()
    return time.perf_counter() - began


def _dealt(session: Any) -> dict[str, dict[str, Any]]:
    """Of every grouping: who dealt its rows out in the last batch, to whom how many."""
    groupings = session.progress()["partitioning"]["aggregations"]
    names = ("partitioner", "loads", "imbalance", "aggregation")
    return {f"g{i}": {name: one[name] for name in names} for i, (_, one) in enumerate(sorted(groupings.items()))}


def mean_phases(reports: Sequence[Any]) -> dict[str, float]:
    """Phase -> seconds a batch; they add up to it."""
    names = dict.fromkeys(name for r in reports for name in r.time)
    return {name: sum(r.time.get(name, 0.0) for r in reports) / len(reports) for name in names}


class StateWatch:
    """After every batch, the state held, the rows that a stream has shown and how far ahead of the watermark in force
    (that of the batches before) the newest of them is; and the bytes that tasks have handed over in files."""

    def __init__(self, session: Any) -> None:
        self._runner = session._parts.runner
        self._seen = self._runner.manifest.batch
        self._samples: list[tuple[int, int, float]] = []
        self.filed_bytes = 0
        self._done = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._done = True
        self._thread.join()

    def measured(self) -> dict[str, Any]:
        held = max((s[0] for s in self._samples), default=0)
        return {"state_bytes": held, "state_mib": held / 2**20, "state_samples": self._samples}

    def _watch(self) -> None:
        while True:
            last = self._done
            with self._runner.finished:
                if not last:
                    self._runner.finished.wait(timeout=0.2)
                manifest = self._runner.manifest
            if manifest.batch > self._seen:
                self._seen = manifest.batch
                if manifest.streams:  # rows that land may come after the first batch
                    self._samples.append(_sample(manifest))
                self.filed_bytes += filed_bytes(manifest)
            if last:
                return


def filed_bytes(manifest: Any) -> int:
    """What the tasks of the newest batch wrote for others to read: rows and their indexes, partials not merged yet.
    What a task wrote only for itself is among it."""
    buckets = [b for b in (*manifest.buckets, *manifest.stores) if b.level == 0 and b.batch_from == manifest.batch]
    return sum(b.nbytes if hasattr(b, "nbytes") else b.section.length for b in buckets)


def _sample(manifest: Any) -> tuple[int, int, float]:
    # As it lies in files: the buckets of stores with their indexes, and of aggregates.
    held = sum(b.section.length for b in manifest.buckets) + sum(b.nbytes for b in manifest.stores)
    rows = max(progress.rows for progress in manifest.streams.values())
    newest = max(progress.max_time_us or 0 for progress in manifest.streams.values())
    watermark = min(manifest.closed[stream] for stream in manifest.streams)
    return held, rows, max(0, newest - watermark) / 1e6
