"""Property: a backlog that is worked off in several batches has the results of a run that takes all of it in one."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import thalweg
from thalweg.adapt import batch_size
from thalweg.testing import LocalSession

SUMS = "SELECT k, sum(v) AS s, window.start AS w FROM events GROUP BY k, window(ts, '10 seconds')"
US = pa.timestamp("us", tz="UTC")
SECOND = 1_000_000
FILES, ROWS = 12, 40
"""Files, and rows of each; half a minute of event time goes by in a file."""


def write_files(place: Path, rng: random.Random) -> None:
    """Rows are up to twenty seconds late, as the watermark allows."""
    place.mkdir()
    for number in range(FILES):
        times = [(30 * number + rng.randrange(-20, 30)) * SECOND for _ in range(ROWS)]
        columns = {"ts": pa.array(times, pa.int64()).cast(US), "k": [rng.randrange(3) for _ in times], "v": times}
        pq.write_table(pa.table(columns), place / f"{number:02}.parquet")


def open_session(local: Callable[..., LocalSession], place: Path) -> LocalSession:
    session = local()
    session.create_stream("events", thalweg.files(f"{place}/*.parquet"), time="ts", watermark="50 seconds")
    session.create_query("sums", SUMS)
    return session


def results(session: LocalSession) -> list[tuple[object, ...]]:
    found = session.query("sums").results().to_pylist()
    return sorted(tuple(row.values()) for row in found)


@pytest.mark.parametrize("seed", range(3))
def test_results_are_those_of_one_batch(
    local: Callable[..., LocalSession], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    write_files(tmp_path / "in", rng)
    whole = open_session(local, tmp_path / "in")
    whole.run_available()
    assert [report.rows for report in whole._parts.runner.reports] == [FILES * ROWS, 0]
    monkeypatch.setattr(batch_size, "FIRST_ROWS", rng.randrange(1, 4) * ROWS)
    monkeypatch.setattr(batch_size, "GROWTH", 2)
    session = open_session(local, tmp_path / "in")
    session.start("0 seconds")
    deadline = time.monotonic() + 60
    while session.progress()["rows"] < FILES * ROWS:
        assert time.monotonic() < deadline
        time.sleep(0.005)
    rows = [report.rows for report in session._parts.runner.reports if report.rows]
    assert len(rows) > 2, "no backlog was left"
    assert rows[0] == batch_size.FIRST_ROWS
    assert all(after <= max(2 * max(rows[:i]), batch_size.FIRST_ROWS) for i, after in enumerate(rows) if i)
    while len(results(session)) < len(results(whole)):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    assert results(session) == results(whole)
    late = session.progress()["streams"]["events"]["late"]
    assert late == whole.progress()["streams"]["events"]["late"] == 0
