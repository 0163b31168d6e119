"""Oracle: joins created and dropped while others run give what they are promised, and disturb nobody."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.join_oracle import bag_difference
from tests.support.join_randomly import Crowd, World, random_world
from tests.support.randomly import RandomQuery
from tests.support.side import Side

import thalweg
from thalweg.source.memory import Memory
from thalweg.testing.compare import difference, rows_equal
from thalweg.testing.oracle import Feed

pytestmark = pytest.mark.slow

SEEDS = [int(s) for s in os.environ.get("THALWEG_SEEDS", "1,2").split(",")]
CROWD = Crowd(batches=5, rows=30)


@dataclass
class Life:
    """A query and the batches of its life."""

    query: RandomQuery
    handle: thalweg.QueryHandle
    since: int
    until: int | None = None
    complete_from: datetime | None = None
    known: bool = False
    """Whether `complete_from` has been read: after the first batch, as later it may no longer matter."""


@dataclass
class Stage:
    """A world that is fed step by step, with queries that come and go between the steps."""

    session: thalweg.Session
    world: World
    sources: dict[str, Memory] = field(default_factory=dict)
    lives: list[Life] = field(default_factory=list)
    step: int = 0

    def open(self) -> Stage:
        """Streams, and a query over each that takes nothing: so that every stream is read from the first batch on."""
        for feed in self.world.feeds:
            source = thalweg.memory(feed.schema)
            delay = f"{feed.delay_us} microseconds"
            self.session.create_stream(feed.stream, source, time=feed.time, watermark=delay, max_ahead=None)
            self.session.create_query(f"read_{feed.stream}", f"SELECT id FROM {feed.stream} WHERE id < 0")
            self.sources[feed.stream] = source
        return self

    def create(self, query: RandomQuery, name: str | None = None) -> Life:
        handle = self.session.create_query(name or query.name, query.select)
        life = Life(query, handle, since=2 * self.step)
        self.lives.append(life)
        return life

    def drop(self, life: Life) -> None:
        life.handle.drop()
        life.until = 2 * self.step

    def feed(self) -> None:
        for feed in self.world.feeds:
            self.sources[feed.stream].append(feed.batches[self.step])
        self.session.run_available()
        self.step += 1
        for life in self.lives:
            if life.until is None:
                assert life.handle.status["state"] == "idle", life.handle.status["error"]
                if not life.known:
                    life.complete_from, life.known = life.handle.status["complete_from"], True

    def check(self, side: Side) -> None:
        """Every query has given all that it must and nothing that it may not, whenever it lived."""
        feeds = [cut(feed, self.step).closed() for feed in self.world.feeds]
        wrong = []
        for life in self.lives:
            found = side.emissions(feeds, life.query.select)
            before = found.before(life.until)
            must, may = before.of_later(life.since, life.complete_from)
            if life.since == 0:
                problem = difference(life.handle.results(), before.through())
            else:
                problem = bag_difference(life.handle.results(), must, may)
            if problem:
                lived = f"batches {life.since} to {life.until}, complete from {life.complete_from}"
                wrong.append(f"{life.query.select}\n{lived}\n{problem}")
        assert not wrong, "\n\n".join(wrong)


def cut(feed: Feed, steps: int) -> Feed:
    return Feed(feed.stream, feed.time, feed.delay_us, feed.batches[:steps])


def clock(world: World, place: int) -> str:
    feed = world.feeds[place]
    return f"{feed.stream}.{feed.time}"


def pairs(
    world: World, seconds: int, where: str = "", key: str = "k", streams: tuple[int, int] = (0, 1)
) -> RandomQuery:
    one, other = (world.feeds[place].stream for place in streams)
    select = f"SELECT {one}.id AS i, {other}.id AS j FROM {one} JOIN {other} ON {one}.{key} = {other}.{key}"
    return RandomQuery("pairs", f"{select} WITHIN {seconds} SECONDS {where}".strip())


@pytest.mark.parametrize("inner", [True, False])
@pytest.mark.parametrize("seed", [seed + 3000 for seed in SEEDS])
def test_random_joins_come_and_go(side: Side, state_dir: Path, seed: int, inner: bool) -> None:
    rng = random.Random(seed)
    world = random_world(seed, CROWD, queries=8 if inner else 12, inner=inner)
    with side.connect(state_dir) as session:
        stage = Stage(session, world).open()
        # Windows that were open at their creation have a part of their rows, which the oracle does not know.
        waiting = [query for query in world.queries if "GROUP BY" not in query.select][:8]
        for _ in range(CROWD.batches):
            for _ in range(min(rng.randint(1, 2), len(waiting))):
                stage.create(waiting.pop(0))
            running = [life for life in stage.lives if life.until is None]
            if len(running) > 2 and rng.random() < 0.5:
                gone = rng.choice(running)
                stage.drop(gone)
                if rng.random() < 0.5:
                    # Back at once, under the same name: a query of its own.
                    stage.create(gone.query)
            stage.feed()
        stage.check(side)
        assert any(life.since for life in stage.lives)


Change = Callable[[World], RandomQuery]


@pytest.mark.parametrize(
    "later",
    [
        pytest.param(lambda world: pairs(world, 3), id="the same"),
        pytest.param(lambda world: pairs(world, 1), id="narrower"),
        pytest.param(lambda world: pairs(world, 6), id="wider"),
        pytest.param(lambda world: pairs(world, 3, f"WHERE {world.feeds[0].stream}.x > 0"), id="fewer rows"),
        pytest.param(lambda world: pairs(world, 3, key="j"), id="another key"),
        pytest.param(lambda world: pairs(world, 3, streams=(0, 2)), id="another stream"),
        pytest.param(lambda world: pairs(world, 3, streams=(1, 0)), id="the other way round"),
    ],
)
def test_a_join_created_beside_another(side: Side, state_dir: Path, later: Change) -> None:
    world = random_world(41, Crowd(batches=3, rows=40))
    with side.connect(state_dir) as session:
        stage = Stage(session, world).open()
        stage.create(pairs(world, 3), "first_one")
        stage.feed()
        second = stage.create(later(world), "second")
        stage.feed()
        stage.feed()
        stage.check(side)
        assert second.handle.results().num_rows > 0


def test_the_past_that_a_store_keeps_is_there(side: Side, state_dir: Path) -> None:
    """The same join again: the stores hold all that it needs, so pairs of old rows with new ones come too."""
    world = random_world(41, Crowd(batches=3, rows=40))
    query = pairs(world, 3)
    with side.connect(state_dir) as session:
        stage = Stage(session, world).open()
        first = stage.create(query, "first_one")
        stage.feed()
        before = first.handle.results()
        second = stage.create(query, "second")
        stage.feed()
        stage.feed()
        assert second.complete_from is None
        stage.check(side)
        rows_equal(pa.concat_tables([before, second.handle.results()]), first.handle.results())


def test_a_join_created_alone_has_no_past(side: Side, state_dir: Path) -> None:
    """Nothing kept the rows before: results of rows after its creation are complete, and it says from when."""
    world = random_world(42, Crowd(batches=3, rows=40))
    with side.connect(state_dir) as session:
        stage = Stage(session, world).open()
        stage.feed()
        late = stage.create(pairs(world, 4))
        stage.feed()
        stage.feed()
        assert late.complete_from is not None
        stage.check(side)
        only_new = [Feed(f.stream, f.time, f.delay_us, f.batches[1:]) for f in world.feeds]
        # Over these alone fewer rows are late.
        most = side.emissions([feed.closed() for feed in only_new], late.query.select).through()
        assert bag_difference(late.handle.results(), most.slice(0, 0), most) is None


@pytest.mark.parametrize("kind", ["LEFT JOIN", "FULL JOIN", "LEFT ANTI JOIN"])
def test_a_row_whose_partners_nobody_kept_is_not_called_without(side: Side, state_dir: Path, kind: str) -> None:
    """Another join has kept the rows of one side from before; of the other side nobody has."""
    world = random_world(41, Crowd(batches=4, rows=40))
    one, other = (feed.stream for feed in world.feeds[:2])
    shown = f"{one}.id AS i" if "ANTI" in kind else f"{one}.id AS i, {other}.id AS j"
    select = f"SELECT {shown} FROM {one} {kind} {other} ON {one}.k = {other}.k WITHIN 5 SECONDS"
    with side.connect(state_dir) as session:
        stage = Stage(session, world).open()
        stage.create(pairs(world, 8, streams=(0, 2)), "keeps_one_side")
        stage.feed()
        late = stage.create(RandomQuery("late", select))
        for _ in range(3):
            stage.feed()
        assert late.complete_from is not None
        stage.check(side)
        assert late.handle.results().num_rows > 0


def test_rows_from_before_a_column_was_wanted_serve_only_those_who_do_not_want_it(
    side: Side, state_dir: Path
) -> None:
    world = random_world(41, Crowd(batches=3, rows=40))
    one, other = (feed.stream for feed in world.feeds[:2])
    joined = f"FROM {one} JOIN {other} ON {one}.k = {other}.k WITHIN 6 SECONDS"
    with side.connect(state_dir) as session:
        stage = Stage(session, world).open()
        stage.create(RandomQuery("doubled", f"SELECT {one}.x * 2 AS d {joined}"))
        stage.feed()
        stage.create(RandomQuery("negated", f"SELECT {one}.id * 2 AS d {joined}"))
        stage.feed()
        stage.feed()
        stage.check(side)


def test_what_a_store_once_left_out_is_not_taken_for_there(side: Side, state_dir: Path) -> None:
    """The first join takes few rows, the second all of them, the third is like the second and lacks as much."""
    world = random_world(41, Crowd(batches=4, rows=40))
    with side.connect(state_dir) as session:
        stage = Stage(session, world).open()
        stage.create(pairs(world, 8, f"WHERE {world.feeds[0].stream}.x > 1000"), "few")
        stage.feed()
        second = stage.create(pairs(world, 8), "all_rows")
        stage.feed()
        third = stage.create(pairs(world, 8), "all_rows_too")
        stage.feed()
        stage.feed()
        assert second.complete_from is not None
        assert third.complete_from == second.complete_from
        stage.check(side)


def test_a_dropped_join_gives_nothing_more(side: Side, state_dir: Path) -> None:
    world = random_world(43, Crowd(batches=4, rows=40))
    with side.connect(state_dir) as session:
        stage = Stage(session, world).open()
        kept, gone = stage.create(pairs(world, 3), "kept"), stage.create(pairs(world, 5), "gone")
        stage.feed()
        stage.feed()
        given = gone.handle.results()
        held = session.progress()["state"]["rows"]
        stage.drop(gone)
        stage.feed()
        assert gone.handle.results().equals(given)
        assert gone.handle.status["state"] == "dropped"
        again = stage.create(pairs(world, 2), "gone")
        stage.feed()
        stage.check(side)
        assert again.handle.status["state"] == kept.handle.status["state"] == "idle"
        assert held > 0
        for life in (kept, again):
            stage.drop(life)
        session.run_available()
        # The last user gone, the stores are freed.
        assert session.progress()["state"]["rows"] == 0


def test_what_no_partner_can_need_is_let_go(side: Side, state_dir: Path) -> None:
    world = random_world(44, Crowd(batches=2, rows=60))
    with side.connect(state_dir) as session:
        stage = Stage(session, world).open()
        stage.create(pairs(world, 3))
        stage.feed()
        stage.feed()
        held = session.progress()["state"]["rows"]
        for feed in world.feeds:
            row = pa.concat_tables(feed.batches).drop_columns([feed.time]).slice(0, 1)
            later = pa.array([4_000_000_000_000_000], pa.int64()).cast(feed.schema.field(feed.time).type)
            stage.sources[feed.stream].append(row.append_column(feed.time, later))
        session.run_available()
        assert 0 < session.progress()["state"]["rows"] <= 2 < held


def test_a_grouped_join_created_later(side: Side, state_dir: Path) -> None:
    """Its windows are whole if all they are made of came after its creation and after `complete_from`."""
    world = random_world(45, Crowd(batches=5, rows=40))
    one, other = world.feeds[0].stream, world.feeds[1].stream
    select = f"SELECT {one}.k AS k, count(*) AS n, sum({other}.x) AS s, window.end AS w FROM {one} JOIN {other} "
    select += f"ON {one}.k = {other}.k WITHIN 1 SECOND GROUP BY {one}.k, window({clock(world, 0)}, '2 seconds')"
    query = RandomQuery("grouped", select)
    with side.connect(state_dir) as session:
        stage = Stage(session, world).open()
        first = stage.create(query, "early")
        stage.feed()
        stage.feed()
        late = stage.create(query, "late")
        for _ in range(3):
            stage.feed()
        found = side.emissions([feed.closed() for feed in world.feeds], select)
        rows_equal(first.handle.results(), found.through())
        must, _ = found.of_later(late.since, late.complete_from)
        assert must.num_rows > 0
        given = late.handle.results()
        assert bag_difference(given, must, given) is None
        # No window that had closed before comes again.
        assert not set(found.through(late.since - 1)["w"].to_pylist()) & set(given["w"].to_pylist())


def test_joins_go_on_after_a_restart(side: Side, state_dir: Path) -> None:
    world = random_world(46, Crowd(batches=4, rows=30), queries=4)
    handles = {}
    for steps in ((0, 1), (2,), (3,)):
        with side.connect(state_dir, slots=2 + len(steps)) as session:
            sources = {}
            for feed in world.feeds:
                sources[feed.stream] = thalweg.memory(feed.schema)
                delay = f"{feed.delay_us} microseconds"
                session.create_stream(feed.stream, sources[feed.stream], time=feed.time, watermark=delay)
            handles = {query.name: session.create_query(query.name, query.select) for query in world.queries}
            for step in steps:
                for feed in world.feeds:
                    sources[feed.stream].append(feed.batches[step])
                session.run_available()
            results = {name: handle.results() for name, handle in handles.items()}
    closed = [feed.closed() for feed in world.feeds]
    for query in world.queries:
        rows_equal(results[query.name], side.emissions(closed, query.select).through())
