"""What the partitioners' benchmark sets beside what, as lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.partition_contenders import DALTON, HASH, TWO_CHOICES
from benchmarks.partition_modelled import CLOSE
from benchmarks.result import Line, Measured, line, measured

ENGINE = {
    "zipf/unique": ("Zipf 1.5 keys, values that hardly come again", 1.5),
    "zipf/cents": ("Zipf 1.5 keys, prices in cents", 1.5),
    "moving/unique": ("Zipf 1.5 keys, other hot ones from half way on", 1.5),
    "uniform/unique": ("uniform keys, values that hardly come again", 0.97),
}
"""work -> what it is, and how many times as fast as by hash is asked for."""
MEDIAN = "windowed median(), "
STAYING = ("local", "combine")
"""Where rows stay with the task that read them: who gets how many says nothing about keys."""
PAPER_MB = {"CM-2": 243.0, "AM-2": 122.0, "LM-2": 243.0, "CM-2-H": 0.08, "AM-2-H": 0.08, "LM-2-H": 0.08}
"""Holistic, Table 4, for 32 workers; the sketches of 8 and 16 are a quarter and half of that."""
SKETCHES_MB = 0.1
"""Asked of 32 sketches."""
EVEN = 10.0
"""Percent that the busiest may have above its share."""
SHOWN = ("Dalton", "FLD (hash)", "PK-2", "AM-2", "DAGreedy", "Prompt", "SH (shuffle)")
"""In plots over workers."""
NOTES = (
    "In the engine: a median by one key over windows of 20 s on 4 slots; rates from the third batch on, the median "
    "over pairs of batches, one of which closes a window.",
    "Modelled time: the rows of the busiest worker and the partial results of the busiest reducer, against workers "
    "that get equally many rows and merge nothing. The same on every machine.",
)
Found = Mapping[str, Any]
"""Section -> what it found."""
Lines = Sequence[Mapping[str, Any]]


# --- lines ----------------------------------------------------------------------------------------------


def lines(found: Found) -> Iterator[Line]:
    yield from _engine_lines(found.get("engine", ()))
    yield from _costly_lines(found.get("costly", ()))
    yield from _quality_lines("quality", found.get("quality", ()), CLOSE)
    yield from _quality_lines("shift", found.get("shift", ()), CLOSE, {"alternating": 1.0})
    yield from _cooperative_lines(found.get("cooperative", ()))
    yield from _speed_lines(found.get("speed", ()))
    yield from _memory_lines(found.get("memory", ()))


def _engine_lines(works: Lines) -> Iterator[Line]:
    for work in works:
        name, (meaning, asked) = f"engine-{work['work'].replace('/', '-')}", ENGINE[work["work"]]
        ours = measured(f"thalweg ({work['chosen']})", work["work"], work["runs"]["auto"])
        theirs = measured("thalweg (hash)", work["work"], work["runs"]["hash"])
        yield line(name, f"{MEDIAN}{meaning}: {work['chosen']}, against hash", ours, theirs, asked)
        if "dalton" in work["runs"]:
            pinned = measured("thalweg (dalton)", work["work"], work["runs"]["dalton"])
            yield line(f"{name}-dalton", f"{MEDIAN}{meaning}: pinned Dalton, against hash", pinned, theirs)
    for work in works:
        for side in (side for side in ("auto", "dalton") if side in work["runs"]):
            if work["chosen"] in STAYING and side == "auto":
                continue
            label = work["chosen"] if side == "auto" else "pinned Dalton"
            above = [{**run, "above": 100 * above_even(run["loads"])} for run in work["runs"][side]]
            ours = measured(f"thalweg ({label})", work["work"], above, "above")
            meaning = f"busiest above its share, {ENGINE[work['work']][0]}: {label}"
            name = f"loads-{work['work'].replace('/', '-')}-{side}"
            yield line(name, meaning, ours, None, EVEN, unit="%", better="lower")


def costly_asked(slots: int, files: int) -> float:
    """How many times as fast as combining. Where as many tasks read as there are slots, there is nothing to gain."""
    return 1.5 if files < slots else 0.9


def _costly_lines(works: Lines) -> Iterator[Line]:
    for work in works:
        name, unit = f"costly-{work['slots']}-{work['files']}", "s"
        for kind, meaning in (("arriving", "batches that close no window"), ("closing", "those that close one")):
            sides = {side: measured(side, work["name"], runs, kind) for side, runs in work["runs"].items()}
            text = f"{work['name']}, busiest tasks of {meaning}"
            most = 1 / work["asked"] if kind == "arriving" else None
            for side, label in (("auto", work["chosen"]), ("dalton", "pinned Dalton")):
                key, asked = f"{name}-{kind}-{side}", most if side == "auto" else None
                meaning = f"{text}: {label}, against combining"
                yield line(key, meaning, sides[side], sides["combine"], asked, unit=unit, better="lower")


def above_even(loads: Sequence[float]) -> float:
    """The busiest worker's rows above an even share, as a part of it."""
    return max(loads) * len(loads) / sum(loads) - 1 if sum(loads) else 0.0


