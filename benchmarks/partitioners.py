"""The partitioners: how fast they assign rows, what they remember, and how even and how whole they leave the keys.

    thalweg bench partitioners [--quick] [--json FILE] [--only SECTION ...]

SECTION: speed, memory, quality, shift, cooperative, costly, engine.

`engine` runs a windowed median by one key through the whole engine on 4 slots, as it chooses by itself and by hash,
in turn. `costly` clusters records by a Zipf key in batches of one process: combined where they are read, as the
engine chooses, and by Dalton. These two, `speed` and `memory` are measured; the rest is counted from what the
partitioners decided, so it is the same on every machine (`benchmarks/partition_modelled.py` says how).
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import costly_aggregates
from benchmarks import partition_streams as streams
from benchmarks import partitioner_lines as compared
from benchmarks.equality import DifferenceError
from benchmarks.measure import Bench, add_columns, coloured, measure, new_table, out
from benchmarks.partition_contenders import CONTENDERS, SEED, Contender, Sizes, sizes_of
from benchmarks.partition_modelled import cooperative, quality, shift
from benchmarks.partition_streams import Keys
from benchmarks.partitioner_lines import ENGINE, PAPER_MB, SKETCHES_MB
from benchmarks.process import SideFailedError
from benchmarks.remaining import Remaining

ANSWERS = "Holistic Table 4, Fig. 8, 13; Dalton Fig. 7-9, 13, 14"
MINUTES = (2, 30)
TITLE = "Partitioners: speed, memory, balance against aggregation, and what the engine's choice is worth"
SPEED_WORKERS = 32
MEMORY_KEYS = 8_100_000
"""All groups of Holistic's DEBS query 1 in one window."""
FASTER_ON = {("Dalton", "uniform"): 25.0}
"""Where more is asked than elsewhere."""
SECTIONS = ("speed", "memory", "quality", "shift", "cooperative", "costly", "engine")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thalweg bench partitioners", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows, workers, distributions and streams")
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    parser.add_argument("--only", nargs="*", choices=SECTIONS, help="some of the sections")
    parser.add_argument("--repetitions", type=int, help="of each side in the engine; 3, with --quick 1")
    options = parser.parse_args(arguments)
    bench = Bench("partitioners", TITLE, options, ANSWERS)
    sizes = replace(sizes_of(options.quick), engine_runs=bench.repetitions)
    found = run(options.only or SECTIONS, sizes, bench)
    bench.equal |= {line["work"]: line["result_rows"] for line in found.get("engine", ())}
    bench.result(tuple(compared.lines(found)), compared.NOTES)
    return 0


def run(chosen: Sequence[str], sizes: Sizes, bench: Bench) -> dict[str, Any]:
    """The sections, one after the other."""
    alone: dict[str, Callable[[Sizes], Any]] = {
        "speed": speed, "memory": memory, "quality": quality, "shift": shift, "cooperative": cooperative,
        "costly": costly,
    }  # fmt: skip
    size = f"{sizes.window} {sizes.speed_rows}"
    runs = [f"partitioners {name} {size}" for name in chosen if name in alone]
    runs += _sides(sizes) if "engine" in chosen else []
    found = {}
    bar = Remaining("partitioners", runs)
    for name in chosen:
        if name in alone:
            with bar.during(f"partitioners {name} {size}"):
                found[name] = alone[name](sizes)
        else:
            found[name] = engine(sizes, bar, bench)
    return found


def _sides(sizes: Sizes) -> list[str]:
    sides = [_side(side, work, sizes) for work in sizes.engine_works for side in sizes.engine_sides]
    return sides * sizes.engine_runs


def _side(side: str, work: str, sizes: Sizes) -> str:
    return f"skew_sides {side} {work} {sizes.engine_rows}"


COSTLY_SIDES = ("combine", "auto", "dalton")
SETTLED = 2
"""Batches after which everything is measured, learned and compiled."""


