"""What the partitioners' benchmark found, as lines, plots and answers to the figures of Holistic and Dalton."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.partition_contenders import DALTON, HASH, TWO_CHOICES
from benchmarks.partition_modelled import CLOSE
from benchmarks.quantities import compact
from benchmarks.result import Finding, Line, Measured, Series, line, measured

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
STREAMS = ("uniform", "Zipf 1.5", "Zipf 2.0", "T4SA-like", "alternating")
"""Beginnings of the names of streams that get a plot."""
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


# --- plots ----------------------------------------------------------------------------------------------


def series(found: Found) -> Iterator[Series]:
    for work in found.get("engine", ()):
        if work["work"] == "zipf/unique":
            loads = {_side(work, side): _by_slot(work["loads"][side]) for side in work["loads"]}
            title = "Rows of each slot (of each task, where rows stay), Zipf 1.5 keys"
            yield Series("slot-loads", title, "slot", "rows a batch", loads)
        if work["work"] == "moving/unique":
            over_time = {_side(work, side): list(enumerate(_above(work, side))) for side in work["runs"]}
            title = "The busiest slot (or task) over time; half way, other keys are hot"
            yield Series("slot-loads-over-time", title, "batch", "% above an even share, first repetition", over_time)
    modelled = [*found.get("quality", ()), *found.get("shift", ())]
    for name in dict.fromkeys(each["stream"] for each in modelled):
        if name.startswith(STREAMS):
            curves = {
                label: [
                    (e["workers"], e["time"]) for e in modelled if (e["stream"], e["partitioner"]) == (name, label)
                ]
                for label in SHOWN
            }
            short = name.split(",")[0]
            title = f"Modelled window time, {short} {'stream' if short == 'alternating' else 'keys'}"
            yield Series(_plot(name), title, "workers", "times the ideal", curves, log=True)
    if "cooperative" in found:
        ways = {
            "together": "together, settled",
            "apart": "alone, settled",
            "together, policies late": "late, settled",
        }
        curves = {
            said: [(f"{e['sources']}, {e['partitioners']}", e[way]) for e in found["cooperative"]]
            for said, way in ways.items()
        }
        yield Series("cooperative", "Several Daltons side by side", "sources", "modelled time, settled", curves)
    if "speed" in found:
        names = list(found["speed"][0]["million_rows_per_second"])
        curves = {
            name: [(e["partitioner"], 1e6 * e["million_rows_per_second"][name]) for e in found["speed"]]
            for name in names
        }
        title = "Rows assigned by one core, 32 workers"
        yield Series("speed", title, "partitioner", "rows/s", curves, log=True)


def _plot(stream: str) -> str:
    return f"modelled-{stream.split(',')[0].lower().replace(' ', '-')}"


def _side(work: Mapping[str, Any], side: str) -> str:
    return {"auto": f"chosen ({work['chosen']})", "hash": "hash", "dalton": "pinned Dalton"}[side]


def _above(work: Mapping[str, Any], side: str) -> list[float]:
    """Batch by batch, percent that the busiest had above its share."""
    return [100 * above_even(loads) for loads in work["runs"][side][0]["loads_over_time"]]


def _by_slot(loads: Sequence[float]) -> list[tuple[float | str, float]]:
    """Busiest first: which slot it is says nothing."""
    names = ("busiest", "second", "third", "fourth")
    return [
        (names[i] if i < len(names) else f"{i + 1}th", load) for i, load in enumerate(sorted(loads, reverse=True))
    ]


# --- findings -------------------------------------------------------------------------------------------


def findings(found: Found) -> Iterator[Finding]:
    if found.get("engine"):
        yield _engine_finding(found["engine"])
        yield from (_moving_finding(work) for work in found["engine"] if work["work"] == "moving/unique")
    if found.get("quality"):
        yield from _quality_findings(found["quality"])
    if found.get("shift"):
        yield _shift_finding(found["shift"])
    if found.get("cooperative"):
        yield _cooperative_finding(found["cooperative"])
    if found.get("speed"):
        yield _speed_finding(found["speed"])
    if found.get("memory"):
        yield _memory_finding(found["memory"])


def _engine_finding(works: Lines) -> Finding:
    ratios = [each for each in _engine_lines(works) if each.ratio is not None]
    said = [
        f"{each.ratio:.2f}x ({each.meaning.removeprefix(MEDIAN).removesuffix(', against hash')})"
        for each in ratios
        if not each.name.endswith("-dalton")
    ]
    pinned = [f"{each.ratio:.2f}x" for each in ratios if each.name.endswith("-dalton")]
    said += [f"Dalton, where it is asked for, {', '.join(pinned)}"] if pinned else []
    return Finding(
        "Dalton, Fig. 8",
        "with micro-batches the learned policy is 1.6x to 2.1x ahead of the others on skewed keys, and like hashing "
        "on uniform ones",
        f"what the engine chooses against hash: {'; '.join(said)}; it leaves rows where they are, or combines them, "
        "before it would split keys",
        "slot-loads",
    )


def _moving_finding(work: Mapping[str, Any]) -> Finding:
    said = []
    for side in work["runs"]:
        above = _above(work, side)
        half = len(above) // 2
        said.append(f"{_side(work, side)} {above[half - 1]:.0f}, {above[half]:.0f} and {above[-1]:.0f} %")
    return Finding(
        "Dalton, Fig. 9 and 15",
        "a change of the hot keys costs all partitioners something, the learned one least; its imbalance settles on "
        "a stable level",
        "the busiest above an even share in the batch before other keys are hot, in the first one with them and in "
        f"the last: {'; '.join(said)}",
        "slot-loads-over-time",
    )


def _quality_findings(found: Lines) -> Iterator[Finding]:
    """For every stream that has a plot."""
    for name in dict.fromkeys(each["stream"] for each in found):
        if name.startswith(STREAMS):
            uniform = name.startswith("uniform")
            theirs = UNIFORM if uniform else SKEWED
            yield Finding("Dalton, Fig. 7", theirs, _beside(rivals(found, name)), _plot(name))
    uniform = [each for each in found if each["stream"].startswith("uniform")]
    if uniform:
        most = max(each["workers"] for each in uniform)
        times = {each["partitioner"]: each["time"] for each in uniform if each["workers"] == most}
        yield Finding(
            "Holistic, Fig. 8",
            "with many groups, affinity (AM) is 4.5x to 11.6x faster than PK, because it merges nothing",
            f"{most} workers: AM-2 is {times['PK-2'] / times['AM-2']:.2f}x as fast as PK-2 in modelled time, and "
            f"{times['FLD (hash)'] / times['AM-2']:.2f}x as fast as hash",
            "modelled-uniform",
        )


UNIFORM = "on even keys hashing scales, key splitting pays for merging, and Dalton behaves almost like hashing"
SKEWED = "on skewed keys hashing gains nothing from more workers; Dalton is 1.5x to 6.7x ahead of what there was"


def _beside(found: Sequence[Rival]) -> str:
    """Dalton's modelled time beside the better of hash and two choices, and beside DAGreedy."""
    ratios = [rival.time / rival.dalton for rival in found]
    greedier = [str(rival.workers) for rival in found if rival.greedy < rival.dalton]
    ahead = (
        f"DAGreedy is ahead of it at {', '.join(greedier)} workers" if greedier else "it is ahead of DAGreedy, too"
    )
    return (
        f"Dalton is {min(ratios):.2f}x to {max(ratios):.2f}x as fast as the better of hash and PK-2 in modelled "
        f"time, where only split keys are merged; {ahead}"
    )


