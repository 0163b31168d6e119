"""Results of a system that keeps windows open longer than Thalweg."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.equality import DifferenceError, compare_results
from benchmarks.workloads import Query, Stream, Workload, make_files

TIME = pa.timestamp("us", tz="UTC")


def test_windows_that_a_peer_may_still_have_open_are_left_out_on_both_sides(tmp_path: Path) -> None:
    """Windows of 10 s from 0, 10 and 20 s have closed at 31 s; the peer keeps them 15 s longer, so it has one."""
    table = pa.table({"ts": pa.array([31_000_000], TIME)})
    stream = Stream("s", table.schema, "ts", 0.0, lambda _: table)
    closed = "start + INTERVAL 10 SECONDS <= $watermark"
    work = Workload("w", (stream,), (Query("q", "", closed=closed, held_seconds=15.0),), 1, 1)
    make_files(work, 1, tmp_path / "files")
    for name, starts in (("ours", [0, 10, 20]), ("theirs", [0])):
        (tmp_path / name / "q0").mkdir(parents=True)
        rows = pa.table({"start": pa.array([s * 1_000_000 for s in starts], TIME), "n": starts})
        pq.write_table(rows, tmp_path / name / "q0" / "part.parquet")
    directories = (tmp_path / "files", 1, tmp_path / "ours", tmp_path / "theirs")
    assert compare_results(work, *directories, held=True) == 1
    with pytest.raises(DifferenceError):
        compare_results(work, *directories)
