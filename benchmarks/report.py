"""Figures into the page: the JSON of all experiments into the tables of docs/benchmarks.md.

    thalweg bench report [--from docs/benchmarks] [--to docs/benchmarks.md] [--check]

The page is written by hand. What stands between `<!-- figures: NAME -->` and `<!-- end -->` comes from NAME.json:
machine and commit, the table, what it cost. `--check` writes nothing and fails where a table is not what the JSON
gives.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import curves
from benchmarks.quantities import minutes, quantity, span, times
from benchmarks.result import MEASURES, TREE, Line, Measured, Result

BLOCK = re.compile(r"<!-- figures: ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
SEEN = 0.005
"""By how much a ratio has to differ from 1 to be a gain."""
DRAWN = {"scale"}
"""Of these there is a picture besides, `NAME.svg` beside the JSON."""
PHASES_SHOWN = 8
SHORT_SHOWN = 3
"""Of the lines that fall short, in the overview."""
out = Console()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thalweg bench report", description=__doc__)
    parser.add_argument("--from", dest="folder", type=Path, default=TREE / "docs" / "benchmarks")
    parser.add_argument("--to", dest="page", type=Path, default=TREE / "docs" / "benchmarks.md")
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    options = parser.parse_args(arguments)
    before = options.page.read_text(encoding="utf-8")
    results = read(options.folder)
    try:
        after = filled(before, results)
    except KeyError as missing:
        out.print(f"{options.page} names {missing.args[0]}, of which {options.folder} has no figures", soft_wrap=True)
        return 1
    if options.check and after != before:
        out.print(f"{options.page} is not what the measurements give: run thalweg bench report", soft_wrap=True)
        return 1
    if not options.check:
        options.page.write_text(after, encoding="utf-8")
        for name in DRAWN & results.keys():
            text = curves.draw(results[name].title, curves.rates(results[name]), "rows/s")
            (options.folder / f"{name}.svg").write_text(text, encoding="utf-8")
    return 0


def read(folder: Path) -> dict[str, Result]:
    return {path.stem: Result.read(path) for path in sorted(folder.glob("*.json"))}


def filled(page: str, results: Mapping[str, Result]) -> str:
    """The page with the figures of every block that it has."""
    named = [match[1] for match in BLOCK.finditer(page) if match[1] != "overview"]

    def block(match: re.Match[str]) -> str:
        name = match[1]
        body = _overview([results[each] for each in named]) if name == "overview" else _figures(results[name])
        return f"<!-- figures: {name} -->\n{body}\n<!-- end -->"

    return BLOCK.sub(block, page)


def _overview(results: Iterable[Result]) -> str:
    rows = []
    for result in results:
        asked = [line for line in result.lines if line.reached is not None]
        short = [line.meaning for line in asked if not line.reached]
        named = short[:SHORT_SHOWN] + ([f"{len(short) - SHORT_SHOWN} more"] if len(short) > SHORT_SHOWN else [])
        reached = f"{len(asked) - len(short)} of {len(asked)}" if asked else ""
        link = f"[{result.experiment}](#{result.experiment}){' (quick)' if result.quick else ''}"
        rows.append((link, result.title, result.answers, reached, "; ".join(named)))
    return _table(("", "what is measured", "answers", "reached", "falls short"), rows)


def _figures(result: Result) -> str:
    parts = [_provenance(result), *([_lines_table(result.lines)] if result.lines else [])]
    parts += [*_costs(result.lines), *_phases(result.lines)]
    listed = [f"- Skipped: {line}" for line in result.skipped] + [f"- {line}" for line in result.notes]
    return "\n\n".join(parts + (["\n".join(listed)] if listed else []))


def _provenance(result: Result) -> str:
    """How to run it again, when and where it ran."""
    machine, name = result.machine, result.experiment
    command = " ".join(filter(None, ("./dev bench", name, "--quick" * result.quick, result.options)))
    names = {"Python": machine.python, "Java": machine.java, "Spark": machine.spark, "DuckDB": machine.duckdb}
    has_flink = any(line.theirs and line.theirs.system.startswith("flink") for line in result.lines)
    names |= {"Flink": machine.flink if has_flink else "", "Thalweg": machine.thalweg}
    versions = ", ".join(f"{name} {version}" for name, version in names.items() if version)
    given = f"{machine.given} of {machine.cores}" if 0 < machine.given < machine.cores else str(machine.cores)
    repeated = f"medians of {result.repetitions} repetitions" if result.repetitions > 1 else "one run of each side"
    lines = [
        f"- Run it: `{command} --json docs/benchmarks/{name}.json` ([medians](benchmarks/{name}.json))",
        f"- {result.date}, {minutes(result.took_seconds)}, {repeated}, on {given} cores ({machine.cpu}), "
        f"{machine.memory_gib:.0f} GiB; {versions}",
    ]
    if result.quick:
        lines.append("- **A quick run**: small inputs, few repetitions. It shows that things work; do not quote it.")
    if result.equal:
        equal = ", ".join(f"{work} ({rows:,} rows)" for work, rows in result.equal.items())
        lines.append(f"- Results compared row by row and equal: {equal}")
    return "\n".join(lines)


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
    return "" if line.ours.low == line.ours.high else span(line.ours.low, line.ours.high, line.unit)


def _verdict(line: Line) -> str:
    if line.asked is None:
        return ""
    asked = quantity(line.asked, line.unit) if line.ratio is None else f"{line.asked:.3g}x"
    return f"{'≥' if line.better == 'higher' else '≤'} {asked} {'✓' if line.reached else '**falls short**'}"


def _costs(lines: Sequence[Line]) -> list[str]:
    """What else was measured of the sides, folded away."""
    shown = [name for name in MEASURES if any(name in line.ours.measures for line in lines)]

    def cells(line: Line) -> tuple[str, ...]:
        sides = [line.ours] + ([line.theirs] if line.theirs else [])
        there = [[side.measures[name] for side in sides if name in side.measures] for name in shown]
        units = [MEASURES[name][1] for name in shown]
        return tuple(" : ".join(quantity(v, unit) for v in values) for values, unit in zip(there, units, strict=True))

    columns = ("ours : theirs", *(MEASURES[name][0] for name in shown))
    return _folded("Memory, CPU, shuffle, start", columns, lines, cells) if shown else []


def _phases(lines: Sequence[Line]) -> list[str]:
    """Where the time of our batches goes."""

    def cells(line: Line) -> tuple[str, ...]:
        phases = line.ours.measures.get("phases", {})
        largest = sorted(phases.items(), key=lambda item: (-item[1], item[0]))[:PHASES_SHOWN]
        return (", ".join(f"{name} {share:.0%}" for name, share in largest),)

    return _folded("Where the time goes", ("ours", "shares of the time of all phases"), lines, cells)


def _folded(
    title: str, columns: Sequence[str], lines: Sequence[Line], cells: Callable[[Line], tuple[str, ...]]
) -> list[str]:
    """Of every line its cells; several lines may be about the same runs, which are told once."""
    rows: dict[tuple[str, ...], str] = {}
    for line in lines:
        if any(found := cells(line)):
            rows.setdefault(found, line.meaning)
    table = _table(columns, [(meaning, *found) for found, meaning in rows.items()], right=range(1, len(columns)))
    return [f"<details><summary>{title}</summary>\n\n{table}\n\n</details>"] if rows else []


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    to_right = set(right)
    rule = ["---:" if i in to_right else "---" for i in range(len(columns))]
    lines = [columns, rule, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
