"""Unit: after a shift, rows that are sent whole go no more often than hashing would send them, but for a few batches.

Users buy in the shops of their city, and medians by user and by shop are wanted: with an assignment that keeps a city
together a row is sent about once. Then shops move, and what was together is apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.support.local_pipeline import LocalPipeline

from thalweg.adapt.contract import SolverCall
from thalweg.adapt.routing_totals import RoutingTotals, Shipped
from thalweg.adapt.settings import AdaptSettings, Repartitioning
from thalweg.adapt.slot_assignment.adaptation import AssignSlots
from thalweg.adapt.slot_assignment.judge import Proposal
from thalweg.adapt.slot_assignment.memory import SlotMemory
from thalweg.adapt.slot_assignment.question import NewSlots
from thalweg.adapt.slot_assignment.retreat import LOOKED_AT, Above, copies_of, next_above
from thalweg.adapt.slot_assignment.sharing import KeyGroupSample
from thalweg.model.expr import Expr
from thalweg.model.partitioning import Partitioning, Replication
from thalweg.model.plan import Plan
from thalweg.model.query import Aggregate, Output, Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.window import Window

SECOND = 1_000_000
SCHEMA = Schema(
    (Field("ts", "timestamp"), Field("user", "bigint"), Field("shop", "bigint"), Field("price", "double"))
)
STREAM = Stream("s", SCHEMA, "ts", SECOND, SourceSpec("memory", {}))
ROWS = 6000
SHIFT = 6
"""The first batch in which shops have moved."""
BATCHES = 20
EXCESS = 1.02
EAGER = Repartitioning(interval_seconds=1e9, least_seconds=0.0, budget_seconds=0.3)
"""Asked at once where that is due; and with a clock that counts looks, answered before the next batch."""


@pytest.fixture(scope="module", autouse=True)
def usual_work() -> Iterator[None]:
    """What a row costs a slot is measured in seconds, which other work on the machine stretches. Here it is given."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(RoutingTotals, "lat_proc", lambda totals, tasks: 1.0)
        yield


def median(by: str) -> Query:
    columns = {f.name: Expr(f'"{f.name}"', f.type, (f.name,)) for f in SCHEMA.fields}
    outputs = (Output(by, Expr("k0", "bigint", ("k0",))), Output("m", Expr("a0", "double", ("a0",))))
    aggregate = Aggregate("percentile", (columns["price"],), "double", parameters=(0.5,))
    window = Window(20 * SECOND, 20 * SECOND)
    whole = (("partitioner", "hash"),)
    return Query(by, "", "s", outputs, None, window, (columns[by],), (aggregate,), options=whole)


def batch_of(number: int, moved: bool) -> pa.Table:
    rng = np.random.default_rng(number)
    city = rng.integers(0, 16, ROWS)
    home = (city * 7 + 5) % 16 if moved else city
    times = number * 10 * SECOND + np.arange(ROWS) * (10 * SECOND) // ROWS
    return pa.table(
        {
            "ts": pa.array(times).cast(pa.timestamp("us")),
            "user": (city * 5 + rng.integers(0, 5, ROWS)) * 7919,
            "shop": (home * 4 + rng.integers(0, 4, ROWS)) * 104_729,
            "price": rng.integers(1, 100_000, ROWS) / 100,
        }
    )


def play(place: Path, settings: Repartitioning | None, each: Callable[[LocalPipeline, int], None]) -> list[float]:
    """The copies of a row, batch by batch."""
    copies = []
    queries = [median("user"), median("shop")]
    with closing(LocalPipeline(place, [STREAM], queries, slots=4, repartitioning=settings)) as pipeline:
        for number in range(BATCHES):
            each(pipeline, number)
            pipeline.append("s", batch_of(number, moved=number >= SHIFT))
            assert pipeline.run()
            pipeline.batches.adaptations.wait()
            seen: Replication = pipeline.batches.adaptations.partitioning_report(pipeline.manifest.measured).streams[
                "s"
            ]
            copies.append(seen.copies)
    return copies


