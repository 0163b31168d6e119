"""The partitioners: how fast they assign rows, what they remember, and how even and how whole they leave the keys.

    thalweg bench partitioners [--quick] [--json FILE] [--only speed|memory|quality|shift|cooperative|engine ...]

`engine` runs a windowed median by one key through the whole engine on 4 slots: as it chooses by itself, and by hash.
`speed`, `memory` and `engine` are measured; the rest is counted from what the partitioners decided, so it is the same
on every machine. A window costs the rows of its busiest worker and then the partial results of its busiest reducer.
There is one for eight workers (004, Section 5.1), and a partial result costs as much as a row. Only keys that lie in
several workers are merged, whoever split them: 004's two choices merge every key, so Dalton has more to beat here.
All times are against workers that get equally many rows and merge nothing.
"""

from __future__ import annotations

import argparse
import json
import time
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import partition_streams as streams
from benchmarks.measure import add_columns, coloured, machine, new_table, out
from benchmarks.measure import measure as measure_side
from benchmarks.partition_streams import Distribution, Keys
from thalweg.partition import Partitioner, create
from thalweg.partition.cooperative import Learned, merge
from thalweg.partition.cost import cost_of, measure
from thalweg.partition.dalton import Dalton

SECTIONS = ("speed", "memory", "quality", "shift", "cooperative", "engine")
SPEED_WORKERS = 32
MEMORY_KEYS = 8_100_000
"""All groups of 002's DEBS query 1 in one window."""
CLOSE = 1.05
"""Dalton's time, at most, against the better of hash and two choices."""
PER_REDUCER = 8
"""Workers."""
SEED = 1
WIDTH = 118
"""Of tables that go into a file."""


@dataclass(frozen=True)
class Contender:
    """A partitioner as the papers write it."""

    label: str
    name: str
    choices: int = 2
    estimator: str = "exact"
    options: dict[str, Any] = field(default_factory=dict)
    asked: float = 0.0
    """Million rows a second; 0: nothing is asked."""

    def made(self, workers: int, **options: Any) -> Partitioner:
        given = {**self.options, **options}
        return create(self.name, workers, choices=self.choices, estimator=self.estimator, seed=SEED, **given)


HASH = Contender("FLD (hash)", "hash", asked=100)
TWO_CHOICES = Contender("PK-2", "partial_key", asked=30)
DALTON = Contender("Dalton", "dalton", asked=15)
CONTENDERS = (
    Contender("SH (shuffle)", "shuffle", asked=100),
    HASH,
    TWO_CHOICES,
    Contender("PK-5", "partial_key", 5, asked=30),
    Contender("CM-2", "cardinality", asked=8),
    Contender("AM-2", "affinity", asked=8),
    Contender("AM-5", "affinity", 5, asked=8),
    Contender("cAM-2", "affinity_count", asked=8),
    Contender("LM-2", "hybrid", asked=8),
    Contender("CM-2-H", "cardinality", estimator="hll", asked=15),
    Contender("AM-2-H", "affinity", estimator="hll", asked=15),
    Contender("cAM-2-H", "affinity_count", estimator="hll", asked=15),
    Contender("LM-2-H", "hybrid", estimator="hll", asked=15),
    Contender("DAGreedy", "da_greedy"),
    Contender("Prompt", "prompt"),
    DALTON,
    Contender("Dalton, batches", "dalton", options={"micro_batch": True}),
)
FASTER_ON = {("Dalton", "uniform"): 25.0}
"""Where more is asked than elsewhere."""
PAPER_MB = {"CM-2": 243.0, "AM-2": 122.0, "LM-2": 243.0, "CM-2-H": 0.08, "AM-2-H": 0.08, "LM-2-H": 0.08}
"""002, Table 4, for 32 workers; the sketches of 8 and 16 are a quarter and half of that."""
SKETCHES_MB = 0.1
"""Asked of 32 sketches."""


@dataclass(frozen=True)
class Sizes:
    speed_rows: int
    speed_runs: int
    memory_workers: tuple[int, ...]
    window: int
    windows: int
    phases: int
    """Pairs of phases of a stream that changes."""
    workers: tuple[int, ...]
    distributions: tuple[Distribution, ...]
    members: tuple[int, ...]
    """Partitioners side by side."""
    own_windows: int
    seeds: int
    engine_rows: int
    """Of a batch."""
    engine_runs: int


