"""What a session says, as tables of text. Functions from values to something that rich can print."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from thalweg.cli.bench import Benchmark
from thalweg.errors import UsageError
from thalweg.foreign import plain_lines, plain_text
from thalweg.observe.session_progress import SessionProgress
from thalweg.observe.shown import Shown
from thalweg.session import Session

BENCH_COMMANDS = {
    "thalweg bench NAME [--quick] [--json FILE]": "measure; --help says more",
    "thalweg bench report": "docs/benchmarks/*.json into the tables of docs/benchmarks.md",
}
_ROWS = 20
_STATES = {
    "pending": "yellow",
    "running": "green",
    "waiting": "yellow",
    "retrying": "yellow",
    "paused": "bold yellow",
    "failed": "bold red",
    "stopped": "bold red",
}


def outcomes(console: Console, outcome: Any) -> None:
    """What `session.sql` returned: one outcome, or a list with one for each statement."""
    for item in outcome if isinstance(outcome, list) else [outcome]:
        if isinstance(item, Shown | pa.Table):
            console.print(arrow("", item.table if isinstance(item, Shown) else item))
        elif isinstance(item, str):
            console.print(plain_lines(item), markup=False, highlight=False, soft_wrap=True)


def results(console: Console, session: Session) -> None:
    """The results of every query that keeps them in memory."""
    for name, query in session.queries.items():
        try:
            table = query.results()
        except UsageError:
            continue  # its results went to a sink of the user's own
        console.print(arrow(f"{name} · {table.num_rows:,} rows", table))


def left_out(console: Console, state: SessionProgress, before: int) -> None:
    """Says what the results do not: rows that were rejected, or that there were none since `before`."""
    if state.rows == before:
        console.print("no row was new: these results are of earlier runs", highlight=False)
    for name, stream in state.streams.items():
        if stream.rejected:
            text = f"{stream.rejected:,} rows of stream {name} were rejected: session.rejected('{name}') tells why"
            console.print(text, markup=False, highlight=False, soft_wrap=True)
    for trouble in _troubles(state):
        console.print(trouble, markup=False, highlight=False, soft_wrap=True)


def _troubles(state: SessionProgress) -> list[str]:
    return [plain_text(f"stream {name}: {s.error}") for name, s in state.streams.items() if s.error is not None]


def failures(console: Console, session: Session) -> int:
    """Prints why queries have failed or stopped, or are paused; how many there are."""
    found = [(query.name, query.status) for query in session.queries.values()]
    unwell = [(name, s) for name, s in found if s.state in ("failed", "stopped", "paused") and s.error is not None]
    for name, status in unwell:
        said = "has failed" if status.state == "failed" else f"is {status.state}"
        console.print(f"query {name} {said}", style="bold red", highlight=False)
        console.print(plain_lines(str(status.error)), markup=False, highlight=False, soft_wrap=True)
    return len(unwell)


def benches(console: Console, known: Mapping[str, Benchmark]) -> None:
    """What can be measured, and what to type."""
    table = Table("benchmark", "what it measures", "answers", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[0].no_wrap = True
    table.add_column("minutes", justify="right", no_wrap=True)
    for name, said in known.items():
        minutes = "" if said.minutes is None else "{:g}, quick {:g}".format(*reversed(said.minutes))
        table.add_row(Text(name), Text(said.measures), Text(said.answers), minutes)
    console.print(table)
    for command, meaning in BENCH_COMMANDS.items():
        console.print(Text(f"  {command:47}{meaning}"), soft_wrap=True)


def arrow(title: str, table: pa.Table, rows: int = _ROWS) -> Table:
    """The first rows of a table."""
    left_out = table.num_rows - rows
    caption = f"and {left_out:,} more rows" if left_out > 0 else None
    # Names that users chose are text, not markup: `Text` does not look inside. Nor are they orders to the terminal.
    shown = Table(caption=caption, title_justify="left", box=box.SIMPLE_HEAD)
    shown.title = Text(plain_text(title)) if title else None
    for field in table.schema:
        right = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        shown.add_column(Text(plain_text(field.name)), justify="right" if right else "left")
    for row in zip(*(column.to_pylist() for column in table.slice(0, rows).columns), strict=True):
        shown.add_row(*(Text(cell(value)) for value in row))
    return shown


def cell(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, dict):
        return " .. ".join(cell(part) for part in value.values())
    return plain_text(str(value))


def progress(state: SessionProgress, *, notes: Sequence[str] = ()) -> RenderableType:
    """The whole pipeline at a glance: speed, streams and their watermarks, queries and what they emitted."""
    parts: list[RenderableType] = [Text(line(state), style="bold"), Text(time_line(state)), _streams(state)]
    parts += [Text(trouble, style="bold red") for trouble in _troubles(state)]
    parts.append(_queries(state))
    parts += [Text(plain_text(note), style="cyan") for note in notes]
    return Group(*parts)


def line(state: SessionProgress) -> str:
    """Progress in one line, for logs and pipes."""
    if state.last_progress is None:  # no batch of this session: what is known is of an earlier one
        before = f"goes on after batch {state.batch}, {state.rows:,} rows so far"
        return f"starting: {'no batch has finished yet' if state.batch < 0 else before}"
    parts = [
        f"batch {state.batch}",
        f"{state.rows:,} rows",
        f"{state.rows_per_second:,.0f} rows/s",
        f"{state.batch_seconds:.2f} s a batch",
    ]
    if late := sum(stream.late for stream in state.streams.values()):
        parts.append(f"{late:,} late")
    if rejected := sum(stream.rejected for stream in state.streams.values()):
        parts.append(f"{rejected:,} rejected")
    states = Counter(query.state for query in state.queries.values())
    return "  ".join([*parts, f"queries: {', '.join(f'{n} {name}' for name, n in states.items()) or 'none'}"])


def time_line(state: SessionProgress) -> str:
    """Where the time of batches goes, the largest parts first; nothing is said of those below one in a hundred."""
    parts = sorted(state.time.shares.items(), key=lambda part: -part[1])
    return "  ".join(f"{phase} {share:.0%}" for phase, share in parts if share >= 0.01)


def _streams(state: SessionProgress) -> Table:
    table = Table("stream", "rows", "late", "rejected", "watermark", box=box.SIMPLE_HEAD)
    for name, stream in state.streams.items():
        mark = stream.watermark
        table.add_row(
            Text(plain_text(name)),
            f"{stream.rows:,}",
            f"{stream.late:,}",
            f"{stream.rejected:,}",
            mark.isoformat(" ", "milliseconds").removesuffix("+00:00") if mark else "none yet",
        )
    return table


def _queries(state: SessionProgress) -> Table:
    table = Table("query", "state", "rows emitted", box=box.SIMPLE_HEAD)
    for name, query in state.queries.items():
        style = _STATES.get(query.state, "")
        table.add_row(Text(plain_text(name)), Text(query.state, style=style), f"{query.emitted:,}")
    return table
