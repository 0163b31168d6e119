"""Results that stay with the state, where `query.results()` reads them (`state/results`)."""

from __future__ import annotations

from thalweg.kinds.options import NoOptions
from thalweg.model.query import SinkSpec
from thalweg.sink.contract import EXACTLY_ONCE, Sink, SinkContext, SinkKind


class MemorySinkKind(SinkKind[NoOptions]):
    """Results kept with the state; `query.results()` gives them."""

    name = "memory"
    options = NoOptions
    keeps_results = True
    opens_early = False

    def delivery(self, options: NoOptions) -> str:
        return EXACTLY_ONCE

    def open(self, options: NoOptions, context: SinkContext) -> Sink:
        raise NotImplementedError("results in memory are part of the manifest")


MEMORY = MemorySinkKind()


def to_memory() -> SinkSpec:
    """Keep results with the state; `query.results()` gives them."""
    return MEMORY.spec()
