"""What was measured, as Markdown."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.quantities import minutes, quantity, span, times
from benchmarks.result import Finding, Line, Measured, Result, Series

WRITTEN = "<!-- Written by `thalweg bench report` from the JSON that benchmarks leave. Change that, not this. -->"
INTRODUCTION = """\
Every figure here comes from the JSON that a benchmark of this repository left. `./dev bench list` says which there
are; each section has the command that runs it again, `--quick` instead runs a smaller one in about two minutes. Each
side of a comparison is a process of its own, and the sides run in turn. Before anything is timed, results are
compared row by row over the first files of the workloads that a section names; of others it says what was done
instead. A ratio is ours / theirs, of medians, **bold** where it is better; its spread is that of the repetitions,
each against its neighbour. What this project asks of itself stands beside what was measured: ✓ where it is reached,
**falls short** where it is not. *Bytes handed over* are Spark's shuffle bytes; for Thalweg, also the state files
through which its tasks exchange rows. They are measured once, on the first files of the workload.

What to know about the comparisons:

- Part of the gain over plain Spark is the engine, not sharing: see *Thalweg with sharing off* under [peers](#peers).
  There every query has streams of its own, so N queries read N times. It tells what all sharing together is worth;
  SASPAR shares the partitioning alone.
- One `foreachBatch` that serves all queries beats N Spark queries when there are many groups. It is under
  [peers](#peers), too.
- AJoin's queries have their selections here (its Fig. 15 has none). Their keys are drawn from 60 to 1,657 times as
  many values as its 500, to hold results at ten rows for a row.
- The lines of [partitioning](#partitioning) compare with Thalweg with one hash for every key, where rows are sent
  whole (`OPTIONS (partitioner = 'hash')`). By itself the engine would combine them or leave them where they are.

The papers:

- SASPAR: Shared Adaptive Stream Partitioner
- AJoin: Ad-hoc Stream Joins at Scale
- Holistic: A Holistic View of Stream Partitioning Costs
- CLASH: multi-query optimisation of multi-way stream joins
- Dalton: Learned Partitioning for Distributed Data Streams
"""
MEASURES = {
    "peak_mib": ("peak memory", "MiB"),
    "cpu_seconds_per_million": ("CPU per million rows", "s"),
    "shuffled_bytes_per_row": ("handed over per row", "bytes"),
    "shuffled_rows_per_row": ("shuffled rows per row", ""),
    "copies_per_row": ("copies per row", ""),
    "batch_seconds": ("a batch", "s"),
    "first_batch_seconds": ("first batch", "s"),
    "start_seconds": ("start", "s"),
    "create_seconds": ("queries accepted in", "s"),
}
"""What else a side may have measured -> how a reader calls it, and its unit."""
SEEN = 0.005
"""By how much a ratio has to differ from 1 to be a gain."""
PHASES_SHOWN = 8
SHORT_SHOWN = 3
"""Of the lines that fall short, in the overview."""


def page(results: Sequence[Result], unreadable: Iterable[str], plots: str, left: str) -> str:
    """The whole page; `plots` and `left` are where plots and JSON lie, seen from it."""
    parts = ["# Measurements", WRITTEN, INTRODUCTION.rstrip()]
    left_out = [f"- {line}" for line in unreadable]
    parts += ["\n".join(left_out)] if left_out else []
    if results:
        parts += [_overview(results), *(_section(result, plots, left) for result in results)]
    return "\n\n".join(parts) + "\n"


def plot_name(result: Result, series: Series) -> str:
    return f"{_slug(result.experiment)}-{_slug(series.name)}.svg"


def digest(series: Series) -> str:
    """Of all that a plot shows. Each carries its own, so that one can tell without drawing if it is out of date."""
    shown = [series.title, series.x, series.y, series.log, {name: list(c) for name, c in series.curves.items()}]
    return hashlib.blake2b(json.dumps(shown).encode(), digest_size=8).hexdigest()


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


# --- the page -------------------------------------------------------------------------------------------


def _overview(results: Iterable[Result]) -> str:
    rows = []
    for result in results:
        asked = [line for line in result.lines if line.reached is not None]
        short = [line.meaning for line in asked if not line.reached]
        named = short[:SHORT_SHOWN] + ([f"{len(short) - SHORT_SHOWN} more"] if len(short) > SHORT_SHOWN else [])
        reached = f"{len(asked) - len(short)} of {len(asked)}" if asked else ""
        link = f"[{result.experiment}](#{_slug(result.experiment)}){' (quick)' if result.quick else ''}"
        rows.append((link, result.title, result.answers, reached, "; ".join(named)))
    return _table(("", "what is measured", "answers", "reached", "falls short"), rows)


def _section(result: Result, plots: str, left: str) -> str:
    parts = [f"## {result.experiment}", _provenance(result, left)]
    if result.lines:
        parts.append(_lines_table(result.lines))
    bound = _findings_by_series(result)
    parts += [_finding(finding) for finding in bound.get("", ())]
    for series in result.series:
        parts.append(f"![{series.title}]({plots}/{plot_name(result, series)})")
        parts += [_finding(finding) for finding in bound.get(series.name, ())]
    parts += [*_costs(result.lines), *_phases(result.lines)]
    listed = [f"- Skipped: {line}" for line in result.skipped] + [f"- {line}" for line in result.notes]
    return "\n\n".join(parts + (["\n".join(listed)] if listed else []))


def _findings_by_series(result: Result) -> dict[str, list[Finding]]:
    """Findings that name no plot stand below the only one there is, or else before all of them."""
    names = [series.name for series in result.series]
    found: dict[str, list[Finding]] = {}
    for finding in result.findings:
        home = finding.series if finding.series in names else names[0] if len(names) == 1 else ""
        found.setdefault(home, []).append(finding)
    return found


def _provenance(result: Result, left: str) -> str:
    """What it is, how to run it again, when and where it ran."""
    answers = f" Answers {result.answers}." if result.answers else ""
    file = f"{result.experiment}.json"
    machine = result.machine
    names = {"Python": machine.python, "Java": machine.java, "Spark": machine.spark, "DuckDB": machine.duckdb}
    names |= {"Flink": machine.flink if _has_flink(result) else "", "Thalweg": machine.thalweg}
    versions = ", ".join(f"{name} {version}" for name, version in names.items() if version)
    lines = [
        f"{_sentence(result.title)}{answers}",
        "",
        f"- Run it: `{_command(result)} --json docs/benchmarks/{file}` ([what it left]({left}/{file}))",
        f"- {result.date}, {minutes(result.took_seconds)}, {_repeated(result)}, on {_hardware(result)}; {versions}",
    ]
    if result.quick:
        lines.append("- **A quick run**: small inputs, few repetitions. It shows that things work; do not quote it.")
    if result.equal:
        equal = ", ".join(f"{work} ({rows:,} rows)" for work, rows in result.equal.items())
        lines.append(f"- Results compared row by row and equal: {equal}")
    return "\n".join(lines)


def _has_flink(result: Result) -> bool:
    return any(line.theirs and line.theirs.system.startswith("flink") for line in result.lines)


def _command(result: Result) -> str:
    """As it was run."""
    return " ".join(filter(None, ("./dev bench", result.experiment, "--quick" * result.quick, result.options)))


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _repeated(result: Result) -> str:
    return f"medians of {result.repetitions} repetitions" if result.repetitions > 1 else "a single run of each side"


def _hardware(result: Result) -> str:
    machine = result.machine
    given = f"{machine.given} of {machine.cores}" if 0 < machine.given < machine.cores else str(machine.cores)
    return f"{given} cores ({machine.cpu}), {machine.memory_gib:.0f} GiB"


def _lines_table(lines: Sequence[Line]) -> str:
    compared = any(line.theirs for line in lines)
    columns = ("", "ours", *(("theirs", "ratio") if compared else ()), "spread", "asked")
    rows = []
    for line in lines:
        theirs = [_value(line.theirs, line.unit), _ratio(line)] if compared else []
        again = f" (measured again: {line.again})" if line.again else ""
        rows.append((line.meaning + again, _value(line.ours, line.unit), *theirs, _spread(line), _verdict(line)))
    return _table(columns, rows, right=range(1, len(columns) - 1))


def _value(measured: Measured | None, unit: str) -> str:
    return "" if measured is None else quantity(measured.median, unit)


def _ratio(line: Line) -> str:
    """Bold where it is a gain."""
    if line.ratio is None:
        return ""
    gained = line.ratio > 1 + SEEN if line.better == "higher" else line.ratio < 1 - SEEN
    return f"**{times(line.ratio)}**" if gained else times(line.ratio)


def _spread(line: Line) -> str:
    """Of the ratio, or of the figure itself where there is none."""
    if line.ratio is not None:
        low, high = line.ratio_low, line.ratio_high
        return "" if low is None or high is None or low == high else f"{times(low)} to {times(high)}"
    ours = line.ours
    return "" if ours.low == ours.high else span(ours.low, ours.high, line.unit)


def _verdict(line: Line) -> str:
    if line.asked is None:
        return ""
    asked = quantity(line.asked, line.unit) if line.ratio is None else f"{line.asked:.3g}x"
    return f"{'≥' if line.better == 'higher' else '≤'} {asked} {'✓' if line.reached else '**falls short**'}"


def _finding(finding: Finding) -> str:
    return f"> **{finding.paper}:** {_sentence(finding.theirs)}<br>\n> **Here:** {_sentence(finding.ours)}"


def _costs(lines: Sequence[Line]) -> list[str]:
    """What else was measured of the sides, folded away."""
    shown = [name for name in MEASURES if any(name in line.ours.measures for line in lines)]
    if not shown:
        return []
    rows = []
    for line in lines:
        sides = [line.ours] + ([line.theirs] if line.theirs else [])
        cells = tuple(_side_by_side(sides, name) for name in shown)
        # Several lines may be about the same runs.
        if any(cells) and cells not in [row[1:] for row in rows]:
            rows.append((line.meaning, *cells))
    columns = ("ours : theirs", *(MEASURES[name][0] for name in shown))
    return [_folded("Memory, CPU, shuffle, start", _table(columns, rows, right=range(1, len(columns))))]


def _side_by_side(sides: Sequence[Measured], name: str) -> str:
    values = [side.measures.get(name) for side in sides]
    return " : ".join(quantity(value, MEASURES[name][1]) for value in values if isinstance(value, int | float))


def _phases(lines: Sequence[Line]) -> list[str]:
    """Where the time of our batches goes, in shares of the sum; several lines may be about the same runs."""
    rows: dict[str, str] = {}
    for line in lines:
        phases = line.ours.measures.get("phases")
        if not isinstance(phases, Mapping) or not sum(phases.values()):
            continue
        largest = sorted(phases.items(), key=lambda item: (-item[1], item[0]))[:PHASES_SHOWN]
        whole = sum(phases.values())
        shares = ", ".join(f"{name} {value / whole:.0%}" for name, value in largest)
        if shares not in rows.values():
            rows[line.meaning] = shares
    table = _table(("ours", "shares of the time of all phases"), list(rows.items()))
    return [_folded("Where the time goes", table)] if rows else []


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{body}\n\n</details>"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    to_right = set(right)
    rule = ["---:" if i in to_right else "---" for i in range(len(columns))]
    lines = [columns, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