def _shift_finding(found: Lines) -> Finding:
    by_stream = {name: rivals(found, name) for name in ("alternating", "shifting")}
    said = []
    for name, each in by_stream.items():
        ratios = [1 / rival.ratio for rival in each]
        said.append(f"{min(ratios):.2f}x to {max(ratios):.2f}x on the {name} stream")
    return Finding(
        "Dalton, Fig. 9",
        "when uniform and Zipf keys alternate, Dalton is 1.3x to 6x ahead while they are skewed; 1.1x to 1.3x when "
        "Zipf distributions follow each other",
        f"ahead of the better of hash and PK-2 by {' and '.join(said)}, over all windows",
        "modelled-alternating",
    )


def _cooperative_finding(found: Lines) -> Finding:
    together = [e["together, settled"] / e["alone, settled"] for e in found]
    late = [e["late, settled"] / e["alone, settled"] for e in found]
    return Finding(
        "Dalton, Fig. 13 and 14",
        "partitioners that learn together are 1.4x to 3.4x ahead of other techniques; without synchronisation they "
        "are slow",
        f"together {min(together):.3f}x to {max(together):.3f}x the time of independent copies (ahead in "
        f"{sum(r < 1 for r in together)} of {len(found)}), with late policies {min(late):.3f}x to {max(late):.3f}x",
        "cooperative",
    )


def _speed_finding(found: Lines) -> Finding:
    rates = {e["partitioner"]: e["million_rows_per_second"]["Zipf 1.5"] for e in found}
    said = {name: compact(1e6 * rate) for name, rate in rates.items()}
    slowest = min(rates, key=rates.__getitem__)
    return Finding(
        "Holistic, Fig. 13",
        "deciding where a row goes adds nothing that one notices, up to 32 workers",
        f"one core assigns {said['FLD (hash)']} rows/s by hash, {said['AM-2']} by AM-2, {said['Dalton']} by Dalton; "
        f"slowest is {slowest} with {said[slowest]} (Zipf 1.5)",
        "speed",
    )


def _memory_finding(found: Lines) -> Finding:
    most = max(e["workers"] for e in found)
    held = {e["partitioner"]: max(e["state_mb"], e["held_mb"]) for e in found if e["workers"] == most}
    return Finding(
        "Holistic, Table 4",
        "for 8.1M keys exact cardinalities take 122 MB (AM-2) and 243 MB (CM-2), sketches 0.08 MB with 32 workers",
        f"{held['AM-2']:.3g} MB, {held['CM-2']:.3g} MB and {held['AM-2-H']:.2g} MB",
    )
