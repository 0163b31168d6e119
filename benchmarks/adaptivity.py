"""A join of four streams whose selectivities flip: latency with orders kept current, and with the first ones kept.

    thalweg bench adaptivity [--quick] [--json FILE] [--repetitions N]

Files of all streams are released at a steady pace, and a batch takes the next file of each. The latency of a file is
the time from its release to the end of the batch that took it in: by then its results are delivered. Both sides plan
their orders from what they measure; one of them plans no more once the pace begins. An epoch is two batches. Latency
is normal again where it is at most half as much again as the median before the flip, and stays so. Results of both
sides are compared row by row, with each other and with DuckDB's over the same files.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from benchmarks.measure import Bench, add_columns, new_table, out
from benchmarks.paced.feed import Feeder, Supply, fill, make_supply
from benchmarks.paced.schedule import Size
from benchmarks.paced.thalweg import Thalweg
from benchmarks.process import run_process
from benchmarks.remaining import Remaining
from benchmarks.result import Result, line, measured, medians
from benchmarks.workloads.clash import adaptive

ANSWERS = "CLASH Fig. 8"
MINUTES = (2, 10)
"""Quick, and in full."""
EPOCH = 2
"""Batches."""
NORMAL = 1.5
"""Latency, at most, against the median before the flip."""
ASKED_EPOCHS = 2
PACE_SECONDS = 1.2
SIDES = ("kept current", "kept as they were")


@dataclass(frozen=True)
class Files:
    """Of each stream."""

    before: int
    """There before the pace begins: they fill the windows, and the orders are planned from them."""
    flip: int
    """The first one of the changed data."""
    all: int


QUICK = Files(8, 12, 20)
FULL = Files(8, 20, 52)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thalweg bench adaptivity", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer files, once each, in two minutes")
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    parser.add_argument("--repetitions", type=int, help="of both sides in turn (3; quick: 1)")
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    files = QUICK if options.quick else FULL
    if options.side:
        print("RESULT " + json.dumps(run(options.side, files, options.work)), flush=True)
        return 0
    bench = Bench("adaptivity", "Join orders kept current", options, ANSWERS)
    compared(bench, files)
    return 0


# -- one side, in a process of its own


def run(side: str, files: Files, results: Path) -> dict[str, Any]:
    work = adaptive(files.flip)
    with tempfile.TemporaryDirectory() as name:
        directory, root = Path(name), Path(name) / "in"
        size = Size(work.rows_per_file, files.all - files.before)
        supply = make_supply(work, directory / "supply", size, files.before * work.rows_per_file)
        for stream in supply.streams:
            (root / stream).mkdir(parents=True)
        system = Thalweg(work, root, directory / "state", files_per_batch=1, join_epoch=EPOCH)
        try:
            return _paced(side, system, supply, root, results)
        finally:
            system.stop()


def _paced(side: str, system: Thalweg, supply: Supply, root: Path, results: Path) -> dict[str, Any]:
    import thalweg

    (query,) = system.work.queries
    system.session.create_query(query.name, query.text, thalweg.to_files(results))
    watch = _OrderWatch(system.session)
    system.start()
    fill(supply, root, system.settle, files_per_batch=1)
    if side == SIDES[1]:
        system.session._parts.runner.adaptations.asks = False  # what was decided stays in force
    schedule = supply.schedule(supply.rows_until(1) / PACE_SECONDS)
    feeder = Feeder(supply, schedule, lambda: [root])
    feeder.start()
    feeder.join()
    system.settle(supply.all_rows)
    releases = [feeder.began + float(moment) for moment in schedule.releases]
    batches = [batch for batch in system.batches_since(0.0) if batch.rows]
    ends = [(batch.ended, batch.rows) for batch in batches]
    needed = [supply.rows_until(number + 1) for number in range(supply.before, len(supply.rows))]
    return {
        "latencies": latencies(releases, needed, ends),
        "batch_seconds": [batch.seconds for batch in batches],
        "orders": [orders_at(watch.orders, supply.rows_until(n + 1)) for n in range(len(supply.rows))],
        "late_seconds": feeder.late_seconds,
    }


class _OrderWatch:
    """The orders that batches ran with, in words."""

    def __init__(self, session: Any) -> None:
        self.orders: list[tuple[int, str]] = []
        """Rows taken in by the end of the batch, and its orders."""
        runner = session._parts.runner
        commit = runner.adaptations.commit

        def watched(learned: Any) -> None:
            plan, manifest = runner.plan, runner.manifest
            (join,) = plan.joins.ordered.values()
            orders = "; ".join(f"{start}: {_words(order)}" for start, order in sorted(join.orders.items()))
            self.orders.append((sum(progress.rows for progress in manifest.streams.values()), orders))
            commit(learned)

        runner.adaptations.commit = watched


def orders_at(orders: Sequence[tuple[int, str]], rows: int) -> str:
    """Of the batch by which so many rows had been taken in."""
    return next(text for taken, text in orders if taken >= rows)


def _words(order: Sequence[Sequence[str]]) -> str:
    return ", ".join(" and ".join(found) for found in order)


def latencies(releases: Sequence[float], needed: Sequence[int], batches: Sequence[tuple[float, int]]) -> list[float]:
    """Of every file: from its release to the end of the batch by which so many rows in all had been taken in.

    Files of several streams do not appear at the same instant: a batch may take that of one, the next the others.
    """
    taken = list(accumulate(rows for _, rows in batches))
    ended = [batches[bisect_left(taken, rows)][0] for rows in needed]
    return [end - moment for end, moment in zip(ended, releases, strict=True)]


# -- both


def compared(bench: Bench, files: Files) -> Result:
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    planned = [f"adaptivity {side} {files.all}" for side in SIDES] * bench.repetitions
    bar = Remaining("adaptivity", planned)
    for _ in range(bench.repetitions):
        with tempfile.TemporaryDirectory() as name:
            for number, side in enumerate(SIDES):
                given = ["--side", side, "--work", f"{name}/{number}", *(["--quick"] if bench.quick else [])]
                with bar.during(f"adaptivity {side} {files.all}"):
                    found = run_process("benchmarks.adaptivity", given)
                runs[side].append({**found, **figures(found, files)})
            rows = equal_rows([Path(name) / str(number) for number in range(len(SIDES))], files)
            bench.equal["clash/adaptive"] = rows
    show(runs)
    ours, theirs = (measured(side, "clash/adaptive", runs[side], "after_seconds") for side in SIDES)
    current = runs[SIDES[0]]
    lines = (
        line("latency", "latency in the last third, orders kept current against kept as they were", ours, theirs,
             1.0, unit="s", better="lower"),
        line("recovery", "epochs after the flip until latency is normal again",
             measured(SIDES[0], "clash/adaptive", current, "epochs"), None, ASKED_EPOCHS, unit="epochs",
             better="lower"),
        line("turn", "epochs after the flip until other orders are in force",
             measured(SIDES[0], "clash/adaptive", current, "turned_epochs"), None, ASKED_EPOCHS, unit="epochs",
             better="lower"),
    )  # fmt: skip
    return bench.result(lines)


def figures(found: Mapping[str, Any], files: Files) -> dict[str, Any]:
    """What the latencies of the paced files and the orders of all of them say."""
    seconds, flip = found["latencies"], files.flip - files.before
    normal = median(seconds[:flip])
    smooth = [median(seconds[max(0, i - 1) : i + 2]) for i in range(len(seconds))]
    back = max((i + 1 for i in range(flip, len(smooth)) if smooth[i] > NORMAL * normal), default=flip)
    orders = found["orders"]
    turned = next((i for i in range(files.flip, len(orders)) if orders[i] != orders[files.flip]), files.all)
    return {
        "normal_seconds": normal,
        "worst_seconds": max(seconds[flip:]),
        "after_seconds": median(seconds[-((len(seconds) - flip) // 3) :]),
        "epochs": (back - flip) / EPOCH,
        "recovered": back < len(seconds),
        "turned_epochs": (turned - files.flip) / EPOCH,
        "turned": turned < files.all,
    }


def equal_rows(sides: Sequence[Path], files: Files) -> int:
    """Both sides' results against each other and against DuckDB over all rows; how many there are."""
    import duckdb

    work = adaptive(files.flip)
    database = duckdb.connect()
    for stream in work.streams:
        rows = [stream.make(number) for number in range(files.all)]
        database.register(stream.name, pa.concat_tables(rows))
    (query,) = work.queries
    database.execute(f"CREATE TABLE expected AS {query.batch}")
    for side in sides:
        found = f"(FROM read_parquet('{side}/*.parquet'))"
        for one, other in ((found, "(FROM expected)"), ("(FROM expected)", found)):
            different = database.execute(f"SELECT count(*) FROM ({one} EXCEPT ALL {other})").fetchall()[0][0]
            if different:
                raise SystemExit(f"{side.name}: {different} rows differ from DuckDB's")
    return int(database.execute("SELECT count(*) FROM expected").fetchall()[0][0])


def show(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    table = new_table("medians of all repetitions", "orders")
    add_columns(table, "before, s", "worst, s", "last third, s", "other orders after", "normal after")
    for side in SIDES:
        found = medians(runs[side])
        table.add_row(
            side,
            f"{found['normal_seconds']:.2f}",
            f"{found['worst_seconds']:.2f}",
            f"{found['after_seconds']:.2f}",
            f"{found['turned_epochs']:g} epochs" if found["turned"] else "-",
            f"{found['epochs']:g} epochs" if found["recovered"] else "never",
        )
    out.print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
