"""What an experiment found, as JSON: medians with their spread, machine and commit. The report reads nothing else.

A line sets ours beside theirs: `ratio` is ours / theirs, of medians, whichever is better. `better` says in which
direction: `higher` is reached where the ratio is at least what is asked, `lower` where it is at most that. Without
theirs, what is asked is asked of the median of ours.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

TREE = Path(__file__).resolve().parents[1]
CORES = 2
"""What every system is given, however many the machine has."""


MEASURES = {
    "peak_mib": ("peak memory", "MiB"),
    "cpu_seconds_per_million": ("CPU per million rows", "s"),
    "cpu_seconds_a_batch": ("CPU a batch", "s"),
    "shuffled_bytes_per_row": ("handed over per row", "bytes"),
    "shuffled_rows_per_row": ("shuffled rows per row", ""),
    "copies_per_row": ("copies per row", ""),
    "batch_seconds": ("a batch", "s"),
    "first_batch_seconds": ("first batch", "s"),
    "start_seconds": ("start", "s"),
    "create_seconds": ("queries accepted in", "s"),
    "drop_seconds": ("20 queries dropped in", "s"),
    "state_mib": ("state", "MiB"),
}
"""What else a side may have measured -> how a reader calls it, and its unit."""


@dataclass(frozen=True)
class Machine:
    cores: int
    memory_gib: float
    cpu: str
    python: str
    spark: str
    duckdb: str
    thalweg: str
    """As `git describe` says it; `-dirty` where what runs was not committed."""
    java: str = ""
    flink: str = ""
    given: int = 0
    """Of the cores, how many every system had; 0: all."""

    def is_like(self, other: Machine) -> bool:
        return (self.cores, self.cpu, self.memory_gib) == (other.cores, other.cpu, other.memory_gib)

    def __str__(self) -> str:
        return f"{self.cores} cores ({self.cpu}), {self.memory_gib:.0f} GiB, Python {self.python}, Spark {self.spark}"


@dataclass(frozen=True)
class Measured:
    """One system on one workload, over all repetitions."""

    system: str
    work: str
    median: float
    low: float
    high: float
    values: tuple[float, ...] = ()
    """Of the repetitions: they say how far ratios spread, and are not written."""
    measures: Mapping[str, Any] = field(default_factory=dict)
    """The medians of what else a reader sees: `MEASURES`, and the shares of `phases`."""


@dataclass(frozen=True)
class Line:
    name: str
    meaning: str
    unit: str
    better: str
    """`higher` or `lower`."""
    ours: Measured
    theirs: Measured | None = None
    asked: float | None = None
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    again: str = ""
    """When and with which code, where it was measured after the rest."""

    @property
    def reached(self) -> bool | None:
        """None: nothing is asked."""
        found = self.ours.median if self.ratio is None else self.ratio
        if self.asked is None:
            return None
        return found >= self.asked if self.better == "higher" else found <= self.asked


@dataclass(frozen=True)
class Result:
    experiment: str
    title: str
    machine: Machine
    answers: str = ""
    quick: bool = False
    options: str = ""
    """What else the command was given."""
    date: str = field(default_factory=lambda: date.today().isoformat())
    took_seconds: float = 0.0
    repetitions: int = 1
    lines: tuple[Line, ...] = ()
    equal: Mapping[str, int] = field(default_factory=dict)
    """Workload -> result rows that were compared and equal before anything was timed."""
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        lines = [{**asdict(line), "ours": _kept(line.ours), "theirs": _kept(line.theirs)} for line in self.lines]
        return {**asdict(self), "lines": lines}

    def write(self, path: Path) -> None:
        """A line of the file for every line of the table, so that a new run is a short difference."""
        found = self.to_json()
        lines = ",\n".join(f"  {json.dumps(line, ensure_ascii=False)}" for line in found.pop("lines"))
        text = json.dumps(found, indent=1, ensure_ascii=False).removesuffix("\n}")
        path.write_text(f'{text},\n "lines": [\n{lines}\n ]\n}}\n', encoding="utf-8")

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Result:
        parts = {
            "machine": Machine(**found["machine"]),
            "lines": tuple(_line(line) for line in found["lines"]),
        }
        return cls(**{**found, **parts, "skipped": tuple(found["skipped"]), "notes": tuple(found["notes"])})

    def updated(self, part: Result) -> Result:
        """With what a run of some comparisons has measured again."""
        return replace(
            self,
            answers=part.answers,
            lines=part.lines,
            equal={**self.equal, **part.equal},
            notes=tuple(dict.fromkeys((*self.notes, *part.notes))),
        )

    @classmethod
    def read(cls, path: Path) -> Result:
        return cls.from_json(json.loads(path.read_text()))


def options_said(given: argparse.Namespace) -> str:
    """What an experiment was given besides `--quick` and `--json`, as one would write it."""
    said = []
    for name, value in vars(given).items():
        if name not in ("quick", "json") and value:
            values = value if isinstance(value, list) else [value]
            said.append(" ".join([f"--{name}", *map(str, values)]))
    return " ".join(said)


def _line(found: Mapping[str, Any]) -> Line:
    return Line(**{**found, "ours": _measured(found["ours"]), "theirs": _measured(found["theirs"])})


def _measured(found: Mapping[str, Any] | None) -> Any:
    return found and Measured(**found)


def _kept(one: Measured | None) -> dict[str, Any] | None:
    """What is written of a side: five digits that count."""
    if one is None:
        return None
    measures: dict[str, Any] = {}
    for name in MEASURES:
        if isinstance(one.measures.get(name), int | float):
            measures[name] = _rounded(one.measures[name])
    if phases := one.measures.get("phases"):
        measures["phases"] = {name: round(value / (sum(phases.values()) or 1), 3) for name, value in phases.items()}
    figures = {name: _rounded(getattr(one, name)) for name in ("median", "low", "high")}
    return {"system": one.system, "work": one.work, **figures, "measures": measures}


def _rounded(value: float) -> float:
    return value if isinstance(value, int) else float(f"{value:.5g}")


def measured(system: str, work: str, runs: Sequence[Mapping[str, Any]], figure: str = "rows_per_second") -> Measured:
    """From what the repetitions gave; `figure` is what the line is about."""
    values = tuple(float(run[figure]) for run in runs)
    return Measured(system, work, median(values), min(values), max(values), values, medians(runs))


def medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of every number, also inside maps; of anything else the last."""
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for run in runs for name in run):
        values = [run[name] for run in runs if run.get(name) is not None]
        if values and all(isinstance(value, Mapping) for value in values):
            found[name] = medians(values)
        elif values and all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            found[name] = median(values)
        elif values:
            found[name] = values[-1]
    return found


