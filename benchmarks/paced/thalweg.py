"""A Thalweg session that runs continuously over directories that are being filled."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.paced.latencies import Arrived, counted, newest_of
from benchmarks.result import CORES
from benchmarks.systems.thalweg import MEMORY, has_ended
from benchmarks.workloads.model import Query, Workload


@dataclass(frozen=True)
class Batch:
    """One batch, and what stood in its manifest."""

    number: int
    began: float
    """Seconds since the epoch."""
    ended: float
    rows: int
    queries: frozenset[str]
    """Ids."""
    state_bytes: int

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Thalweg:
    """Queries come and go while it runs; what their sinks get is noted with the moment."""

    def __init__(
        self, work: Workload, root: Path, state: Path, files_per_batch: int | None = None, **settings: Any
    ) -> None:
        """`settings`: of `thalweg.connect`."""
        import thalweg

        self.work = work
        self.arrivals: list[Arrived] = []
        self.first_results: dict[str, float] = {}
        """query -> when its sink got something first."""
        self.rows_out: Counter[str] = Counter()
        """Result rows of every query."""
        settings = {"spark.driver.memory": MEMORY, **settings}
        self.session = thalweg.connect(state, master=f"local[{CORES}]", **settings)
        for stream in work.streams:
            source = thalweg.files(f"{root}/{stream.name}/*.parquet", max_files_per_batch=files_per_batch)
            delay = f"{round(stream.delay_seconds * 1000)} milliseconds"
            self.session.create_stream(stream.name, source, time=stream.time, watermark=delay, schema=stream.schema)
        for static in work.statics:
            self.session.create_table(static.name, static.make())
        self._runner = self.session._parts.runner
        self._watch = _Watch(self._runner)

    def batches_since(self, moment: float) -> list[Batch]:
        """That ended since then, up to the newest."""
        newest = self._runner.reports[-1].batch if self._runner.reports else -1
        self._watch.wait_for(newest)
        return [batch for batch in self._watch.batches if batch.ended >= moment]

    def create(self, query: Query) -> Any:
        """The handle, once the request is durable."""
        return self.session.create_query(query.name, query.text, self._sink(query))

    def _sink(self, query: Query) -> Callable[[Any, int], None]:
        newest = newest_of(query, self.work)

        def take(table: Any, batch: int) -> None:
            at = time.time()
            self.arrivals.append(Arrived(at, *counted(newest.of(table)), newest.delay_us))
            self.first_results.setdefault(query.name, at)
            self.rows_out[query.name] += table.num_rows

        return take

    def start(self) -> None:
        self.session.start("0 seconds")

    def settle(self, rows: int, timeout: float = 600) -> None:
        """Waits until so many rows, alike of all streams, have been read and what they bring about has been done.

        A stream that no query reads yet is left out: its files wait for the first that does."""
        each = rows // len(self.work.streams)
        self._wait(lambda: self._least_rows() >= each and self._is_done(), timeout)

    def _is_done(self) -> bool:
        return has_ended(self._runner) and not self._runner.has_more_to_close()

    def wait_for(self, condition: Callable[[Any], bool], timeout: float = 60) -> None:
        """Until a manifest is as it should be."""
        self._wait(lambda: condition(self._runner.manifest), timeout)

    def _wait(self, condition: Callable[[], bool], timeout: float) -> None:
        end = time.time() + timeout
        while not condition():
            self.session.progress()  # raises what ended the pipeline, if anything did
            with self._runner.finished:
                self._runner.finished.wait(timeout=0.2)
            if time.time() > end:
                raise TimeoutError(f"{self.work.name}: not done after {timeout:.0f} s")

    def _least_rows(self) -> int:
        """Of the streams that are read."""
        read = {stream for handle in self.session.queries.values() for stream in handle.definition.streams}
        shown = self._runner.manifest.streams
        return min((shown[stream].rows if stream in shown else 0) for stream in read)

    def failed(self) -> dict[str, str]:
        states = self.session.progress()["queries"]
        return {name: str(s["error"]) for name, s in states.items() if s["state"] in ("failed", "stopped", "paused")}

    def stop(self) -> None:
        self._watch.stop()
        self.session.stop()


class _Watch:
    """Notes every batch when it ends: the session itself keeps the last hundred."""

    def __init__(self, runner: Any) -> None:
        self.batches: list[Batch] = []
        self._runner = runner
        self._done = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait_for(self, batch: int) -> None:
        while (self.batches[-1].number if self.batches else -1) < batch:
            time.sleep(0.01)

    def stop(self) -> None:
        self._done = True
        self._thread.join()

    def _run(self) -> None:
        seen = -1
        while not self._done:
            with self._runner.finished:
                self._runner.finished.wait(timeout=0.1)
                manifest, reports = self._runner.manifest, self._runner.reports
            for report in reports:
                if report.batch > seen:
                    seen = report.batch
                    self.batches.append(_batch(report, manifest))


def _batch(report: Any, manifest: Any) -> Batch:
    held = sum(b.section.length for b in manifest.buckets) + sum(b.nbytes for b in manifest.stores)
    began = report.ended - report.seconds
    return Batch(report.batch, began, report.ended, report.rows, frozenset(manifest.queries), held)
