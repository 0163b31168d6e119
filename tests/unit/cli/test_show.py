"""Unit: what the command line prints of a session's values."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa
from rich.console import Console

from thalweg.cli import demo, show
from thalweg.handle import Status
from thalweg.model.partitioning import PartitioningReport
from thalweg.model.probe_order import OrderingReport
from thalweg.observe.session_progress import SessionProgress, StateSize, StreamStatus, TimeSpent
from thalweg.observe.shown import Shown

NOON = datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)


def stream(rows: int, late: int, rejected: int, watermark: datetime | None) -> StreamStatus:
    return StreamStatus(rows, late, rejected, 0, 0, 0, 0, watermark, False, None)


STATE = SessionProgress(
    batch=3,
    rows=1_234_567,
    rows_per_second=98765.4,
    batch_seconds=0.456,
    phases={},
    time=TimeSpent(2, {}, {}, {"read": 0.25, "decode": 0.004, "operate": 0.746}),
    state=StateSize(0, 0, 0),
    sent_bytes=0,
    slots=2,
    partitioning=PartitioningReport(),
    join_orders=OrderingReport(),
    adaptations={},
    queries={
        "revenue": Status(state="running", emitted=1500, error=None),
        "broken": Status(state="failed", emitted=0, error="divided by zero"),
    },
    streams={"purchases": stream(1_234_567, 12, 1, NOON), "ads": stream(0, 0, 0, None)},
    last_progress={"batchId": 3},
)


def printed(*things: object) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(*things)
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def test_progress_shows_speed_streams_and_queries() -> None:
    text = printed(show.progress(STATE, notes=["created query x [y]"]))
    parts = ("1,234,567", "98,765 rows/s", "0.46 s", "12:00:05.000", "none yet", "failed", "1,500", "x [y]")
    for part in parts:
        assert part in text


def test_a_source_whose_directory_is_gone_is_shown() -> None:
    lost = replace(STATE, streams={"ads": replace(stream(0, 0, 0, None), error="no such directory: /in")})
    assert "stream ads: no such directory: /in" in printed(show.progress(lost))
    console = Console(file=io.StringIO(), width=120)
    show.left_out(console, lost, before=0)
    assert "stream ads: no such directory: /in" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_demo_ends_with_what_a_newcomer_can_read() -> None:
    lines = demo.summary(
        STATE, demo.Game(rows_per_second=1000), demo.SCHEDULE, 30.2, "12 queries over 2 streams: 2 reads."
    )
    assert lines[0].startswith("1,234,567 rows in 30 s and 4 batches. A generator made 1,500 a second")
    assert "12 queries over 2 streams: 2 reads." in lines[2]
    assert "12 rows were late" in lines[3]
    assert lines[-1].endswith("thalweg demo --explain")
    assert len(lines) == 5
    assert "15 queries were created and 3 dropped" in lines[1]
    explained = demo.summary(STATE, demo.Game(rows_per_second=1000, explains=True), demo.SCHEDULE, 30.2, "...")
    assert explained[:2] == lines[:2]
    assert len(explained) == 4


def test_a_line_tells_what_runs_and_what_was_left_out() -> None:
    assert show.line(STATE) == (
        "batch 3  1,234,567 rows  98,765 rows/s  0.46 s a batch  12 late  1 rejected  queries: 1 running, 1 failed"
    )


def test_a_line_of_a_start_gives_no_speed() -> None:
    assert show.line(replace(STATE, batch=-1, last_progress=None)) == "starting: no batch has finished yet"
    said = show.line(replace(STATE, last_progress=None))
    assert said == "starting: goes on after batch 3, 1,234,567 rows so far"


def test_time_line_has_the_largest_parts_first_and_leaves_out_the_least() -> None:
    assert show.time_line(STATE) == "operate 75%  read 25%"


def test_table_shows_its_first_rows_and_takes_names_as_text() -> None:
    table = pa.table({"[bold]k": list(range(30)), "x": [None] + [0.5] * 29})
    text = printed(show.arrow("all [of it]", table, rows=5))
    assert "[bold]k" in text
    assert "all [of it]" in text
    assert "NULL" in text
    assert "and 25 more rows" in text


def test_window_is_shown_as_a_span() -> None:
    window = {"start": datetime(2026, 1, 1, tzinfo=UTC), "end": datetime(2026, 1, 2, tzinfo=UTC)}
    assert show.cell(window) == "2026-01-01 00:00:00 .. 2026-01-02 00:00:00"


def test_what_a_terminal_would_obey_is_shown_as_text() -> None:
    table = pa.table({"na\x1bme": ["\x1b[2J\nx", "\u202eevil"]})
    console = Console(file=io.StringIO(), width=120)
    show.outcomes(console, [Shown(table), "plan of \x1b[2J\nand more"])
    text = str(console.file.getvalue()) + printed(show.progress(STATE, notes=["\x1b]0;title"]))  # type: ignore[attr-defined]
    assert "\x1b" not in text
    assert "\u202e" not in text
    for shown in (r"na\x1bme", r"\x1b[2J\nx", r"\u202eevil", "plan of \\x1b[2J\nand more", r"\x1b]0;title"):
        assert shown in text


def test_what_the_results_do_not_show_is_said() -> None:
    def said(before: int) -> list[str]:
        console = Console(file=io.StringIO(), width=120)
        show.left_out(console, STATE, before)
        return str(console.file.getvalue()).splitlines()  # type: ignore[attr-defined]

    rejected = "1 rows of stream purchases were rejected: session.rejected('purchases') tells why"
    assert said(0) == [rejected]
    assert said(1_234_567) == ["no row was new: these results are of earlier runs", rejected]
