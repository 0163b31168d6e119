"""The contract of a sink, and the registry of those that take one query's results in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from thalweg.errors import unknown_sink
from thalweg.model.query import SinkSpec

Callback = Callable[[pa.Table, int], Any]


class Sink(Protocol):
    """Takes the results of one query, batch by batch."""

    @property
    def kind(self) -> str: ...

    def commit(self, batch_id: int, table: pa.Table) -> None:
        """Make the results of a batch visible, whole. A second commit of the same batch changes nothing:
        it carries the same rows, after a crash between the sink and the manifest."""
        ...


@dataclass(frozen=True)
class SinkContext:
    """What a sink may know beside its spec."""

    query: str
    owner: str = ""
    """Identifies the state directory, so that two pipelines do not write into one place."""
    callback: Callback | None = None
    """The callable of a `callable` sink: not part of the durable spec."""
    place: str = ""
    """The path of the state directory, by which earlier versions identified it."""


Opener = Callable[[SinkSpec, SinkContext], Sink]


def open_sink(spec: SinkSpec, context: SinkContext) -> Sink:
    """The sink of one query. `memory` and `spark` are not opened here: the results of all memory queries
    share one log (`ResultLog`), and Spark's writers belong to the engine."""
    openers = _openers()
    if spec.kind not in openers:
        raise unknown_sink(spec.kind, tuple(openers))
    return openers[spec.kind](spec, context)


def _openers() -> dict[str, Opener]:
    from thalweg.sink.callback import CallbackSink
    from thalweg.sink.console import ConsoleSink
    from thalweg.sink.files import FilesSink
    from thalweg.sink.noop import NoopSink

    return {
        "callable": CallbackSink.open,
        "console": ConsoleSink.open,
        "files": FilesSink.open,
        "noop": NoopSink.open,
    }
