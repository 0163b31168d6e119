"""Batches: started, awaited and ended."""

from __future__ import annotations

from thalweg import errors
from thalweg.frontend.intervals import parse_interval
from thalweg.observe import log
from thalweg.verbs.parts import SessionParts


def start(parts: SessionParts, trigger: str) -> None:
    with parts.mutex:
        parts.check_open()
        if parts.pipeline.is_running or parts.is_draining:
            raise errors.already_running()
        every_us = parse_interval(trigger)
        if every_us < 0:
            raise errors.bad_trigger(trigger)
        _check_queries(parts)
        parts.feeding.stop()  # what a pipeline that failed has left
        try:
            parts.feeding.start(parts.used_streams())
            parts.pipeline.start(every_us)
        except BaseException:
            parts.feeding.stop()
            raise


def run_available(parts: SessionParts) -> None:
    with parts.mutex:
        parts.check_open()
        if parts.pipeline.is_running or parts.is_draining or parts.delivery.queues.is_here:
            raise errors.already_running()
        _check_queries(parts)
        parts.feeding.stop()  # what a pipeline that failed has left
        sources = parts.feeding.of(parts.used_streams())
        parts.is_draining = True
    try:
        for source in sources:
            source.run_available()
        parts.pipeline.run_available()
    finally:
        parts.is_draining = False
    troubled = parts.delivery.queues.troubled()
    for handle in parts.catalog.queries.values():
        if handle.id in troubled or not parts.entry_of(handle).runs or parts.missing(handle) is not None:
            parts.tell(handle)


def stop(parts: SessionParts, timeout: float | None) -> None:
    if parts.delivery.queues.is_here:
        raise errors.stopped_inside_batch()
    parts.pipeline.stop()  # not under the mutex: the batch that is ending needs it
    if parts.is_open:
        _finish_delivery(parts, timeout)
    parts.runner.adaptations.wait(20)
    with parts.mutex:
        if not parts.is_open:
            return
        parts.feeding.stop()
        parts.feeding.detach()
        parts.requests.close()
        parts.is_open = False
        parts.hold.release()
        parts.engine.stop()
        log.info("session", "stopped", place=parts.storage.place)


def _finish_delivery(parts: SessionParts, timeout: float | None) -> None:
    try:
        if not parts.runner.flush(timeout):
            left = len(parts.delivery.queues.waiting())
            log.warning("delivery", "not_delivered_in_time", results=left)
        parts.runner.note_delivery()
    except Exception as error:  # the next connect finds it, too
        log.warning("delivery", "not_all_delivered", error=error)
    finally:
        parts.delivery.queues.close()


def _check_queries(parts: SessionParts) -> None:
    if parts.rehearses:
        raise errors.only_rehearsed()
    for handle in parts.catalog.queries.values():
        if parts.entry_of(handle).runs:
            parts.aggregates.take(handle.definition, parts.aggregates.offered())
