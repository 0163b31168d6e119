"""Unit: what batches leave behind on the disk while a session goes on; chaos looks at it after every life."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from thalweg.state.manifest import manifest_batches, read_manifest
from thalweg.state.places import open_storage
from thalweg.testing import LocalSession

Local = Callable[..., LocalSession]
START = datetime(2026, 1, 1, tzinfo=UTC)
SUMS = "SELECT k, sum(v) AS s, window.start AS w FROM events GROUP BY k, window(ts, '10 seconds')"
ALL = "SELECT k, v FROM events WHERE v >= 0"
NAMED = "SELECT a.v, names.name FROM a JOIN names ON a.k = names.k"


def rows(*seconds: int) -> list[dict[str, Any]]:
    return [{"ts": START + timedelta(seconds=s), "k": 1, "v": s} for s in seconds]


@pytest.mark.slow
def test_files_of_closed_windows_go_two_batches_later(local: Local, state_dir: Path) -> None:
    session = local({"events": rows(1)}, {"sums": SUMS}, state_dir=state_dir)
    for second in (2, 40, 41, 42):  # the first window closes with 40, and nothing after it
        session.append("events", rows(second))
        session.run_available()
    storage = open_storage(state_dir)
    kept = [read_manifest(storage, batch)[0].files() for batch in manifest_batches(storage)]
    assert {*storage.names("buckets/"), *storage.names("results/")} == set().union(*kept)


def test_results_that_sinks_have_go_two_batches_later(local: Local, state_dir: Path) -> None:
    session = local({"events": rows(1)}, state_dir=state_dir)
    got: list[int] = []
    session.create_query("q", ALL, lambda table, batch: got.extend(table["v"].to_pylist()))
    session.run_available()
    for second in (2, 3, 4):
        session.append("events", rows(second))
        session.run_available()
    assert got == [1, 2, 3, 4]
    storage = open_storage(state_dir)
    kept = [read_manifest(storage, batch)[0].files() for batch in manifest_batches(storage)]
    assert {*storage.names("prepared/")} == set().union(*kept)


def test_units_go_also_if_the_only_query_that_reads_them_is_paused(local: Local, state_dir: Path) -> None:
    """Chaos seed 12."""

    def refuse(table: pa.Table, batch: int) -> None:
        raise ValueError("no")

    session = local({"events": rows(1)}, state_dir=state_dir)
    query = session.create_query("q", ALL, refuse, options={"retries": "0"})
    for second in (2, 3):
        session.append("events", rows(second))
    session.run_available()
    assert query.status.state == "paused"
    assert [path.name for path in (state_dir / "sources" / "events").glob("*.arrow")] == ["0000000002.arrow"]


def test_versions_of_a_table_that_no_batch_has_used_go_with_the_next(local: Local, state_dir: Path) -> None:
    session = local({"a": rows(1)}, state_dir=state_dir)
    for name in ("one", "uno", "eins"):
        table = pa.table({"k": pa.array([1], pa.int64()), "name": [name]})
        session.create_table("names", table, replace=True)
    named = session.create_query("named", NAMED)
    session.run_available()
    assert named.results().to_pylist() == [{"v": 1, "name": "eins"}]
    assert len(list((state_dir / "tables").iterdir())) == 1