def line(
    name: str,
    meaning: str,
    ours: Measured,
    theirs: Measured | None = None,
    asked: float | None = None,
    *,
    unit: str = "rows/s",
    better: str = "higher",
) -> Line:
    """With the ratio of medians; its spread is that of the repetitions, each against its neighbour."""
    if theirs is None or not theirs.median:
        return Line(name, meaning, unit, better, ours, theirs, asked)
    ratios = [a / b for a, b in zip(ours.values, theirs.values, strict=False)]
    ratio = ours.median / theirs.median
    low, high = min([ratio, *ratios]), max([ratio, *ratios])
    return Line(name, meaning, unit, better, ours, theirs, asked, ratio, low, high)


def machine() -> Machine:
    return Machine(
        cores=os.cpu_count() or 0,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        cpu=_cpu(),
        python=platform.python_version(),
        spark=_version("pyspark"),
        duckdb=_version("duckdb"),
        thalweg=_described(),
        java=_java(),
        flink=_version("apache-flink-libraries"),
        given=CORES,
    )


FULL = 0.9
"""Of the machine's memory: whoever has more in use may be slow for that reason alone."""


def short_of_memory(lines: Iterable[Line], machine: Machine) -> list[str]:
    """A sentence for every side that had nearly all of the machine's memory in use."""
    found = {}
    for one in (side for line in lines for side in (line.ours, line.theirs) if side is not None):
        gib = float(one.measures.get("peak_mib", 0)) / 1024
        if gib > FULL * machine.memory_gib:
            found[one.system, one.work] = gib
    return [
        f"{system} {work} had {gib:.0f} of {machine.memory_gib:.0f} GiB in use and may have been slower for it."
        for (system, work), gib in found.items()
    ]


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _java() -> str:
    """The number of the version that Spark is started with."""
    home = os.environ.get("JAVA_HOME")
    found = re.search(r'version "([^"]+)"', _said([f"{home}/bin/java" if home else "java", "-version"]))
    return found[1] if found else ""


RUNS = ("src", "benchmarks", "pyproject.toml")
"""What a measurement depends on; that a page or a table has changed since does not matter."""


def _described() -> str:
    git = ["git", "-C", str(TREE)]
    described = _said([*git, "describe", "--always", "--tags"])
    dirty = described and _said([*git, "status", "--porcelain", "--", *RUNS])
    return f"{described}{'-dirty' if dirty else ''}" or _version("thalweg")


def _said(command: Sequence[str]) -> str:
    """What a command printed; nothing where it failed."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
