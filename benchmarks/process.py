"""Running a module in a process of its own, with its time and the peak memory of its process tree."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

TREE = Path(__file__).resolve().parents[1]
LIMIT_SECONDS = 1200
"""A process that takes longer has failed."""


class SideFailedError(Exception):
    pass


def run_process(module: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Runs a module that prints `RESULT {...}`."""
    with tempfile.TemporaryFile("w+") as log:
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=TREE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        peak = PeakMemory(process.pid)
        try:
            text, _ = process.communicate(timeout=LIMIT_SECONDS)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                raise SideFailedError(f"not done in {LIMIT_SECONDS} s") from None
            raise
        finally:
            memory = peak.stop()
        log.seek(0)
        lines = [line for line in text.splitlines() if line.startswith("RESULT ")]
        if process.returncode or not lines:
            raise SideFailedError(log.read()[-4000:])
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("RESULT "))
    return found | {"peak_mib": memory, "total_seconds": time.perf_counter() - began}


class PeakMemory:
    """Samples the proportional set size of a process and its descendants."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.peak = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> float:
        self._done.set()
        self._thread.join()
        return self.peak

    def _watch(self) -> None:
        while not self._done.wait(0.5):
            self.peak = max(self.peak, sum(_pss(pid) for pid in _tree(self.pid)) / 1024)


def _tree(root: int) -> Iterator[int]:
    yield root
    try:
        for task in os.listdir(f"/proc/{root}/task"):
            for child in map(int, Path(f"/proc/{root}/task/{task}/children").read_text().split()):
                if not _is_being_started(child, root):
                    yield from _tree(child)
    except OSError:
        return


def _is_being_started(child: int, parent: int) -> bool:
    """Whether it is still a thread of a JVM, about to become another program: until then it has the JVM's memory,
    which would count twice. A JVM that a JVM has started has many threads."""
    programs = {os.readlink(f"/proc/{pid}/exe") for pid in (child, parent)}
    is_java = len(programs) == 1 and os.path.basename(programs.pop()) == "java"
    return is_java and len(os.listdir(f"/proc/{child}/task")) == 1


def _pss(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    except OSError:
        pass
    return 0
