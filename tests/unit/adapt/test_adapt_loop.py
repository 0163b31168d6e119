"""Unit: the one loop around the adaptations: what fails in one of them, and when memories change."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import Struct, structs
from tests.support.clocks import CountingClock

from thalweg.adapt.adaptations import ADAPTATIONS
from thalweg.adapt.contract import Adaptation, Decided, SeenBatch, SolverCall
from thalweg.adapt.loop import AdaptLoop
from thalweg.adapt.settings import AdaptSettings
from thalweg.model.explanation import AdaptationReport
from thalweg.model.measurements import Combining, Measurements
from thalweg.model.plan import Plan
from thalweg.optimize.deadline import Clock, Deadline

PLAN = Plan("p", 4, 16, {}, {}, ())
SETTINGS = AdaptSettings(2, 2)
VERBS = ("restore", "observe", "keep", "due", "solve", "adopt", "propose", "explain")


class Counted(Struct, frozen=True):
    batches: int = 0
    answers: tuple[int, ...] = ()
    """What `solve` has said: how many batches there had been when it was asked."""


class Count(Adaptation[Counted, int]):
    """Counts batches, and asks for their number after every second one."""

    name = "count"
    empty = Counted()
    lost = "everything"

    def __init__(self, settings: AdaptSettings) -> None:
        self.asked: list[SolverCall] = []

    def observe(self, memory: Counted, seen: SeenBatch) -> Counted:
        return structs.replace(memory, batches=memory.batches + 1)

    def keep(self, memory: Counted, seen: SeenBatch) -> Measurements:
        return structs.replace(seen.measured, combining=Combining(loads={"batches": memory.batches}))

    def due(self, memory: Counted, now: float) -> str:
        return "it is even" if memory.batches % 2 == 0 else ""

    def solve(self, memory: Counted, asked: SolverCall, clock: Clock) -> int:
        return memory.batches

    def adopt(self, memory: Counted, asked: SolverCall, answer: int | None) -> Counted:
        self.asked.append(asked)
        return structs.replace(memory, answers=(*memory.answers, -1 if answer is None else answer))

    def propose(self, memory: Counted, decided: Decided) -> Decided:
        return replace(decided, slots=1 + memory.batches)

    def explain(self, memory: Counted) -> AdaptationReport:
        return AdaptationReport(answer=f"{memory.batches} batches")


class Other(Count):
    name = "other"


def broken(verb: str) -> Callable[[AdaptSettings], Adaptation[Any, Any]]:
    """One whose verb raises from the third batch on."""

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError(f"in {verb}")

    def late(self: Any, memory: Any, *rest: Any) -> Any:
        good = getattr(Count, verb)
        return fail() if self.is_broken else good(self, memory, *rest)

    return type("Broken", (Count,), {"name": "broken", "is_broken": False, verb: late})


def run(loop: AdaptLoop, batches: int, measured: Measurements | None = None) -> Measurements:
    known = measured or Measurements()
    for batch in range(batches):
        decided = loop.decide(known, batch)
        learned = loop.observe(SeenBatch(PLAN, decided, known))
        known = learned.measured
        loop.commit(learned)
        loop.wait()
    return known


@pytest.mark.parametrize("verb", VERBS)
def test_an_adaptation_that_raises_disturbs_no_other(verb: str, caplog: pytest.LogCaptureFixture) -> None:
    """In each verb: it is logged, the batches go on, and what stands before and behind it works as ever."""
    caplog.set_level(logging.WARNING, "thalweg.adapt")
    made: Any = broken(verb)
    loop = AdaptLoop(SETTINGS, CountingClock(), (Other, made, Count))
    run(loop, 2)
    made.is_broken = True
    run(loop, 4)
    explained = loop.explain(Measurements())
    memories = loop.memories(Measurements())
    assert [explained[name].answer for name in ("other", "count")] == ["6 batches"] * 2
    assert [memories[name].answers for name in ("other", "count")] == [(2, 4, 6)] * 2
    assert loop.decide(Measurements(), 6).slots == 7
    said = [record.getMessage() for record in caplog.records if record.name == "thalweg.adapt"]
    assert said
    assert all(f'error="ZeroDivisionError: in {verb}"' in line and "of=broken" in line for line in said)


def test_what_could_not_be_observed_leaves_the_memory_as_it_was() -> None:
    made: Any = broken("observe")
    loop = AdaptLoop(SETTINGS, CountingClock(), (made,))
    known = run(loop, 2)
    made.is_broken = True
    assert run(loop, 2, known) == known
    assert loop.memories(known)["broken"].batches == 2
    assert loop.explain(known)["broken"].answer == "measuring failed: ZeroDivisionError: in observe"
    made.is_broken = False
    run(loop, 1, known)
    assert loop.explain(known)["broken"].answer == "3 batches"


def test_a_solver_that_fails_has_answered_and_is_asked_again() -> None:
    made: Any = broken("solve")
    made.is_broken = True
    loop = AdaptLoop(SETTINGS, CountingClock(), (made,))
    run(loop, 5)
    assert loop.memories(Measurements())["broken"].answers == (-1, -1)
    assert loop._adaptations[0].asked[0].failed == "ZeroDivisionError: in solve"  # type: ignore[attr-defined]
    assert loop._adaptations[0].asked[0].words == "after batch 1, because it is even"  # type: ignore[attr-defined]


def test_a_batch_that_comes_to_nothing_leaves_everything_as_it_was() -> None:
    """Decided and observed, and then its manifest could not be created."""
    loop, again = (AdaptLoop(SETTINGS, CountingClock(), (Count,)) for _ in range(2))
    known = run(loop, 4)
    for _ in range(3):
        decided = loop.decide(known, 4)
        loop.observe(SeenBatch(PLAN, decided, known))
    run(again, 4)
    assert loop.memories(known) == again.memories(known)
    assert run(loop, 2, known) == run(again, 2, known)


def test_an_answer_counts_from_the_next_batch_that_begins() -> None:
    """One that comes while a batch runs is not lost with the memories that this batch replaces."""
    loop = AdaptLoop(SETTINGS, CountingClock(), (Count,))
    known = Measurements()
    decided = loop.decide(known, 0)
    loop.commit(loop.observe(SeenBatch(PLAN, decided, known)))
    decided = loop.decide(known, 1)
    learned = loop.observe(SeenBatch(PLAN, decided, known))
    loop.commit(learned)
    begun = loop.decide(known, 2)  # before the answer
    loop.wait()
    assert loop.memories(known)["count"].answers == (2,)
    loop.commit(loop.observe(SeenBatch(PLAN, begun, known)))
    assert loop.memories(known)["count"].answers == (2,)


class Patient(Count):
    """Looks ten thousand times whether its time is over, unless it is told so before."""

    name = "patient"

    def solve(self, memory: Counted, asked: SolverCall, clock: Clock) -> int:
        deadline, looks = Deadline.after(10.0, clock), 0
        while not deadline.over:
            looks += 1
            time.sleep(0.001)
        return looks

    def is_stale(self, memory: Counted, asked: SolverCall) -> bool:
        return memory.batches > asked.batch + 1


def test_a_question_that_is_void_ends_its_solver() -> None:
    loop = AdaptLoop(SETTINGS, CountingClock(), (Patient,))
    known = run(AdaptLoop(SETTINGS, CountingClock(), (Count,)), 1)
    loop.change("patient", batches=1)
    for batch in (1, 2):  # asked after the first; void after the second
        loop.commit(loop.observe(SeenBatch(PLAN, loop.decide(known, batch), known)))
    loop.wait()
    assert loop.memories(known)["patient"].answers[0] < 9_000


def test_what_is_urgent_is_solved_first_and_does_not_yield(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a retreat, when every batch sends more than it need."""
    order: list[str] = []
    monkeypatch.setattr("thalweg.adapt.loop.yield_to_batches", lambda: order.append("yields"))

    class Patient(Count):
        name = "patient"

        def solve(self, memory: Counted, asked: SolverCall, clock: Clock) -> int:
            order.append(self.name)
            return 0

    class Urgent(Patient):
        name = "urgent"

        def is_urgent(self, memory: Counted) -> bool:
            return True

    run(AdaptLoop(SETTINGS, adaptations=[Patient, Urgent]), 2)
    assert order == ["urgent", "yields", "patient"]


