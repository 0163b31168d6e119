"""What the join optimiser's benchmark found, as lines, plots and answers to CLASH's figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.quantities import quantity
from benchmarks.result import Finding, Line, Series, line, measured

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
Curve = list[tuple[float | str, float]]
METHOD_NAMES = {"dp": "dynamic program", "ilp": "integer program", "auto": "Thalweg: both"}


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


# --- plots ----------------------------------------------------------------------------------------------


def series(found: Found) -> Iterator[Series]:
    swept = found.get("sweep", ())
    for relations in (10, 100):
        of = [each for each in _by_count(swept, 1) if each["relations"] == relations]
        if of:
            curves: dict[str, Curve] = {
                "together": [(each["queries"], each["cost"]) for each in of],
                "apart": [(each["queries"], each["separate"]) for each in of],
            }
            title = f"Rows sent for probing, queries of 3 out of {relations} relations"
            yield Series(f"cost-{relations}", title, "queries", "rows", curves)
    if swept:
        times: dict[str, Curve] = {}
        for chi in (1, 5):
            for each in _by_count(swept, chi):
                name = f"{each['relations']} relations, chi {chi}"
                times.setdefault(name, []).append((each["queries"], each["seconds"]))
        yield Series("time", "Optimiser time, queries of 3 relations", "queries", "seconds", times, log=True)
        sizes: dict[str, Curve] = {f"chi {chi}": _by_size(swept, chi) for chi in (1, 5)}
        yield Series("size", "Optimiser time, ten queries", "relations of a query", "seconds", sizes, log=True)
    if found.get("methods"):
        yield _methods(found["methods"])


def _by_count(swept: Lines, chi: int) -> Lines:
    """One of each number: ten queries out of ten relations were drawn for the sweep over sizes, too."""
    of = [each for each in swept if each["parallelism"] == chi and each["size"] == 3]
    return list({(each["queries"], each["relations"]): each for each in of}.values())


def _by_size(swept: Lines, chi: int) -> Curve:
    ten = [each for each in swept if each["parallelism"] == chi and (each["queries"], each["relations"]) == (10, 10)]
    return [*{each["size"]: each["seconds"] for each in ten}.items()]


def _methods(found: Lines) -> Series:
    curves: dict[str, Curve] = {}
    for each in found:
        said = f"{each['workload']}, chi {each['parallelism']}"
        curves.setdefault(METHOD_NAMES[each["asked of"]], []).append((said, 100 * each["gap"]))
    return Series("gap", "What each method leaves unproven", "workload", "% of the cost", curves)


# --- findings -------------------------------------------------------------------------------------------


def findings(found: Found) -> Iterator[Finding]:
    if found.get("example"):
        costs = sorted({round(plan["cost"], 3) for plan in found["example"].values()})
        said = " and ".join(f"{cost:g}" for cost in costs)
        yield Finding(
            "CLASH, Section V.2",
            "two queries that share probe steps send 800 tuples instead of 950",
            f"{said}, by every method" if len(costs) == 1 else f"{said}, depending on the method",
        )
    swept = {(e["queries"], e["size"], e["relations"], e["parallelism"]): e for e in found.get("sweep", ())}
    if (100, 3, 10, 1) in swept:
        yield Finding(
            "CLASH, Fig. 9a",
            "with 100 queries over ten relations, sharing saves about 50 % of the probe cost",
            f"{swept[100, 3, 10, 1]['saving']:.0%} where a broadcast costs nothing more, "
            f"{swept[100, 3, 10, 5]['saving']:.0%} at chi 5",
            "cost-10",
        )
    yield from _few(swept)
    yield from _times(swept)
    if found.get("methods"):
        yield _unproven(found["methods"])


Swept = Mapping[tuple[int, int, int, int], Mapping[str, Any]]


def _few(swept: Swept) -> Iterator[Finding]:
    counts = [count for count in (50, 100) if (count, 3, 100, 1) in swept]
    if counts:
        said = [f"{swept[count, 3, 100, 1]['saving']:.0%} at {count} queries" for count in counts]
        yield Finding(
            "CLASH, Fig. 9c",
            "over a hundred relations there is little to share: about 15 % at 50 queries",
            ", ".join(said),
            "cost-100",
        )


def _times(swept: Swept) -> Iterator[Finding]:
    if (100, 3, 100, 1) in swept:
        taken = [quantity(swept[100, 3, 100, chi]["seconds"], "s") for chi in (1, 5)]
        yield Finding(
            "CLASH, Fig. 9e",
            "time grows linearly; 100 queries of three out of a hundred relations take 120 ms",
            f"{taken[0]}, {taken[1]} at chi 5",
            "time",
        )
    sizes = [size for size in (4, 5) if (10, size, 10, 1) in swept]
    if sizes:
        taken = [f"{quantity(swept[10, size, 10, 1]['seconds'], 's')} for size {size}" for size in sizes]
        yield Finding(
            "CLASH, Fig. 9f",
            "ten queries of size four take 400 ms, of size five twelve seconds",
            f"{' and '.join(taken)}, within a budget of 1 s after which the best plan so far counts",
            "size",
        )


def _unproven(found: Lines) -> Finding:
    said: dict[str, list[str]] = {}
    for each in found:
        name = f"{each['workload']}, chi {each['parallelism']}"
        said.setdefault(name, []).append(f"{METHOD_NAMES[each['asked of']]} {each['gap']:.1%}")
    return Finding(
        "CLASH, Fig. 9f",
        "Gurobi finds the optimum however long it takes: thirty queries of size five take over two minutes",
        "unproven after 1 s: " + "; ".join(f"{name}: {', '.join(parts)}" for name, parts in said.items()),
        "gap",
    )
