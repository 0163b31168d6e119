"""A session is put together: the state is taken, and what runs over it is made."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from thalweg.batch.assemble import assemble
from thalweg.batch.pending import PendingRequests
from thalweg.batch.planning import Planning
from thalweg.catalog import load_catalog
from thalweg.engine.contract import Engine
from thalweg.handle import HandleOwner
from thalweg.source.dropped import give_back_of
from thalweg.state.manifest import latest_manifest
from thalweg.state.places import open_storage
from thalweg.state.storage import Storage
from thalweg.state.term import take_term
from thalweg.user_aggregates import InUse
from thalweg.verbs.parts import SessionParts
from thalweg.verbs.settings import SessionSettings

__all__ = ["OpenEngine", "Place", "on_spark", "open_parts", "open_storage"]
Place: TypeAlias = str | os.PathLike[str] | Storage
OpenEngine: TypeAlias = Callable[[], Engine]
"""Called once the state is ours."""


def on_spark(spark: Any, settings: Mapping[str, object], landing: str | os.PathLike[str] | None = None) -> OpenEngine:
    def open_engine() -> Engine:
        from thalweg.engine.spark_engine import SparkEngine  # a session without Spark does not load it

        return SparkEngine(spark, settings, None if landing is None else os.fspath(landing))

    return open_engine


def open_parts(owner: HandleOwner, place: Place, open_engine: OpenEngine, settings: SessionSettings) -> SessionParts:
    storage = open_storage(place) if isinstance(place, str | os.PathLike) else place
    storage.claim()
    hold = storage.hold()
    engine: Engine | None = None
    try:
        engine = open_engine()
        storage.sweep()
        term = take_term(storage, settings.fork)
        newest = latest_manifest(storage)
        pending = PendingRequests.open(
            storage, newest, lambda: parts.catalog.streams, lambda request: give_back_of(storage, request)
        )
        parts = SessionParts(
            owner,
            storage,
            hold,
            engine,
            engine.analyzer,
            pending.log,
            InUse(),
            load_catalog(storage, newest, pending.log),
        )
        tasks = engine.runner.tasks
        parts.runner = assemble(
            engine.runner,
            engine,
            storage,
            term,
            Planning(pending, lambda: parts.catalog.tables, parts.aggregates.code),
            slots=settings.slots_of(tasks),
            repartitioning=settings.repartitioning,
            join_planning=settings.join_planning,
            check_hold=hold.check,
            small_batches=settings.small_batches_of(tasks),
            budget=settings.budget,
            hands=settings.hands,
        )
        parts.delivery = parts.runner.offers.delivery
        parts.pipeline = engine.pipeline(
            parts.runner,
            lambda: parts.runner.pending.next_streams,
            lambda: parts.feeding.to_read(parts.runner.pending.next_streams),
            parts.after_batch,
        )
        parts.pipeline.after_end = parts.after_end
        parts.register_known()
        parts.restore_queries()
        parts.tell_connected(term.number, term.timeline, settings.fork)
        return parts
    except BaseException:
        hold.release()
        if engine is not None:
            engine.stop()
        raise
