"""Docs: the README quotes no figure that no committed run has printed, and no page links to what is not there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import report
from benchmarks.quantities import quantity, times
from benchmarks.result import Result
from tests.docs.pages import ROOT

FIGURE = re.compile(r"[\d.,]+[kM]? rows/s|\b[\d.,]+x")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.fixture(scope="module")
def measured() -> dict[str, Result]:
    """What is committed, but for quick runs."""
    results = report.read(ROOT / "docs" / "benchmarks")
    return {name: result for name, result in results.items() if not result.quick}


def readme() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8")


def quoted(text: str) -> Iterator[tuple[str, set[str]]]:
    """The experiment that a line of the table links to, and the figures of the line."""
    for line in text.splitlines():
        experiment = re.search(r"\(docs/benchmarks\.md#(\S+)\) \|$", line)
        if experiment:
            yield experiment[1], set(FIGURE.findall(line))


def unmeasured(text: str, measured: dict[str, Result]) -> list[str]:
    """What the text quotes and no run has printed."""
    found = []
    for experiment, figures in quoted(text):
        printed = [
            {quantity(line.ours.median, line.unit), quantity(line.theirs.median, line.unit), times(line.ratio)}
            for line in measured[experiment].lines
            if line.theirs is not None and line.ratio is not None
        ]
        if figures not in printed:
            found.append(f"{experiment}: {sorted(figures)}")
    in_table = set().union(*(figures for _, figures in quoted(text)))
    return found + [f"elsewhere: {figure}" for figure in sorted(set(FIGURE.findall(text)) - in_table)]


def test_figures_are_those_of_committed_runs(measured: dict[str, Result]) -> None:
    assert unmeasured(readme(), measured) == []


def test_the_runs_were_made_where_and_when_the_readme_says(measured: dict[str, Result]) -> None:
    for experiment, _ in quoted(readme()):
        result = measured[experiment]
        where = f"{result.machine.cores} cores ({result.machine.cpu}), {result.machine.memory_gib:.0f} GiB"
        assert f"Medians of {result.repetitions} repetitions on {where}, {result.date}" in readme()
        assert sum(result.equal.values()) > 0


def test_three_figures_are_quoted() -> None:
    assert [len(figures) for _, figures in quoted(readme())] == [3, 3, 3]


@pytest.mark.parametrize(
    ("now", "then"), [("**31.3x**", "**41.3x**"), ("149k rows/s", "148k rows/s"), ("## Start", "2x\n## Start")]
)
def test_a_figure_that_nobody_has_measured_is_noticed(now: str, then: str, measured: dict[str, Result]) -> None:
    assert now in readme()
    assert len(unmeasured(readme().replace(now, then), measured)) == 1


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            file, _, place = target.partition("#")
            found = path.parent / file if file else path
            assert found.exists(), target
            assert not place or place in anchors(found), target


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