def engine(sizes: Sizes, bar: Remaining, bench: Bench) -> list[dict[str, Any]]:
    """A windowed median through the engine, sides in turn, each in a process of its own."""
    found = []
    table = new_table(f"windowed median, 4 slots, batches of {sizes.engine_rows:,} rows", "stream")
    add_columns(table, "by hash", "chosen", "times as fast", "asked", "by Dalton", "busiest slot", "Dalton's")
    for work in sizes.engine_works:
        try:
            runs = _in_turn(work, sizes, bar)
        except (SideFailedError, DifferenceError) as error:
            bench.skip(work, str(error))
            continue
        rates = {side: float(np.median([run["rows_per_second"] for run in done])) for side, done in runs.items()}
        line = {
            "work": work,
            "result_rows": runs["hash"][0]["result_rows"],
            "chosen": runs["auto"][-1]["chosen"],
            "loads": {side: done[-1]["loads"] for side, done in runs.items()},
            "runs": runs,
        }
        found.append(line)
        meaning, asked = ENGINE[work]
        said = {side: f"{rate / 1e6:.2f}M rows/s" for side, rate in rates.items()}
        even = sizes.engine_rows / 4
        busiest = {side: f"{max(loads) / even - 1:+.0%}" for side, loads in line["loads"].items()}
        ratio = rates["auto"] / rates["hash"]
        table.add_row(
            meaning, said["hash"], f"{line['chosen']} {said['auto']}", coloured(f"{ratio:.2f}", ratio >= asked),
            f"{asked:g}", said.get("dalton", ""), busiest["hash"], busiest.get("dalton", ""),
        )  # fmt: skip
    out.print(table)
    return found


def _in_turn(work: str, sizes: Sizes, bar: Remaining) -> dict[str, list[dict[str, Any]]]:
    options = ["--rows", str(sizes.engine_rows), "--batches", "8"]
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sizes.engine_sides}
    for _ in range(sizes.engine_runs):
        for side, done in runs.items():
            with bar.during(_side(side, work, sizes)):
                run = measure("benchmarks.skew_sides", side, work, options)
            done.append({**run, "rows_per_second": sizes.engine_rows / _batch_seconds(run)})
    if len({run["results"] for done in runs.values() for run in done}) > 1:
        raise DifferenceError("results differ")
    return runs


