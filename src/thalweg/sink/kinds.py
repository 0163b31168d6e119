"""The sinks that this program can name, and what is asked of them by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thalweg.errors import ThalwegError, unknown_sink
from thalweg.kinds.registry import Registry
from thalweg.model.query import SinkSpec
from thalweg.sink import KINDS
from thalweg.sink.contract import Sink, SinkContext, SinkKind


def _unknown(name: str, known: tuple[str, ...], near: list[str]) -> ThalwegError:
    kinds = [SINKS.get(kind) for kind in KINDS]
    meant = next((m for kind in kinds if (m := kind.meant_by(name.lower())) is not None), None)
    return unknown_sink(name, [kind for kind in (*near, *known) if _is_in_sql(kind)], meant)


def _is_in_sql(name: str) -> bool:
    return name not in KINDS or SINKS.get(name).in_sql


SINKS: Registry[SinkKind[Any]] = Registry("sink", SinkKind, KINDS, _unknown)


def kind_of(spec: SinkSpec) -> SinkKind[Any]:
    return SINKS.get(spec.kind)


def is_delivered(spec: SinkSpec) -> bool:
    """What is for a sink that is not installed now is kept for it."""
    kind = SINKS.find(spec.kind)
    return kind is None or kind.is_delivered


def keeps_results(spec: SinkSpec) -> bool:
    kind = SINKS.find(spec.kind)
    return kind is not None and kind.keeps_results


def parse_spec(kind: str, options: Mapping[str, str]) -> SinkSpec:
    """The sink of `CREATE QUERY ... INTO kind OPTIONS (...)`, whose options are all text."""
    found = SINKS.find(kind.lower())
    if found is None or not found.in_sql:
        raise _unknown(kind, SINKS.names(), [])
    return found.spec(**options)


def open_sink(spec: SinkSpec, context: SinkContext) -> Sink:
    """The sink of one query. `memory` and `spark` are not opened here: results of memory queries are part of the
    state (`state/results`), and Spark's writers belong to the engine."""
    kind = kind_of(spec)
    return kind.open(kind.options_of(spec), context)


def delivery_of(spec: SinkSpec) -> str:
    """How often a row of results is to be seen, after crashes and failures too."""
    kind = SINKS.find(spec.kind)
    return "not installed" if kind is None else kind.delivery(kind.options_of(spec))
