"""The bench of many queries: a whole batch in one process, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchmarks import many, many_joins, many_plans
from benchmarks.local_batches import run_load

from thalweg.batch import in_force
from thalweg.model.plan_input import PlanInput
from thalweg.optimize.draft import Draft
from thalweg.optimize.planner import plan_next


def test_queries_of_fewer_are_among_those_of_more() -> None:
    assert many.make_queries(5, "noop") == many.make_queries(9, "noop")[:5]


def test_windows_close_and_every_row_of_a_stream_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "PREDICATES", ("",))
    monkeypatch.setattr(many, "WINDOWS", ("'10 seconds'",))
    monkeypatch.setattr(many, "AGGREGATES", {"count(*)": "bigint", "avg(v)": "double", "sum(x)": "double"})
    found: dict[str, list[pa.Table]] = {}

    def take(batch: int, results: Any) -> None:
        for query, table in results.items():
            found.setdefault(query, []).append(table)

    spent = list(many.run(6, 3, "memory", take))
    tables = [pa.concat_tables(parts) for parts in found.values()]
    assert len(tables) == 6
    assert sum(s.emitted for s in spent) == sum(table.num_rows for table in tables) > 0
    sums = [pc.sum(column).as_py() for table in tables for column in table.columns if pa.types.is_int64(column.type)]
    # Two windows of three: that of the newest rows stays open.
    assert sums == [2 * many.ROWS] * len(sums)
    assert sums


@pytest.mark.slow
def test_noise_of_what_is_measured_makes_no_new_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(given: PlanInput, last: Draft) -> Draft:
        draft = plan_next(given, last)
        if draft is not last:
            made.append(given)
        return draft

    monkeypatch.setattr(in_force, "plan_next", counted)
    monkeypatch.setattr(many, "PREDICATES", ("",))
    assert len(many.measure(8, 6)) == 7
    assert len(made) == 2  # one before anything was measured, one after


def test_joins_find_the_same_whether_they_are_counted_or_kept() -> None:
    found: Counter[str] = Counter()

    def take(batch: int, results: Mapping[str, pa.Table]) -> None:
        found.update({query: table.num_rows for query, table in results.items()})

    kept = [spent.emitted for spent in run_load(many_joins.load(20, "memory", 2_000), 3, take)]
    counted = [spent.emitted for spent, _ in many_joins.measure(20, 3, 2_000)]
    assert kept == counted
    assert sum(kept) == found.total() > 0


@pytest.mark.slow
def test_state_of_joins_stays_near_the_rows_in_their_windows() -> None:
    """Of batches longer than the windows: also after the last of them, when their oldest rows have just gone."""
    held = [ratio for _, ratio in many_joins.measure(120, 2, 300_000)]
    assert max(held) < 1.5


@pytest.mark.slow
def test_what_one_query_costs_is_less_than_what_all_do(capsys: pytest.CaptureFixture[str]) -> None:
    change = many_plans.measure(many.load(62, "noop"), 60, 2)
    assert 0 < change.more.sent < change.all.sent
    assert 0 < change.less.sent < change.all.sent
    assert many.main(["--planning", "--joins", "--queries", "3"]) == 0
    assert "one less" in capsys.readouterr().out
