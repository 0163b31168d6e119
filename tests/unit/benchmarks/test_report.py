"""Unit: a page and plots from measurements; a check that notices when they are not current."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks import report, report_plots
from benchmarks.quantities import compact, quantity, span, times
from benchmarks.result import Series

MACHINE = {
    "cores": 2, "memory_gib": 23.6, "cpu": "a CPU", "python": "3.11.7", "spark": "4.3.0", "duckdb": "2.0.0",
    "thalweg": "v1",
}  # fmt: skip


def side(system: str, *values: float, **measures: Any) -> dict[str, Any]:
    ordered = sorted(values)
    return {
        "system": system, "work": "facts/8", "median": ordered[len(values) // 2], "low": ordered[0],
        "high": ordered[-1], "values": list(values), "measures": measures,
    }  # fmt: skip


def aggregates() -> dict[str, Any]:
    fast = {
        "name": "8-queries", "meaning": "8 queries, against plain Spark", "unit": "rows/s", "better": "higher",
        "ours": side("thalweg", 1.7e6, 1.78e6, 1.8e6, peak_mib=3000, phases={"slot": 3.0, "ingest": 1.0}),
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
    series = {
        "name": "throughput", "title": "Throughput by queries", "x": "queries", "y": "rows/s", "log": True,
        "curves": {"Thalweg": [[1, 7e6], [8, 1.78e6], [100, 1.5e6]], "Spark": [[1, 2e6], [8, 1.1e5]]},
    }  # fmt: skip
    finding = {"paper": "SASPAR, Fig. 6", "theirs": "sharing pays from two queries on", "ours": "16x at 8"}
    return {
        "experiment": "aggregates", "title": "Windowed aggregations", "answers": "SASPAR Fig. 6", "quick": False,
        "options": "--repetitions 3",
        "date": "2026-11-16", "took_seconds": 812, "repetitions": 3, "machine": MACHINE, "lines": [fast, cpu, alone],
        "series": [series], "findings": [finding], "equal": {"facts/8": 1689977},
        "skipped": ["flink: not installed"], "notes": ["One note."], "extra": {"anything": 1},
    }  # fmt: skip


TABLE = """\
|  | ours | theirs | ratio | spread | asked |
| --- | ---: | ---: | ---: | ---: | --- |
| 8 queries, against plain Spark | 1.78M rows/s | 110k rows/s | **16.2x** | 15.0x to 17.0x | ≥ 12x ✓ |
| CPU of a batch \\| DuckDB | 0.50 s | 0.20 s | 2.50x |  | ≤ 2x **falls short** |
| a batch without rows | 21 ms |  |  | 19 to 50 ms | ≤ 0.50 s ✓ |
"""
SECTION = f"""\
## aggregates

Windowed aggregations. Answers SASPAR Fig. 6.

- Run it: `./dev bench aggregates --repetitions 3 --json docs/benchmarks/aggregates.json` \
([what it left](benchmarks/aggregates.json))
- 2026-11-16, 14 minutes, medians of 3 repetitions, on 2 cores (a CPU), 24 GiB; Python 3.11.7, Spark 4.3.0, \
DuckDB 2.0.0, Thalweg v1
- Results compared row by row and equal: facts/8 (1,689,977 rows)

{TABLE}
![Throughput by queries](benchmarks/aggregates-throughput.svg)

> **SASPAR, Fig. 6:** sharing pays from two queries on.<br>
> **Here:** 16x at 8.

<details><summary>Memory, CPU, shuffle, start</summary>

| ours : theirs | peak memory |
| --- | ---: |
| 8 queries, against plain Spark | 2.93 GiB : 18.6 GiB |

</details>

<details><summary>Where the time goes</summary>

| ours | shares of the time of all phases |
| --- | --- |
| 8 queries, against plain Spark | slot 75%, ingest 25% |

</details>

