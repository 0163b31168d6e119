"""What the join optimiser's benchmark sets beside what, as lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.result import Line, line, measured

EXAMPLE = (950.0, 800.0)
"""CLASH, Section V.2: tuples sent apart, and together."""
NOTES = (
    "Workloads are drawn as in CLASH, Section VII.C; a repetition is another draw. Chi is what a broadcast costs: "
    "where it is more than 1, sharing a store can cost more than it saves.",
    "The gap is what the bound leaves unproven of the cost. CLASH's times are Gurobi's on another machine.",
)
Found = Mapping[str, Any]
"""Section -> what it found."""
Lines = Sequence[Mapping[str, Any]]


def lines(found: Found) -> Iterator[Line]:
    yield from _example_lines(found.get("example", {}))
    for each in found.get("asked", ()):
        yield from _asked_lines(each)
    yield from _attach_lines(found.get("attach", ()))


def _example_lines(found: Mapping[str, Mapping[str, float]]) -> Iterator[Line]:
    apart, together = EXAMPLE
    for method, plan in found.items():
        ours = measured("thalweg", "example", [{"cost": round(plan["cost"], 6)}], "cost")
        meaning = f"CLASH's example ({apart:g} apart), {method}"
        yield line(f"example-{method}", meaning, ours, None, together, unit="tuples", better="lower")


def _asked_lines(each: Mapping[str, Any]) -> Iterator[Line]:
    """Time, gap and saving, each where something is asked of it; time always."""
    key, meaning, asked = _key(each), _meaning(each), each["asked"]
    ours = measured("thalweg", each["workload"], each["runs"], "seconds")
    yield line(f"{key}-seconds", f"time, {meaning}", ours, None, asked["seconds"] or None, unit="s", better="lower")
    if asked["gap"]:
        gaps = [{"gap": 100 * run["gap"]} for run in each["runs"]]
        ours = measured("thalweg", each["workload"], gaps, "gap")
        yield line(f"{key}-gap", f"gap, {meaning}", ours, None, 100 * asked["gap"], unit="%", better="lower")
    if asked["saving"]:
        ours = measured("thalweg", each["workload"], each["runs"], "cost")
        theirs = measured("each query alone", each["workload"], each["runs"], "separate")
        most = round(1 - asked["saving"], 4)
        yield line(f"{key}-cost", f"rows sent, {meaning}", ours, theirs, most, unit="rows", better="lower")


def _key(each: Mapping[str, Any]) -> str:
    stores = "" if each["materialize"] else "-base"
    return f"{each['queries']}x{each['size']}-of-{each['relations']}-chi-{each['parallelism']}{stores}"


def _meaning(each: Mapping[str, Any]) -> str:
    stores = "" if each["materialize"] else ", no intermediate stores"
    return f"{each['workload']}, chi {each['parallelism']}{stores}"


def _attach_lines(found: Lines) -> Iterator[Line]:
    """A query that comes: how long it takes, and what the plan costs against a full run's."""
    for each in found:
        key = _key({"materialize": True, **each})
        meaning = f"{each['workload']}, chi {each['parallelism']}"
        ours = measured("thalweg", each["workload"], [each], "attach seconds")
        yield line(f"attach-{key}", f"a query comes, {meaning}", ours, None, unit="s", better="lower")
        ours = measured("thalweg", each["workload"], [each], "attach ratio")
        said = f"cost after {each['attach']:g} came one by one, in times of a full run's, {meaning}"
        yield line(f"attach-cost-{key}", said, ours, None, unit="x", better="lower")
