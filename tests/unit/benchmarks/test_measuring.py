"""Unit: what is made of what sides measured, without running any."""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks import aggregates, joins, measure, papers, peers, process, result, tpch
from benchmarks.equality import DifferenceError, compare_directories, compare_results
from benchmarks.measure import Bench, Check, Comparison, side
from benchmarks.process import SideFailedError
from benchmarks.remaining import Remaining
from benchmarks.result import Measured
from benchmarks.systems import SYSTEMS, Given, linked, run
from benchmarks.systems.eventlog import written
from benchmarks.systems.foreach import taken_apart, used_columns
from benchmarks.systems.thalweg import _figures, apart
from benchmarks.systems.usage import CpuWatch, interpolated, process_started, process_tree
from benchmarks.workloads import NAMES, make_files, named

OPTIONS = argparse.Namespace(quick=False, repetitions=3, set=[], only=None, json=None)


# -- results -----------------------------------------------------------------------------------------------


def test_a_line_has_the_ratio_of_medians_and_the_spread_of_neighbours() -> None:
    ours = result.measured("thalweg", "w", [{"rows_per_second": v} for v in (8, 10, 30)])
    theirs = result.measured("spark", "w", [{"rows_per_second": v} for v in (2, 1, 4)])
    line = result.line("n", "m", ours, theirs, 5)
    assert (line.ratio, line.ratio_low, line.ratio_high, line.reached) == (5, 4, 10, True)
    assert result.line("n", "m", ours, theirs, 4, better="lower").reached is False
    assert result.line("n", "m", ours, asked=11).reached is False
    assert result.line("n", "m", ours).reached is None


def test_results_survive_json(tmp_path: Path) -> None:
    ours = result.measured(
        "thalweg",
        "w",
        [
            {"rows_per_second": 1.5, "phases": {"read": 1, "operate": 3}, "peak_mib": 1235.5678, "batches": 9},
            {"rows_per_second": 2.5},
        ],
    )
    made = result.Result("e", "t", result.machine(), lines=(result.line("n", "m", ours, ours, 2),))
    made.write(tmp_path / "e.json")
    read = result.Result.read(tmp_path / "e.json")
    kept, whole = read.lines[0], made.lines[0]
    assert (kept.ratio, kept.ours.median, kept.ours.low, kept.ours.high) == (whole.ratio, 2.0, 1.5, 2.5)
    assert kept.ours.measures == {"peak_mib": 1235.6, "phases": {"read": 0.25, "operate": 0.75}}


def test_options_are_said_as_they_were_written() -> None:
    given = argparse.Namespace(quick=True, repetitions=2, set=["a=1", "b=2"], only=None, json=Path("x"))
    assert result.options_said(given) == "--repetitions 2 --set a=1 b=2"


# -- measuring ---------------------------------------------------------------------------------------------


