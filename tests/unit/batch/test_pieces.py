"""A plan in pieces: put together it is the plan, whatever a worker had, and what is new of it is what has changed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import pytest
from benchmarks import many, many_joins
from benchmarks.local_batches import Load
from tests.golden.recorded_queries import load as recorded

from thalweg.batch import pieces
from thalweg.batch.pieces import Assembler, CutPlan, Cutter
from thalweg.model.canonical import write
from thalweg.model.plan import Plan
from thalweg.model.plan_input import JoinLoad, PlanInput, PlanMeasurements, RunningQuery
from thalweg.optimize.planner import NOTHING, Draft, plan_next


def as_tasks_have_it(plan: Plan) -> str:
    """All of it: slots ask who uses what, too, where kept rows fail."""
    return write(plan) + "".join(f"{name}: {write(stream.users)}" for name, stream in plan.streams.items())


def running(load: Load) -> list[RunningQuery]:
    return [RunningQuery(f"{query.name}@{i}", query) for i, query in enumerate(load.queries)]


def turns(rng: random.Random, there: list[RunningQuery], asked: PlanInput, count: int) -> Iterator[Plan]:
    """A plan, and how it is changed by queries that come and go."""
    waiting, draft = there[len(there) // 2 :], NOTHING
    there = there[: len(there) // 2]
    for _ in range(count):
        asked = replace(asked, queries=tuple(there))
        draft = plan_next(asked, draft)
        yield draft.plan
        if waiting and rng.random() < 0.6:
            there.insert(rng.choice((len(there), rng.randint(0, len(there)))), waiting.pop())
        if len(there) > 1 and rng.random() < 0.5:
            waiting.insert(0, there.pop(rng.randrange(len(there))))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_it_is_the_plan_whatever_a_worker_had(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is there all along is given what is new; another one comes in between; one runs a task of the
    plan before once more."""
    monkeypatch.setattr(pieces, "MOST", 4)  # small plans are cut, too
    monkeypatch.setattr(pieces, "ABOUT", 2)
    rng = random.Random(seed)
    world = rng.choice([*recorded().values()])
    queries = [RunningQuery(f"{query.name}@{i}", query) for i, query in enumerate(world.queries)]
    cutter, stays, sent, before = Cutter(), Assembler(), dict[bytes, bytes](), None
    for plan in turns(rng, queries, PlanInput((), world.streams, world.tables), 8):
        cut = cutter.cut(plan)
        new = {name: piece for name, piece in cut.pieces.items() if name not in sent}
        sent |= new
        assert as_tasks_have_it(stays.plan(cut.name, [new, sent])) == as_tasks_have_it(plan)
        assert as_tasks_have_it(Assembler().plan(cut.name, [new, cut.pieces])) == as_tasks_have_it(plan)
        if before is not None:
            assert as_tasks_have_it(stays.plan(before[0], [sent])) == before[1]
            assert as_tasks_have_it(stays.plan(cut.name, [])) == as_tasks_have_it(plan), "it is still there"
        before = cut.name, as_tasks_have_it(plan)


def test_what_is_sent_is_opened_only_as_far_as_it_is_needed() -> None:
    first, second = changed(many.load(41, "noop"), 40)
    worker = Assembler()
    worker.plan(first.name, [first.pieces])
    opened = []

    def opening() -> Iterator[Mapping[bytes, bytes]]:
        for number, found in enumerate((less(second.pieces, first.pieces), first.pieces)):
            opened.append(number)
            yield found

    worker.plan(second.name, opening())
    assert opened == [0]
    Assembler().plan(second.name, opening())
    assert opened == [0, 0, 1]


def test_a_worker_holds_no_more_than_the_last_plans() -> None:
    cutter, worker = Cutter(), Assembler()
    queries = running(many.load(8, "noop"))
    asked = PlanInput((), {many.STREAM.name: many.STREAM})
    cuts = [cutter.cut(plan_next(replace(asked, queries=tuple(queries[:n])), NOTHING).plan) for n in range(2, 8)]
    for cut in cuts:
        worker.plan(cut.name, [cut.pieces])
    assert [*worker._plans] == [cut.name for cut in cuts[-pieces.PLANS :]]
    with pytest.raises(KeyError):
        worker.plan(cuts[0].name, [])
    assert len(cutter._runs) == len(cuts[-1].pieces), "and the driver those of one"


@pytest.mark.slow
@pytest.mark.parametrize(("joins", "queries", "share"), [(False, 300, 0.2), (True, 200, 0.5)])
def test_one_query_more_or_less_is_little_to_send(joins: bool, queries: int, share: float) -> None:
    """Of joins, a cohort is made anew."""
    load = many_joins.load(queries + 1, "noop", 9) if joins else many.load(queries + 1, "noop")
    more = changed(load, queries)
    rest = changed(load, queries, 17)
    for first, second in (more, rest):
        assert size(less(second.pieces, first.pieces)) < size(second.pieces) * share


def changed(load: Load, queries: int, gone: int | None = None) -> tuple[CutPlan, CutPlan]:
    """A plan of so many queries, and with one more or without one of them."""
    cutter, there = Cutter(), running(load)
    asked = PlanInput(tuple(there[:queries]), {stream.name: stream for stream in load.streams})
    draft = plan_next(asked, NOTHING)
    asked = replace(asked, measurements=measured(draft))
    first, second = draft, [*there[: queries + 1]]
    if gone is not None:
        second = [*there[:gone], *there[gone + 1 : queries]]
    return cutter.cut(first.plan), cutter.cut(plan_next(replace(asked, queries=tuple(second)), draft).plan)


def measured(draft: Draft) -> PlanMeasurements:
    """The cohorts that run stay, as far as they can."""
    return PlanMeasurements(joins=JoinLoad(cohorts=tuple(c.queries for c in draft.plan.joins.cohorts.values())))


def less(these: Mapping[bytes, bytes], those: Iterable[bytes]) -> dict[bytes, bytes]:
    there = {*those}
    return {name: piece for name, piece in these.items() if name not in there}


def size(found: Mapping[bytes, bytes]) -> int:
    return sum(map(len, found.values()))
