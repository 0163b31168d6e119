"""Measuring sides, each in a process of its own, and setting what was asked beside what was measured.

An experiment says which sides it needs (`Side`), what it sets beside what (`Comparison`) and what must be equal
before anything is timed (`Check`); a `Bench` runs it all. Repetitions are interleaved: every side once, then all of
them again, so that a slow minute of the machine meets them all. A side that fails or is not installed is told and
left out.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.markup import escape

from benchmarks import result, systems
from benchmarks.equality import DifferenceError, compare_results
from benchmarks.process import TREE, SideFailedError, run_process
from benchmarks.remaining import Remaining
from benchmarks.result import Line, Measured, Result
from benchmarks.tables import add_columns, coloured, new_table, out, show
from benchmarks.workloads import make_files, named
from benchmarks.workloads.model import Workload

__all__ = [
    "DATA",
    "TREE",
    "Bench",
    "Check",
    "Comparison",
    "Side",
    "add_columns",
    "coloured",
    "new_table",
    "out",
    "side",
]

DATA = TREE / "build" / "bench"
SHUFFLED = "shuffled_bytes_per_row"


@dataclass(frozen=True)
class Side:
    """One system on the first files of one workload."""

    system: str
    work: str
    files: int
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        return f"{self.system} {self.work}"

    @property
    def run(self) -> str:
        """What says how long it takes."""
        kept = [f"{key}={value}" for key, value in self.settings if key != "shuffle"]
        return " ".join([self.system, self.work, str(self.files), *kept])

    def with_settings(self, **settings: Any) -> Side:
        return replace(self, settings=tuple(sorted({**dict(self.settings), **_texts(settings)}.items())))


def side(system: str, work: str, files: int, **settings: Any) -> Side:
    return Side(system, work, files).with_settings(**settings)


def _texts(settings: Mapping[str, Any]) -> dict[str, str]:
    return {key: str(value) for key, value in settings.items()}


@dataclass(frozen=True)
class Comparison:
    """Ours beside theirs, and the ratio that is asked for between them."""

    name: str
    meaning: str
    ours: Side
    theirs: Side | None = None
    asked: float | None = None
    """None: it is enough that ours runs."""
    figure: str = "rows_per_second"
    unit: str = "rows/s"
    better: str = "higher"

    @property
    def sides(self) -> tuple[Side, ...]:
        return (self.ours,) if self.theirs is None else (self.ours, self.theirs)

    def resized(self, files: int, **settings: Any) -> Comparison:
        """The same, every side over so many files."""

        def smaller(one: Side) -> Side:
            return replace(one, files=files).with_settings(**settings)

        theirs = None if self.theirs is None else smaller(self.theirs)
        return replace(self, ours=smaller(self.ours), theirs=theirs)


@dataclass(frozen=True)
class Check:
    """Ours must have the results of every peer, over the same files."""

    ours: Side
    peers: tuple[Side, ...]
    stands_for: str = ""
    """The workload that is timed, where this is a smaller likeness of it."""


# -- the command line of an experiment ---------------------------------------------------------------------


def parser(experiment: str, doc: str | None, names: Iterable[str]) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=f"thalweg bench {experiment}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--quick", action="store_true", help="less of it, in two minutes")
    made.add_argument("--json", type=Path, help="where to write what was measured")
    made.add_argument("--only", nargs="*", help="some of: " + ", ".join(names))
    made.add_argument("--repetitions", type=int, help="of every measurement; 3 unless given, 1 with --quick")
    made.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="a setting of every side: memory=4g")
    return made


# -- running a side ----------------------------------------------------------------------------------------


def directory_of(work: Workload) -> Path:
    """Where its files are kept for the next time."""
    return DATA / (work.data or work.name.replace("/", "-"))


def run_side(side: Side, destination: Path | None = None) -> dict[str, Any]:
    """What a side measured, with the peak memory of its process tree and its time in all."""
    work = named(side.work)
    directory = make_files(work, side.files, directory_of(work))
    options = ["--directory", str(directory), "--files", str(side.files)]
    options += ["--out", str(destination)] if destination else []
    options += ["--set", *(f"{key}={value}" for key, value in side.settings)] if side.settings else []
    return run_process("benchmarks.systems", [side.system, "--work", side.work, *options])


# -- an experiment -----------------------------------------------------------------------------------------


class Bench:
    """One run of an experiment: what it has measured, what was left out, and how long it will still take."""

    def __init__(self, experiment: str, title: str, options: argparse.Namespace, answers: str = "") -> None:
        self.experiment, self.title, self.answers = experiment, title, answers
        self.options = options
        self.quick: bool = options.quick
        self.repetitions: int = getattr(options, "repetitions", None) or (1 if options.quick else 3)
        self.settings = dict(setting.split("=", 1) for setting in getattr(options, "set", ()))
        self.runs: dict[Side, list[dict[str, Any]]] = {}
        self.checked: dict[Side, dict[str, Any]] = {}
        """What the runs measured whose results were compared."""
        self.compared: list[tuple[Check, Side]] = []
        """Peers whose results were equal."""
        self.equal: dict[str, int] = {}
        self.skipped: list[str] = []
        self._updates: Result | None = None
        """What the measured lines have been put among."""
        self._left_out: set[str] = set()
        """Names of sides, whatever their size: what is not equal is not timed."""
        self._began = time.perf_counter()
        self._progress: Remaining | None = None

    def chosen(
        self, comparisons: Sequence[Comparison], also: Iterable[str] = (), usual: Iterable[str] | None = None
    ) -> list[Comparison]:
        """Those that are asked for and have somebody to be compared with.

        `also`: what else may be asked for. `usual`: what runs where nothing is asked for, all unless given.
        """
        only = self.options.only
        unknown = set(only or ()) - {c.name for c in comparisons} - {*also}
        if unknown:
            raise SystemExit(f"no such comparison: {', '.join(sorted(unknown))}")
        wanted = only or ({c.name for c in comparisons} if usual is None else {*usual})
        asked = [c for c in comparisons if c.name in wanted]
        return [c for c in asked if c.theirs is None or self._available([c.theirs])]

    def run(self, checks: Sequence[Check], sides: Sequence[Side], once: Sequence[Side] = ()) -> None:
        """Compares results, then measures every side as often as is asked, in turn; `once`: those known to be slow.

        With `--quick` a side whose results are compared is not run again: the time is that of that run.
        """
        checks = [replace(c, peers=self._available(c.peers)) for c in checks]
        sides = self._available(sides)
        compared = [s for c in checks if c.peers for s in (c.ours, *c.peers)]
        timed = [s for s in sides if not (self.quick and s in compared)]
        rounds = [[s for s in timed if round_ == 0 or s not in once] for round_ in range(self.repetitions)]
        to_time = [s for sides in rounds for s in sides]
        self._progress = Remaining(self.experiment, [one.run for one in (*compared, *to_time)])
        for check in checks:
            self._check(check)
        if self.quick:
            self.runs |= {s: [self.checked[s]] for s in sides if s in self.checked}
        for one in to_time:
            found = self.run_once(one)
            if found is not None:
                self.runs.setdefault(one, []).append(found)

    def run_once(self, one: Side, destination: Path | None = None) -> dict[str, Any] | None:
        """None: it failed, now or before."""
        if one.name in self._left_out:
            return None
        if self._progress:
            self._progress.begins(one.run)
        try:
            found = run_side(one.with_settings(**self.settings), destination)
        except SideFailedError as error:
            self.leave_out(one, str(error))
            return None
        self._say(one, found)
        return found

    def leave_out(self, one: Side, reason: str) -> None:
        """From now on."""
        self._left_out.add(one.name)
        self.skip(one.name, reason)

    def skip(self, name: str, reason: str) -> None:
        """Says that something was not measured; the reason is told in full, its last line is kept."""
        lines = [line for line in reason.splitlines() if line.strip()] or ["no reason was given"]
        out.print(f"[red]{escape(name)} is left out:[/] {escape(reason.strip())}", soft_wrap=True)
        self.skipped.append(f"{name}: {lines[-1].strip()}")

    def measured(self, one: Side, figure: str = "rows_per_second") -> Measured | None:
        runs = [run for run in self.runs.get(one, ()) if run.get(figure) is not None]
        if one.name in self._left_out:
            return None
        return result.measured(one.system, one.work, runs, figure) if runs else None

    def with_older(self, lines: Sequence[Line]) -> list[Line]:
        """With those of the comparisons that `--only` leaves out, from the file that is to be written."""
        self._updates = self.older
        if self.older is None:
            return list(lines)
        again = f"{date.today().isoformat()}, {result.machine().thalweg}"
        fresh = {line.name: replace(line, again=again) for line in lines}
        kept = [fresh.pop(line.name, line) for line in self.older.lines]
        return [*kept, *fresh.values()]

    @cached_property
    def older(self) -> Result | None:
        """The whole run on this machine of which some comparisons are measured again."""
        path = self.options.json
        if not getattr(self.options, "only", None) or self.quick or path is None or not path.exists():
            return None
        found = Result.read(path)
        alike = found.experiment == self.experiment and found.machine.is_like(result.machine())
        return found if alike and not found.quick else None

    def lines(self, comparisons: Iterable[Comparison]) -> tuple[Line, ...]:
        """Of the comparisons of which both sides were measured."""
        made = (self.line(comparison) for comparison in comparisons)
        return tuple(line for line in made if line is not None)

    def line(self, c: Comparison) -> Line | None:
        ours = self.measured(c.ours, c.figure)
        theirs = None if c.theirs is None else self.measured(c.theirs, c.figure)
        if ours is None or (c.theirs is not None and theirs is None):
            return None
        return result.line(c.name, c.meaning, ours, theirs, c.asked, unit=c.unit, better=c.better)

    def result(
        self,
        lines: Sequence[Line],
        notes: Sequence[str] = (),
    ) -> Result:
        """What was found; shown, and written where `--json` says."""
        said = [*notes, *result.short_of_memory(lines, machine := result.machine())]
        if self.quick and self.checked:
            said.append("where results are compared, the time is that of the run that wrote them")
        found = Result(
            self.experiment,
            self.title,
            machine,
            self.answers,
            self.quick,
            result.options_said(self.options),
            took_seconds=round(time.perf_counter() - self._began, 1),
            repetitions=self.repetitions,
            lines=tuple(lines),
            equal=self.equal,
            skipped=tuple(self.skipped),
            notes=tuple(said),
        )
        show(found)
        if self.options.json:
            found = found if self._updates is None else self._updates.updated(found)
            found.write(self.options.json)
        return found

    # -- inside --------------------------------------------------------------------------------------------

    def _available(self, sides: Sequence[Side]) -> tuple[Side, ...]:
        """Those whose system is here, each once; of the others it is said once that they are not."""
        kept = []
        for one in dict.fromkeys(sides):
            reason = systems.missing(one.system)
            if reason is None:
                kept.append(one)
            elif f"{one.system}: {reason}" not in self.skipped:
                self.skipped.append(f"{one.system}: {reason}")
                out.print(f"  {one.system} is left out: {reason}", soft_wrap=True)
        return tuple(kept)

    def _check(self, check: Check) -> None:
        if not check.peers:
            return
        with tempfile.TemporaryDirectory() as name:
            mine = Path(name) / "ours"
            ours = self._run_checked(check.ours, mine)
            for peer in check.peers:
                theirs = Path(name) / peer.system
                found = self._run_checked(peer, theirs)
                if ours is not None and found is not None and self._compare(check, peer, mine, theirs):
                    self.compared.append((check, peer))

    def _run_checked(self, one: Side, destination: Path) -> dict[str, Any] | None:
        """These runs also count what is shuffled: the log that says so would disturb a run that is timed."""
        found = self.run_once(one.with_settings(shuffle=1), destination)
        if found is not None:
            self.checked[one] = found
        return found

    def _compare(self, check: Check, peer: Side, mine: Path, theirs: Path) -> bool:
        ours, work = check.ours, named(check.ours.work)
        try:
            held = peer.system.startswith("spark")
            rows = compare_results(work, directory_of(work), ours.files, mine, theirs, held=held)
        except DifferenceError as error:
            timed = replace(peer, work=check.stands_for or peer.work)
            self.leave_out(timed, f"results differ from Thalweg's: {error}")
            return False
        self.equal[ours.work] = rows
        out.print(f"  results of {peer.name} are equal: {rows:,} rows", highlight=False)
        return True

    def _say(self, one: Side, found: Mapping[str, Any]) -> None:
        rate = f"{found['rows_per_second'] / 1e6:.3f}M rows/s" if "rows_per_second" in found else ""
        costs = f"peak {found['peak_mib']:,.0f} MiB, {found['total_seconds']:.0f} s in all"
        out.print(f"  {one.system:14} {one.work:32} {rate:16} {costs}", soft_wrap=True, highlight=False)


def rates(lines: Iterable[Line]) -> dict[tuple[str, str], float]:
    """(system, work) -> rows per second."""
    found = (m for line in lines if line.unit == "rows/s" for m in (line.ours, line.theirs) if m)
    return {(m.system, m.work): m.median for m in found}


def shuffle_lines(bench: Bench) -> list[Line]:
    """Bytes that tasks of ours and of each peer handed over for every row read, in the runs that were compared."""
    lines = []
    for check, peer in bench.compared:
        if SHUFFLED not in bench.checked[peer]:
            continue
        ours, theirs = (_shuffled(one, bench.checked[one]) for one in (check.ours, peer))
        against = dict(peer.settings).get("partitioner", peer.system)
        meaning = f"bytes handed over for every row read, {peer.work}, against {against}"
        lines.append(
            result.line(f"shuffled-{peer.work}-{peer.system}", meaning, ours, theirs, unit="B/row", better="lower")
        )
    return lines


def _shuffled(one: Side, run: Mapping[str, Any]) -> Measured:
    """Nothing else of the run: it was short, and wrote its results and a log."""
    return result.measured(one.system, one.work, [{SHUFFLED: run[SHUFFLED]}], SHUFFLED)


# -- sides that are modules of their own -------------------------------------------------------------------


def measure(module: str, side: str, work: str, options: Iterable[str] = ()) -> dict[str, Any]:
    """Runs a module for one side of one piece of work. Raises SideFailedError."""
    found = run_process(module, [side, *options, *(["--work", work] if work else [])])
    rate = f"{found['rows_per_second'] / 1e6:.3f}M rows/s" if "rows_per_second" in found else ""
    costs = f"peak {found['peak_mib']:,.0f} MiB, {found['total_seconds']:.0f} s in all"
    out.print(f"  {side:14} {work:32} {rate:16} {costs}", soft_wrap=True)
    return found
