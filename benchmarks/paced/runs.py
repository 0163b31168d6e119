"""Sides run one after the other, each in a process of its own; what fails is told and left out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from benchmarks.measure import measure, out

Side = tuple[str, str]
"""(system, what it ran)"""


class Runs:
    def __init__(self, module: str, count: int) -> None:
        self.found: dict[Side, list[dict[str, Any]]] = {}
        self.skipped: list[str] = []
        self._module = module
        self._count = count
        self._done = 0
        self._began = time.perf_counter()

    def run(self, side: Side, options: Sequence[str], work: str | None = None) -> dict[str, Any] | None:
        """What it measured; None: it failed. `work`: the workload's name, where the side has another."""
        self._say(side)
        self._done += 1
        try:
            result = measure(self._module, side[0], work or side[1], options)
            _check(result)
        except (SystemExit, ValueError) as error:
            self.skipped.append(f"{side[0]} {side[1]}: {_first_and_last(str(error))}")
            out.print(f"  {self.skipped[-1]}", style="red")
            return None
        self.found.setdefault(side, []).append(result)
        return result

    def _say(self, side: Side) -> None:
        spent = time.perf_counter() - self._began
        left = spent / self._done * (self._count - self._done) if self._done else None
        about = "" if left is None else f", about {left / 60:.1f} min left"
        out.print(f"{self._done + 1} of {self._count}: {side[0]} {side[1]}{about}")


def _check(result: dict[str, Any]) -> None:
    expected = result.get("expected_rows")
    if expected is not None and expected != result["output_rows"]:
        raise ValueError(f"{result['output_rows']:,} result rows where {expected:,} were expected")


def _first_and_last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["failed"]
    return lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"


def grouped(title: str, first: str, others: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
