"""Who has written results to a place: one query of one timeline, and how far. A place knows better than a state that
was restored from a copy."""

from __future__ import annotations

from msgspec import Struct

from thalweg.errors import sink_ahead, sink_of_a_copy
from thalweg.sink.contract import SinkContext


class Owner(Struct, frozen=True):
    query: str
    owner: str
    """The timeline of the state; up to the first releases, its path."""
    batch: int = -1
    """The newest batch that was committed."""
    term: str = ""
    """The session that committed it."""
    number: int = 0
    """Which session of its state that was."""


def owner_of(context: SinkContext, batch_id: int) -> Owner:
    return Owner(context.query, context.timeline, batch_id, context.term, context.number)


def check_before_first(found: Owner, context: SinkContext, place: str, newest: int, asked: int = -1) -> None:
    """Whether a session that has committed nothing yet may go on where `found` left off. `newest`: the newest batch
    that is there; `asked`: the one that is to be committed now, perhaps again, as the first try left its name and
    failed then."""
    reached = max(context.newest, asked)
    is_known = found.term in (context.term, *context.known_terms) or found.number < context.first_known
    if found.term and not is_known:
        raise sink_of_a_copy(context.query, place)
    if newest > reached:
        raise sink_ahead(context.query, place, reached, newest)


def check_still_mine(found: Owner | None, context: SinkContext, place: str) -> None:
    """Whether nobody else has committed since this session did."""
    if found is None or found.term != context.term:
        raise sink_of_a_copy(context.query, place)
