"""Unit: what the experiments on the optimisers and partitioners compare, as lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from benchmarks import join_planning_lines, partition_lines, partitioner_lines
from benchmarks.result import Line, Machine, Result

MACHINE = Machine(2, 24.0, "a CPU", "3.11.7", "4.3.0", "2.0.0", "v1")


def by_name(lines: Iterable[Line]) -> dict[str, Line]:
    found = list(lines)
    assert len({line.name for line in found}) == len(found)
    return {line.name: line for line in found}


def is_kept(lines: Iterable[Line]) -> None:
    """What a reader sees of them survives JSON."""
    result = Result("x", "X", MACHINE, lines=tuple(lines))
    again = Result.from_json(json.loads(json.dumps(result.to_json())))
    assert json.dumps(again.to_json()) == json.dumps(result.to_json())
    assert [line.ratio for line in again.lines] == [line.ratio for line in result.lines]


# --- shared partitioning --------------------------------------------------------------------------------


def run_of(copies: list[float], seconds: list[float], switched: int | None) -> dict[str, Any]:
    switches = [0 if switched is None or i < switched else 1 for i in range(len(copies))]
    sent = [100.0 * each for each in copies]
    return {
        "seconds": seconds, "bytes": sent, "copies": copies, "switches": switches, "rows": 10, "peak_mib": 5.0,
    }  # fmt: skip


def works() -> list[dict[str, Any]]:
    hashed = [run_of([2.0] * 6, [1.0] * 6, None)] * 3
    optimised = [run_of([2.0, 2.0, 1.0, 2.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.8, 1.25, 1.25], 3)] * 3
    runs = {"hashed": hashed, "optimised": optimised}
    return [
        {"work": name, "meaning": f"stream {name}", "result_rows": 7, "runs": runs}
        for name in ("packs", "shift", "independent")
    ]


def test_partitioning_in_the_engine() -> None:
    lines = by_name(partition_lines.engine_lines(works()))
    assert lines["packs"].ratio == 0.5
    assert lines["packs"].ours.median == 10.0  # bytes of a row, in the last third
    assert lines["packs"].asked == 0.65
    assert lines["packs"].reached
    assert lines["independent"].asked == 1.01
    assert lines["packs-rate"].ratio == pytest.approx(0.8)
    assert lines["packs-rate"].reached is None
    assert lines["packs-switch"].ours.median == pytest.approx(1.8 / 1.25)
    assert lines["packs-switch"].reached


def grid() -> list[dict[str, Any]]:
    points = (("2q 4p 32g", 3.0, 100.0, 0.95), ("64q 64p 1024g", 4.5, 400.0, 0.8))
    return [
        {
            "point": point, "objective": objective, "seconds": seconds, "hashed": hashed, "greedy": hashed * 0.9,
            "answer": hashed * 0.4, "saving": None, "at least": least, "of best known": 1.0,
        }
        for point, seconds, hashed, least in points
        for objective in ("copies", "saspar")
    ]  # fmt: skip


def test_the_optimiser_alone() -> None:
    lines = by_name(partition_lines.grid_lines(grid()))
    assert lines["copies-seconds"].ours.median == 4.5
    assert lines["copies-seconds"].reached is False
    assert lines["saspar-cost"].ratio == pytest.approx(0.4)
    assert lines["copies-greedy"].reached


# --- partitioners ---------------------------------------------------------------------------------------


def modelled(stream: str, dalton: float) -> list[dict[str, Any]]:
    times = dict.fromkeys(partitioner_lines.SHOWN, 2.0) | {"FLD (hash)": 1.0, "Dalton": dalton, "AM-2": 1.0}
    return [
        {"stream": stream, "workers": n, "partitioner": name, "time": time * (1 if name != "Dalton" else n / 8)}
        for n in (8, 32)
        for name, time in times.items()
    ]


def partitioners() -> dict[str, Any]:
    def side(*rates: float) -> list[dict[str, Any]]:
        loads = [2.0, 1.0, 1.0, 0.0]
        over_time = [[1.0, 1.0], [1.5, 0.5], [1.25, 0.75], [1.0, 1.0]]
        return [{"rows_per_second": rate, "loads": loads, "loads_over_time": over_time} for rate in rates]

    runs = {"hash": side(1.0, 1.0, 1.0), "auto": side(1.4, 1.6, 1.5), "dalton": side(1.1, 1.1, 1.1)}
    loads = {"hash": [2.0, 1.0], "auto": [1.5, 1.5], "dalton": [1.5, 1.5]}
    rates = {"uniform": 90.0, "Zipf 1.5": 50.0, "T4SA-like": 10.0}
    asked = {"uniform": 100.0, "Zipf 1.5": 40.0, "T4SA-like": 0.0}
    sources = {"alone, settled": 1.2, "together, settled": 1.1, "late, settled": 1.3}
    return {
        "engine": [
            {"work": work, "result_rows": 3, "chosen": "local", "loads": loads, "runs": runs}
            for work in ("zipf/unique", "moving/unique")
        ],
        "quality": modelled("uniform, top key 0.00% of 100,000", 0.5),
        "shift": modelled("alternating", 0.25) + modelled("shifting", 0.5),
        "cooperative": [{"sources": "same Zipf 1.0", "partitioners": 2, **sources}],
        "speed": [
            {
                "partitioner": name, "million_rows_per_second": rates, "asked": asked,
                "runs": {keys: [rate] for keys, rate in rates.items()},
            }
            for name in ("FLD (hash)", "AM-2", "Dalton")
        ],
        "memory": [
            {
                "partitioner": name, "workers": n, "state_mb": 100.0, "held_mb": 110.0, "paper_mb": 122.0,
                "asked_mb": 105.0,
            }
            for name in ("AM-2", "CM-2", "AM-2-H")
            for n in (8, 32)
        ],
    }  # fmt: skip


def test_partitioners() -> None:
    lines = by_name(partitioner_lines.lines(partitioners()))
    assert (lines["engine-zipf-unique"].ratio, lines["engine-zipf-unique"].reached) == (1.5, True)
    assert lines["engine-zipf-unique-dalton"].ratio == pytest.approx(1.1)
    loads = lines["loads-zipf-unique-dalton"]
    assert (loads.ours.median, loads.reached) == (100.0, False)
    assert "loads-zipf-unique-auto" not in lines  # rows stay where they were read: that says nothing
    # 32 workers: four times the modelled time of 8.
    assert (lines["quality-uniform"].ratio, lines["quality-uniform"].reached) == (2.0, False)
    assert (lines["shift-alternating"].ratio, lines["shift-alternating"].reached) == (1.0, True)
    assert lines["cooperative-same-zipf-1.0"].reached
    assert (lines["speed-fld"].ours.median, lines["speed-fld"].reached) == (90e6, False)
    assert (lines["memory-am-2"].ours.median, lines["memory-am-2"].reached) == (110.0, False)


# --- the join optimiser ---------------------------------------------------------------------------------


def planned(queries: int, size: int, relations: int, chi: int, **more: Any) -> dict[str, Any]:
    runs = [{"seconds": 0.05 * i, "gap": 0.002 * i, "cost": 50.0, "separate": 100.0} for i in (1, 2, 3)]
    return {
        "workload": f"{queries} queries of {size} out of {relations}", "queries": queries, "size": size,
        "relations": relations, "parallelism": chi, "materialize": True, "seconds": 0.1, "gap": 0.004, "cost": 50.0,
        "separate": 100.0, "saving": 0.5, "runs": runs, "asked of": "auto", **more,
    }  # fmt: skip


def join_planning() -> dict[str, Any]:
    asked = {"seconds": 0.09, "gap": 0.01, "saving": 0.48}
    sweep = [planned(n, 3, relations, chi) for chi in (1, 5) for relations in (10, 100) for n in (10, 50, 100)]
    sweep += [planned(10, size, 10, chi) for chi in (1, 5) for size in (2, 3, 4)]
    came = {"attach": 4, "attach seconds": 0.01, "attach ratio": 1.04}
    return {
        "example": {"dp": {"separate": 950.0, "cost": 800.0}, "ilp": {"separate": 950.0, "cost": 850.0}},
        "asked": [planned(100, 3, 10, 1, asked=asked)],
        "sweep": sweep,
        "methods": [planned(100, 3, 10, 1, **{"asked of": method}) for method in ("dp", "ilp", "auto")],
        "attach": [planned(20, 3, 10, 1, **came)],
    }


def test_join_planning() -> None:
    lines = by_name(join_planning_lines.lines(join_planning()))
    assert (lines["example-dp"].reached, lines["example-ilp"].reached) == (True, False)
    asked = {kind: lines[f"100x3-of-10-chi-1-{kind}"] for kind in ("seconds", "gap", "cost")}
    assert (asked["seconds"].ours.median, asked["seconds"].reached) == (0.1, False)
    assert (asked["gap"].ours.median, asked["gap"].reached) == (0.4, True)
    assert (asked["cost"].ratio, asked["cost"].asked, asked["cost"].reached) == (0.5, 0.52, True)


def test_all_lines_are_kept() -> None:
    is_kept((*partition_lines.engine_lines(works()), *partition_lines.grid_lines(grid())))
    is_kept(partitioner_lines.lines(partitioners()))
    is_kept(join_planning_lines.lines(join_planning()))


def test_sections_that_were_not_run_are_not_told() -> None:
    only = {"memory": partitioners()["memory"]}
    assert {line.name for line in partitioner_lines.lines(only)} == {"memory-am-2", "memory-cm-2", "memory-am-2-h"}