def _quality_lines(
    section: str, found: Lines, close: float, asked: Mapping[str, float] | None = None
) -> Iterator[Line]:
    """Of every stream the number of workers at which Dalton does worst."""
    for name in dict.fromkeys(each["stream"] for each in found):
        worst = max(rivals(found, name), key=lambda rival: rival.ratio)
        ours = _single(DALTON.label, name, worst.dalton)
        theirs = _single(worst.better, name, worst.time)
        meaning = f"Dalton against the better of hash and PK-2, {name}: at worst, {worst.workers} workers"
        least = (asked or {}).get(name, close)
        key = f"{section}-{name.split(',')[0].lower().replace(' ', '-')}"
        yield line(key, meaning, ours, theirs, least, unit="modelled time", better="lower")


class Rival:
    """Dalton beside the better of hash and two choices, at one number of workers."""

    def __init__(self, found: Lines, stream: str, workers: int) -> None:
        times = {
            each["partitioner"]: each["time"]
            for each in found
            if (each["stream"], each["workers"]) == (stream, workers)
        }
        self.stream, self.workers = stream, workers
        self.better = min((HASH.label, TWO_CHOICES.label), key=times.__getitem__)
        self.time, self.dalton, self.greedy = times[self.better], times[DALTON.label], times["DAGreedy"]
        self.ratio: float = self.dalton / self.time


def rivals(found: Lines, stream: str) -> list[Rival]:
    workers = dict.fromkeys(each["workers"] for each in found if each["stream"] == stream)
    return [Rival(found, stream, n) for n in workers]


def _single(system: str, work: str, value: float) -> Measured:
    return Measured(system, work, value, value, value, (value,))


def _cooperative_lines(found: Lines) -> Iterator[Line]:
    """Of every kind of sources the number of partitioners at which learning together helps least."""
    for kind in dict.fromkeys(each["sources"] for each in found):
        of_kind = [each for each in found if each["sources"] == kind]
        worst = max(of_kind, key=lambda each: each["together, settled"] / each["alone, settled"])
        ours = _single("Dalton, together", kind, worst["together, settled"])
        theirs = _single("Dalton, apart", kind, worst["alone, settled"])
        meaning = f"{worst['partitioners']} Daltons that learn together, against apart, settled: {kind}"
        name = f"cooperative-{kind.lower().replace(',', '').replace(' ', '-')}"
        yield line(name, meaning, ours, theirs, 1.0, unit="modelled time", better="lower")


def _speed_lines(found: Lines) -> Iterator[Line]:
    """Where something is asked: the distribution that is nearest to it."""
    for each in found:
        asked = {name: least for name, least in each["asked"].items() if least}
        rates = each["million_rows_per_second"]
        if asked:
            name = min(asked, key=lambda name: rates[name] / asked[name])
            runs = [{"rate": 1e6 * rate} for rate in each["runs"][name]]
            meaning = f"assigned by one core, {each['partitioner']}, {name} keys"
            key = f"speed-{each['partitioner'].split()[0].lower()}"
            ours = measured("thalweg", name, runs, "rate")
            yield line(key, meaning, ours, None, 1e6 * asked[name])


def _memory_lines(found: Lines) -> Iterator[Line]:
    most = max((each["workers"] for each in found), default=0)
    for each in found:
        if each["workers"] == most:
            value = max(each["state_mb"], each["held_mb"])
            meaning = f"memory for 8.1M keys, {each['partitioner']}, {most} workers (the paper: {each['paper_mb']:g})"
            ours = _single("thalweg", each["partitioner"], value)
            key = f"memory-{each['partitioner'].lower()}"
            yield line(key, meaning, ours, None, each["asked_mb"], unit="MB", better="lower")
