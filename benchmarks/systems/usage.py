"""CPU time of a process and all that it has started, sampled while it runs."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence

TICKS = os.sysconf("SC_CLK_TCK")
EVERY_SECONDS = 0.2
SEARCH_EACH = 5
"""Samples after which new processes are looked for; what they have used by then is not lost."""


class CpuWatch:
    """Samples in a thread from when it is made until `stop`."""

    def __init__(self, root: int | None = None) -> None:
        self._root = root or os.getpid()
        self._samples: list[tuple[float, float]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def __enter__(self) -> CpuWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def seconds_between(self, began: float, ended: float) -> float:
        """CPU seconds from one time (since the epoch) to another."""
        return interpolated(self._samples, ended) - interpolated(self._samples, began)

    def _watch(self) -> None:
        pids: list[int] = []
        number = 0
        while True:
            last = self._done.is_set()
            if number % SEARCH_EACH == 0 or last:
                pids = process_tree(self._root)
            self._samples.append((time.time(), cpu_seconds(pids)))
            number += 1
            if last:
                return
            self._done.wait(EVERY_SECONDS)


def interpolated(samples: Sequence[tuple[float, float]], moment: float) -> float:
    """On the line through the samples around it; before the first and after the last as those."""
    at = bisect_left(samples, (moment,))
    if at == 0 or at == len(samples):
        return samples[min(at, len(samples) - 1)][1]
    (t0, c0), (t1, c1) = samples[at - 1], samples[at]
    return c0 + (c1 - c0) * (moment - t0) / (t1 - t0)


def process_tree(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """With that of their children that have ended: who waits for a process inherits its time."""
    return sum(sum(int(ticks) for ticks in (_stat(pid) or ["0"] * 15)[11:15]) for pid in pids) / TICKS


def process_started() -> float:
    """When this process was started, in seconds since the epoch."""
    fields = _stat(os.getpid()) or []
    with open("/proc/uptime") as uptime:
        return time.time() - float(uptime.read().split()[0]) + int(fields[19]) / TICKS


def _stat(pid: int) -> list[str] | None:
    """Fields of /proc/PID/stat from the third on; the name before may hold anything."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()
    except OSError:
        return None
