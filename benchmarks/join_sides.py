"""One side of a comparison of joins, run in a process of its own: prints one line of JSON with what it measured.

Rows are those of all streams together. Steady state: rows after the first batch, over the time from the end of
the first batch of every query to the end of the last batch that brought rows.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks import join_workload
from benchmarks.join_workload import DELAY_SECONDS, ROWS_PER_FILE, Workload
from benchmarks.sides import ROCKSDB, THALWEG_MEMORY, batch_ends, mean_phases, plain_spark, steady

DELAY = f"{DELAY_SECONDS} seconds"
SETTINGS = {
    "spark": {"spark.sql.streaming.join.stateFormatVersion": "2"},
    "spark-rocksdb": {
        "spark.sql.streaming.join.stateFormatVersion": "4",
        "spark.sql.streaming.stateStore.providerClass": ROCKSDB,
    },
}


def run_thalweg(work: Workload, files: Path, files_per_batch: int, out: Path | None) -> dict[str, Any]:
    import thalweg

    with tempfile.TemporaryDirectory() as state:
        settings: dict[str, Any] = {"spark.driver.memory": THALWEG_MEMORY}
        session = thalweg.connect(f"{state}/state", master="local[2]", **settings)
        for stream in work.data.streams:
            source = thalweg.files(f"{files}/{stream}/*.parquet", max_files_per_batch=files_per_batch)
            session.create_stream(stream, source, time=f"{stream}_ts", watermark=DELAY)
        began = time.perf_counter()
        for i, query in enumerate(work.queries):
            # Which earlier stream WITHIN is about is a question once there are several; BETWEEN says it.
            select = query.select("within" if len(query.steps) == 1 else "between")
            session.create_query(f"q{i}", select, thalweg.to_files(out / f"q{i}") if out else _ignore)
        created = time.perf_counter() - began
        watch = StateWatch(session, work)
        session.run_available()
        watch.stop()
        reports = session._runner.reports
        failed = {n: s["error"] for n, s in session.progress()["queries"].items() if s["state"] != "running"}
        assert not failed, failed
        result: dict[str, Any] = steady([(r.ended, r.rows) for r in reports])
        result |= watch.measured()
        result["create_seconds"] = created
        result["output_per_row"] = sum(r.emitted for r in reports) / sum(r.rows for r in reports)
        result |= {"phases": mean_phases(reports), "time": mean_phases(reports, "time")}
        session.stop()
    return result


def _ignore(table: Any, batch: int) -> None:
    """Results arrive, and that is all."""


def state_bytes(manifest: Any) -> int:
    """What a manifest names, as it lies in files: the buckets of stores with their indexes, and of aggregates."""
    return sum(b.section.length for b in manifest.buckets) + sum(b.nbytes for b in manifest.stores)


class StateWatch:
    """After every batch, the state held against the Arrow size of the rows inside the windows, each row once: those
    for which a row that is not late may still ask. The watermark in force is that of the batches before."""

    def __init__(self, session: Any, work: Workload) -> None:
        self._session = session
        self._work = work
        self._samples: list[tuple[int, float]] = []
        self._done = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._done = True
        self._thread.join()

    def measured(self) -> dict[str, float]:
        """Where the state was largest against the windows; the first batch only fills them."""
        held, inside = max(self._samples[1:] or self._samples, key=lambda sample: sample[0] / sample[1])
        return {"state_bytes": held, "window_bytes": inside, "state_ratio": held / inside}

    def _watch(self) -> None:
        runner = self._session._runner
        seen = runner.manifest.batch
        while not self._done:
            with runner.finished:
                runner.finished.wait(timeout=0.2)
                manifest = runner.manifest
            if manifest.batch > seen:
                seen = manifest.batch
                rows = max(progress.rows for progress in manifest.streams.values())
                newest = max(progress.max_time_us or 0 for progress in manifest.streams.values())
                watermark = min(manifest.extra["closed"][stream] for stream in self._work.data.streams)
                inside = self._work.window_bytes(rows, max(0, newest - watermark) / 1e6)
                self._samples.append((state_bytes(manifest), inside))


def run_spark(
    work: Workload, files: Path, files_per_batch: int, out: Path | None, settings: dict[str, str]
) -> dict[str, Any]:
    """Every query an independent one of Structured Streaming, started together in one Spark."""
    spark = plain_spark(settings)
    for stream in work.data.streams:
        reader = spark.readStream.schema(work.data.schema(stream))
        frame = reader.option("maxFilesPerTrigger", files_per_batch).parquet(f"{files}/{stream}")
        frame.withWatermark(f"{stream}_ts", DELAY).createOrReplaceTempView(stream)
    with tempfile.TemporaryDirectory() as state:
        queries = []
        for i, query in enumerate(work.queries):
            writer = spark.sql(query.cascade(work.data)).writeStream.outputMode("append").trigger(availableNow=True)
            writer = writer.option("checkpointLocation", f"{state}/{i}")
            writer = writer.format("parquet").option("path", str(out / f"q{i}")) if out else writer.format("noop")
            queries.append(writer.start())
        for query in queries:
            query.awaitTermination()
        count = len(list((files / work.data.streams[0]).glob("*.parquet")))
        result = _spark_steady(queries, count, files_per_batch, ROWS_PER_FILE * len(work.data.streams))
    spark.stop()
    return result


def _spark_steady(queries: list[Any], files: int, files_per_batch: int, rows_per_file: int) -> dict[str, Any]:
    """From when every query has ended its first batch; what some are ahead by then counts for Spark.

    Rows are counted by files (of all streams): of one that a predicate rules out Spark reports none.
    """
    batches = math.ceil(files / files_per_batch)
    # A sink that does not count says -1.
    output = sum(max(0, p["sink"]["numOutputRows"]) for query in queries for p in query.recentProgress)
    result: dict[str, Any] = {"output_per_row": output / (files * rows_per_file)}
    if batches > 1:
        ends = [[end for end, _ in batch_ends(query)[:batches]] for query in queries]
        seconds = max(e[-1] for e in ends) - max(e[0] for e in ends)
        rows = (files - files_per_batch) * rows_per_file
        result |= {"rows_per_second": rows / seconds, "seconds": seconds, "rows": rows, "batches": batches}
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=["thalweg", *SETTINGS])
    parser.add_argument("--work", required=True)
    parser.add_argument("--files", type=Path, required=True)
    parser.add_argument("--rows-per-batch", type=int, required=True, help="of each stream")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    work = join_workload.named(options.work)
    files_per_batch = math.ceil(options.rows_per_batch / ROWS_PER_FILE)
    if options.side == "thalweg":
        result = run_thalweg(work, options.files, files_per_batch, options.out)
    else:
        result = run_spark(work, options.files, files_per_batch, options.out, SETTINGS[options.side])
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
