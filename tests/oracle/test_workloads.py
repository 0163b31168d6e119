"""The bench's workloads: every query is taken, and its results equal a batch of DuckDB over the same rows.

Each at a small part of its rows, in two batches or more; of windows those that have closed.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from benchmarks.workloads import Workload, make_files, named, tpch
from benchmarks.workloads.model import Stream

import thalweg

pytestmark = pytest.mark.slow

SMALL = {
    "clash/adaptive@2": (4, 2),
    "clash/8": (4, 10),
    "ajoin-8@25": (2, 5),
    "ajoin-4@75x3": (2, 2),
    "game/8": (6, 10),
    "gcm": (4, 20),
    "debs": (3, 50),
    "words": (3, 200),
    "tpch/all@0.01": (8, 1),
}
"""Workload -> files, and of how many rows one is taken."""


def thinned(work: Workload, every: int) -> Workload:
    def thin(stream: Stream) -> Stream:
        return replace(stream, make=lambda number: _each(stream.make(number), every))

    return replace(work, streams=tuple(thin(stream) for stream in work.streams))


def _each(table: pa.Table, every: int) -> pa.Table:
    return table.take(pa.array(range(0, table.num_rows, every)))


@pytest.mark.parametrize("name", SMALL)
def test_results_equal_a_batch(name: str, spark: Any, tmp_path: Path) -> None:
    files, every = SMALL[name]
    if name.startswith("tpch") and (reason := tpch.missing()):
        pytest.skip(reason)
    work = thinned(named(name), every)
    directory = make_files(work, files, tmp_path / "files")
    ours = run(work, directory, files, tmp_path / "state", spark)
    found = compared(work, directory, ours)
    assert {query: different for query, (_, different) in found.items() if different} == {}
    empty = [query for query, (rows, _) in found.items() if not rows]
    # What is drawn at random may select next to nothing.
    assert len(empty) <= (len(found) // 2 if name.startswith("ajoin") else 0), f"no results to compare: {empty}"


def run(work: Workload, directory: Path, files: int, state: Path, spark: Any) -> dict[str, pa.Table]:
    session = thalweg.connect(state, spark=spark)
    try:
        for stream in work.streams:
            source = thalweg.files(f"{directory}/{stream.name}/*.parquet", max_files_per_batch=-(-files // 2))
            session.create_stream(stream.name, source, time=stream.time, watermark=f"{stream.delay_seconds} seconds")
        for static in work.statics:
            session.create_table(static.name, str(directory / f"{static.name}.parquet"))
        queries = {query.name: session.create_query(query.name, query.text) for query in work.queries}
        session.run_available()
        failed = {name: query.status.error for name, query in queries.items() if query.status.error}
        assert not failed
        return {name: query.results() for name, query in queries.items()}
    finally:
        session.stop()


def compared(work: Workload, directory: Path, ours: dict[str, pa.Table]) -> dict[str, tuple[int, int]]:
    """Query -> rows compared, rows that only one side has."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for stream in work.streams:
            connection.execute(f"CREATE VIEW {stream.name} AS FROM '{directory}/{stream.name}/*.parquet'")
        for static in work.statics:
            connection.execute(f"CREATE VIEW {static.name} AS FROM '{directory}/{static.name}.parquet'")
        watermark = min(closed_until(connection, stream) for stream in work.streams)
        found = {}
        for query in work.queries:
            condition = f" WHERE {query.closed}".replace("$watermark", watermark) if query.closed else ""
            connection.register("ours", ours[query.name])
            connection.execute(f"CREATE OR REPLACE TEMP TABLE theirs AS SELECT * FROM ({query.batch}){condition}")
            found[query.name] = (count(connection, "ours"), differing(connection))
        return found


def closed_until(connection: Any, stream: Stream) -> str:
    """The last watermark of a stream, as SQL."""
    text = (
        f"SELECT epoch_ms(max({stream.time})) * 1000 - {round(stream.delay_seconds * 1_000_000)} FROM {stream.name}"
    )
    return f"make_timestamptz({connection.execute(text).fetchall()[0][0]})"


def differing(connection: Any) -> int:
    one, other = "(FROM ours EXCEPT ALL FROM theirs)", "(FROM theirs EXCEPT ALL FROM ours)"
    return count(connection, one) + count(connection, other)


def count(connection: Any, rows: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM {rows}").fetchall()[0][0])
