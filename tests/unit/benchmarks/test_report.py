"""Unit: figures of a page from measurements; a check that notices when they are not current."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks import report
from benchmarks.quantities import compact, quantity, span, times

MACHINE = {
    "cores": 2, "memory_gib": 23.6, "cpu": "a CPU", "python": "3.11.7", "spark": "4.3.0", "duckdb": "2.0.0",
    "thalweg": "v1",
}  # fmt: skip


def side(system: str, *values: float, **measures: Any) -> dict[str, Any]:
    ordered = sorted(values)
    return {
        "system": system, "work": "facts/8", "median": ordered[len(values) // 2], "low": ordered[0],
        "high": ordered[-1], "measures": measures,
    }  # fmt: skip


def aggregates() -> dict[str, Any]:
    fast = {
        "name": "8-queries", "meaning": "8 queries, against plain Spark", "unit": "rows/s", "better": "higher",
        "ours": side("thalweg", 1.7e6, 1.78e6, 1.8e6, peak_mib=3000, phases={"slot": 0.75, "ingest": 0.25}),
        "theirs": side("spark", 1e5, 1.1e5, 1.2e5, peak_mib=19000),
        "ratio": 16.18, "ratio_low": 15.0, "ratio_high": 17.0, "asked": 12,
    }  # fmt: skip
    cpu = {
        "name": "duckdb", "meaning": "CPU of a batch | DuckDB", "unit": "s", "better": "lower",
        "ours": side("thalweg", 0.5), "theirs": side("duckdb", 0.2),
        "ratio": 2.5, "ratio_low": 2.5, "ratio_high": 2.5, "asked": 2,
    }  # fmt: skip
    alone = {
        "name": "empty", "meaning": "a batch without rows", "unit": "s", "better": "lower",
        "ours": side("thalweg", 0.019, 0.021, 0.05), "theirs": None,
        "ratio": None, "ratio_low": None, "ratio_high": None, "asked": 0.5,
    }  # fmt: skip
    return {
        "experiment": "aggregates", "title": "Windowed aggregations", "answers": "SASPAR Fig. 6", "quick": False,
        "options": "--repetitions 3",
        "date": "2026-11-16", "took_seconds": 812, "repetitions": 3, "machine": MACHINE, "lines": [fast, cpu, alone],
        "equal": {"facts/8": 1689977}, "skipped": ["flink: not installed"], "notes": ["One note."],
    }  # fmt: skip


TABLE = """\
|  | ours | theirs | ratio | spread | asked |
| --- | ---: | ---: | ---: | ---: | --- |
| 8 queries, against plain Spark | 1.78M rows/s | 110k rows/s | **16.2x** | 15.0x to 17.0x | ≥ 12x ✓ |
| CPU of a batch \\| DuckDB | 0.50 s | 0.20 s | 2.50x |  | ≤ 2x **falls short** |
| a batch without rows | 21 ms |  |  | 19 to 50 ms | ≤ 0.50 s ✓ |
"""
FIGURES = f"""\
- Run it: `./dev bench aggregates --repetitions 3 --json docs/benchmarks/aggregates.json` \
([medians](benchmarks/aggregates.json))
- 2026-11-16, 14 minutes, medians of 3 repetitions, on 2 cores (a CPU), 24 GiB; Python 3.11.7, Spark 4.3.0, \
DuckDB 2.0.0, Thalweg v1
- Results compared row by row and equal: facts/8 (1,689,977 rows)

{TABLE}
<details><summary>Memory, CPU, shuffle, start</summary>

| ours : theirs | peak memory |
| --- | ---: |
| 8 queries, against plain Spark | 2.93 GiB : 18.6 GiB |

</details>

<details><summary>Where the time goes</summary>

| ours | shares of the time of all phases |
| --- | ---: |
| 8 queries, against plain Spark | slot 75%, ingest 25% |

</details>

- Skipped: flink: not installed
- One note.
"""


PAGE = """\
# Figures

<!-- figures: overview -->
<!-- end -->

## aggregates

What somebody wrote.

<!-- figures: aggregates -->
something older
<!-- end -->

What else somebody wrote.
"""


class Docs:
    """A tree with measurements, run as the command would."""

    def __init__(self, root: Path) -> None:
        self.folder, self.page = root / "benchmarks", root / "benchmarks.md"
        self.folder.mkdir()
        self.page.write_text(PAGE)
        self.measure(aggregates())

    def measure(self, found: dict[str, Any]) -> None:
        (self.folder / f"{found['experiment']}.json").write_text(json.dumps(found))

    def run(self, *more: str) -> int:
        return report.main(["--from", str(self.folder), "--to", str(self.page), *more])


@pytest.fixture
def docs(tmp_path: Path) -> Docs:
    return Docs(tmp_path)


def test_figures_stand_where_the_page_asks_for_them(docs: Docs) -> None:
    assert docs.run() == 0
    overview, section = docs.page.read_text().split("## aggregates", 1)
    short = "| Windowed aggregations | SASPAR Fig. 6 | 2 of 3 | CPU of a batch \\| DuckDB |"
    assert f"| [aggregates](#aggregates) {short}" in overview
    around = "\n\nWhat somebody wrote.\n\n<!-- figures: aggregates -->\n{}<!-- end -->\n\nWhat else somebody wrote.\n"
    assert section == around.format(FIGURES)


def test_check_notices_a_changed_figure(docs: Docs, capsys: pytest.CaptureFixture[str]) -> None:
    assert docs.run("--check") == 1
    assert docs.page.read_text() == PAGE
    docs.run()
    assert docs.run("--check") == 0
    found = aggregates()
    found["lines"][0]["ours"]["median"] = 2e6
    docs.measure(found)
    assert docs.run("--check") == 1
    assert "is not what the measurements give" in capsys.readouterr().out


def test_figures_that_are_not_there_are_named(docs: Docs, capsys: pytest.CaptureFixture[str]) -> None:
    (docs.folder / "aggregates.json").unlink()
    assert docs.run() == 1
    assert "names aggregates" in capsys.readouterr().out


def test_quick_runs_are_marked(docs: Docs) -> None:
    docs.measure({**aggregates(), "quick": True})
    docs.run()
    assert "**A quick run**" in docs.page.read_text()


def test_what_is_committed_is_current() -> None:
    assert report.main(["--check"]) == 0


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0178, "0.018"), (0.5, "0.50"), (1, "1"), (17.84, "17.8"), (178, "178"), (1780, "1,780"),
     (9999.6, "10k"), (999_600, "1M"), (1.784e6, "1.78M"), (2.5e9, "2.50G"), (-3, "−3")],
)  # fmt: skip
def test_three_digits(value: float, text: str) -> None:
    assert compact(value) == text


def test_units() -> None:
    assert quantity(0.0213, "s") == "21.3 ms"
    assert quantity(0.5, "s") == "0.50 s"
    assert quantity(3) == "3"
    assert quantity(1.5, "x") == "1.50x"
    assert quantity(1.2e-13, "%") == "0 %"
    assert span(0.05, 0.5, "s") == "50 ms to 0.50 s"
    assert span(1e6, 2e6, "rows/s") == "1M to 2M rows/s"
    assert span(1.5, 2, "x") == "1.50x to 2x"
    assert [times(ratio) for ratio in (0.464, 2.5, 17.12, 120.4)] == ["0.46x", "2.50x", "17.1x", "120x"]
