"""One side of the skew benchmark: a windowed median by one key through the engine, under one partitioner.

    python -m benchmarks.skew_sides PARTITIONER --work KEYS/VALUES [--rows N] [--batches N]

KEYS: zipf (exponent 1.5, 100,000 keys), moving (the same, with other hot keys from half way on) or uniform. VALUES:
unique (doubles that hardly come again) or cents (prices, gamma distributed). Prints what it measured of every batch
as one line of JSON.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import thalweg
from benchmarks.measure import DATA
from benchmarks.result import CORES

SLOTS = 4
KEYS = 100_000
SECONDS = 10
"""Of event time in a batch: every second one closes a window."""
MEDIAN = (
    "SELECT key, percentile(price, 0.5) AS median, count(*) AS n, window.end AS until FROM s "
    "GROUP BY key, window(ts, '20 seconds')"
)


def make_files(work: str, rows: int, batches: int) -> Path:
    """A Parquet file for each batch, made once."""
    folder = DATA / f"skew-{work.replace('/', '-')}-{rows}-{batches}"
    if folder.exists():
        return folder
    making = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    kind, values = work.split("/")
    for batch in range(batches):
        rng = np.random.default_rng(batch)
        key = np.minimum(rng.zipf(1.5, rows), KEYS) if kind != "uniform" else rng.integers(1, KEYS + 1, rows)
        spread = 104_729 if kind == "moving" and batch * 2 >= batches else 7919
        price = rng.random(rows) * 100 if values == "unique" else np.round(rng.gamma(2, 50, rows), 2)
        times = (batch * SECONDS * 1_000_000) + np.arange(rows) * (SECONDS * 1_000_000) // rows
        columns = {"key": key * spread % 1_000_003, "price": price, "ts": pa.array(times, pa.timestamp("us", "UTC"))}
        pq.write_table(pa.table(columns), making / f"{batch:05d}.parquet")
    making.rename(folder)
    return folder


def run(partitioner: str, work: str, rows: int, batches: int) -> dict[str, Any]:
    folder = make_files(work, rows, batches)
    with tempfile.TemporaryDirectory(dir=DATA) as state:
        session = thalweg.connect(Path(state) / "state", master=f"local[{CORES}]", slots=SLOTS, repartition=None)
        source = thalweg.files(f"{folder}/*.parquet", max_files_per_batch=1)
        session.create_stream("s", source, time="ts", watermark="1 second")
        query = session.create_query("q", MEDIAN, options={"partitioner": partitioner})
        runner = session._parts.runner
        loads: list[Sequence[int]] = []
        commit = runner.adaptations.commit

        def watched(learned: Any) -> None:
            commit(learned)
            loads.append(
                _prices(
                    runner.adaptations.partitioning_report(runner.manifest.measured).aggregations,
                    runner.plan,
                ).loads
            )

        runner.adaptations.commit = watched  # type: ignore[method-assign]
        session.run_available()
        reports = [r for r in runner.reports if r.rows]
        chosen = _prices(
            runner.adaptations.partitioning_report(runner.manifest.measured).aggregations,
            runner.plan,
        ).partitioner
        results = query.results().sort_by([("until", "ascending"), ("key", "ascending")])
        session.stop()
    return {
        "seconds": [r.seconds for r in reports],
        "bytes": [r.sent_bytes for r in reports],
        "chosen": chosen,
        "loads": loads[len(reports) - 1],
        "loads_over_time": loads[: len(reports)],
        "rows": rows,
        "result_rows": results.num_rows,
        "results": hashlib.blake2b(repr(results.to_pydict()).encode()).hexdigest(),
    }


def _prices(aggregations: Mapping[str, Any], plan: Any) -> Any:
    """How the rows of the median were dealt out, not those of the count."""
    (found,) = (report for id_, report in aggregations.items() if plan.groupings[id_].values)
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("partitioner")
    parser.add_argument("--work", required=True)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batches", type=int, default=8)
    options = parser.parse_args(arguments)
    print("RESULT", json.dumps(run(options.partitioner, options.work, options.rows, options.batches)))


if __name__ == "__main__":
    main()
