"""Paced sides run one after the other, each in a process of its own; what fails is told and left out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.measure import Bench, out
from benchmarks.process import SideFailedError, run_process
from benchmarks.remaining import Remaining
from benchmarks.result import Measured, measured

Side = tuple[str, str]
"""(system, what it ran)"""


class Runs:
    """What the sides of an experiment gave, in the order in which they ran."""

    def __init__(self, bench: Bench, planned: Iterable[Side]) -> None:
        self.found: dict[Side, list[dict[str, Any]]] = {}
        self._bench = bench
        self._prefix = f"{bench.experiment}{' quick' if bench.quick else ''}"
        self._remaining = Remaining(bench.experiment, [self._name(side) for side in planned])

    def run(self, side: Side, options: Sequence[str], work: str | None = None) -> dict[str, Any] | None:
        """What it measured; None: it failed. `work`: the workload's name, where the side has another."""
        self._remaining.begins(self._name(side))
        try:
            found = run_process("benchmarks.paced", [side[0], "--work", work or side[1], *options])
            check_rows(found)
        except SideFailedError as error:
            self._bench.skip(" ".join(side), str(error))
            return None
        self._say(side, found)
        self.found.setdefault(side, []).append(found)
        return found

    def measured(self, side: Side, figure: str) -> Measured | None:
        """Over all repetitions; None where none has it."""
        runs = [scalars(run) for run in self.found.get(side, ()) if run.get(figure) is not None]
        return measured(*side, runs, figure) if runs else None

    def _name(self, side: Side) -> str:
        return f"{self._prefix} {side[0]} {side[1]}"

    def _say(self, side: Side, found: dict[str, Any]) -> None:
        rate = f"{found['rows_per_second'] / 1e6:.4f}M rows/s"
        late = f"p50 {found['p50']:.2f} s, p99 {found['p99']:.2f} s" if "p50" in found else "no results"
        took = f"{found['total_seconds']:.0f} s in all"
        out.print(f"  {side[0]:8} {side[1]:28} {rate:16} {late}, {took}", soft_wrap=True, highlight=False)


def check_rows(found: dict[str, Any]) -> None:
    """A run with more or fewer results than DuckDB has over the same files has failed."""
    expected, given = found.get("expected_rows"), found.get("checked_rows", found["output_rows"])
    if expected is not None and expected != given:
        raise SideFailedError(f"{given:,} result rows where {expected:,} were expected")


def scalars(run: dict[str, Any]) -> dict[str, Any]:
    """Without the lists."""
    return {name: value for name, value in run.items() if not isinstance(value, list)}
