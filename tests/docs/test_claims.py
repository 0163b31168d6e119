"""Docs: what README and guide say of sinks, functions and versions is what the code says."""

from __future__ import annotations

import re
import tomllib

import pytest
from tests.docs.pages import ROOT

from thalweg.frontend.listing import AGGREGATE, SCALAR, functions
from thalweg.sink.callables import to_callable
from thalweg.sink.kinds import delivery_of, parse_spec

README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")


def promised() -> dict[str, str]:
    """Of each row of the guide's table of deliveries: what it is of, and what it says."""
    table = GUIDE[GUIDE.index("| sink | delivery |") :].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {row[0]: row[1] for row in rows}


def spark(format_: str) -> str:
    return delivery_of(parse_spec("spark", {"format": format_, "path": "out"}))


def test_how_many_functions_there_are() -> None:
    listed = [function.kind for function in functions()]
    assert f"| {listed.count(AGGREGATE)} of Spark's, synonyms counted," in README
    assert f"| {listed.count(SCALAR)} scalar functions," in README


@pytest.mark.parametrize(("row", "said"), promised().items())
def test_the_guide_says_what_each_sink_promises(row: str, said: str) -> None:
    named = re.findall(r"`(\w+)`", row)
    if row.startswith("Spark"):
        found = {spark(format_) for format_ in named}
    elif row == "a callable":
        found = {delivery_of(to_callable())}
    else:
        kinds = {*named, *(kind for kind in ("memory", "console", "files") if kind in row)}
        options = {"files": {"path": "out"}}
        found = {delivery_of(parse_spec(kind, options.get(kind, {}))) for kind in kinds}
    assert found == {said}


def test_the_readme_says_what_each_sink_promises() -> None:
    once, _, again = next(line for line in README.splitlines() if line.startswith("| sinks |")).partition(". ")
    assert once == "| sinks | exactly once: memory, files, Spark's file formats and Delta"
    assert again.startswith("Console, Python callables, Spark's other writers (Kafka, JDBC) may see a batch again")
    assert {spark(name) for name in ("parquet", "orc", "csv", "json", "text", "delta")} == {"exactly once"}
    assert {spark("kafka"), spark("jdbc"), delivery_of(parse_spec("console", {}))} == {"at least once"}


def test_the_connector_that_is_named_fits_the_least_spark() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    least = next(re.search(r">=([\d.]+)", d) for d in project["dependencies"] if d.startswith("pyspark"))
    named = re.findall(r"spark-sql-kafka-0-10_2\.13:([\d.]+\d)", GUIDE)
    assert least is not None
    assert named == [f"{least[1]}.0"]