def test_a_change_from_outside_is_a_memory_like_any_other() -> None:
    loop = AdaptLoop(SETTINGS, CountingClock(), (Count,))
    loop.change("count", batches=7)
    assert loop.decided(Measurements(), 0).slots == 8
    run(loop, 1)
    assert loop.decided(Measurements(), 1).slots == 9


def test_every_adaptation_says_what_a_crash_costs_and_has_a_name_of_its_own() -> None:
    """And begins with a memory from which it can propose and explain."""
    made = [make(SETTINGS) for make in ADAPTATIONS]
    assert len({one.name for one in made}) == len(made) == 7
    for one in made:
        kept = one.restore(one.empty, Measurements())
        assert isinstance(kept, Struct)
        assert isinstance(one.lost, str)
        assert one.propose(kept, Decided(0, 2)).slots == 2
        assert isinstance(one.explain(kept), AdaptationReport)


def test_what_an_adaptation_declares_lost_is_all_that_a_restart_loses() -> None:
    """Those that declare nothing go on from the manifest with the same memory."""
    measured = Measurements(combining=Combining(loads={"g": 0.5}, shipped=("g",)))
    for make in ADAPTATIONS:
        one = make(SETTINGS)
        if not one.lost:
            memory = one.restore(one.empty, measured)
            kept = one.keep(memory, SeenBatch(PLAN, Decided(0, 2), Measurements()))
            assert one.restore(one.empty, kept) == memory
