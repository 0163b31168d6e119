"""State that is fetched in parts, as from an object store: the same results, and a slot reads what is its own.

What was not fetched holds other bytes than the state: whoever takes a row without having asked for it gets it wrong.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.property.test_data_path import test_windows_equal_one_grouping_over_all_rows as check_windows
from tests.property.test_join_path import OpenWorld, open_world, play, play_company
from tests.support import local_pipeline

import thalweg
from thalweg.batch import local_runner
from thalweg.batch.cells import Cells
from thalweg.batch.slot_stage import run_slots
from thalweg.batch.work import Work
from thalweg.model.plan import Plan
from thalweg.optimize import keep_intermediates
from thalweg.state import blocks, container
from thalweg.testing import LocalSession
from thalweg.testing.memory_storage import MemoryStorage

__all__ = ["open_world"]

RECORDED = Path(__file__).parent.parent / "golden" / "analyser"
SLOTS = 4
AGGREGATED, JOINED = ("ts", "x", "y", "v"), ("ts", "x", "y", "z", "v")
JOIN = "SELECT a.v AS v, b.v AS w FROM a JOIN b ON a.x = b.x WITHIN 5 SECONDS"


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryStorage]:
    storage = MemoryStorage(f"memory://{secrets.token_hex(6)}")
    storage.world.in_parts = True
    monkeypatch.setattr(local_pipeline, "open_storage", lambda place: storage)
    yield storage
    storage.forget()


def small_blocks(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    for module in (blocks, container):
        monkeypatch.setattr(module, "BLOCK", length)


@pytest.mark.slow
@pytest.mark.parametrize("keep_below", [0.0, 100.0])
@pytest.mark.parametrize("seed", range(3))
def test_joins_are_the_same(
    parts: MemoryStorage, open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch, seed: int, keep_below: float
) -> None:
    small_blocks(monkeypatch, 64)
    monkeypatch.setattr(keep_intermediates, "KEEP_BELOW", keep_below)
    play(open_world, seed).check()


@pytest.mark.slow
def test_joins_whose_orders_change_are_the_same(
    parts: MemoryStorage, open_world: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_blocks(monkeypatch, 64)
    play_company(open_world, 2, planned=False).check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_windows_are_the_same(
    parts: MemoryStorage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    small_blocks(monkeypatch, 64)
    check_windows(seed, tmp_path, monkeypatch)


# -- how much is read


class Reading:
    """Every task with a process of its own: which bytes each reads of what earlier batches have left."""

    def __init__(self, storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.storage = storage
        self.shares: list[float] = []
        """Of each task that read anything, of the bytes in all these objects."""
        self.old: frozenset[str] = frozenset()
        monkeypatch.setattr(local_runner, "run_slots", self._run)

    def _run(self, plan: Plan, work: Work, batches: Iterable[pa.RecordBatch], task: int) -> Cells:
        container._containers._open.clear()
        fetched = self.storage.world.fetched
        before = Counter(fetched)
        yield from list(run_slots(plan, work, batches, task))
        came = Counter(fetched) - before
        total = sum(len(self.storage.world.objects[name][0]) for name in self.old)
        read = sum(count for name, count in came.items() if name in self.old)
        if read:
            self.shares.append(read / total)


def rows(batch: int, count: int, stream: int = 0) -> pa.Table:
    rng = np.random.default_rng(batch * 10 + stream)
    times = (batch * 10_000_000 + np.sort(rng.integers(0, 10_000_000, count))).astype("datetime64[us]")
    return pa.table(
        {
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
            "x": rng.integers(0, 5000, count),
            "y": rng.integers(0, 5000, count),
            "z": rng.integers(0, 5000, count),
            "v": rng.integers(0, 100, count),
        }
    )


def open_session(storage: MemoryStorage, streams: str, slots: int, columns: tuple[str, ...]) -> LocalSession:
    session = LocalSession(recorded=RECORDED, state_dir=storage, slots=slots, tasks=slots)
    for name in streams:
        source = thalweg.memory(rows(0, 1).select(columns).schema)
        session.create_stream(name, source, time="ts", watermark="0 seconds")
    return session


@pytest.mark.slow
def test_a_slot_reads_its_key_groups_of_slices(parts: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets of one slot, which four have to read."""
    small_blocks(monkeypatch, 1024)
    session = open_session(parts, "a", 1, AGGREGATED)
    session.create_query(
        "q", "SELECT x, sum(v) AS s, window.end AS until FROM a GROUP BY x, window(ts, '20 seconds')"
    )
    session._parts.feeding.sources["a"].append(rows(0, 20_000).select(AGGREGATED))
    session.run_available()
    session.stop()
    session = open_session(parts, "a", SLOTS, AGGREGATED)
    reading = Reading(parts, monkeypatch)
    reading.old = session._parts.runner.manifest.files()
    for batch in (1, 2):
        session._parts.feeding.sources["a"].append(rows(batch, 20_000).select(AGGREGATED))
    session.run_available()
    assert session.query("q").results().num_rows >= 5000
    assert len(reading.shares) == SLOTS
    assert max(reading.shares) < 1 / SLOTS + 0.1, reading.shares
    session.stop()


@pytest.mark.slow
def test_a_slot_reads_its_key_groups_of_rows(parts: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of stores whose rows lie in the order of the key that is probed."""
    small_blocks(monkeypatch, 1024)
    session = open_session(parts, "ab", SLOTS, JOINED)
    session.create_query("q", JOIN)
    for batch in range(3):
        if batch == 2:
            reading = Reading(parts, monkeypatch)
            reading.old = session._parts.runner.manifest.files()
        for number, name in enumerate("ab"):
            session._parts.feeding.sources[name].append(rows(batch, 5_000, number))
        session.run_available()
    assert session.query("q").results().num_rows > 1000
    assert len(reading.shares) >= SLOTS
    assert max(reading.shares) < 0.35, reading.shares
    session.stop()