@pytest.fixture(scope="module")
def hashed(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return play(tmp_path_factory.mktemp("hashed"), None, lambda *_: None)


def longest_above(copies: list[float], hashed: list[float]) -> int:
    """Batches in a row in which more was sent than hashing sends."""
    longest = run = 0
    for mine, theirs in zip(copies, hashed, strict=True):
        run = run + 1 if mine > EXCESS * theirs else 0
        longest = max(longest, run)
    return longest


@pytest.mark.slow
def test_without_an_optimiser_hashing_is_resumed_after_one_batch(tmp_path: Path, hashed: list[float]) -> None:
    """As if it needed for ever to answer."""

    def each(pipeline: LocalPipeline, number: int) -> None:
        pipeline.batches.adaptations.asks = number < SHIFT - 1

    copies = play(tmp_path, EAGER, each)
    assert copies[SHIFT - 1] < 0.75 * hashed[SHIFT - 1]  # an assignment that was worth having
    above = [n for n in range(BATCHES) if copies[n] > EXCESS * hashed[n]]
    assert above == [SHIFT]
    assert copies[SHIFT + 1 :] == pytest.approx(hashed[SHIFT + 1 :], rel=1e-6)


@pytest.mark.slow
def test_copies_are_never_above_hashings_for_long_and_soon_below_again(tmp_path: Path, hashed: list[float]) -> None:
    said: list[str] = []

    def each(pipeline: LocalPipeline, number: int) -> None:
        said.append(pipeline.batches.adaptations.partitioning_report(pipeline.manifest.measured).asked)

    copies = play(tmp_path, EAGER, each)
    assert longest_above(copies, hashed) <= 3
    assert np.mean(copies[SHIFT + 6 :]) < 0.75 * np.mean(hashed[SHIFT + 6 :])
    assert any("have drifted" in words or "than hashing sends" in words for words in said)


def test_an_answer_that_was_asked_for_before_the_retreat_is_not_put_into_force() -> None:
    """It was fitted to rows that do not come any more. The next one is."""
    slots = AssignSlots(AdaptSettings(2, 4, EAGER))
    proposal = Proposal(Partitioning({"s(a)": [3] * 64}, {}, 4), "5% of the cost is saved")
    answer = NewSlots("a case asks", proposal, fitted={}, forests={})
    memory = SlotMemory(given_up=(9, "too much was sent"))
    late = slots.adopt(memory, SolverCall(8, "a case asks", 0.0), answer)
    assert (late.proposed, late.given_up) == (None, memory.given_up)
    right = slots.adopt(memory, SolverCall(9, "too much was sent", 0.0), answer)
    assert (right.proposed, right.given_up) == (proposal.partitioning, None)


@pytest.mark.parametrize(("rows", "needed"), [(60, 2), (LOOKED_AT, 1)])
def test_a_batch_that_leaves_no_doubt_is_enough(rows: int, needed: int) -> None:
    """Five of a hundred rows more than hashing sends: of few sampled rows that may be chance."""
    plan = Plan("p", 4, 64, {}, {}, (), assignment={"s(b)": (3,) * 64})
    some = np.array([[0, 0]] + [[63, 63]] * 18 + [[0, 63]], np.uint16)
    sent = Shipped(rows=rows, copies=np.ones(4), shared=rows)
    sent.samples.append(KeyGroupSample(("s(a)", "s(b)"), np.resize(some, (rows, 2)), float(rows)))
    above: Mapping[str, Above] = {}
    for batch in range(1, 3):
        above = next_above(above, plan, {"s": sent}, None)
        assert above["s"].is_believed == (batch >= needed)


def test_copies_are_counted_as_rows_are_sent() -> None:
    """A row goes to each slot that needs it once; a route key that follows another goes where that goes."""
    groups = np.array([[0, 63], [0, 0], [63, 63], [20, 40]], np.uint16)
    sample = KeyGroupSample(("s(a)", "s(b)"), groups, 4.0)
    plan = Plan("p", 4, 64, {}, {}, ())
    assert copies_of(plan, sample) == (1.5, 1.5, 0.0)
    everywhere = Plan("p", 4, 64, {}, {}, (), assignment={"s(b)": (3,) * 64})
    now, before, error = copies_of(everywhere, sample)
    assert (now, before) == (1.75, 1.5)
    assert error == pytest.approx(np.std([0, 1, 0, 0]) / 2)
    following = Plan("p", 4, 64, {}, {}, (), co_located_with={"s(b)": "s(a)"})
    assert copies_of(following, sample)[:2] == (1.0, 1.5)
