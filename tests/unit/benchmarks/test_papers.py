"""The experiments over the papers' workloads: what they would run, and what they make of what they find."""

from __future__ import annotations

import pytest
from benchmarks import papers, tpch
from benchmarks.result import line, measured
from benchmarks.systems import SYSTEMS
from benchmarks.workloads import named


@pytest.mark.parametrize("experiment", [tpch, papers])
@pytest.mark.parametrize("quick", [False, True])
def test_every_side_is_a_system_on_a_workload_that_it_can_say(experiment, quick: bool) -> None:
    comparisons = tuple(experiment._quick()) if quick else experiment.COMPARISONS
    assert comparisons
    assert len({c.name for c in comparisons}) == len(comparisons)
    for one in (s for c in comparisons for s in c.sides):
        assert one.system in SYSTEMS
        queries = named(one.work).queries
        if one.system == "spark":
            assert all(query.spark != "" for query in queries)


@pytest.mark.parametrize("quick", [False, True])
def test_results_are_compared_with_a_batch_before_anything_is_timed(quick: bool) -> None:
    comparisons = tuple(tpch._quick()) if quick else tpch.COMPARISONS
    checks = [*tpch._checks(comparisons, quick), *papers._checks(papers.COMPARISONS)]
    for peer in (peer for check in checks for peer in check.peers):
        assert peer.files > 0
        if peer.system == "duckdb":
            assert all(query.batch for query in named(peer.work).queries)


def test_loads_are_drawn_busiest_first_for_the_grouping_that_hash_leaves_least_even() -> None:
    hashed = {
        "g0": {"partitioner": "hash", "loads": [50, 50]},
        "g1": {"partitioner": "hash", "loads": [10, 90]},
    }
    chosen = {name: {"partitioner": "combine", "loads": [50, 50]} for name in ("g0", "g1")}
    (series,) = papers._load_series({"words/zipf": {"chosen": chosen, "hash": hashed}})
    assert series.curves == {"chosen (combine)": [(0, 50), (1, 50)], "hash (hash)": [(0, 90), (1, 10)]}
    assert papers.above_even([10, 90]) == pytest.approx(0.8)


def test_findings_say_what_the_engine_chose_and_only_what_was_measured() -> None:
    ours = measured("thalweg", "words/zipf", [{"rows_per_second": 300.0}])
    theirs = measured("thalweg", "words/zipf", [{"rows_per_second": 100.0}])
    chosen = {"words/zipf": {"chosen": {"g0": {"partitioner": "combine", "loads": [1]}}}}
    (finding,) = papers._findings([line("words/zipf", "", ours, theirs)], chosen)
    assert finding.ours == "words/zipf: 3.00x the rate of hash (dealt by combine in the end)"
    assert papers._findings([], {}) == []
    assert tpch._findings([]) == []
