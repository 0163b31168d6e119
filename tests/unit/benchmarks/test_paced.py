"""Unit: the pace of files, the clock of events, and latencies by result rows."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.paced.feed import Feeder, fill, make_supply
from benchmarks.paced.latencies import (
    Arrived,
    Newest,
    closing_seconds,
    counted,
    latencies,
    newest_of,
    over_time,
    quantiles,
    reach_seconds,
    summary,
)
from benchmarks.paced.scenario import Answered, Request, Scenario, sc1, sc2, spread, told
from benchmarks.paced.schedule import Size, at_pace, size_for
from benchmarks.paced.spark import arrived
from benchmarks.paced.sustained import event_rate, expected_rows
from benchmarks.workloads import named
from benchmarks.workloads.model import Query, Stream, Workload

SECOND = 1_000_000


def test_a_file_is_released_when_its_last_event_happens() -> None:
    schedule = at_pace(0, [1 * SECOND, 3 * SECOND, 4 * SECOND], [100, 200, 100], rows_per_second=50)
    assert schedule.releases.tolist() == [2, 6, 8]
    assert schedule.happened(schedule.lasts_us).tolist() == [2, 6, 8]
    assert schedule.seconds == 8


def test_event_time_runs_evenly_inside_a_file() -> None:
    schedule = at_pace(10 * SECOND, [11 * SECOND, 13 * SECOND], [100, 100], rows_per_second=100)
    events = np.array([10.5, 11.0, 12.0, 13.0]) * SECOND
    assert schedule.happened(events).tolist() == [0.5, 1.0, 1.5, 2.0]


def test_an_event_is_there_with_the_first_file_that_reaches_it() -> None:
    schedule = at_pace(0, [1 * SECOND, 2 * SECOND], [10, 10], rows_per_second=10)
    events = np.array([1, SECOND, SECOND + 1, 2 * SECOND, 2 * SECOND + 1])
    found = schedule.released(events)
    assert found[:4].tolist() == [1, 1, 2, 2]
    assert np.isnan(found[4])


@pytest.mark.parametrize(
    ("rate", "seconds", "most", "expected"),
    [
        (50_000, 10, 10_000_000, Size(5_000, 100)),
        (5_000_000, 10, 10_000_000, Size(500_000, 20)),
        (200, 10, 10_000_000, Size(100, 100)),
        (5_000_000, 10, 1, Size(500_000, 2)),
    ],
)
def test_a_fast_system_is_fed_for_fewer_seconds(rate: float, seconds: float, most: int, expected: Size) -> None:
    assert size_for(rate, seconds, most) == expected


def test_quantiles_count_rows_not_entries() -> None:
    values, rows = np.array([3.0, 1.0, 2.0]), np.array([1, 98, 1])
    assert quantiles(values, rows, (0.5, 0.98, 0.985, 0.99, 1.0)) == [1.0, 1.0, 2.0, 2.0, 3.0]


def test_quantiles_agree_with_every_row_written_out() -> None:
    rng = np.random.default_rng(7)
    values, rows = rng.random(500), rng.integers(1, 20, 500)
    written = np.sort(np.repeat(values, rows))
    shares = (0.01, 0.5, 0.9, 0.99)
    expected = [written[int(np.ceil(s * len(written))) - 1] for s in shares]
    assert quantiles(values, rows, shares) == pytest.approx(expected)


def test_a_pair_waits_for_the_later_of_its_rows() -> None:
    # 1 s of event time is 0.5 s of the clock; files end at 1 s and 2 s of event time.
    schedule = at_pace(0, [SECOND, 2 * SECOND], [10, 10], rows_per_second=20)
    found = latencies([Arrived(100.75, np.array([SECOND // 2, SECOND]), np.array([1, 3]))], schedule, began=100.0)
    assert found.whole.tolist() == [0.5, 0.25]
    assert found.beyond.tolist() == [0.25, 0.25]
    seen = summary(found)
    assert seen is not None
    assert (seen.rows, seen.p50, seen.p99, seen.mean) == (4, 0.25, 0.5, 0.3125)


def test_what_the_watermark_asks_for_is_told_apart() -> None:
    # The window ends at 2 s; with a delay of 3 s it is the event at 5 s that lets it go, in the file released at 6.
    schedule = at_pace(0, [2 * SECOND, 4 * SECOND, 6 * SECOND], [2, 2, 2], rows_per_second=1)
    window = Arrived(6.5, np.array([2 * SECOND]), np.array([10]), delay_us=3 * SECOND)
    found = latencies([window], schedule, began=0.0)
    assert found.whole.tolist() == [4.5]
    assert found.beyond.tolist() == [0.5]


def test_results_about_what_was_there_before_do_not_count() -> None:
    schedule = at_pace(5 * SECOND, [6 * SECOND], [10], rows_per_second=10)
    found = latencies([Arrived(1.5, np.array([5, 5.5]) * SECOND, np.array([7, 1]))], schedule, began=0.0)
    assert found.rows.tolist() == [1]
    assert summary(latencies([], schedule, 0.0)) is None


def test_latency_over_time_is_by_the_moment_of_the_event() -> None:
    schedule = at_pace(0, [3 * SECOND], [3], rows_per_second=1)
    got = [
        Arrived(2.0, np.array([SECOND]), np.array([1])),
        Arrived(5.0, np.array([SECOND, 3 * SECOND]), np.array([1, 1])),
    ]
    assert over_time(latencies(got, schedule, 0.0), 4.0) == [(1.0, 1.0, 2.5, 4.0), (3.0, 2.0, 2.0, 2.0)]


def test_counting_keeps_every_row() -> None:
    rng = np.random.default_rng(3)
    near = rng.integers(10**15, 10**15 + 10**7, 10_000)
    far = np.array([0, 10**16, 10**16])
    for events in (near, far):
        values, rows = counted(events)
        assert rows.sum() == len(events)
        assert np.repeat(values, rows).tolist() == np.sort(events // 1000 * 1000).tolist()


def test_points_observed_stand_for_all_rows() -> None:
    found = arrived(1.0, 7, [10, 20, 30], 5)
    assert found.rows.sum() == 7
    assert found.rows.tolist() == [2, 3, 2]
    assert found.delay_us == 5


def test_which_event_a_result_waited_for_is_read_from_the_query() -> None:
    facts, joins = named("facts/1"), named("interval")
    assert newest_of(facts.queries[0], facts) == Newest(("start",), 20 * SECOND, 10 * SECOND)
    assert newest_of(joins.queries[0], joins) == Newest(("r_ts", "s_ts"))
    with pytest.raises(ValueError, match="does not say"):
        newest_of(Query("q", "SELECT count(*) AS n FROM events GROUP BY window(ts, '1 second')"), facts)
    assert reach_seconds(facts) == 30
    assert reach_seconds(joins) == 3


def test_windows_end_and_close_however_slow_the_pace_is() -> None:
    assert closing_seconds(named("facts/8"), ends=2) == 2 * 10 + 10
    assert closing_seconds(named("facts/window=60 seconds"), ends=2) == 2 * 60 + 10
    assert closing_seconds(named("ajoin-20"), ends=2) == 0


def test_the_newest_of_a_pair_is_taken_from_its_columns() -> None:
    times = [datetime.fromtimestamp(s, UTC) for s in (1, 5, 2)]
    table = pa.table(
        {"r_ts": pa.array(times, pa.timestamp("us", "UTC")), "s_ts": pa.array(times[::-1], pa.timestamp("us", "UTC"))}
    )
    assert Newest(("r_ts", "s_ts"), 7).of(table).tolist() == [2 * SECOND + 7, 5 * SECOND + 7, 2 * SECOND + 7]


# -- files -------------------------------------------------------------------------------------------------


def _make(number: int) -> pa.Table:
    ids = np.arange(number * 10, number * 10 + 10)
    return pa.table({"id": ids, "ts": pa.array(ids * 100_000, pa.timestamp("us", "UTC"))})


SMALL = Workload(
    "small",
    (Stream("a", _make(0).schema, "ts", 0.2, _make), Stream("b", _make(0).schema, "ts", 0.2, _make)),
    (Query("q", "SELECT * FROM a", batch="SELECT * FROM a JOIN b USING (id)", closed="ts <= $watermark"),),
    rows_per_file=10,
    files_per_batch=1,
)


def test_a_supply_is_the_stream_cut_anew(tmp_path: Path) -> None:
    supply = make_supply(SMALL, tmp_path / "supply", Size(4, 5), before_rows=7)
    assert (supply.before, supply.rows) == (1, (7, 4, 4, 4, 4, 4))
    assert supply.lasts_us == tuple(newest * 100_000 for newest in (6, 10, 14, 18, 22, 26))
    ids = [i for n in range(6) for i in pq.read_table(tmp_path / f"supply/b/part-{n:05d}.parquet")["id"].to_pylist()]
    assert ids == list(range(27))
    schedule = supply.schedule(rows_per_second=80)
    assert schedule.releases == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert schedule.first_us == 600_000
    assert event_rate(SMALL) == pytest.approx(10)
    assert expected_rows(SMALL.queries, SMALL, supply) == 25  # up to 2.6 s less 0.2 s


@pytest.mark.slow
def test_files_appear_at_their_moments(tmp_path: Path) -> None:
    supply = make_supply(SMALL, tmp_path / "supply", Size(2, 5), before_rows=25)
    root = tmp_path / "in"
    for stream in supply.streams:
        (root / stream).mkdir(parents=True)
    settled: list[int] = []
    fill(supply, root, settled.append, files_per_batch=2)
    assert settled == [40, 50]
    schedule = supply.schedule(rows_per_second=40)
    feeder = Feeder(supply, schedule, lambda: [root])
    feeder.start()
    feeder.join()
    took = time.time() - feeder.began
    assert took >= schedule.seconds
    assert feeder.released == 5
    assert feeder.late_seconds >= 0
    assert sorted(path.name for path in (root / "a").iterdir()) == [f"part-{n:05d}.parquet" for n in range(8)]


# -- scenarios ---------------------------------------------------------------------------------------------


def _running(scenario: Scenario, moment: float) -> int:
    """Queries that have been asked for and not been dropped."""
    asked = [r.op for r in scenario.requests if r.moment <= moment]
    return scenario.before + asked.count("create") - asked.count("drop")


def test_sc1_creates_at_its_rate_until_there_are_enough() -> None:
    scenario = sc1(2, 5, hold=3)
    assert scenario.name == "SC1 2qs 5qp"
    assert [(r.moment, r.op, r.query) for r in scenario.requests] == [
        (0.0, "create", 1), (0.5, "create", 2), (1.0, "create", 3), (1.5, "create", 4),
    ]  # fmt: skip
    assert scenario.seconds == 4.5
    assert [_running(scenario, t) for t in (0, 1, 9)] == [2, 4, 5]


def test_sc2_drops_what_it_created_and_ends_as_it_began() -> None:
    scenario = sc2(3, 2.0, 4, hold=1)
    assert scenario.queries == 13
    assert [_running(scenario, t) for t in (0, 2, 4, 6, 8)] == [4, 4, 4, 4, 1]
    created = [r.query for r in scenario.requests if r.op == "create"]
    dropped = [r.query for r in scenario.requests if r.op == "drop"]
    assert created == dropped == list(range(1, 13))
    moments = {r.query: r.moment for r in scenario.requests if r.op == "create"}
    assert all(r.moment == moments[r.query] + 2.0 for r in scenario.requests if r.op == "drop")


def test_answers_are_told_by_kind_of_request() -> None:
    create, drop = Request(0, "create", 1), Request(1, "drop", 1)
    found = told([Answered(create, 0.1, 0.2, 0.3, 0.9, None), Answered(drop, 0.0, 0.4, None, None)])
    assert found["late_most"] == 0.1
    assert found["create_done"]["median"] == 0.9
    assert found["drop_acked"] == {"count": 1, "least": 0.4, "median": 0.4, "most": 0.4}
    assert "create_first_result" not in found
    assert "drop_done" not in found
    assert spread([3, None, 1, 2]) == {"count": 3, "least": 1, "median": 2, "most": 3}
