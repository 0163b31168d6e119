"""Results that a manifest holds for sinks, on their way to them: a queue for each query, in the order of its batches.

Batches do not wait for sinks. A few threads serve the queues, one call a queue at a time; another thread is started
where all are busy with calls that take long, and threads without work end. So hundreds of queries cost a handful of
threads, and a sink that blocks costs one. A queue holds descriptors; rows are read when they are given.

Nothing here is durable: a queue is what the newest manifest holds less what was given since.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from thalweg.batch.hands import Hands, Threads
from thalweg.batch.queue import Delivering, LostResultsError, Queue, SinkCall
from thalweg.errors import SinkRefusedError, sink_silent
from thalweg.model.entry import Entry
from thalweg.model.manifest import Prepared
from thalweg.model.patience import Patience
from thalweg.model.query import Query
from thalweg.observe import log

_AT_ONCE = 4
"""Calls at a time, of those that began a moment ago."""
_MOMENT = 0.02
"""Seconds after which a call is one that takes long: another thread does what waits behind it."""
_LOOK = 0.05
"""Seconds between two looks at calls that may never return."""


class Giver(Protocol):
    """What gives results to a sink."""

    def can_give(self, id_: str, query: Query) -> bool:
        """False as long as its sink is still to be named by the program."""
        ...

    def give(self, query: Query, prepared: Prepared) -> None:
        """Raises `LostResultsError` where the state is at fault; anything else is the sink's."""
        ...

    def forget(self, id_: str) -> None:
        """Opens its sink anew for the next results."""
        ...


