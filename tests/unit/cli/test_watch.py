"""Unit: progress in a pipe: time stamps, and a line only where there is something new."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from thalweg.cli import watch
from thalweg.model.partitioning import PartitioningReport
from thalweg.model.probe_order import OrderingReport
from thalweg.observe.session_progress import SessionProgress, StateSize, TimeSpent


class Session:
    """As far as `watch` asks it."""

    def __init__(self) -> None:
        self.batch = -1

    def snapshot(self) -> SessionProgress:
        return SessionProgress(
            batch=self.batch, rows=5, rows_per_second=1.0, batch_seconds=0.5, phases={},
            time=TimeSpent(2, {}, {}, {}), state=StateSize(0, 0, 0), sent_bytes=0, slots=2,
            partitioning=PartitioningReport(), join_orders=OrderingReport(), adaptations={}, queries={}, streams={},
            last_progress=None if self.batch < 0 else {"batchId": self.batch},
        )  # fmt: skip


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(watch.time, "monotonic", lambda: now[0])
    return now


def test_a_line_has_a_time_and_is_not_repeated(clock: list[float]) -> None:
    session, console = Session(), Console(file=io.StringIO(), width=200)
    with watch.drawing(console, session) as draw:  # type: ignore[arg-type]
        for second in range(140):
            clock[0] = float(second)
            session.batch = 0 if second >= 100 else -1
            draw(("Ctrl-C ends it",))
    lines = str(console.file.getvalue()).splitlines()  # type: ignore[attr-defined]
    assert all(re.search(r"  at \d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", line) for line in lines[1:])
    said = [line.partition("  at ")[0] for line in lines]
    start, ran = "starting: no batch has finished yet", "batch 0  5 rows  1 rows/s  0.50 s a batch  queries: none"
    assert said == ["Ctrl-C ends it", start, start, ran]  # at the start, after a minute, with the batch
