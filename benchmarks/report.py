"""Measurements as a page: the JSON of all experiments into docs/benchmarks.md, its plots and the README's tables.

    thalweg bench report [--from docs/benchmarks] [--to docs/benchmarks.md] [--readme README.md] [--check]

Plots go into the folder that is named as the page. `--check` writes nothing and fails where page, plots or README are
not what the JSON gives. A file that is not of the form of `benchmarks.result` is left out, and the page says so. What
a quick run found goes into the page, marked as such, and never into the README.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks import report_page
from benchmarks.result import TREE, Result, Series

BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"
README_LINES: Mapping[str, Sequence[str]] = {
    "aggregates": ("1-query", "4-queries", "8-queries", "8-frame", "100-queries", "100-wide", "sliding"),
    "joins": ("interval", "ajoin-1", "ajoin-20", "ajoin-100", "ajoin-500", "nway-3", "nway-4", "nway-5"),
    "peers": ("foreach-20", "foreach-8", "flink-1-net", "flink-8-net", "flink-interval-net", "apart-8", "duckdb-8"),
    "latency": ("facts/1-p50", "facts/1-p99", "interval-p50", "interval-p99"),
    "partitioning": ("packs", "tpch", "cities", "shift", "independent"),
    "partitioners": ("engine-zipf-unique", "engine-zipf-cents", "engine-uniform-unique"),
    "tpch": ("q3", "q6", "q18", "4-queries", "8-queries", "4-apart", "8-apart"),
}
"""Experiment -> the lines that the README shows, in this order."""
README_PLOTS = {"aggregates": "throughput"}
"""Experiment -> the plot that follows its lines there."""
README_NOTES = {
    "aggregates": "Not all of this is sharing: what the same engine does without it stands among the peers, below. "
    "Nor are N queries the best that Spark can do with many groups: one foreachBatch for all is faster there, and is "
    "one of the peers.",
    "partitioning": "Against Thalweg with one hash for every key, where rows are sent whole "
    "(`OPTIONS (partitioner = 'hash')`); by itself the engine would combine them or leave them where they are.",
}
"""Experiment -> what a reader has to know about its lines there."""
ORDER = (*README_LINES, "adhoc", "adaptivity", "papers", "join-planning")
"""Of the page's sections; what is not named here follows."""
out = Console()


@dataclass(frozen=True)
class Made:
    """What the measurements give: texts by path. Nothing is written yet."""

    texts: Mapping[Path, str]
    plots: Mapping[Path, Series]
    stale: tuple[Path, ...]
    """Plots that no series gives any more."""
    missing: tuple[str, ...]
    """Lines that the README should show and nobody has measured."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thalweg bench report", description=__doc__)
    parser.add_argument("--from", dest="folder", type=Path, default=TREE / "docs" / "benchmarks")
    parser.add_argument("--to", dest="page", type=Path, default=TREE / "docs" / "benchmarks.md")
    parser.add_argument("--readme", type=Path, help="left out: the project's, unless --to names another page")
    parser.add_argument("--check", action="store_true", help="only say whether everything is up to date")
    options = parser.parse_args(arguments)
    own = options.page == parser.get_default("page")
    made = make(options.folder, options.page, options.readme or (TREE / "README.md" if own else None))
    if options.check:
        wrong = list(differences(made))
        for line in wrong:
            out.print(line, soft_wrap=True, highlight=False)
        return 1 if wrong else 0
    write(made)
    for line in made.missing:
        out.print(f"the README's {line} has not been measured", soft_wrap=True, highlight=False)
    out.print(f"{options.page}, {len(made.plots)} plots", soft_wrap=True, highlight=False)
    return 0


def make(folder: Path, page: Path, readme: Path | None) -> Made:
    results, unreadable = read(folder)
    plots_folder = page.with_suffix("")
    left = os.path.relpath(folder, page.parent)
    texts = {page: report_page.page(results, unreadable, plots_folder.name, left)}
    missing: tuple[str, ...] = ()
    if readme is not None:
        measured = {result.experiment: result for result in results if not result.quick}
        part = report_page.readme_part(measured, README_LINES, README_PLOTS, "docs/benchmarks", README_NOTES)
        missing = tuple(_missing(measured))
        if part:
            texts[readme] = placed(readme.read_text(encoding="utf-8"), part)
    plots = {plots_folder / report_page.plot_name(result, s): s for result in results for s in result.series}
    stale = tuple(path for path in sorted(plots_folder.glob("*.svg")) if path not in plots)
    return Made(texts, plots, stale, missing)


def read(folder: Path) -> tuple[list[Result], list[str]]:
    """All results in the page's order, and a line for each file that is none."""
    results, unreadable = [], []
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        if "experiment" not in found:
            unreadable.append(f"{path.name} is of an older form: its experiment is to be measured again")
        elif found["experiment"] != path.stem:
            unreadable.append(f"{path.name} holds {found['experiment']}: it would be {found['experiment']}.json")
        else:
            results.append(Result.from_json(found))
    order = {name: at for at, name in enumerate(ORDER)}
    results.sort(key=lambda result: (order.get(result.experiment, len(order)), result.experiment))
    return results, unreadable


def _missing(measured: Mapping[str, Result]) -> Iterator[str]:
    for experiment, names in README_LINES.items():
        there = {line.name for line in measured[experiment].lines} if experiment in measured else set()
        yield from (f"{experiment}/{name}" for name in names if name not in there)


def placed(text: str, part: str) -> str:
    """A text with what is between the markers replaced."""
    if BEGIN not in text or END not in text:
        raise SystemExit(f"the README has no place for the tables: {BEGIN} ... {END}")
    before, rest = text.split(BEGIN, 1)
    return f"{before}{BEGIN}\n{part}\n{END}{rest.split(END, 1)[1]}"


def write(made: Made) -> None:
    # Only what draws needs matplotlib: texts are made and checked without it.
    from benchmarks import report_plots

    for path, text in made.texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path, series in made.plots.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(report_plots.drawn(series), encoding="utf-8")
    for path in made.stale:
        path.unlink()


def differences(made: Made) -> Iterator[str]:
    """A line for each file that is not what the measurements give."""
    for path, text in made.texts.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            yield f"{path} is not what the measurements give: run thalweg bench report"
    for path, series in made.plots.items():
        if not path.exists() or report_page.digest(series) not in path.read_text(encoding="utf-8")[:1000]:
            yield f"{path} does not show what was measured: run thalweg bench report"
    for path in made.stale:
        yield f"{path} shows what nobody has measured: run thalweg bench report"