def sizes_of(quick: bool) -> Sizes:
    if quick:
        some = (streams.uniform(), streams.zipf(1.0), streams.zipf(2.0), streams.t4sa())
        return Sizes(1 << 20, 3, (32,), 1 << 16, 3, 2, (8, 32), some, (2, 4), 8, 1, 500_000, 1)
    synthetic = (streams.uniform(), *(streams.zipf(exponent) for exponent in (0.5, 1.0, 1.5, 2.0)))
    every = (*synthetic, streams.t4sa(), streams.elections())
    return Sizes(1 << 22, 5, (8, 16, 32), 1 << 18, 4, 4, (8, 16, 32, 64, 128), every, (2, 4, 8), 8, 2, 2_000_000, 3)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="thalweg bench partitioners", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rows, workers and distributions; some minutes")
    parser.add_argument("--json", type=Path, help="where to write what was measured")
    parser.add_argument("--only", nargs="*", choices=SECTIONS, help="some of the sections")
    options = parser.parse_args(arguments)
    if not out.is_terminal:
        out.width = WIDTH
    sizes = sizes_of(options.quick)
    found: dict[str, Any] = {"machine": machine(), "sizes": asdict(sizes)}
    sections: dict[str, Callable[[Sizes], Any]] = {
        "speed": speed,
        "memory": memory,
        "quality": quality,
        "shift": shift,
        "cooperative": cooperative,
        "engine": engine,
    }
    for name in options.only or SECTIONS:
        began = time.perf_counter()
        found[name] = sections[name](sizes)
        out.print(f"  {name}: {time.perf_counter() - began:.0f} s, {found['machine']}\n", highlight=False)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1))
    return 0


ENGINE = {
    "zipf/unique": ("Zipf 1.5, values that hardly come again", 1.5),
    "zipf/cents": ("Zipf 1.5, prices in cents", 1.5),
    "uniform/unique": ("uniform keys, values that hardly come again", 0.97),
}
"""work -> what it is, and how many times as fast as by hash is asked for."""
SETTLED = 2
"""Batches after which everything is measured, learned and compiled."""


def engine(sizes: Sizes) -> list[dict[str, Any]]:
    """A windowed median through the engine, sides in turn, each in a process of its own."""
    found = []
    table = new_table(f"windowed median, 4 slots, batches of {sizes.engine_rows:,} rows", "stream")
    add_columns(table, "by hash", "chosen", "times as fast", "asked", "by Dalton", "busiest slot", "Dalton's")
    for work, (meaning, asked) in ENGINE.items():
        options = ["--rows", str(sizes.engine_rows), "--batches", "8"]
        runs: dict[str, list[dict[str, Any]]] = {"hash": [], "auto": [], "dalton": []}
        for _ in range(sizes.engine_runs):
            for side, done in runs.items():
                done.append(measure_side("benchmarks.skew_sides", side, work, options))
        if len({run["results"] for done in runs.values() for run in done}) > 1:
            raise SystemExit(f"{work}: results differ")
        seconds = {side: _median_seconds(done) for side, done in runs.items()}
        even = sizes.engine_rows / 4
        line = {
            "work": work,
            "rows_per_second": {side: sizes.engine_rows / took for side, took in seconds.items()},
            "chosen": runs["auto"][-1]["chosen"],
            "ratio": seconds["hash"] / seconds["auto"],
            "asked": asked,
            "loads": {side: done[-1]["loads"] for side, done in runs.items()},
            "runs": runs,
        }
        found.append(line)
        rates = {side: f"{rate / 1e6:.2f}M rows/s" for side, rate in line["rows_per_second"].items()}
        chosen = f"{line['chosen']} {rates['auto']}"
        busiest = [f"{max(line['loads'][side]) / even - 1:+.0%}" for side in ("hash", "dalton")]
        ratio = coloured(f"{line['ratio']:.2f}", line["ratio"] >= asked)
        table.add_row(meaning, rates["hash"], chosen, ratio, f"{asked:g}", rates["dalton"], *busiest)
    out.print(table)
    return found


