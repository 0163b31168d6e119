"""What manifests hold for sinks, offered to them: after each batch, and again after a death or an unsure commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from thalweg.batch.delivery import Delivery
from thalweg.batch.events import tell_recovery
from thalweg.batch.requests import foresee
from thalweg.model.manifest import Manifest, Prepared
from thalweg.state.delivered import Delivered, find_delivered, save_delivered, still_waiting
from thalweg.state.requests import RequestLog
from thalweg.state.storage import Storage


class Offers:
    def __init__(self, storage: Storage, timeline: str, requests: RequestLog, delivery: Delivery) -> None:
        """`timeline`: of this session's state. What waits in a copy is the original's to give."""
        self.delivery = delivery
        self.queues = delivery.queues
        self._storage = storage
        self._timeline = timeline
        self._requests = requests
        self._left: tuple[Prepared, ...] = ()
        """What the newest manifest holds for sinks and the queues have not."""
        self._noted = -1
        """How much the queues had changed when that was last made durable."""

    def restore(self, newest: Manifest, repeats: bool) -> None:
        """What sinks are still to be given, and of which queries nothing is given for now. `repeats`: whether sinks
        may have seen something of the next batch."""
        self._left = ()
        done = find_delivered(self._storage)
        if done is not None and done.batch != newest.batch:
            done = None
        held = newest.undelivered if newest.timeline == self._timeline else ()
        waiting = still_waiting(held, done)
        still = {(p.query, p.batch) for p in waiting}
        given = {p.query: p.batch for p in held if (p.query, p.batch) not in still}
        paused = {id_: e.paused for id_, e in newest.queries.items() if e.paused is not None}
        if done is not None:
            paused = done.paused if done.given is not None else {**paused, **done.failed}
        known, paused = foresee(newest.queries, paused, self._requests.read_after(newest.through))
        # Where a commit of this session was unsure, it knows better who is paused.
        self.queues.restore(waiting, given, {} if self.queues.has_begun else paused, known)
        self.delivery.newest = newest.batch + repeats
        self.delivery.results.commit(newest.results)

    def take(self, newest: Manifest, new: Sequence[Prepared]) -> None:
        """A batch has happened. `new`: what it has prepared for sinks."""
        self._left = tuple(new)
        self.delivery.newest = newest.batch
        self.delivery.results.commit(newest.results)

    @property
    def is_behind(self) -> bool:
        """Whether sinks have not been offered all that there is."""
        return bool(self._left) or not self.queues.has_begun

    def begin(self, newest: Manifest) -> None:
        """From now on sinks are given what there is for them."""
        tell_recovery(newest, self.queues.waiting(), newest.queries)
        self.queues.begin()

    def offer(self, newest: Manifest) -> None:
        """What it holds, without waiting for the sinks."""
        self.queues.offer(self._left, newest.queries)
        self._left = ()

    def note(self, newest: Manifest, check_mine: Callable[[], None]) -> None:
        """Says durably what sinks have been given, and who is paused, where no later manifest will for now."""
        queues, changes = self.queues, self.queues.changes
        if changes == self._noted or newest.batch < 0:
            return
        given, paused = queues.given(newest.undelivered), queues.paused()
        known = {id_: e.paused for id_, e in newest.queries.items() if e.paused is not None}
        note = Delivered(newest.batch, given=given, paused=paused)
        if (given or paused != known) and find_delivered(self._storage) != note:
            check_mine()
            save_delivered(self._storage, note)
        self._noted = changes

    @property
    def has_news(self) -> bool:
        """Whether something has been given, or paused, that is not noted."""
        return self.queues.changes != self._noted
