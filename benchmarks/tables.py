"""What was found, as tables on the terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from benchmarks.quantities import compact
from benchmarks.result import Line, Result

out = Console()
if not out.is_terminal:
    out.width = 118


def show(found: Result) -> None:
    title = f"{found.title}: {found.machine}, {found.repetitions} repetition(s), {found.took_seconds:.0f} s"
    table = new_table(title, "comparison")
    add_columns(table, "unit", "ours", "theirs", "ratio", "spread", "asked", "peak MiB", "theirs")
    for line in found.lines:
        table.add_row(*_row(line))
    out.print(table)
    for text in (*(f"left out: {text}" for text in found.skipped), *found.notes):
        out.print(f"  {text}", soft_wrap=True, markup=False, highlight=False)


def _row(line: Line) -> tuple[str, ...]:
    theirs = line.theirs
    spread = "" if line.ratio_low is None else f"{line.ratio_low:.2f}-{line.ratio_high:.2f}"
    sign = "" if line.better == "higher" else "<= "
    of_ratio = "x" if line.ratio is not None else ""
    asked = "runs" if line.asked is None else f"{sign}{line.asked:.3g}{of_ratio}"
    ratio = "" if line.ratio is None else coloured(f"{line.ratio:.2f}x", line.reached)
    ours = compact(line.ours.median) if line.ratio is not None else coloured(compact(line.ours.median), line.reached)
    peaks = [f"{m.measures['peak_mib']:,.0f}" if m and "peak_mib" in m.measures else "" for m in (line.ours, theirs)]
    return line.meaning, line.unit, ours, compact(theirs.median) if theirs else "", ratio, spread, asked, *peaks


def new_table(title: str, first: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    return table


def add_columns(table: Table, *names: str) -> None:
    for name in names:
        table.add_column(name, justify="right")


def coloured(text: str, reached: bool | None) -> str:
    """Green where what was asked is reached; None: nothing is asked."""
    return text if reached is None else f"[{'green' if reached else 'red'}]{text}[/]"