def _median_seconds(runs: Sequence[dict[str, Any]]) -> float:
    """Of two batches, one of which closes a window."""
    batches = [np.array(run["seconds"][SETTLED:]) for run in runs]
    return float(np.median([(one[::2] + one[1::2]) / 2 for one in batches]))


def speed(sizes: Sizes) -> list[dict[str, Any]]:
    """Rows a second of one core. Every run starts with nothing known, with kernels compiled and keys in memory."""
    drawn = [
        (d.name, streams.draw(d, sizes.speed_rows, SEED))
        for d in (streams.uniform(), streams.zipf(1.5), streams.t4sa())
    ]
    found: list[dict[str, Any]] = []
    for contender in CONTENDERS:
        with out.status(f"speed of {contender.label}"):
            rates = {name: _rate(contender, keys, sizes.speed_runs) for name, keys in drawn}
        asked = {name: FASTER_ON.get((contender.label, name), contender.asked) for name in rates}
        asked["T4SA-like"] = 0.0  # nothing is asked of so many keys
        found.append({"partitioner": contender.label, "million_rows_per_second": rates, "asked": asked})
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


def _rate(contender: Contender, keys: Keys, runs: int) -> float:
    made = contender.made(SPEED_WORKERS)
    made.assign(keys)
    best = np.inf
    for _ in range(runs):
        made.reset()
        began = time.perf_counter()
        made.assign(keys)
        best = min(best, time.perf_counter() - began)
    return float(len(keys) / best / 1e6)


def memory(sizes: Sizes) -> list[dict[str, Any]]:
    """Table 4 of 002: every key; twice where that could matter, so that it may lie in both of its choices."""
    once = np.arange(MEMORY_KEYS)
    keys = {"exact": np.tile(once, 2), "hll": once}
    found: list[dict[str, Any]] = []
    for contender in (c for c in CONTENDERS if c.label in PAPER_MB):
        for workers in sizes.memory_workers:
            sketched = contender.estimator == "hll"
            with out.status(f"memory of {contender.label}, {workers} workers"):
                stated, held = _state_of(contender, workers, keys[contender.estimator])
            of_paper = PAPER_MB[contender.label] * (workers / 32 if sketched else 1)
            asked = SKETCHES_MB * workers / 32 if sketched else of_paper
            line: dict[str, Any] = {"partitioner": contender.label, "workers": workers, "state_mb": stated}
            found.append({**line, "held_mb": held, "paper_mb": of_paper, "asked_mb": asked})
    table = new_table(f"memory, MB, for {MEMORY_KEYS / 1e6:.1f}M keys", "partitioner")
    add_columns(table, "workers", "state_bytes", "allocated", "paper 002", "asked")
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


@dataclass(frozen=True)
class Figures:
    """Of some windows together."""

    imbalance: float
    """Rows of the busiest worker above the mean, as a part of the mean (002 Eq. 1)."""
    aggregation: float
    """Partial results for each key (002 Eq. 4): 1 when all are whole."""
    time: float
    """The modelled time, against even loads without merging."""


@dataclass(frozen=True)
class Window:
    """The rows of a window, and the number of each row's key among those of the window."""

    keys: Keys
    numbers: npt.NDArray[np.int64]
    groups: int


def window_of(keys: Keys) -> Window:
    names, numbers = np.unique(keys, return_inverse=True)
    return Window(keys, numbers, len(names))


