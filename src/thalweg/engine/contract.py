"""What a session runs on, as the rest of the engine sees it: Spark, or the calling process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import pyarrow as pa

from thalweg.batch.contract import Runner, SinkOpener
from thalweg.batch.listeners import Listeners
from thalweg.errors import ThalwegError
from thalweg.model.analysis import Columns, Learned
from thalweg.model.stream import Schema, Stream
from thalweg.state.storage import Storage


class Pipeline(Protocol):
    """Turns input into batches, now or in the background."""

    after_batch: Callable[[], None]
    after_end: Callable[[ThalwegError | None], None]
    """Called when a run has ended, with what ended it."""
    listeners: Listeners

    @property
    def is_running(self) -> bool: ...

    @property
    def failure(self) -> BaseException | None:
        """What has ended it, until it is started again."""
        ...

    def await_end(self, seconds: float | None) -> bool:
        """Waits for its end, and raises what ended it; False: it took longer."""
        ...

    def start(self, every_us: int) -> None:
        """Batches as data arrives, at most one in every `every_us` microseconds."""
        ...

    def run_available(self) -> None:
        """All that is there, in batches, and one last batch that closes what the final watermark closes."""
        ...

    def stop(self) -> None:
        """Ends the tasks that run, waits for a batch that is beyond them, and lets no other begin. A stopped pipeline
        stays stopped."""
        ...

    def check(self) -> None:
        """Raises what ended the pipeline, if it did not end by `stop`."""
        ...

    def tick(self) -> None:
        """Asks for a batch even where no stream has anything new."""
        ...

    def wake(self) -> None:
        """Something new may have come: it need not wait until somebody looks."""
        ...


class Analyzer(Protocol):
    """Judges names and types of SQL over the streams and tables that it was told of."""

    def register(self, stream: Stream) -> None:
        """Make the stream known by its name; a second time replaces it. Refused columns leave all as it was."""
        ...

    def register_table(self, name: str, schema: Schema) -> None: ...

    def check_table(self, name: str, schema: Schema) -> None:
        """Refuses columns of a type that is none."""
        ...

    def unregister(self, name: str) -> None: ...

    def analyze(self, sql: str) -> Columns:
        """(name, type) of each result column. Nothing is run."""
        ...

    @property
    def learned(self) -> Learned:
        """What follows from its answers, as long as they hold; another mapping from then on."""
        ...


class Engine(SinkOpener, Protocol):
    """Everything that a session needs and that differs with what it runs on."""

    @property
    def analyzer(self) -> Analyzer: ...

    @property
    def runner(self) -> Runner: ...

    def pipeline(
        self,
        batches: Any,
        known: Callable[[], Mapping[str, Stream]],
        used: Callable[[], Mapping[str, Stream]],
        after_batch: Callable[[], None],
    ) -> Pipeline:
        """`batches`: the session's `batch/run.BatchRunner`. The rest as of `batch/loop.Loop`."""
        ...

    def source(self, name: str, given: Any, storage: Storage, place: str) -> Any:
        """What was given as the source of a stream, made into one where only the engine can. `place`: of the stream
        in the storage."""
        ...

    def read_table(self, name: str, given: Any, schema: Schema | None, kind: str | None) -> pa.Table:
        """The rows of a static table."""
        ...

    def stop(self) -> None: ...
