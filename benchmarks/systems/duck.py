"""DuckDB over all rows as one batch, one query after the other on two threads: what the hardware allows.

It reads the same Parquet files, once for every query. All of it counts, there is no first batch to leave out.
"""

from __future__ import annotations

import os
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.result import CORES
from benchmarks.systems import Given
from benchmarks.systems.usage import process_started


def missing() -> str | None:
    return None if find_spec("duckdb") else "not installed (pip install duckdb)"


def run(system: str, given: Given) -> dict[str, Any]:
    import duckdb

    connection = duckdb.connect()
    connection.execute(f"SET threads = {CORES}")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET preserve_insertion_order = false")
    for stream in given.work.streams:
        paths = ", ".join(f"'{path}'" for path in given.paths(stream.name))
        connection.execute(f"CREATE VIEW {stream.name} AS FROM read_parquet([{paths}])")
    for static in given.work.statics:
        path = given.directory / f"{static.name}.parquet"
        connection.execute(f"CREATE VIEW {static.name} AS FROM read_parquet('{path}')")
    began, cpu = time.time(), sum(os.times()[:2])
    output = 0
    for i, query in enumerate(given.work.queries):
        if not query.batch:
            raise RuntimeError(f"{query.name} has no text for a batch")
        output += _run_query(connection, query.batch, given.out / f"q{i}" if given.out else None)
    seconds, used = time.time() - began, sum(os.times()[:2]) - cpu
    return {
        "rows_per_second": given.rows / seconds,
        "seconds": seconds,
        "rows": given.rows,
        "batches": 1,
        "start_seconds": began - process_started(),
        "cpu_seconds_per_million": used / given.rows * 1e6,
        "output_rows": output,
    }


def _run_query(connection: Any, text: str, out: Path | None) -> int:
    """Rows of the result, which is made whole: as Arrow where it is not written."""
    if out is None:
        return int(connection.sql(text).to_arrow_table().num_rows)
    out.mkdir(parents=True, exist_ok=True)
    connection.execute(f"COPY ({text}) TO '{out}/part-0.parquet' (FORMAT parquet)")
    return int(connection.execute(f"SELECT count(*) FROM '{out}/part-0.parquet'").fetchall()[0][0])
