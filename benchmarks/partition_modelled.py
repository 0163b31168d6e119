"""How even and how whole partitioners leave the keys: counted from what they decided, the same on every machine.

A window costs the rows of its busiest worker and then the partial results of its busiest reducer. There is one for
eight workers (Dalton, Section 5.1), and a partial result costs as much as a row. Only keys that lie in several
workers are merged, whoever split them: the paper's two choices merge every key, so Dalton has more to beat here. All
times are against workers that get equally many rows and merge nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks import partition_streams as streams
from benchmarks.measure import add_columns, coloured, new_table, out
from benchmarks.partition_contenders import CONTENDERS, DALTON, HASH, SEED, TWO_CHOICES, Sizes
from benchmarks.partition_streams import Keys
from thalweg.partition.cooperative import Learned, merge
from thalweg.partition.cost import cost_of, measure
from thalweg.partition.dalton import Dalton

CLOSE = 1.05
"""Dalton's time, at most, against the better of hash and two choices."""
PER_REDUCER = 8
"""Workers."""
WORKERS = 32
"""Of several Daltons side by side."""


@dataclass(frozen=True)
class Figures:
    """Of some windows together."""

    imbalance: float
    """Rows of the busiest worker above the mean, as a part of the mean (Holistic Eq. 1)."""
    aggregation: float
    """Partial results for each key (Holistic Eq. 4): 1 when all are whole."""
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
    """What each partitioner gets (Dalton, Fig. 13 and 14)."""
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
            runs = [_side_by_side(kind, members, sizes.own_windows, 100 * seed) for seed in range(sizes.seeds)]
            mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
            found.append({"sources": kind, "partitioners": members, **mean})
    title = f"cooperative Dalton, {WORKERS} workers: modelled time, and against independent copies (asked: < 1)"
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
        costs = [figures([one], WORKERS).time for one in decided]
        found |= {way: float(np.mean(costs[1:])), f"{way}, settled": float(np.mean(costs[count // 2 :]))}
    return found


def _by_window(steps: list[Any]) -> list[Any]:
    per_window = OWN_WINDOW // CHUNK
    return [np.concatenate(steps[i : i + per_window]) for i in range(0, len(steps), per_window)]


def _assign_side_by_side(steps: list[list[Keys]], way: str) -> list[npt.NDArray[np.int32]]:
    given = {"window_us": OWN_WINDOW, "cooperative": way != "alone", "sync_rows": SYNC_ROWS}
    made = [DALTON.made(WORKERS, member=i, **given) for i in range(len(steps[0]))]
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
