"""Unit: results go to sinks in order and beside the batches; who fails, blocks or is slow concerns nobody else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from thalweg.batch.hands import Hands, Inline
from thalweg.batch.queue import LostResultsError
from thalweg.batch.queues import Queues
from thalweg.errors import SinkRefusedError
from thalweg.model.entry import Entry
from thalweg.model.manifest import Prepared
from thalweg.model.query import Query, SinkSpec


class Sinks:
    """Says what it was given; what a sink does, a test says."""

    def __init__(self) -> None:
        self.got: list[tuple[str, int]] = []
        self.calls: list[tuple[str, int]] = []
        self.does: dict[str, Callable[[int], None]] = {}
        self.missing: set[str] = set()
        self.forgotten: list[str] = []

    def can_give(self, id_: str, query: Query) -> bool:
        return id_ not in self.missing

    def give(self, query: Query, prepared: Prepared) -> None:
        self.calls.append((prepared.query, prepared.batch))
        self.does.get(prepared.query, lambda batch: None)(prepared.batch)
        self.got.append((prepared.query, prepared.batch))

    def forget(self, id_: str) -> None:
        self.forgotten.append(id_)

    def batches(self, id_: str) -> list[int]:
        return [batch for query, batch in self.got if query == id_]


def entry(id_: str, **options: int) -> Entry:
    pairs = tuple((name, str(value)) for name, value in options.items())
    return Entry(id_, Query(id_, "", "s", (), sink=SinkSpec("callable"), options=pairs))


def prepared(id_: str, *batches: int, nbytes: int = 10) -> list[Prepared]:
    return [Prepared(id_, batch, 2, nbytes=nbytes) for batch in batches]


class Rig:
    def __init__(self, hands: Hands | None = None) -> None:
        self.sinks = Sinks()
        self.queues = Queues(self.sinks, hands)
        self.entries: dict[str, Entry] = {}

    def offer(self, id_: str, *batches: int, **options: int) -> None:
        self.entries.setdefault(id_, entry(id_, **options))
        self.queues.offer(prepared(id_, *batches), self.entries)


@pytest.fixture
def inline() -> Rig:
    rig = Rig(Inline())
    rig.queues.begin()
    return rig


@pytest.fixture
def threads() -> Iterator[Rig]:
    rig = Rig()
    rig.queues.begin()
    yield rig
    rig.queues.close()


class Clock(Inline):
    """Work is done when a test says so, and time passes when it does."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], None]] = []

    def start(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)

    def pass_by(self, seconds: float) -> None:
        self._time += seconds


def refuse(batch: int) -> None:
    raise ConnectionError(f"batch {batch} is refused")


# -- order, and what is known


def test_batches_of_a_query_come_in_order_and_once(inline: Rig) -> None:
    inline.offer("q", 1, 2)
    inline.offer("q", 2, 3)  # as after a commit of which nobody knew
    assert inline.sinks.got == [("q", 1), ("q", 2), ("q", 3)]
    assert inline.queues.waiting() == ()
    assert inline.queues.given(prepared("q", 3)) == {"q": 3}


def test_nothing_is_given_before_it_begins_and_after_it_was_closed() -> None:
    rig = Rig(Inline())
    rig.offer("q", 1)
    assert rig.sinks.got == []
    rig.queues.begin()
    assert rig.sinks.got == [("q", 1)]
    rig.queues.close()
    rig.offer("q", 2)
    assert rig.sinks.got == [("q", 1)]
    assert rig.queues.waiting() == tuple(prepared("q", 2))


