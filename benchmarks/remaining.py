"""How far an experiment is, and how long it will still take."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import fmean

from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from benchmarks.tables import out

FIRST_GUESS_SECONDS = 25


class Times:
    """How long runs take: as they did, in this experiment or an earlier one, or as the others did."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
        self._here: dict[str, float] = {}

    def learn(self, run: str, seconds: float) -> None:
        self._here[run] = seconds
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps({**self._known, **self._here}, indent=1))

    def of(self, run: str) -> float:
        known = self._here.get(run) or self._known.get(run)
        return known or (fmean(self._here.values()) if self._here else FIRST_GUESS_SECONDS)


class _Left(ProgressColumn):
    def render(self, task: Task) -> Text:
        return Text(f"{task.fields['left']()} left")


class Remaining:
    """A bar over the runs that are to come, in that order."""

    def __init__(self, title: str, runs: Sequence[str], times: Times) -> None:
        self._runs = list(runs)
        self._times = times
        self._done = 0
        self._began = time.perf_counter()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _Left())
        self._bar = Progress(*columns, console=out, refresh_per_second=1, transient=True, disable=not out.is_terminal)
        self._task = self._bar.add_task(title, total=len(self._runs), left=self.left)

    def __enter__(self) -> Remaining:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begins(self, run: str) -> None:
        self._began = time.perf_counter()
        self._bar.update(self._task, description=run)

    def ended(self) -> None:
        self._done += 1
        self._began = time.perf_counter()
        self._bar.update(self._task, completed=self._done)

    @contextmanager
    def during(self, run: str) -> Iterator[None]:
        """What is done inside is one of the runs, and says how long it takes the next time."""
        self.begins(run)
        began = self._began
        yield
        self._times.learn(run, time.perf_counter() - began)
        self.ended()

    def left(self) -> str:
        ahead = [self._times.of(run) for run in self._runs[self._done :]]
        seconds = sum(ahead) - min(time.perf_counter() - self._began, ahead[0] if ahead else 0)
        return str(timedelta(seconds=round(seconds)))
