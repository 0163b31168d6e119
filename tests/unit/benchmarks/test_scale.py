"""The bench from 20 to 2,000 queries: its workload, sharing taken out, the curves."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pyarrow.compute as pc
import pytest
from benchmarks import curves, scale
from benchmarks import many as local_bench
from benchmarks.result import Measured, Result, line, machine
from benchmarks.systems import unshared
from benchmarks.workloads import many, named

from thalweg.batch import in_force
from thalweg.model.plan_input import PlanInput
from thalweg.optimize import check_plan, roll_up, split_aggregates
from thalweg.optimize.draft import Draft
from thalweg.optimize.planner import plan_next


def test_queries_of_fewer_are_among_those_of_more() -> None:
    assert many.queries(5) == many.queries(9)[:5]
    assert len({query.text for query in many.queries(200)}) > 190


def test_a_file_holds_ten_seconds() -> None:
    for name, rows in (("many/3", 20_000), ("many/3/large", 500_000)):
        work = named(name)
        times = work.streams[0].make(2).column("ts")
        assert len(times) == rows
        assert (pc.max(times).as_py() - pc.min(times).as_py()).total_seconds() < 10


def test_every_comparison_names_a_workload() -> None:
    for comparison in scale.COMPARISONS:
        for side in comparison.sides:
            number = int(re.search(r"\d+", side.work)[0])
            assert number in scale.NUMBERS
            if side.work.startswith("many/"):
                assert len(named(side.work).queries) == number


@pytest.fixture
def shared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the test."""
    monkeypatch.setattr(
        split_aggregates._AggregateSplitter, "_grouping", split_aggregates._AggregateSplitter._grouping
    )
    monkeypatch.setattr(roll_up, "_choose", roll_up._choose)
    monkeypatch.setattr(check_plan, "what_is_broken", check_plan.what_is_broken)


@pytest.mark.slow
@pytest.mark.usefixtures("shared_again")
def test_without_sharing_every_query_groups_by_itself_and_results_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groupings: list[int] = []

    def counted(given: PlanInput, last: Draft) -> Draft:
        draft = plan_next(given, last)
        groupings.append(len(draft.plan.groupings))
        return draft

    monkeypatch.setattr(in_force, "plan_next", counted)

    def run() -> tuple[dict[tuple[int, str], list[tuple]], int]:
        found: dict[tuple[int, str], list[tuple]] = {}
        groupings.clear()

        def take(batch: int, results: Any) -> None:
            for query, table in results.items():
                found[batch, query] = sorted(zip(*(c.to_pylist() for c in table.columns), strict=True))

        assert len(list(local_bench.run(12, 3, "memory", take))) == 4
        return found, groupings[-1]

    together, few = run()
    unshared.keep_apart()
    apart, many_ = run()
    assert together == apart
    assert together
    assert few < many_ == 12


def test_curves_go_through_the_medians_of_every_system() -> None:
    def rate(system: str, work: str, median: float) -> Measured:
        return Measured(system, work, median, median, median)

    lines = [
        line("a", "", rate("thalweg", "many/20/large", 5e6), rate("thalweg-unshared", "many/20/large", 2e6)),
        line("b", "", rate("thalweg", "many/2000/large", 1e6), rate("thalweg-unshared", "many/2000/large", 1e5)),
        line("c", "", rate("thalweg", "ajoin-500@75", 3e5)),
        line("d", "", rate("thalweg", "many/20", 0.4), unit="s"),
    ]
    found = curves.rates(Result("scale", "", machine(), lines=tuple(lines)))
    assert found == {
        "Thalweg: aggregations": [(20.0, 5e6), (2000.0, 1e6)],
        "Thalweg, sharing off: aggregations": [(20.0, 2e6), (2000.0, 1e5)],
        "Thalweg: joins": [(500.0, 3e5)],
    }
    drawn = ElementTree.fromstring(curves.draw("Rows & queries", found, "rows/s"))
    circles = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in drawn.iter() if c.tag.endswith("circle")]
    assert len(circles) == 5
    left, right = circles[:2]
    assert left[0] == curves.LEFT
    assert right[0] == curves.WIDTH - curves.RIGHT
    assert left[1] < right[1]  # more is higher up
