"""The experiments over the papers' workloads: what they would run, and what they make of what they find."""

from __future__ import annotations

from argparse import Namespace

import pytest
from benchmarks import papers, tpch
from benchmarks.measure import Bench
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


def test_who_dealt_the_rows_out_is_told_where_the_engine_chose() -> None:
    chosen = {name: {"partitioner": "combine", "loads": [50, 50]} for name in ("g0", "g1")}
    bench = Bench("papers", "t", Namespace(quick=False, repetitions=1))
    bench.runs = {c.ours: [{"dealt": chosen}] for c in papers.COMPARISONS if c.name == "words/zipf"}
    assert papers._dealt_out(bench, papers.COMPARISONS) == ["words/zipf: dealt by combine in the end"]
