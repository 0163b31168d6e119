"""A session in the calling process, for tests: give rows, get results, no JVM.

    session = thalweg.testing.LocalSession(
        rows={"purchases": [{"ts": datetime(2026, 1, 1), "price": 2.5}, ...]},
        queries={"revenue": "SELECT sum(price) AS total FROM purchases GROUP BY window(ts, '1 minute')"},
        recorded="tests/recorded",
    )
    assert session.results("revenue").to_pylist() == [...]

Everything runs as it does on Spark, but for Spark: the same plans, tasks, state and sinks. Names and types of queries
are Spark's to decide. What its analyser says is recorded once in a directory of yours, by `record(...)` or
`LocalSession(..., record=True)`, and looked up from then on.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from thalweg.batch.hands import Hands
from thalweg.batch.local_runner import Chance, LocalRunner
from thalweg.engine.contract import Analyzer, Engine
from thalweg.engine.local_engine import LocalEngine
from thalweg.errors import no_event_time, wrong_rows
from thalweg.model.budget import Budget
from thalweg.session import Session
from thalweg.source.memory import Memory, memory
from thalweg.state.places import open_storage
from thalweg.state.storage import Storage
from thalweg.testing.memory_storage import MemoryStorage
from thalweg.testing.recorded import Answers, RecordedAnalyzer
from thalweg.verbs.settings import SessionSettings, span_or_none

Rows = Any
"""A pyarrow.Table, a RecordBatch or dictionaries."""


class LocalSession(Session):
    """The verbs of a session (`create_stream`, `create_query`, `sql`, `run_available`, `start`, `explain`, ...), and
    two more: `append` and `results`."""

    def __init__(
        self,
        rows: Mapping[str, Rows] | None = None,
        queries: Mapping[str, str] | str | None = None,
        *,
        time: str | None = None,
        watermark: str | timedelta = "0 seconds",
        recorded: str | Path | Answers | None = None,
        record: bool = False,
        state_dir: str | Path | Storage | None = None,
        slots: int | str = 2,
        tasks: int = 2,
        repartition: str | timedelta | None = None,
        join_epoch: int | None = None,
        fork: bool = False,
        chance: Chance | None = None,
        budget: Budget | None = None,
        hands: Hands | None = None,
    ) -> None:
        """`rows`: stream -> what it has been given so far, as Arrow or as dictionaries; every entry becomes a stream.
        `queries`: name -> SELECT, or a text of statements.
        `time`: the event-time column of these streams; the only timestamp of each unless given.
        `watermark`: their delay.
        `recorded`: the directory with what Spark's analyser said; `record=True` asks Spark for what is missing there.
        `state_dir`: where state is kept; in memory, for as long as the session lives, unless given.
        `slots`, `repartition`, `join_epoch`, `fork`: as of `connect`. `tasks`: into how many tasks a stage is cut.
        `chance`: decides what Spark leaves open, such as the order of tasks. `budget`: what a statement may cost.
        `hands`: who gives results to sinks: threads, or `batch.hands.Inline()`, which does it in a certain order.
        """
        self._own: MemoryStorage | None = None
        if state_dir is None:
            state_dir = self._own = MemoryStorage(f"memory://{secrets.token_hex(8)}")
        storage = open_storage(state_dir) if isinstance(state_dir, str | Path) else state_dir
        answers = recorded if isinstance(recorded, Answers) else Answers(recorded)

        def here() -> Engine:
            analyzer = RecordedAnalyzer(answers, _spark_analyzer if record else None)
            return LocalEngine(analyzer, LocalRunner(tasks, chance))

        every = span_or_none(repartition)
        self._answers = answers
        self._fed: dict[str, Memory] = {}
        try:
            super().__init__(
                storage,
                here,
                SessionSettings(slots, every, join_epoch, fork=fork, budget=budget or Budget(), hands=hands),
            )
            for name, given in (rows or {}).items():
                self._feed_stream(name, _table(name, given), time, watermark)
            if isinstance(queries, str):
                self.sql(queries)
            else:
                for name, select in (queries or {}).items():
                    self.create_query(name, select)
        except BaseException:
            self.stop()
            raise

    def append(self, stream: str, rows: Rows) -> None:
        """Adds rows to a stream that was given with the session."""
        self._fed[stream].append(_table(stream, rows))

    def results(self, query: str) -> pa.Table:
        """All results of a query, once everything that is there has been processed."""
        self.run_available()
        return self.query(query).results()

    def stop(self, timeout: float | None = 30.0) -> None:
        """Ends the session; answers that were recorded are saved."""
        self._answers.save()
        if hasattr(self, "_parts"):
            super().stop(timeout)
        if self._own is not None:
            self._own.forget()

    def _feed_stream(self, name: str, table: pa.Table, time: str | None, watermark: str | timedelta) -> None:
        source = self._fed[name] = memory(table.schema)
        # The rows of a test are of whatever time it likes.
        self.create_stream(
            name, source, time=time or _only_time(name, table.schema), watermark=watermark, max_ahead=None
        )
        if table.num_rows:
            source.append(table)


def record(directory: str | Path, rows: Mapping[str, Rows], queries: Mapping[str, str] | str, **options: Any) -> None:
    """Asks Spark what a LocalSession over these streams and queries has to know. Its answers are kept in `directory`.

    `options` are those of LocalSession. Needs Spark, once; where one is running already, it is asked.
    """
    from pyspark.sql import SparkSession

    before = SparkSession.getActiveSession()
    try:
        LocalSession(rows, queries, recorded=directory, record=True, **options).stop()
    finally:
        started = SparkSession.getActiveSession()
        if before is None and started is not None:
            started.stop()


def _spark_analyzer() -> Analyzer:
    from thalweg.engine.analyzer import SparkAnalyzer
    from thalweg.engine.spark import create_session

    return SparkAnalyzer(create_session())


def _table(stream: str, rows: Rows) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    try:
        return pa.Table.from_pylist(list(rows))
    except (TypeError, AttributeError, pa.ArrowException) as error:
        raise wrong_rows(stream, str(error)) from None


def _only_time(stream: str, schema: pa.Schema) -> str:
    times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    if len(times) != 1:
        raise no_event_time(stream, times)
    return str(times[0])
