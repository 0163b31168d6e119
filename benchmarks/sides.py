"""One side of a comparison, run in a process of its own: prints one line of JSON with what it measured.

Steady state: rows after the first batch, over the time from the end of the first batch of every query to the
end of the last batch.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks import workload
from benchmarks.workload import ROWS_PER_FILE, Workload

SPARK_MEMORY = "12g"
"""Plain Spark keeps its state on the heap: with 3 GiB eight queries do not get through."""
THALWEG_MEMORY = "2g"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def named(name: str) -> Workload:
    """`8`: the first eight queries; `20x5`: 20 key sets, 5 variants (`wide20x5`: of many groups);
    `window:...`: one query, that window."""
    if name.isdigit():
        return workload.first(int(name))
    if name.startswith("20x"):
        return workload.many(workload.NARROW_KEY_SETS, int(name[3:]))
    if name.startswith("wide20x"):
        return workload.many(workload.WIDE_KEY_SETS, int(name[7:]))
    return workload.windowed(name.removeprefix("window:"))


def steady(ends: list[tuple[float, int]]) -> dict[str, float]:
    """Rate after the first batch from (end of batch, rows of batch)."""
    ends = [e for e in ends if e[1]]
    if len(ends) < 2:
        return {}
    seconds = ends[-1][0] - ends[0][0]
    rows = sum(n for _, n in ends[1:])
    return {"rows_per_second": rows / seconds, "seconds": seconds, "rows": rows, "batches": len(ends)}


def run_thalweg(work: Workload, files: Path, out: Path | None, source: str) -> dict[str, Any]:
    import thalweg

    with tempfile.TemporaryDirectory() as state:
        session = thalweg.connect(f"{state}/state", master="local[2]", **{"spark.driver.memory": THALWEG_MEMORY})
        if source == "files":
            stream = thalweg.files(f"{files}/*.parquet", max_files_per_batch=work.files_per_batch)
            session.create_stream("events", stream, time="ts", watermark="10 seconds")
        else:
            frame = _frame(session._spark, files, work)
            session.create_stream("events", frame, time="ts", watermark="10 seconds")
        began = time.perf_counter()
        for i, select in enumerate(work.selects):
            sink = thalweg.to_files(out / f"q{i}") if out else (lambda table, batch: None)
            session.create_query(f"q{i}", select, sink)
        created = time.perf_counter() - began
        if source == "files":
            session.run_available()
        else:
            _run_until_done(session, len(list(files.glob("*.parquet"))) * ROWS_PER_FILE)
        reports = session._runner.reports
        failed = {n: s["error"] for n, s in session.progress()["queries"].items() if s["state"] != "running"}
        assert not failed, failed
        result: dict[str, Any] = steady([(r.ended, r.rows) for r in reports])
        result["create_seconds"] = created
        result |= {"phases": mean_phases(reports), "time": mean_phases(reports, "time")}
        session.stop()
    return result


def _frame(spark: Any, files: Path, work: Workload) -> Any:
    schema = "id bigint, ts timestamp, a int, b int, c int, e int, d int, v double"
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", work.files_per_batch)
    return reader.parquet(str(files))


def _run_until_done(session: Any, rows: int) -> None:
    session.start("0 seconds")
    while session.progress()["rows"] < rows:
        time.sleep(0.05)


def mean_phases(reports: list[Any], of: str = "phases") -> dict[str, float]:
    """Phase -> seconds a batch, after the first; of "time" they add up to the batch."""
    full = [getattr(r, of) for r in ([r for r in reports if r.rows][1:] or reports)]
    names = {name: None for phases in full for name in phases}
    return {name: sum(phases.get(name, 0.0) for phases in full) / len(full) for name in names}


def plain_spark(settings: dict[str, str]) -> Any:
    """A local Spark for queries of Structured Streaming, beside which Thalweg is measured."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", SPARK_MEMORY)
    common = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
    }
    for key, value in (common | settings).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def batch_ends(query: Any) -> list[tuple[float, int]]:
    """(end of batch, rows of batch) of a query of Structured Streaming."""
    ends = []
    for progress in query.recentProgress:
        started = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
        ends.append((started + progress["batchDuration"] / 1000, progress["numInputRows"]))
    return ends


def run_spark(work: Workload, files: Path, out: Path | None, store: str) -> dict[str, Any]:
    """N independent Structured Streaming queries, started together in one Spark."""
    settings = {}
    if store == "rocksdb":
        settings["spark.sql.streaming.stateStore.providerClass"] = ROCKSDB
    spark = plain_spark(settings)
    with tempfile.TemporaryDirectory() as state:
        _frame(spark, files, work).withWatermark("ts", "10 seconds").createOrReplaceTempView("events")
        queries = []
        for i, select in enumerate(work.selects):
            writer = spark.sql(select).writeStream.outputMode("append").trigger(availableNow=True)
            writer = writer.option("checkpointLocation", f"{state}/{i}")
            writer = writer.format("parquet").option("path", str(out / f"q{i}")) if out else writer.format("noop")
            queries.append(writer.start())
        for query in queries:
            query.awaitTermination()
        result = _spark_steady(queries)
    spark.stop()
    return result


def _spark_steady(queries: list[Any]) -> dict[str, Any]:
    """From when every query has ended its first batch; what some are ahead by then counts for Spark."""
    firsts, lasts, rows, first_rows = [], [], 0, 0
    for query in queries:
        ends = [end for end in batch_ends(query) if end[1]]
        firsts.append(ends[0][0])
        lasts.append(ends[-1][0])
        rows, first_rows = sum(n for _, n in ends), ends[0][1]
    seconds = max(lasts) - max(firsts)
    if rows == first_rows:
        return {}
    return {"rows_per_second": (rows - first_rows) / seconds, "seconds": seconds, "rows": rows - first_rows}


def run_empty() -> dict[str, Any]:
    """The time of a batch that brings nothing, with 8 queries running."""
    import thalweg

    with tempfile.TemporaryDirectory() as state:
        session = thalweg.connect(f"{state}/state", master="local[2]")
        stream = thalweg.memory("ts timestamp, a int, b int, c int, e int, d int, v double")
        session.create_stream("events", stream, time="ts", watermark="10 seconds")
        for i, select in enumerate(workload.first(8).selects):
            session.create_query(f"q{i}", select)
        session.start("0 seconds")
        for n in range(25):
            session._pipeline.tick()
            with session._runner.finished:
                session._runner.finished.wait_for(lambda n=n: len(session._runner.reports) > n, timeout=60)
        seconds = sorted(r.seconds for r in session._runner.reports[5:])
        session.stop()
    return {"median_seconds": seconds[len(seconds) // 2], "worst_seconds": seconds[-1]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("side", choices=["thalweg", "thalweg-frame", "spark", "spark-rocksdb", "empty"])
    parser.add_argument("--work", default="8")
    parser.add_argument("--files", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.side == "empty":
        result = run_empty()
    elif options.side.startswith("thalweg"):
        source = "frame" if options.side.endswith("frame") else "files"
        result = run_thalweg(named(options.work), options.files, options.out, source)
    else:
        store = "rocksdb" if options.side.endswith("rocksdb") else "default"
        result = run_spark(named(options.work), options.files, options.out, store)
    print("RESULT " + json.dumps(result), flush=True)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
