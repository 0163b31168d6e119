"""Unit: what the experiments latency and adhoc make of their runs, which are made up here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks import adhoc, latency
from benchmarks.paced import runs
from benchmarks.paced.__main__ import scenario
from benchmarks.process import SideFailedError
from benchmarks.result import Result

COMMON = {
    "rows": 1000, "least": 0.1, "mean": 0.6, "most": 3.0, "seconds": 10.0, "output_rows": 1000, "behind_seconds": 0.5,
    "feeder_late_seconds": 0.01, "peak_mib": 100.0, "total_seconds": 20.0, "batch_seconds": 0.5, "batches": 20,
    "slowest_batch_seconds": 1.5, "moments": 50, "over_time": [[0.0, 0.1, 0.5, 1.0], [1.0, 0.1, 0.7, 3.0]],
}  # fmt: skip


class Made:
    """Stands for the processes: Spark is ten times as late at a tenth of the rate."""

    def __init__(
        self, failing: str = "", expected: int = 1000, spark_keeps: float = 1e6, fails_below: float = 0
    ) -> None:
        self.calls: list[list[str]] = []
        self._failing = failing
        self._fails_below = fails_below
        """Rows/s: Spark, fed with less, brings no result."""
        self._expected = expected
        self._spark_keeps = spark_keeps
        """Rows/s: at any more it falls behind."""

    def __call__(self, module: str, arguments: Sequence[str]) -> dict[str, Any]:
        assert module == "benchmarks.paced"
        self.calls.append(list(arguments))
        system = arguments[0]
        if system == self._failing:
            raise SideFailedError("Traceback ...\nOutOfMemoryError: heap")
        times = 10.0 if system == "spark" else 1.0
        given = dict(zip(arguments[1::2], arguments[2::2], strict=True))
        found = COMMON | {
            "sustained_rows_per_second": None if "--rate" in given else 1e6 / times,
            "rows_per_second": float(given.get("--rate", 0.7e6 / times)),
            "event_seconds_per_second": 1.0,
            "expected_rows": self._expected,
        }
        if system == "spark" and found["rows_per_second"] < self._fails_below:
            raise SideFailedError("brought no result")
        if system == "spark" and found["rows_per_second"] > self._spark_keeps:
            found["behind_seconds"] = 3.0
        found |= {"p50": 0.5 * times, "p99": 2.0 * times, "beyond_p50": 0.25 * times, "beyond_p99": times}
        return found | (_requests(times) if "--scenario" in given else {})


def _requests(times: float) -> dict[str, Any]:
    step = {"count": 3, "least": 0.1, "median": 0.2 * times, "most": 0.9}
    steps = {f"create_{name}": step for name in ("acked", "began", "done", "first_result")}
    return steps | {
        "late_most": 2.0, "after_p50": 0.4, "after_p99": 1.0, "after_busy_rows_per_second": 1e6,
        "busy_share": 0.5, "by_queries": [[1, 1e6, 1000], [10, 5e5, 9000]], "scenario": "SC1",
        "checked_rows": 1000, "drop_acked": step, "drop_done": step, "failed": {}, "all_freed_seconds": 0.4,
    }  # fmt: skip


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Made:
    processes = Made()
    monkeypatch.setattr(runs, "run_process", processes)
    return processes


def _read(path: Path) -> Result:
    text = path.read_text()
    assert "NaN" not in text
    return Result.from_json(json.loads(text))


def test_latency_sets_both_systems_side_by_side(made: Made, tmp_path: Path) -> None:
    asked = ["--only", "facts/1", "interval", "--repetitions", "1"]
    assert latency.main([*asked, "--json", str(tmp_path / "found.json")]) == 0
    found = _read(tmp_path / "found.json")
    lines = {line.name: line for line in found.lines}
    assert lines["interval-p99"].ratio == pytest.approx(0.1)
    assert (lines["interval-p99"].unit, lines["interval-p99"].better) == ("s", "lower")
    assert lines["facts/1-beyond-p50"].ours.median == 0.25
    assert "interval-beyond-p50" not in lines
    assert all("over_time" not in line.ours.measures for line in found.lines)
    assert [call[0] for call in made.calls] == [*["thalweg", "spark"] * 2, "thalweg"]


def test_latency_also_at_plain_sparks_pace(made: Made, tmp_path: Path) -> None:
    latency.main(["--only", "interval", "--repetitions", "2", "--json", str(tmp_path / "found.json")])
    same_pace = made.calls[2]
    assert same_pace[:3] == ["thalweg", "--work", "interval"]
    assert float(same_pace[same_pace.index("--rate") + 1]) == pytest.approx(70_000)
    assert len(made.calls) == 6
    again = made.calls[3]
    assert again[again.index("--rate") + 1] == "700000.0"  # the pace of the first repetition
    assert "--rate" not in made.calls[0]
    lines = {line.name: line for line in _read(tmp_path / "found.json").lines}
    assert lines["interval-same-pace-p50"].theirs is not None
    assert (lines["interval-p50"].ours.low, lines["interval-p50"].ours.high) == (0.5, 0.5)


def test_who_does_not_keep_up_is_fed_more_slowly_until_it_does(
    monkeypatch: pytest.MonkeyPatch, made: Made, tmp_path: Path
) -> None:
    slow = Made(spark_keeps=20_000)
    monkeypatch.setattr(runs, "run_process", slow)
    latency.main(["--only", "facts/1", "--repetitions", "2", "--json", str(tmp_path / "found.json")])
    paces = [call[call.index("--rate") + 1] if "--rate" in call else "" for call in slow.calls if call[0] == "spark"]
    assert paces == ["", "35000.0", "17500.0", "17500.0"]
    found = _read(tmp_path / "found.json")
    assert "spark facts/1 did not keep up with 70% of its rate: it was fed at 18%." in found.notes
    assert not any("behind" in note for note in found.notes)
    line = next(line for line in found.lines if line.name == "facts/1-p50")
    assert line.theirs is not None
    assert (line.theirs.low, line.theirs.high) == (5.0, 5.0)


def test_who_never_keeps_up_is_told(monkeypatch: pytest.MonkeyPatch, made: Made, tmp_path: Path) -> None:
    monkeypatch.setattr(runs, "run_process", Made(spark_keeps=0))
    latency.main(["--only", "facts/1", "--repetitions", "1", "--json", str(tmp_path / "found.json")])
    notes = _read(tmp_path / "found.json").notes
    assert any(note.startswith("spark facts/1 did not keep up: 3.0 s behind after 10 s") for note in notes)


def test_what_was_found_at_a_faster_pace_stays_when_the_slower_one_fails(
    monkeypatch: pytest.MonkeyPatch, made: Made, tmp_path: Path
) -> None:
    processes = Made(spark_keeps=0, fails_below=30_000)
    monkeypatch.setattr(runs, "run_process", processes)
    latency.main(["--only", "facts/1", "--repetitions", "2", "--json", str(tmp_path / "found.json")])
    found = _read(tmp_path / "found.json")
    assert found.skipped == ("spark facts/1: brought no result",)
    assert any(note.startswith("spark facts/1 did not keep up: 3.0 s behind") for note in found.notes)
    line = next(line for line in found.lines if line.name == "facts/1-p50")
    assert line.theirs is not None
    assert (line.theirs.low, line.theirs.high) == (5.0, 5.0)


def test_a_quick_run_of_latency_looks_for_no_pace(made: Made, tmp_path: Path) -> None:
    latency.main(["--quick", "--json", str(tmp_path / "found.json")])
    assert [call[call.index("--rate") + 1] for call in made.calls] == ["40000.0", "40000.0"]
    found = _read(tmp_path / "found.json")
    assert all("both at 40,000 rows/s" in line.meaning for line in found.lines)
    assert not any("sustains" in note for note in found.notes)


def test_a_side_that_fails_is_told_and_left_out(monkeypatch: pytest.MonkeyPatch, made: Made, tmp_path: Path) -> None:
    monkeypatch.setattr(runs, "run_process", Made(failing="spark"))
    latency.main(["--quick", "--only", "interval", "--json", str(tmp_path / "found.json")])
    found = _read(tmp_path / "found.json")
    assert found.skipped == ("spark interval: OutOfMemoryError: heap",)
    assert [line.ratio for line in found.lines] == [None, None]


def test_a_side_with_other_results_is_left_out(monkeypatch: pytest.MonkeyPatch, made: Made, tmp_path: Path) -> None:
    monkeypatch.setattr(runs, "run_process", Made(expected=1001))
    latency.main(["--quick", "--json", str(tmp_path / "found.json")])
    found = _read(tmp_path / "found.json")
    assert found.lines == ()
    assert "1,000 result rows where 1,001 were expected" in found.skipped[0]


def test_adhoc_tells_requests_latency_and_batches(made: Made, tmp_path: Path) -> None:
    some = ("sc1-20", "sc2-5", "spark-sc1-4", "sc1-4")
    adhoc.main(["--only", *some, "--repetitions", "1", "--json", str(tmp_path / "found.json")])
    found = _read(tmp_path / "found.json")
    lines = {line.name: line for line in found.lines}
    assert lines["sc1-4-create-done"].ratio == pytest.approx(0.1)
    assert lines["sc1-20-create-done"].theirs is None
    assert lines["sc2-5-drop-done"].ours.median == 0.2
    assert lines["sc1-20-slowest-batch"].ours.median == 3.0
    assert not any(name.startswith("spark") for name in lines)
    assert any("late" in note for note in found.notes)


def test_a_quick_run_of_adhoc_looks_for_no_pace(made: Made, tmp_path: Path) -> None:
    adhoc.main(["--quick", "--json", str(tmp_path / "found.json")])
    assert all("--rate" in call for call in made.calls)
    assert {line.name for line in _read(tmp_path / "found.json").lines} >= {"sc1-3-create-done", "sc2-4-drop-done"}


def test_all_repetitions_of_adhoc_keep_the_pace_of_the_first(made: Made, tmp_path: Path) -> None:
    adhoc.main(["--only", "sc1-20", "--repetitions", "2", "--json", str(tmp_path / "found.json")])
    first, second = made.calls
    assert "--rate" not in first
    assert float(second[second.index("--rate") + 1]) == pytest.approx(700_000)


def test_adhoc_compares_at_one_pace(made: Made, tmp_path: Path) -> None:
    adhoc.main(["--only", "sc1-20", "front-20", "--repetitions", "1", "--json", str(tmp_path / "found.json")])
    first, second = made.calls
    assert "--rate" not in first
    assert float(second[second.index("--rate") + 1]) == pytest.approx(700_000)
    found = _read(tmp_path / "found.json")
    lines = {line.name: line for line in found.lines}
    assert lines["sc1-20-p99"].theirs is None
    after = lines["sc1-20-after-busy-rows-per-second"]
    assert (after.ratio, after.unit, after.better) == (1.0, "rows/s", "higher")
    assert after.theirs is not None
    assert after.theirs.work == "front-20"


@pytest.mark.parametrize("case", [*adhoc.CASES, *adhoc.QUICK_CASES], ids=lambda case: case.name)
def test_every_case_has_enough_queries(case: adhoc.Case) -> None:
    asked = scenario(case.scenario)
    assert asked.queries <= int(case.work.removeprefix("ajoin-").split("@")[0])