def test_what_a_dropped_query_was_not_given_is_discarded_and_told(
    inline: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    inline.queues.pause(inline.entries.setdefault("q", entry("q")))
    inline.offer("q", 1, 2)
    inline.queues.discard("q")
    inline.offer("q", 3)  # of a batch that had begun before
    assert inline.queues.waiting() == ()
    assert "dropped_undelivered query=q rows=4 batches=2" in caplog.text


# -- a sink that fails


def test_a_sink_that_fails_is_tried_again_after_twice_as_long_each_time(inline: Rig) -> None:
    moments: list[float] = []

    def fail_often(batch: int) -> None:
        moments.append(inline.queues._hands.now())
        if len(moments) <= 7:
            refuse(batch)

    inline.sinks.does["q"] = fail_often
    inline.offer("q", 1, 2)
    assert inline.sinks.batches("q") == [1, 2]
    assert moments[:8] == pytest.approx([0, 0.25, 0.75, 1.75, 3.75, 7.75, 15.75, 31.75])
    assert inline.queues.look("q").state == ""


def test_after_the_last_retry_it_is_paused_and_what_it_was_not_given_is_kept(
    inline: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    inline.sinks.does["q"] = refuse
    inline.offer("q", 1, 2, retries=2)
    inline.offer("other", 1)
    assert inline.sinks.got == [("other", 1)]
    assert inline.sinks.calls == [("q", 1)] * 3 + [("other", 1)]
    known = inline.queues.look("q")
    assert (known.state, known.batches, known.rows, known.nbytes) == ("paused", 2, 4, 20)
    assert "batch 1 is refused" in str(known.reason)
    assert [r.message.partition(" error=")[0] for r in caplog.records] == [
        "not_delivered query=q batch=1 tries=1 most=3",
        "not_delivered query=q batch=1 tries=2 most=3",
        "query_paused query=q batch=1 batches_kept=2",
    ]
    inline.sinks.does.clear()
    inline.queues.resume("q")
    assert inline.sinks.batches("q") == [1, 2]


def test_what_a_sink_refuses_for_good_is_not_tried_again(inline: Rig) -> None:
    def refuse_for_good(batch: int) -> None:
        raise SinkRefusedError("another copy writes here")

    inline.sinks.does["q"] = refuse_for_good
    inline.offer("q", 1)
    assert inline.sinks.calls == [("q", 1)]
    assert inline.queues.paused() == {"q": "another copy writes here"}


def test_between_two_tries_it_is_retrying_and_resuming_tries_now() -> None:
    clock = Clock()
    rig = Rig(clock)
    rig.queues.begin()
    rig.sinks.does["q"] = refuse
    rig.offer("q", 1)
    call = rig.queues._next()
    assert call is not None
    rig.queues._settle(call, rig.queues._give(call))
    assert (rig.queues.look("q").state, rig.queues.flush(0)) == ("retrying", False)
    rig.sinks.does.clear()
    rig.queues.resume("q")
    again = rig.queues._next()
    assert again is not None
    assert clock.now() == 0
    rig.queues._settle(again, rig.queues._give(again))
    assert rig.sinks.batches("q") == [1]


def test_what_is_wrong_with_the_state_is_raised_once_and_then_tried_again(inline: Rig) -> None:
    def lose(batch: int) -> None:
        raise LostResultsError from OSError("disk")

    inline.sinks.does["q"] = lose
    inline.offer("q", 1)
    with pytest.raises(OSError, match="disk"):
        inline.queues.flush()
    inline.sinks.does.clear()
    assert not inline.queues.has_begun
    inline.queues.begin()
    inline.queues.check()
    assert inline.sinks.batches("q") == [1]


# -- paused by hand, and sinks that are not there


def test_a_paused_query_keeps_its_results_until_it_is_resumed(inline: Rig) -> None:
    inline.offer("q", 1)
    inline.queues.pause(inline.entries["q"])
    inline.offer("q", 2, 3)
    assert inline.sinks.batches("q") == [1]
    assert (inline.queues.look("q").state, inline.queues.look("q").reason) == ("paused", None)
    assert inline.queues.flush(0), "it keeps nobody"
    inline.queues.resume("q")
    assert inline.sinks.batches("q") == [1, 2, 3]


def test_a_sink_that_is_still_to_be_named_is_waited_for(inline: Rig) -> None:
    inline.sinks.missing.add("q")
    inline.offer("q", 1)
    inline.offer("other", 1)
    assert inline.sinks.got == [("other", 1)]
    assert inline.queues.look("q").state == "waiting"
    assert inline.queues.flush(0)
    inline.sinks.missing.clear()
    inline.queues.wake("q")
    assert inline.sinks.batches("q") == [1]


# -- sinks that block


class Gate:
    """A sink that returns when it is let go."""

    def __init__(self) -> None:
        self.open, self.entered = threading.Event(), threading.Event()

    def __call__(self, batch: int) -> None:
        self.entered.set()
        assert self.open.wait(30)


def test_sinks_that_block_do_not_hold_others(threads: Rig) -> None:
    gate = Gate()
    for number in range(8):
        threads.sinks.does[f"blocked{number}"] = gate
        threads.offer(f"blocked{number}", 1)
    assert gate.entered.wait(30)
    threads.offer("q", 1, 2)
    deadline = time.monotonic() + 30
    while threads.sinks.batches("q") != [1, 2]:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    assert not threads.queues.flush(0)
    leaves = threading.Event()
    leaves.set()
    assert not threads.queues.flush(None, leaves)
    gate.open.set()
    assert threads.queues.flush(30)


def test_hundreds_of_queries_cost_a_handful_of_threads(threads: Rig) -> None:
    before = threading.active_count()
    most = 0
    threads.entries = {f"q{n}": entry(f"q{n}") for n in range(300)}
    for batch in range(3):
        threads.queues.offer([p for id_ in threads.entries for p in prepared(id_, batch)], threads.entries)
        most = max(most, threading.active_count() - before)
    assert threads.queues.flush(30)
    assert len(threads.sinks.got) == 900
    assert most <= 12


def test_a_call_that_does_not_return_is_retrying_and_at_last_paused_without_a_second_one() -> None:
    clock = Clock()
    rig = Rig(clock)
    rig.queues.begin()
    rig.offer("q", 1, 2)
    call = rig.queues._next()
    assert call is not None
    assert rig.queues.look("q").state == ""
    clock.pass_by(61)
    known = rig.queues.look("q")
    assert known.state == "retrying"
    assert "has not returned for 60 s" in str(known.reason)
    rig.queues.resume("q")
    assert rig.queues._turns == [], "no second call beside the first"
    clock.pass_by(32)
    assert rig.queues.look("q").state == "paused"
    assert rig.queues.flush(0), "nobody waits for it any more"
    assert rig.sinks.forgotten == ["q"]


@pytest.mark.parametrize("error", [None, ValueError("late")])
def test_a_call_that_returns_after_it_was_given_up_counts_if_it_went_well(error: Exception | None) -> None:
    clock = Clock()
    rig = Rig(clock)
    rig.queues.begin()
    rig.offer("q", 1, 2)
    call = rig.queues._next()
    assert call is not None
    clock.pass_by(100)
    assert rig.queues.look("q").state == "paused"
    rig.queues._settle(call, error)
    assert [p.batch for p in rig.queues.waiting()] == ([2] if error is None else [1, 2])
    assert rig.queues.look("q").state == ("" if error is None else "paused")


def test_a_call_that_was_given_up_does_not_count_once_another_was_made() -> None:
    clock = Clock()
    rig = Rig(clock)
    rig.queues.begin()
    rig.offer("q", 1, 2)
    first = rig.queues._next()
    assert first is not None
    clock.pass_by(100)
    assert rig.queues.look("q").state == "paused"
    rig.queues.resume("q")
    second = rig.queues._next()
    assert second is not None
    rig.queues._settle(first, None)
    assert [p.batch for p in rig.queues.waiting()] == [1, 2]
    rig.queues._settle(second, None)
    assert [p.batch for p in rig.queues.waiting()] == [2]


def test_room_is_waited_for_only_at_sinks_that_take_what_they_are_given(threads: Rig) -> None:
    gate = Gate()
    threads.queues.pause(threads.entries.setdefault("paused", entry("paused", undelivered_bytes=10)))
    threads.offer("paused", 1)
    threads.queues.make_room()
    threads.sinks.does["slow"] = gate
    threads.offer("slow", 1, undelivered_bytes=10)
    threading.Timer(0.02, gate.open.set).start()
    threads.queues.make_room()
    assert threads.sinks.batches("slow") == [1]
