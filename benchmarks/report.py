"""Measurements as a page: the JSON of all experiments into docs/benchmarks.md and its plots.

    thalweg bench report [--from docs/benchmarks] [--to docs/benchmarks.md] [--check]

Plots go into the folder that is named as the page. `--check` writes nothing and fails where page or plots are not
what the JSON gives. A file that is not of the form of `benchmarks.result` is left out, and the page says so. What a
quick run found is marked as such.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from benchmarks import report_page
from benchmarks.result import TREE, Result, Series

ORDER = (
    "aggregates", "joins", "peers", "latency", "partitioning", "partitioners", "tpch",
    "adhoc", "adaptivity", "papers", "join-planning",
)  # fmt: skip
"""Of the page's sections; what is not named here follows."""
out = Console()


@dataclass(frozen=True)
class Made:
    """What the measurements give: texts by path. Nothing is written yet."""

    texts: Mapping[Path, str]
    plots: Mapping[Path, Series]
    stale: tuple[Path, ...]
    """Plots that no series gives any more."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thalweg bench report", description=__doc__)
    parser.add_argument("--from", dest="folder", type=Path, default=TREE / "docs" / "benchmarks")
    parser.add_argument("--to", dest="page", type=Path, default=TREE / "docs" / "benchmarks.md")
    parser.add_argument("--check", action="store_true", help="only say whether everything is up to date")
    options = parser.parse_args(arguments)
    made = make(options.folder, options.page)
    if options.check:
        wrong = list(differences(made))
        for line in wrong:
            out.print(line, soft_wrap=True, highlight=False)
        return 1 if wrong else 0
    write(made)
    out.print(f"{options.page}, {len(made.plots)} plots", soft_wrap=True, highlight=False)
    return 0


def make(folder: Path, page: Path) -> Made:
    results, unreadable = read(folder)
    plots_folder = page.with_suffix("")
    left = os.path.relpath(folder, page.parent)
    texts = {page: report_page.page(results, unreadable, plots_folder.name, left)}
    plots = {plots_folder / report_page.plot_name(result, s): s for result in results for s in result.series}
    stale = tuple(path for path in sorted(plots_folder.glob("*.svg")) if path not in plots)
    return Made(texts, plots, stale)


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