def _batch_seconds(run: dict[str, Any]) -> float:
    """The median of the means of two batches, one of which closes a window."""
    batches = np.array(run["seconds"][SETTLED:])
    batches = batches[: len(batches) // 2 * 2]
    return float(np.median((batches[::2] + batches[1::2]) / 2))


def costly(sizes: Sizes) -> list[dict[str, Any]]:
    """Correlation clustering: CPU seconds of the busiest task of INGEST and the busiest slot after it."""
    found = []
    table = new_table("clustering by Zipf 1.5 keys, ms of the busiest tasks, batches that close no window", "load")
    add_columns(table, *COSTLY_SIDES, "chosen", "times as fast", "asked", "closing: combine", "chosen")
    for work in sizes.costly_works:
        runs: dict[str, list[costly_aggregates.Run]] = {side: [] for side in COSTLY_SIDES}
        for _ in range(sizes.costly_runs):
            for side, done in runs.items():
                done.append(costly_aggregates.run(work, side))
        if len({run.results for done in runs.values() for run in done}) > 1:
            raise DifferenceError("results differ")
        lines = {
            side: [
                {"arriving": float(np.median(run.arriving[SETTLED:])), "closing": float(np.median(run.closing))}
                for run in done
            ]
            for side, done in runs.items()
        }
        chosen, asked = runs["auto"][-1].chosen, compared.costly_asked(work.slots, work.files)
        found.append(
            {
                "slots": work.slots,
                "files": work.files,
                "name": work.name,
                "chosen": chosen,
                "runs": lines,
                "asked": asked,
            }
        )
        shown = {side: float(np.median([run["arriving"] for run in done])) for side, done in lines.items()}
        ratio = shown["combine"] / shown["auto"]
        closing = [
            f"{1e3 * float(np.median([run['closing'] for run in lines[side]])):.0f}" for side in ("combine", "auto")
        ]
        times = [f"{1e3 * shown[side]:.1f}" for side in COSTLY_SIDES]
        table.add_row(work.name, *times, chosen, coloured(f"{ratio:.2f}", ratio >= asked), f"{asked:g}", *closing)
    out.print(table)
    return found


def speed(sizes: Sizes) -> list[dict[str, Any]]:
    """Rows a second of one core. Every run starts with nothing known, with kernels compiled and keys in memory."""
    drawn = [
        (d.name, streams.draw(d, sizes.speed_rows, SEED))
        for d in (streams.uniform(), streams.zipf(1.5), streams.t4sa())
    ]
    found: list[dict[str, Any]] = []
    for contender in CONTENDERS:
        runs = {name: _rates(contender, keys, sizes.speed_runs) for name, keys in drawn}
        rates = {name: float(np.median(values)) for name, values in runs.items()}
        asked = {name: FASTER_ON.get((contender.label, name), contender.asked) for name in rates}
        asked["T4SA-like"] = 0.0  # nothing is asked of so many keys
        named: dict[str, Any] = {"partitioner": contender.label, "million_rows_per_second": rates}
        found.append({**named, "runs": runs, "asked": asked})
    table = new_table(f"assign, million rows/s, {SPEED_WORKERS} workers, one core", "partitioner")
    for name, _ in drawn:
        add_columns(table, name, "asked")
    for line in found:
        cells: list[str] = [line["partitioner"]]
        for name, rate in line["million_rows_per_second"].items():
            least = line["asked"][name]
            cells += [coloured(f"{rate:.1f}", rate >= least if least else None), f"{least:g}" if least else ""]
        table.add_row(*cells)
    out.print(table)
    return found


def _rates(contender: Contender, keys: Keys, runs: int) -> list[float]:
    """Million rows a second, run by run."""
    made = contender.made(SPEED_WORKERS)
    made.assign(keys)
    found = []
    for _ in range(runs):
        made.reset()
        began = time.perf_counter()
        made.assign(keys)
        found.append(len(keys) / (time.perf_counter() - began) / 1e6)
    return found


def memory(sizes: Sizes) -> list[dict[str, Any]]:
    """Table 4 of Holistic: every key; twice where that could matter, so that it may lie in both of its choices."""
    once = np.arange(MEMORY_KEYS)
    keys = {"exact": np.tile(once, 2), "hll": once}
    found: list[dict[str, Any]] = []
    for contender in (c for c in CONTENDERS if c.label in PAPER_MB):
        for workers in sizes.memory_workers:
            sketched = contender.estimator == "hll"
            stated, held = _state_of(contender, workers, keys[contender.estimator])
            of_paper = PAPER_MB[contender.label] * (workers / 32 if sketched else 1)
            asked = SKETCHES_MB * workers / 32 if sketched else of_paper
            line: dict[str, Any] = {"partitioner": contender.label, "workers": workers, "state_mb": stated}
            found.append({**line, "held_mb": held, "paper_mb": of_paper, "asked_mb": asked})
    table = new_table(f"memory, MB, for {MEMORY_KEYS / 1e6:.1f}M keys", "partitioner")
    add_columns(table, "workers", "state_bytes", "allocated", "paper", "asked")
    for line in found:
        good = max(line["state_mb"], line["held_mb"]) <= line["asked_mb"]
        sizes_mb = (f"{line[key]:.3g}" for key in ("held_mb", "paper_mb", "asked_mb"))
        table.add_row(line["partitioner"], str(line["workers"]), coloured(f"{line['state_mb']:.3g}", good), *sizes_mb)
    out.print(table)
    return found


def _state_of(contender: Contender, workers: int, keys: Keys) -> tuple[float, float]:
    """What a partitioner says it remembers, and what NumPy has allocated for it and not given back."""
    contender.made(workers).assign(keys[:1000])  # what loads with the first call is not its memory
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        made = contender.made(workers)
        made.assign(keys)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return made.state_bytes / 1e6, (held - before) / 1e6
