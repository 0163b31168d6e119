"""Plans on their way to workers: every plan can be opened by any worker, little is sent, and little is kept."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from benchmarks import many
from tests.unit.batch.test_pieces import as_tasks_have_it, running, turns

from thalweg.batch.pieces import Assembler
from thalweg.engine import sent_plans
from thalweg.engine.sent_plans import PlanSender
from thalweg.model.plan_input import PlanInput
from thalweg.optimize.planner import NOTHING, plan_next

GIVEN = PlanInput((), {many.STREAM.name: many.STREAM})


class Sent:
    """Pieces that workers have been sent."""

    def __init__(self, pieces: Mapping[bytes, bytes]) -> None:
        self._pieces: Mapping[bytes, bytes] | None = dict(pieces)
        self.size = sum(map(len, pieces.values()))

    @property
    def value(self) -> Mapping[bytes, bytes]:
        assert self._pieces is not None, "nobody may need it any more"
        return self._pieces

    def destroy(self) -> None:
        self._pieces = None


class Senders:
    """A sender, and all that it has sent."""

    def __init__(self) -> None:
        self.all: list[Sent] = []
        self.sender = PlanSender(self._broadcast)

    def _broadcast(self, pieces: Mapping[bytes, bytes]) -> Sent:
        self.all.append(Sent(pieces))
        return self.all[-1]

    @property
    def alive(self) -> list[Sent]:
        return [sent for sent in self.all if sent._pieces is not None]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_worker_that_comes_late_or_was_never_there_opens_the_same_plan(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, senders = random.Random(seed), Senders()
    workers = [Assembler(), Assembler()]
    for plan in turns(rng, running(many.load(240, "noop")), GIVEN, 40):
        sent = senders.sender.send(plan)
        assert sent is senders.sender.send(plan), "a plan is sent once"
        for worker in (*workers, Assembler()):
            if rng.random() < 0.5:
                monkeypatch.setattr(sent_plans, "_assembler", worker)
                assert as_tasks_have_it(sent.open()) == as_tasks_have_it(plan)
        assert len(senders.alive) < 9
    whole = senders.all[0].size
    assert sum(sent.size for sent in senders.alive) < 4 * whole
    # Where pieces begin and end depends on addresses, so this differs from run to run.
    assert sum(sent.size for sent in senders.all) < 20 * whole, "40 plans as a whole would be 40 times that"


def test_a_plan_that_comes_again_is_sent_with_what_is_there() -> None:
    """Its own broadcasts may have gone into others meanwhile."""
    senders, queries = Senders(), running(many.load(12, "noop"))
    few, most = (plan_next(replace(GIVEN, queries=tuple(queries[:n])), NOTHING).plan for n in (3, 12))
    before = senders.sender.send(few)
    senders.sender.send(most)
    again = senders.sender.send(few)
    assert again is not before
    assert again.name == before.name
    assert as_tasks_have_it(Assembler().plan(again.name, (sent.value for sent in again.broadcasts))) == (
        as_tasks_have_it(few)
    )


def test_what_could_not_be_sent_is_sent_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    senders, queries = Senders(), running(many.load(6, "noop"))
    plans = [plan_next(replace(GIVEN, queries=tuple(queries[:n])), NOTHING).plan for n in (3, 6)]
    senders.sender.send(plans[0])

    def broken(pieces: Mapping[bytes, bytes]) -> Sent:
        raise OSError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(senders.sender, "_broadcast", broken)
        with pytest.raises(OSError, match="no room"):
            senders.sender.send(plans[1])
    sent = senders.sender.send(plans[1])
    assert as_tasks_have_it(Assembler().plan(sent.name, (b.value for b in sent.broadcasts))) == (
        as_tasks_have_it(plans[1])
    )