- Skipped: flink: not installed
- One note.
"""


class Docs:
    """A tree with measurements, run as the command would."""

    def __init__(self, root: Path) -> None:
        self.folder, self.page = root / "benchmarks", root / "benchmarks.md"
        self.folder.mkdir()
        self.measure(aggregates())

    def measure(self, found: dict[str, Any], name: str | None = None) -> None:
        (self.folder / f"{name or found.get('experiment')}.json").write_text(json.dumps(found))

    def run(self, *more: str) -> int:
        return report.main(["--from", str(self.folder), "--to", str(self.page), *more])


@pytest.fixture
def docs(tmp_path: Path) -> Docs:
    return Docs(tmp_path)


def test_page_of_one_experiment(docs: Docs) -> None:
    assert docs.run() == 0
    page = docs.page.read_text()
    assert page.startswith("# Measurements\n")
    overview, section = page.split("## aggregates", 1)
    short = "| Windowed aggregations | SASPAR Fig. 6 | 2 of 3 | CPU of a batch \\| DuckDB |"
    assert f"| [aggregates](#aggregates) {short}" in overview
    assert "## aggregates" + section == SECTION


def test_check_is_content_with_what_was_just_written(docs: Docs) -> None:
    docs.run()
    before = {path: path.stat().st_mtime_ns for path in docs.folder.iterdir()}
    assert docs.run("--check") == 0
    assert {path: path.stat().st_mtime_ns for path in docs.folder.iterdir()} == before


def test_check_notices_a_changed_figure(docs: Docs, capsys: pytest.CaptureFixture[str]) -> None:
    docs.run()
    found = aggregates()
    found["lines"][0]["ours"]["median"] = 1.9e6
    docs.measure(found)
    capsys.readouterr()
    assert docs.run("--check") == 1
    said = capsys.readouterr().out
    assert "benchmarks.md" in said
    assert ".svg" not in said


def test_check_notices_what_was_edited_by_hand(docs: Docs) -> None:
    docs.run()
    docs.page.write_text(docs.page.read_text().replace("falls short", "✓"))
    assert docs.run("--check") == 1


def test_check_notices_plots_that_show_something_else(docs: Docs, capsys: pytest.CaptureFixture[str]) -> None:
    docs.run()
    found = aggregates()
    found["series"][0]["curves"]["Spark"][1][1] = 1.2e5
    docs.measure(found)
    capsys.readouterr()
    assert docs.run("--check") == 1
    assert "aggregates-throughput.svg" in capsys.readouterr().out
    docs.run()
    left = docs.folder / "aggregates-older.svg"
    left.write_text("<svg/>")
    assert docs.run("--check") == 1
    docs.run()
    assert not left.exists()
    assert docs.run("--check") == 0


def test_quick_runs_are_marked(docs: Docs) -> None:
    docs.measure({**aggregates(), "quick": True})
    docs.run()
    assert "**A quick run**" in docs.page.read_text()


def test_files_of_another_form_are_named(docs: Docs) -> None:
    docs.measure({"comparisons": []}, "joins")
    docs.measure({**aggregates(), "experiment": "latency"}, "other")
    docs.run()
    page = docs.page.read_text()
    assert "- joins.json is of an older form" in page
    assert "- other.json holds latency" in page
    assert "## latency" not in page


def test_a_finding_stands_below_the_plot_it_names(docs: Docs) -> None:
    found = aggregates()
    found["series"].append({**found["series"][0], "name": "latency", "title": "Latency"})
    found["findings"] = [
        {"paper": "A", "theirs": "a", "ours": "b", "series": "latency"},
        {"paper": "B", "theirs": "a", "ours": "b"},
    ]
    docs.measure(found)
    docs.run()
    page = docs.page.read_text()
    order = ["**B:**", "aggregates-throughput.svg", "aggregates-latency.svg", "**A:**"]
    assert sorted(order, key=page.index) == order


def test_what_is_committed_is_current() -> None:
    assert report.main(["--check"]) == 0


LINES = Series(
    "a", "Slots & <loads>", "batch", "rows", {f"slot {i}": [(x, 1e4 + i + x) for x in range(40)] for i in range(12)}
)
DOTS = Series(
    "b", "Copies", "stream", "copies", {"hashed": [("users", 2.3), ("shops", 1.7)], "optimised": [("users", 1.0)]}
)
ONE = Series("c", "One point", "queries", "s", {"Thalweg": [(5, 0.0)]}, log=True)


@pytest.mark.slow
@pytest.mark.parametrize("series", [LINES, DOTS, ONE], ids=["lines", "dots", "one"])
def test_plots_are_small_and_the_same_each_time(series: Series) -> None:
    drawn = report_plots.drawn(series)
    assert drawn == report_plots.drawn(series)
    assert len(drawn) < 60_000
    root = ElementTree.fromstring(drawn)
    texts = {"".join(each.itertext()).split("  ")[0] for each in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {series.title, *series.curves} <= texts
    assert "prefers-color-scheme: dark" in drawn


def test_names_at_line_ends_keep_their_order_and_do_not_touch() -> None:
    places = {"a": 10.0, "b": 12.0, "c": 11.0, "d": 40.0, "e": 41.0, "far": 100.0}
    found = report_plots.spread(places, 11.0)
    order = sorted(found, key=found.__getitem__)
    assert order == sorted(places, key=places.__getitem__)
    gaps = [found[b] - found[a] for a, b in pairwise(order)]
    assert min(gaps) >= 11.0 - 1e-9
    assert found["far"] == 100.0


def test_every_colour_is_legible_on_light_and_dark() -> None:
    for colour in {*report_plots.COLOURS, *report_plots.KNOWN.values()}:
        for page in ("#ffffff", "#0d1117"):
            assert contrast(colour, page) >= 3.5, (colour, page)
    for light, dark in report_plots.DARK.items():
        if light != report_plots.RULE:
            assert min(contrast(light, "#ffffff"), contrast(dark, "#0d1117")) >= 4.5


def contrast(one: str, other: str) -> float:
    """WCAG's."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_curves_that_are_known_keep_their_colour_and_none_is_used_twice() -> None:
    found = report_plots.colours_of(["Spark", "Thalweg", "Thalweg, apart", "Flink", "x"])
    assert found["Thalweg"] == report_plots.OURS
    assert found["Spark"] == report_plots.KNOWN["spark"]
    assert len(set(found.values())) == 5
    assert len(report_plots.colours_of([f"slot {i}" for i in range(30)])) == 30


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