def figures(windows: Iterable[tuple[Window, npt.NDArray[np.int32]]], workers: int) -> Figures:
    even = imbalance = partials = groups = busiest = 0.0
    for window, assigned in windows:
        whole = cost_of(measure(window.keys, assigned, workers))
        split = _is_split(window, assigned)
        reducers = max(workers // PER_REDUCER, 1)
        to_merge = measure(window.keys[split], assigned[split], workers, reducers=reducers)
        even += whole.rows / workers
        imbalance += whole.tuple_imbalance
        partials += whole.aggregation
        groups += whole.groups
        busiest += whole.rows / workers + whole.tuple_imbalance + cost_of(to_merge).reducer
    return Figures(imbalance / even, partials / groups, busiest / even)


def _is_split(window: Window, assigned: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Row by row: whether the key lies in several workers."""
    first = np.empty(window.groups, np.int32)
    first[window.numbers] = assigned
    split = np.zeros(window.groups, np.bool_)
    split[window.numbers[first[window.numbers] != assigned]] = True
    rows: npt.NDArray[np.bool_] = split[window.numbers]
    return rows


def stream_figures(keys: Keys, window: int, workers: Sequence[int], name: str) -> list[dict[str, Any]]:
    """Every partitioner on one stream, with windows as long as its own. The first is left out: all start cold.

    For Prompt, and Dalton by batches, a batch is a window: they see it whole before they decide.
    """
    windows = [window_of(keys[start : start + window]) for start in range(0, len(keys), window)]
    found: list[dict[str, Any]] = []
    for n in workers:
        for contender in CONTENDERS:
            with out.status(f"{name}: {contender.label}, {n} workers"):
                made = contender.made(n, window_us=window)
                assigned = [
                    made.assign(one.keys, np.arange(i * window, i * window + len(one.keys)))
                    for i, one in enumerate(windows)
                ]
                measured = figures(list(zip(windows, assigned, strict=True))[1:], n)
            found.append({"stream": name, "workers": n, "partitioner": contender.label, **asdict(measured)})
    _show_figures(name, found, workers)
    return found


def _show_figures(name: str, found: list[dict[str, Any]], workers: Sequence[int]) -> None:
    title = f"{name}: imbalance, partial results per key, [bold]modelled time[/]"
    table = new_table(title, "partitioner")
    add_columns(table, *(f"{n} workers" for n in workers))
    best = {n: min(line["time"] for line in found if line["workers"] == n) for n in workers}
    for contender in CONTENDERS:
        cells = []
        for line in (line for line in found if line["partitioner"] == contender.label):
            style = "bold cyan" if line["time"] <= 1.01 * best[line["workers"]] else "bold"
            cells.append(f"{line['imbalance']:.0%} {line['aggregation']:.2f} [{style}]{line['time']:.2f}[/]")
        table.add_row(contender.label, *cells)
    out.print(table)


def quality(sizes: Sizes) -> list[dict[str, Any]]:
    """Distributions that stay as they are."""
    found: list[dict[str, Any]] = []
    for distribution in sizes.distributions:
        keys = streams.draw(distribution, sizes.window * sizes.windows, SEED)
        name = f"{distribution.name}, top key {distribution.top_share:.2%} of {distribution.keys:,}"
        found += stream_figures(keys, sizes.window, sizes.workers, name)
    _show_verdict("Dalton's time against the better of hash and PK-2", found, sizes.workers, {})
    return found


def shift(sizes: Sizes) -> list[dict[str, Any]]:
    """Streams that change every one and a half windows: between windows, and inside of them."""
    rows = 3 * sizes.window // 2
    alternating = streams.alternating(rows, sizes.phases, SEED)
    shifting = streams.shifting(rows, sizes.phases, SEED)
    found = stream_figures(alternating, sizes.window, sizes.workers, "alternating")
    found += stream_figures(shifting, sizes.window, sizes.workers, "shifting")
    title = "streams that change: Dalton's time against the better of hash and PK-2"
    _show_verdict(title, found, sizes.workers, {"alternating": 1.0})
    return found


def _show_verdict(title: str, found: list[dict[str, Any]], workers: Sequence[int], asked: dict[str, float]) -> None:
    """Dalton against both, stream by stream; `asked` where it is not `CLOSE`."""
    times = {(line["stream"], line["workers"], line["partitioner"]): line["time"] for line in found}
    table = new_table(title, "stream")
    add_columns(table, *(f"{n} workers" for n in workers), "asked")
    for name in dict.fromkeys(line["stream"] for line in found):
        cells = []
        most = asked.get(name, CLOSE)
        for n in workers:
            better = min((HASH, TWO_CHOICES), key=lambda c: times[name, n, c.label])
            ratio = times[name, n, DALTON.label] / times[name, n, better.label]
            good = ratio < most if name in asked else ratio <= most
            cells.append(f"{coloured(f'{ratio:.2f}x', good)} {better.label.split()[0]}")
        table.add_row(name, *cells, f"{'<' if name in asked else '≤'} {most:.2f}x")
    out.print(table)


SYNC_ROWS, CHUNK, OWN_WINDOW = 1 << 14, 1 << 10, 1 << 16
"""Of each of several partitioners: DSYNC, rows between two looks at it, its part of a window."""
SOURCES = ("same Zipf 1.0", "same Zipf 1.5", "one uniform, others Zipf 1.5", "Zipf 1.5, own hot keys")


def sources_of(kind: str, members: int, rows: int, seed: int) -> list[Keys]:
    """What each partitioner gets (004, Fig. 13 and 14)."""
    zipf = streams.zipf(1.0 if kind == "same Zipf 1.0" else 1.5)
    found = []
    for i in range(members):
        distribution = streams.uniform() if kind.startswith("one uniform") and i == 0 else zipf
        own = kind.endswith("own hot keys")
        found.append(streams.draw(distribution, rows, seed + 10 * i, keys_seed=seed + 10 * i if own else seed))
    return found


def cooperative(sizes: Sizes) -> list[dict[str, Any]]:
    """Several Daltons side by side: each for itself; all together; and together with policies that come late.

    A policy is late by `CHUNK` rows; until then partitioners await it. Otherwise it is there before the next row, as
    when batches end. The first window is left out; in the last half of them all have settled.
    """
    found: list[dict[str, Any]] = []
    for kind in SOURCES:
        for members in sizes.members:
            with out.status(f"{kind}: {members} partitioners"):
                runs = [_side_by_side(kind, members, sizes.own_windows, 100 * seed) for seed in range(sizes.seeds)]
            mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
            found.append({"sources": kind, "partitioners": members, **mean})
    title = f"cooperative Dalton, {SPEED_WORKERS} workers: modelled time, and against independent copies (asked: < 1)"
    table = new_table(title, "sources of keys")
    ways = [f"{way}{part}" for part in ("", ", settled") for way in ("alone", "together", "late")]
    add_columns(table, "Daltons", *ways)
    for line in found:
        cells = []
        for way in ways:
            alone = line[way.replace("together", "alone").replace("late", "alone")]
            ratio = "" if way.startswith("alone") else coloured(f" {line[way] / alone:.3f}x", line[way] < alone)
            cells.append(f"{line[way]:.3f}{ratio}")
        table.add_row(line["sources"], str(line["partitioners"]), *cells)
    out.print(table)
    return found


def _side_by_side(kind: str, members: int, count: int, seed: int) -> dict[str, float]:
    """The modelled time of each way, from the second window on and in the last half of them."""
    sources = sources_of(kind, members, OWN_WINDOW * count, seed)
    steps = [[source[at : at + CHUNK] for source in sources] for at in range(0, len(sources[0]), CHUNK)]
    windows = [window_of(part) for part in _by_window([np.concatenate(step) for step in steps])]
    found: dict[str, float] = {}
    for way in ("alone", "together", "late"):
        decided = zip(windows, _by_window(_assign_side_by_side(steps, way)), strict=True)
        costs = [figures([one], SPEED_WORKERS).time for one in decided]
        found |= {way: float(np.mean(costs[1:])), f"{way}, settled": float(np.mean(costs[count // 2 :]))}
    return found


def _by_window(steps: list[Any]) -> list[Any]:
    per_window = OWN_WINDOW // CHUNK
    return [np.concatenate(steps[i : i + per_window]) for i in range(0, len(steps), per_window)]


def _assign_side_by_side(steps: list[list[Keys]], way: str) -> list[npt.NDArray[np.int32]]:
    given = {"window_us": OWN_WINDOW, "cooperative": way != "alone", "sync_rows": SYNC_ROWS}
    made = [DALTON.made(SPEED_WORKERS, member=i, **given) for i in range(len(steps[0]))]
    members = [one for one in made if isinstance(one, Dalton)]
    under_way: list[Learned] = []
    found = []
    for i, step in enumerate(steps):
        times = np.arange(i * CHUNK, (i + 1) * CHUNK)
        found.append(np.concatenate([one.assign(keys, times) for one, keys in zip(members, step, strict=True)]))
        if not under_way and way != "alone" and members[0].sync_due:
            under_way = [one.export() for one in members]
            if way == "late":
                continue
        if under_way:
            policy = merge(under_way)
            for one in members:
                one.adopt(policy)
            under_way = []
    return found
