"""Continuous queries: dropped, paused and resumed. How they come: `new_queries`."""

from __future__ import annotations

from thalweg import errors
from thalweg.observe import log
from thalweg.sink.kinds import is_delivered
from thalweg.state.requests import DropRequest, PauseRequest, ResumeRequest
from thalweg.verbs.parts import SessionParts


def drop_query(parts: SessionParts, name: str, if_exists: bool) -> None:
    with parts.mutex:
        parts.check_mine()
        if if_exists and name not in parts.catalog.queries:
            return
        handle = parts.catalog.query(name)
        if parts.trial is None:
            parts.requests.append(DropRequest(name))
            parts.delivery.queues.discard(handle.id)
            log.info("session", "query_dropped", query=name)
            handle.dropped = True
        parts.catalog = parts.catalog.without_query(name)
        if parts.trial is None:
            if not parts.are_read(handle.definition.streams):
                parts.activate_streams()
            parts.wake()


def pause_query(parts: SessionParts, name: str) -> None:
    with parts.mutex:
        parts.check_mine()
        handle, queues = parts.catalog.query(name), parts.delivery.queues
        if not is_delivered(handle.definition.sink):
            raise errors.nothing_to_pause(name, handle.definition.sink.kind)
        entry, known = parts.entry_of(handle), queues.look(handle.id)
        if known.state == "paused" and known.reason is None:  # somebody said so before
            return
        queues.pause(entry)  # first: a batch that sees the request finds it so
        try:
            parts.requests.append(PauseRequest(name))
        except BaseException:
            if known.state == "paused":
                queues.pause(entry, known.reason or "")
            else:
                queues.resume(handle.id)
            raise
        log.info("delivery", "paused_by_hand", query=name)
        parts.wake()


def resume_query(parts: SessionParts, name: str) -> None:
    with parts.mutex:
        parts.check_mine()
        handle, queues = parts.catalog.query(name), parts.delivery.queues
        entry, known = parts.entry_of(handle), queues.look(handle.id)
        if entry.runs and known.state != "paused":
            queues.resume(handle.id)  # its next try is now
            return
        queues.resume(handle.id)
        try:
            parts.requests.append(ResumeRequest(name))
        except BaseException:
            if known.state == "paused":
                queues.pause(entry, known.reason or "")
            raise
        log.info("delivery", "query_resumed", query=name, batches_kept=known.batches)
        parts.activate_streams()
        parts.wake()