class Queues:
    def __init__(self, giver: Giver, hands: Hands | None = None) -> None:
        self._giver = giver
        self._hands = hands or Threads()
        self._changed = threading.Condition()
        """Guards all below. Who waits for work and who waits for the end of it both wait for this."""
        self._queues: dict[str, Queue] = {}
        self._turns: list[tuple[float, int, Queue]] = []
        """(when, ticket, queue): a heap. A turn counts as long as the queue has its ticket."""
        self._tickets = 0
        self._calls: set[SinkCall] = set()
        self._busy = 0
        """Queues that have a turn or a call."""
        self._idle = 0
        """Workers that wait for work."""
        self._is_open = False
        self._fault: BaseException | None = None
        self.changes = 0
        """Grows with everything that a restart should know."""

    # -- what there is to give -----------------------------------------------------------------------------

    def restore(
        self,
        waiting: Iterable[Prepared],
        given: Mapping[str, int],
        paused: Mapping[str, str],
        entries: Mapping[str, Entry],
    ) -> None:
        """As the state has it: what waits, the newest batch of each query that its sink has, and who is paused."""
        with self._changed:
            for id_ in {*given, *paused} & entries.keys():
                queue = self._of(entries[id_])
                queue.given = max(queue.given, given.get(id_, -1))
                queue.paused = paused.get(id_, queue.paused)
        self.offer(waiting, entries)

    def offer(self, prepared: Iterable[Prepared], entries: Mapping[str, Entry]) -> None:
        """Puts at the end of their queues what a manifest holds; what is known is passed over."""
        with self._changed:
            for one in prepared:
                entry = entries.get(one.query)
                if entry is None:
                    continue
                queue = self._of(entry)
                if one.batch > max(queue.last, queue.given) and not queue.is_gone:
                    queue.put(one)
                    self._schedule(queue)
        self._staff()

    def begin(self) -> None:
        """From now on sinks are given what there is for them."""
        with self._changed:
            self._is_open = True
            for queue in self._queues.values():
                self._schedule(queue)
        self._staff()

    @property
    def has_begun(self) -> bool:
        return self._is_open

    def close(self) -> None:
        """No further call begins. One that has not returned is left alone."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def pause(self, entry: Entry, reason: str = "") -> None:
        """A call in progress ends as it does."""
        with self._changed:
            self._pause(self._of(entry), reason)

    def resume(self, id_: str) -> None:
        """Also one that waits for its next try."""
        with self._changed:
            queue = self._queues.get(id_)
            if queue is None:
                return
            if queue.paused is not None:
                self.changes += 1
            queue.paused, queue.given_up, queue.failures, queue.reason = None, None, 0, None
            self._unschedule(queue)
            self._schedule(queue)
        self._staff()

    def wake(self, id_: str) -> None:
        """Its sink may have been named."""
        with self._changed:
            queue = self._queues.get(id_)
            if queue is not None:
                self._schedule(queue)
        self._staff()

    def forget(self, ids: Iterable[str]) -> None:
        """Those that no later batch knows."""
        with self._changed:
            for id_ in self._queues.keys() & {*ids}:
                self._discard(self._queues.pop(id_))

    def discard(self, id_: str) -> None:
        """The query is dropped, and takes nothing more."""
        with self._changed:
            queue = self._queues.get(id_)
            if queue is not None:
                self._discard(queue)
                queue.is_gone = True

    def _discard(self, queue: Queue) -> None:
        self._unschedule(queue)
        if queue.call is not None:
            self._leave(queue)
        if queue.items:
            log.warning(
                "delivery", "dropped_undelivered", query=queue.query.name, rows=queue.rows, batches=len(queue.items)
            )
        queue.items.clear()
        queue.given_up, queue.rows, queue.nbytes = None, 0, 0

    # -- looking -------------------------------------------------------------------------------------------

    def waiting(self) -> tuple[Prepared, ...]:
        """All that sinks have not been given, in the order of batches."""
        with self._changed:
            found = [item for queue in self._queues.values() for item in queue.items]
        return tuple(sorted(found, key=lambda item: item.batch))

    def items_of(self, id_: str) -> tuple[Prepared, ...]:
        with self._changed:
            queue = self._queues.get(id_)
            return () if queue is None else tuple(queue.items)

    def given(self, waiting: Iterable[Prepared]) -> dict[str, int]:
        """Of these, query id -> the newest batch that its sink has been given since."""
        with self._changed:
            known = {p.query: self._queues[p.query].given for p in waiting if p.query in self._queues}
        return {id_: batch for id_, batch in known.items() if batch >= 0}

    def paused(self) -> dict[str, str]:
        """Query id -> why."""
        with self._changed:
            self._give_up()
            return {id_: queue.paused for id_, queue in self._queues.items() if queue.paused is not None}

    def troubled(self) -> set[str]:
        """The queries whose sinks do not take what they are given."""
        with self._changed:
            return {id_ for id_, queue in self._queues.items() if self._look(queue).is_troubled}

    def look(self, id_: str) -> Delivering:
        with self._changed:
            self._give_up()
            queue = self._queues.get(id_)
            return Delivering() if queue is None else self._look(queue)

    def _look(self, queue: Queue) -> Delivering:
        size = len(queue.items), queue.rows, queue.nbytes
        if queue.paused is not None:
            return Delivering("paused", queue.paused or None, *size)
        if not self._giver.can_give(queue.id, queue.query):
            return Delivering("waiting", None, *size)
        silent = 0.0 if queue.call is None else self._hands.now() - queue.call.began
        if silent > queue.patience.timeout:
            return Delivering("retrying", str(sink_silent(queue.query.name, queue.patience.timeout)), *size)
        return Delivering("retrying" if queue.failures else "", queue.reason, *size)

    @property
    def is_here(self) -> bool:
        """Whether the calling thread is in a call of a sink."""
        here = threading.get_ident()
        with self._changed:
            return any(call.thread == here for call in self._calls)

    def check(self) -> None:
        """Raises what is wrong with the state that results are read from, once."""
        with self._changed:
            fault, self._fault = self._fault, None
        if fault is not None:
            raise fault

    # -- waiting for the end -------------------------------------------------------------------------------

    def flush(self, seconds: float | None = None, leaves: threading.Event | None = None) -> bool:
        """Waits until sinks have all that is for them, but for those that are paused or not there. False: it took
        longer than `seconds`, or `leaves` was set."""
        return self._wait(lambda: self._busy == 0, seconds, leaves)

    def make_room(self, leaves: threading.Event | None = None) -> None:
        """Waits until sinks that do take what they are given have taken half of what may wait for them."""

        def is_full(queue: Queue) -> bool:
            is_served = queue.ticket is not None or queue.call is not None
            return is_served and 2 * queue.nbytes > queue.patience.undelivered_bytes

        self._wait(lambda: not any(is_full(queue) for queue in self._queues.values()), None, leaves)

    def _wait(self, done: Callable[[], bool], seconds: float | None, leaves: threading.Event | None) -> bool:
        end = None if seconds is None else self._hands.now() + seconds
        with self._changed:
            while self._fault is None and self._is_open and not done():
                self._give_up()
                rest = _LOOK if end is None else min(_LOOK, end - self._hands.now())
                if rest <= 0 or (leaves is not None and leaves.is_set()):
                    return False
                if not done():
                    self._hands.wait(self._changed, rest)
        self.check()
        return True

    # -- turns ---------------------------------------------------------------------------------------------

    def _of(self, entry: Entry) -> Queue:
        queue = self._queues.get(entry.id)
        if queue is None:
            queue = self._queues[entry.id] = Queue(entry.id, entry.query, Patience.of(entry.query))
        return queue

    def _schedule(self, queue: Queue, seconds: float = 0.0) -> None:
        """Gives a queue its next turn, if there is anything that it can do."""
        is_ready = self._is_open and queue.items and queue.paused is None
        if not is_ready or queue.ticket is not None or queue.call is not None:
            return
        if not self._giver.can_give(queue.id, queue.query):
            return
        self._tickets += 1
        queue.ticket = self._tickets
        self._busy += 1
        heapq.heappush(self._turns, (self._hands.now() + seconds, queue.ticket, queue))

    def _unschedule(self, queue: Queue) -> None:
        if queue.ticket is not None:
            queue.ticket = None
            self._rest()

    def _rest(self) -> None:
        """A queue has neither a turn nor a call any more."""
        self._busy -= 1
        if self._busy == 0:
            self._changed.notify_all()

    def _pause(self, queue: Queue, reason: str) -> None:
        queue.paused, queue.given_up = reason, None
        self.changes += 1
        self._unschedule(queue)
        if reason:
            head = queue.items[0].batch if queue.items else queue.last
            log.error(
                "delivery", "query_paused",
                query=queue.query.name, batch=head, batches_kept=len(queue.items), error=_one_line(reason),
            )  # fmt: skip

    def _give_up(self) -> None:
        """On calls that have not returned for as long as all retries together would have taken."""
        if not self._calls:
            return
        now = self._hands.now()
        for call in list(self._calls):
            queue = call.queue
            if queue.call is call and now - call.began > queue.patience.lasts(queue.failures):
                reason = str(sink_silent(queue.query.name, now - call.began))
                self._leave(queue)
                self._pause(queue, reason)
                queue.given_up = call

    def _leave(self, queue: Queue) -> None:
        """A call is no longer waited for."""
        queue.call = None
        self._giver.forget(queue.id)
        self._rest()

    # -- workers -------------------------------------------------------------------------------------------

    def _staff(self) -> None:
        """Sees to it that somebody takes the next turn."""
        with self._changed:
            is_wanted = bool(self._turns) and self._is_open
            if is_wanted and self._idle:
                self._changed.notify_all()
                is_wanted = False
        if is_wanted:
            self._hands.start(self._work)

    def _work(self) -> None:
        while (call := self._next()) is not None:
            self._staff()  # for what else waits
            self._settle(call, self._give(call))

    def _next(self) -> SinkCall | None:
        """The call of the queue whose turn it is; None: there is no more work."""
        with self._changed:
            while self._is_open:
                while self._turns and self._turns[0][2].ticket != self._turns[0][1]:
                    heapq.heappop(self._turns)
                now = self._hands.now()
                rest = self._rest_before_next(now)
                if rest <= 0:
                    queue = heapq.heappop(self._turns)[2]
                    queue.ticket, queue.call = None, SinkCall(queue, queue.items[0], now)
                    self._calls.add(queue.call)
                    return queue.call
                has_turns = bool(self._turns)
                if not has_turns and self._hands.linger == 0:
                    return None
                self._idle += 1
                self._hands.wait(self._changed, rest)
                self._idle -= 1
                if not has_turns and not self._turns and self._hands.now() - now >= self._hands.linger:
                    return None
            return None

    def _rest_before_next(self, now: float) -> float:
        """Seconds until somebody may take a turn."""
        if not self._turns:
            return self._hands.linger or _LOOK
        rest = self._turns[0][0] - now
        recent = [call.began for call in self._calls if now - call.began < _MOMENT]
        return rest if len(recent) < _AT_ONCE else max(rest, min(recent) + _MOMENT - now)

    def _give(self, call: SinkCall) -> BaseException | None:
        """What the sink raises, whatever it is, is its query's trouble."""
        try:
            self._giver.give(call.queue.query, call.prepared)
        except BaseException as error:
            return error
        return None

    def _settle(self, call: SinkCall, error: BaseException | None) -> None:
        """What a call that has returned means for its queue."""
        queue = call.queue
        with self._changed:
            self._calls.discard(call)
            if queue.call is not call:  # given up, or the query is gone
                if error is None and queue.given_up is call:
                    self._revive(queue)
                return
            queue.call = None
            if isinstance(error, LostResultsError):
                self._fault, self._is_open = error.__cause__ or error, False
                self._changed.notify_all()
            elif error is not None:
                self._fail(queue, call.prepared, error)
            else:
                self._take(queue)
            self._schedule(queue, self._delay(queue))
            self._rest()

    def _take(self, queue: Queue) -> None:
        queue.take()
        self.changes += 1

    def _revive(self, queue: Queue) -> None:
        """The sink was only slow."""
        log.info("delivery", "sink_returned_at_last", query=queue.query.name)
        queue.given_up = queue.paused = None
        self._take(queue)
        self._schedule(queue)

    def _delay(self, queue: Queue) -> float:
        return queue.patience.delay(queue.failures) if queue.failures else 0.0

    def _fail(self, queue: Queue, prepared: Prepared, error: BaseException) -> None:
        queue.failures += 1
        queue.reason = str(error)
        if isinstance(error, SinkRefusedError) or queue.failures > queue.patience.retries:
            if queue.paused is None:
                self._pause(queue, queue.reason)
            return
        log.warning(
            "delivery", "not_delivered", query=queue.query.name, batch=prepared.batch,
            tries=queue.failures, most=queue.patience.retries + 1, error=_one_line(queue.reason),
        )  # fmt: skip


def _one_line(text: str) -> str:
    """Without what there is to do about it."""
    return " ".join(text.partition("\n  hint:")[0].split())
