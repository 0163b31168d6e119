"""What a session says, as tables of text. Functions from values to something that rich can print."""

from __future__ import annotations

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
from thalweg.session import Session

BENCH_COMMANDS = {
    "thalweg bench NAME [--quick] [--json FILE]": "measure; --help says more",
    "thalweg bench report": "docs/benchmarks/*.json into docs/benchmarks.md and its plots",
}
_ROWS = 20
_STATES = {"pending": "yellow", "running": "green", "failed": "bold red"}


def outcomes(console: Console, outcome: Any) -> None:
    """What `session.sql` returned: one outcome, or a list with one for each statement."""
    for item in outcome if isinstance(outcome, list) else [outcome]:
        if isinstance(item, pa.Table):
            console.print(arrow("", item))
        elif isinstance(item, str):
            console.print(item, markup=False, highlight=False, soft_wrap=True)


def results(console: Console, session: Session) -> None:
    """The results of every query that keeps them in memory."""
    for name, query in session.queries.items():
        try:
            table = query.results()
        except UsageError:
            continue  # its results went to a sink of the user's own
        console.print(arrow(f"{name} · {table.num_rows:,} rows", table))


def failures(console: Console, session: Session) -> int:
    """Prints why each failed query failed; how many there are."""
    failed = [query for query in session.queries.values() if query.status["state"] == "failed"]
    for query in failed:
        console.print(f"query {query.name} has failed", style="bold red", highlight=False)
        console.print(str(query.status["error"]), markup=False, highlight=False, soft_wrap=True)
    return len(failed)


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
    # Names that users chose are text, not markup: `Text` does not look inside.
    shown = Table(caption=caption, title_justify="left", box=box.SIMPLE_HEAD)
    shown.title = Text(title) if title else None
    for field in table.schema:
        right = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        shown.add_column(Text(field.name), justify="right" if right else "left")
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
    return str(value)


def progress(state: Mapping[str, Any], *, notes: Sequence[str] = ()) -> RenderableType:
    """The whole pipeline at a glance: speed, streams and their watermarks, queries and what they emitted."""
    parts: list[RenderableType] = [Text(line(state), style="bold"), Text(time_line(state)), _streams(state)]
    parts.append(_queries(state))
    parts += [Text(note, style="cyan") for note in notes]
    return Group(*parts)


def line(state: Mapping[str, Any]) -> str:
    """Progress in one line, for logs and pipes."""
    if state["batch"] < 0:
        return "no batch has finished yet"
    running = sum(query["state"] == "running" for query in state["queries"].values())
    return (
        f"batch {state['batch']}  {state['rows']:,} rows  {state['rows_per_second']:,.0f} rows/s  "
        f"{state['batch_seconds']:.2f} s a batch  {running} queries"
    )


def time_line(state: Mapping[str, Any]) -> str:
    """Where the time of batches goes, the largest parts first; nothing is said of those below one in a hundred."""
    parts = sorted(state["time"]["shares"].items(), key=lambda part: -part[1])
    return "  ".join(f"{phase} {share:.0%}" for phase, share in parts if share >= 0.01)


def _streams(state: Mapping[str, Any]) -> Table:
    table = Table("stream", "rows", "late", "rejected", "watermark", box=box.SIMPLE_HEAD)
    for name, stream in state["streams"].items():
        mark = stream["watermark"]
        table.add_row(
            Text(name),
            f"{stream['rows']:,}",
            f"{stream['late']:,}",
            f"{stream['rejected']:,}",
            mark.strftime("%H:%M:%S.%f")[:-3] if mark else "none yet",
        )
    return table


def _queries(state: Mapping[str, Any]) -> Table:
    table = Table("query", "state", "rows emitted", box=box.SIMPLE_HEAD)
    for name, query in state["queries"].items():
        style = _STATES.get(query["state"], "")
        table.add_row(Text(name), Text(query["state"], style=style), f"{query['emitted']:,}")
    return table