class Runs:
    """Stands in for processes: rates by system, failures on cue."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.order: list[str] = []
        self.failing: set[str] = set()
        self.different: set[str] = set()
        monkeypatch.setattr(measure, "DATA", tmp_path)
        monkeypatch.setattr(measure, "run_side", self.run)
        monkeypatch.setattr(measure, "compare_results", self.compare)

    def run(self, one: measure.Side, destination: Path | None = None) -> dict[str, Any]:
        self.order.append(f"{one.system}{'!' if destination else ''}")
        if one.system in self.failing:
            raise SideFailedError("line\nwhy it failed")
        rate = {"thalweg": 30.0, "spark": 10.0, "spark-rocksdb": 3.0}[one.system]
        return {"rows_per_second": rate, "peak_mib": 1.0, "total_seconds": 0.1}

    def compare(self, work: object, directory: Path, files: int, ours: Path, theirs: Path, **_: object) -> int:
        if theirs.name in self.different:
            raise DifferenceError("a row differs")
        return 7


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    return Runs(monkeypatch, tmp_path)


OURS, SPARK, ROCKS = (side(system, "interval", 6) for system in ("thalweg", "spark", "spark-rocksdb"))
CHECK = Check(side("thalweg", "interval", 2), (side("spark", "interval", 2),))
COMPARISON, ROCKS_COMPARISON = (Comparison(one.system, "m", OURS, one, 2) for one in (SPARK, ROCKS))


def test_repetitions_are_interleaved_after_the_check(runs: Runs) -> None:
    bench = Bench("e", "t", OPTIONS)
    bench.run([CHECK], [OURS, SPARK, ROCKS], once=[ROCKS])
    assert runs.order == ["thalweg!", "spark!", *["thalweg", "spark", "spark-rocksdb"], *["thalweg", "spark"] * 2]
    (line,) = bench.lines([COMPARISON])
    assert (line.ratio, line.theirs and line.theirs.system, bench.equal) == (3, "spark", {"interval": 7})


def test_a_side_that_fails_is_told_and_the_rest_goes_on(runs: Runs) -> None:
    runs.failing = {"spark"}
    bench = Bench("e", "t", OPTIONS)
    bench.run([], [OURS, SPARK, ROCKS])
    assert runs.order.count("spark") == 1
    (line,) = bench.lines([COMPARISON, ROCKS_COMPARISON])
    assert line.theirs is not None
    assert line.theirs.system == "spark-rocksdb"
    assert bench.skipped == ["spark interval: why it failed"]


def test_what_differs_is_not_timed(runs: Runs) -> None:
    runs.different = {"spark"}
    bench = Bench("e", "t", OPTIONS)
    bench.run([CHECK], [OURS, SPARK])
    assert runs.order.count("spark") == 0
    assert bench.lines([COMPARISON]) == ()
    assert bench.equal == {}


def test_what_differs_in_a_likeness_is_not_timed(runs: Runs) -> None:
    runs.different = {"spark"}
    bench = Bench("e", "t", OPTIONS)
    small = [side(system, "nway-3", 2) for system in ("thalweg", "spark")]
    bench.run([Check(small[0], (small[1],), stands_for="interval")], [OURS, SPARK])
    assert runs.order.count("spark") == 0
    assert bench.skipped == ["spark interval: results differ from Thalweg's: a row differs"]


def test_quick_takes_the_time_of_the_runs_that_are_compared(runs: Runs) -> None:
    bench = Bench("e", "t", argparse.Namespace(**{**vars(OPTIONS), "quick": True, "repetitions": None}))
    bench.run([CHECK], [CHECK.ours, *CHECK.peers, ROCKS])
    assert runs.order == ["thalweg!", "spark!", "spark-rocksdb"]
    assert bench.line(Comparison("c", "m", CHECK.ours, CHECK.peers[0], 2)) is not None


def test_a_peer_that_is_not_there_is_skipped_with_a_line(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure.systems, "missing", lambda s: "not installed" if s == "spark" else None)
    bench = Bench("e", "t", OPTIONS)
    assert bench.chosen([COMPARISON, ROCKS_COMPARISON]) == [ROCKS_COMPARISON]
    bench.run([CHECK], [*COMPARISON.sides, ROCKS])
    assert set(runs.order) == {"thalweg", "spark-rocksdb"}
    assert bench.skipped == ["spark: not installed"]


def test_what_nobody_asks_for_is_only_what_is_usual() -> None:
    both, usual = [COMPARISON, ROCKS_COMPARISON], ["spark"]
    assert Bench("e", "t", OPTIONS).chosen(both, usual=usual) == [COMPARISON]
    asked = argparse.Namespace(**{**vars(OPTIONS), "only": ["spark-rocksdb"]})
    assert Bench("e", "t", asked).chosen(both, usual=usual) == [ROCKS_COMPARISON]


@pytest.mark.slow
def test_what_is_measured_again_leaves_the_rest_of_the_file(runs: Runs, tmp_path: Path) -> None:
    file = tmp_path / "e.json"

    def measured_with(only: list[str] | None) -> result.Result:
        bench = Bench("e", "t", argparse.Namespace(**{**vars(OPTIONS), "only": only, "json": file}))
        chosen = bench.chosen([COMPARISON, ROCKS_COMPARISON])
        bench.run([], [s for c in chosen for s in c.sides])
        lines = bench.with_older(bench.lines(chosen))
        bench.result(lines, notes=["n"])
        return result.Result.read(file)

    first = measured_with(None)
    assert [line.again for line in first.lines] == ["", ""]
    again = measured_with(["spark-rocksdb"])
    assert [line.name for line in again.lines] == ["spark", "spark-rocksdb"]
    assert [bool(line.again) for line in again.lines] == [False, True]
    assert (again.options, again.notes) == (first.options, ("n",))
    elsewhere = replace(again, machine=replace(again.machine, cores=999))
    elsewhere.write(file)
    assert [line.name for line in measured_with(["spark"]).lines] == ["spark"]


def test_a_side_that_had_all_memory_is_told() -> None:
    machine = replace(result.machine(), memory_gib=24.0)
    sides = [
        Measured(system, "w", 1.0, 1.0, 1.0, (1.0,), {"peak_mib": mib})
        for system, mib in (("ours", 3000), ("a", 23_500))
    ]
    lines = [result.line("l", "m", sides[0], sides[1])] * 2
    assert result.short_of_memory(lines, machine) == ["a w had 23 of 24 GiB in use and may have been slower for it."]


def test_what_a_jvm_is_about_to_start_has_no_memory_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = {1: "/jdk/bin/java", 2: "/jdk/bin/java", 3: "/usr/bin/python3", 4: "/usr/bin/python3"}
    threads = {1: 40, 2: 1, 3: 1, 4: 1}
    monkeypatch.setattr(process.os, "readlink", lambda path: programs[int(path.split("/")[2])])
    monkeypatch.setattr(process.os, "listdir", lambda path: ["t"] * threads[int(path.split("/")[2])])
    assert process._is_being_started(2, 1)
    assert not process._is_being_started(3, 1)
    assert not process._is_being_started(4, 3)  # a worker that was forked: what it shares is told apart by the kernel
    threads[2] = 30
    assert not process._is_being_started(2, 1)


def test_every_run_says_which_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    remaining = Remaining("e", ["a", "b"])
    with remaining.during("a"):
        pass
    remaining.begins("b")
    assert capsys.readouterr().out.splitlines() == ["e 1 of 2: a", "e 2 of 2: b"]


def test_every_comparison_is_over_workloads_and_systems_that_there_are() -> None:
    offered = [
        *aggregates.COMPARISONS, *aggregates.QUICK_COMPARISONS, *joins.COMPARISONS, *joins.QUICK_COMPARISONS,
        *peers.comparisons(False), *peers.comparisons(True), *tpch.COMPARISONS, *papers.COMPARISONS,
    ]  # fmt: skip
    assert {*tpch.USUAL, *tpch.QUICK_NAMES} <= {c.name for c in tpch.COMPARISONS}
    assert {*papers.USUAL, *papers.QUICK_NAMES} <= {c.name for c in papers.COMPARISONS}
    quick = {*aggregates.QUICK_COMPARISONS, *joins.QUICK_COMPARISONS, *peers.comparisons(True)}
    for comparison, one in ((c, s) for c in offered for s in c.sides):
        assert one.system in SYSTEMS
        batches = one.files // Given(named(one.work), Path(), one.files, None, dict(one.settings)).files_per_batch
        # The first batch is no part of a rate, and one batch alone says little.
        assert batches > (1 if comparison in quick else 2) or one.system.startswith(
            ("duckdb", "flink", "spark-foreach")
        )


# -- equality ----------------------------------------------------------------------------------------------


def _write(path: Path, **columns: list[Any]) -> None:
    path.mkdir(parents=True)
    pq.write_table(pa.table(columns), path / "part.parquet")


def test_results_are_compared_row_by_row(tmp_path: Path) -> None:
    _write(tmp_path / "ours" / "q0", k=[1, 2, 2], v=[0.1 + 0.2, 1.0, None])
    _write(tmp_path / "near" / "q0", v=[None, 0.3, 1.0], k=[2, 1, 2])
    _write(tmp_path / "far" / "q0", k=[1, 2, 2], v=[0.31, 1.0, None])
    _write(tmp_path / "more" / "q0", k=[1, 2, 2, 2], v=[0.3, 1.0, None, None])
    assert compare_directories(tmp_path / "ours", tmp_path / "near", 1) == {"q0": 3}
    for other in ("far", "more", "none"):
        with pytest.raises(DifferenceError):
            compare_directories(tmp_path / "ours", tmp_path / other, 1)
        with pytest.raises(DifferenceError):
            compare_directories(tmp_path / other, tmp_path / "ours", 1)


def test_windows_still_open_count_only_where_they_are_ours(tmp_path: Path) -> None:
    work = named("facts/1")
    directory = tmp_path / "data"
    (directory / "events").mkdir(parents=True)
    pq.write_table(work.streams[0].make(0).slice(0, 200), directory / "events" / "part-0000.parquet")
    starts = [pa.scalar(1_699_999_960 + 10 * i, pa.timestamp("s", "UTC")).as_py() for i in range(5)]
    # The newest row is 2 ms after the start, so that the watermark is 10 s before: two of the windows have closed.
    rows = {"start": starts, "a": [1] * 5, "n": [1] * 5, "total": [1.0] * 5}
    _write(tmp_path / "theirs" / "q0", **rows)
    _write(tmp_path / "ours" / "q0", **{name: values[:2] for name, values in rows.items()})
    assert compare_results(work, directory, 1, tmp_path / "ours", tmp_path / "theirs") == 2
    with pytest.raises(DifferenceError):
        compare_results(work, directory, 1, tmp_path / "theirs", tmp_path / "ours")


# -- systems -----------------------------------------------------------------------------------------------


def test_only_the_files_that_are_wanted_are_linked(tmp_path: Path) -> None:
    work = named("interval")
    given = Given(work, make_files(work, 2, tmp_path), 1)
    with linked(given) as files:
        assert sorted(str(p.relative_to(files)) for p in files.rglob("*.parquet")) == [
            "r/part-0000.parquet",
            "s/part-0000.parquet",
        ]
    assert (given.rows, given.batches) == (100_000, 1)


def test_duckdb_answers_a_join(tmp_path: Path) -> None:
    work = named("interval")
    given = Given(work, make_files(work, 1, tmp_path), 1, tmp_path / "out")
    found = run("duckdb", given)
    assert found["output_rows"] == pq.read_table(tmp_path / "out" / "q0").num_rows > 0
    assert found["cpu_seconds_per_million"] > 0


@pytest.mark.parametrize("quick", [False, True])
def test_every_peer_is_compared_before_it_is_timed(quick: bool) -> None:
    sides = [s for c in peers.comparisons(quick) for s in c.sides]
    checked = {(peer.system, peer.work) for check in peers._checks(sides) for peer in check.peers}
    for one in (s for s in sides if s.system != "thalweg"):
        assert {(one.system, one.work), (one.system, one.work.replace("facts/1", "facts/8"))} & checked


def test_what_has_no_peer_is_compared_with_duckdb() -> None:
    sides = [s for c in aggregates.COMPARISONS for s in c.sides]
    checks = {check.ours.work: {peer.system for peer in check.peers} for check in aggregates._checks(sides)}
    assert checks == {
        "facts/8": {"spark", "thalweg-frame"},
        "facts/20x5": {"duckdb"},
        "facts/wide20x5": {"duckdb"},
        "facts/window=60 seconds,1 second": {"duckdb"},
    }
    sides = [s for c in joins.COMPARISONS for s in c.sides]
    found = {check.ours.work: check.peers[0].system for check in joins._checks(sides, "equal")}
    assert found.keys() == {s.work for s in sides}
    assert (found["ajoin-20"], found["ajoin-500"], found["nway-5"]) == ("spark", "duckdb", "spark")


def test_a_row_that_queries_apart_read_several_times_counts_once(tmp_path: Path) -> None:
    work = named("game/4")
    make_files(work, 3, tmp_path)
    given = Given(work, tmp_path, 3, None, {"files_per_batch": "1"})
    # Four queries read purchases and one of them ads, too.
    reports = [
        SimpleNamespace(rows=5 * work.rows_per_file, seconds=1.0, ended=2.0 + n, emitted=0, time={}) for n in range(3)
    ]
    parts = SimpleNamespace(runner=SimpleNamespace(reports=reports))
    session = SimpleNamespace(progress=lambda: {"queries": {}}, _parts=parts)
    cpu = SimpleNamespace(seconds_between=lambda start, end: 1.0)
    found = _figures(session, cpu, given, lands=False)
    assert found["rows"] == pytest.approx(2 * 2 * work.rows_per_file)
    assert found["rows_per_second"] == pytest.approx(2 * work.rows_per_file)
    # Where rows land while batches run, the time of the first one counts.
    assert _figures(session, cpu, given, lands=True)["seconds"] == found["seconds"] + 1.0


def test_every_name_that_is_listed_is_known() -> None:
    for name in (
        "facts/8",
        "facts/20x5",
        "facts/wide20x1",
        "facts/window=60 seconds,1 second",
        "ajoin1-20",
        "nway-4",
    ):
        assert named(name).name == name
    assert {"facts/N", "interval", "nway-N"} <= NAMES.keys()
    with pytest.raises(ValueError, match="no workload is called facts/9"):
        named("facts/9")


def test_a_query_apart_reads_streams_of_its_own() -> None:
    text = "SELECT r.r_ts FROM r JOIN s ON r_k = s_k WITHIN 2 SECONDS"
    assert apart(text, ["r", "s"], 3) == "SELECT r_3.r_ts FROM r_3 JOIN s_3 ON r_k = s_k WITHIN 2 SECONDS"


def test_an_aggregation_taken_apart() -> None:
    work = named("facts/20x5")
    found = taken_apart(work.queries[70].text)
    assert found.slices == (
        "SELECT ts div 10000000 AS slice, a % 50 AS k0, b % 50 AS k1, count(*) AS n, sum(v) AS total FROM {rows} "
        "WHERE v >= 5000 AND a < 400 GROUP BY a % 50, b % 50, ts div 10000000"
    )
    assert (found.start, found.keys, found.merges) == ("start", ("k0", "k1"), {"n": "sum", "total": "sum"})
    assert (found.size_us, found.slide_us) == (30_000_000, 10_000_000)
    assert used_columns(work.streams[0], [work.queries[70].text]) == ["ts", "a", "b", "v"]
    with pytest.raises(RuntimeError, match="not a windowed aggregation"):
        taken_apart("SELECT * FROM r JOIN s ON r_k = s_k")


def test_flink_net_of_parsing() -> None:
    whole, scan = [{"rows_per_second": 100.0}], [{"rows_per_second": 500.0}]
    found = peers.net_of_scan(whole, scan, "facts/8")
    assert found is not None
    assert found.median == pytest.approx(125)
    assert peers.net_of_scan(whole, whole, "facts/8") is None


def test_shuffle_bytes_from_an_event_log(tmp_path: Path) -> None:
    metrics = '{"Shuffle Write Metrics": {"Shuffle Bytes Written": 10, "Shuffle Records Written": 2}}'
    end = '{"Event":"SparkListenerTaskEnd","Task Metrics":' + metrics + "}\n"
    (tmp_path / "app").write_text('{"Event":"SparkListenerStageCompleted"}\n' + end * 3)
    assert written(tmp_path) == {"bytes": 30, "records": 6}


@pytest.mark.slow
def test_cpu_of_a_child_is_counted() -> None:
    with CpuWatch() as watch:
        began = time.time()
        pid = os.spawnlp(os.P_NOWAIT, "sh", "sh", "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
        assert pid in process_tree(os.getpid())
        os.waitpid(pid, 0)
        ended = time.time()
    assert 0.05 < watch.seconds_between(began - 1, ended + 1) < (ended - began) * (os.cpu_count() or 1) + 1
    assert process_started() < began


def test_between_samples_a_line_is_drawn() -> None:
    samples = [(0.0, 1.0), (2.0, 5.0)]
    assert [interpolated(samples, t) for t in (-1, 0, 1, 2, 9)] == [1, 1, 3, 5, 5]
