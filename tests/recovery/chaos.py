"""Pipelines that die by seed: killed, cut off from power, out of disk, and started again until they are done.

    ./dev chaos --seeds 3000 [--minutes 20]     seeds 0, 1, 2, ...
    ./dev chaos --seed 17                       this one, and what happened in it

A seed decides a world (streams, queries, sinks, when they come and go), and everything that may go wrong in it: how
input is cut into tasks, in which order tasks and cells come, which tasks are tried twice, the number of tasks and
slots of every life, the plan of every batch; and how each life ends: at a fault point or in the middle of any write,
rename or sync, by a kill, a power cut that takes all that was not synced, a full disk, or one that fails.

In the end every sink has each row of an undisturbed run exactly once, the last manifest describes the same state, and
no file is left that nobody names. What is known to fail is listed in KNOWN, by its entry in the audit of trust.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import thalweg
from thalweg import faults
from thalweg.errors import ThalwegError
from thalweg.state import durable
from thalweg.state.collect import unreferenced
from thalweg.state.manifest import Manifest, latest_manifest
from thalweg.testing import LocalSession
from thalweg.testing.chance import Seeded
from thalweg.testing.compare import difference
from thalweg.testing.disk import Death, FaultyDisk
from thalweg.testing.join_randomly import Crowd, random_world
from thalweg.testing.oracle import Feed
from thalweg.testing.randomly import Shape, random_feed, random_queries
from thalweg.testing.recorded import Answers
from thalweg.testing.unsettled import unsettle

RECORDED = Path(__file__).parents[1] / "golden" / "chaos"
WORLDS = 48
"""Streams and queries that seeds share: what Spark's analyser says to their texts is recorded."""
MOST_LIVES = 5
KNOWN = {
    "trust 2": "a sink that fails once loses its rows: its query has stopped",
    "trust 46": "a crash in a files sink leaves a temporary in the user's directory",
}
_PAIR = "ON e.k = o.k AND e.gemPackID = o.gemPackID WITHIN 2 SECONDS"
_OVER_EVENTS = {
    "middle": "SELECT gemPackID, percentile(k, 0.5) AS m, count(*) AS n, window.end AS until FROM events "
    "GROUP BY gemPackID, window(ts, '10 seconds', '5 seconds')",
    "totals": "SELECT gemPackID, chaos_total(k) AS s, window.end AS until FROM events "
    "GROUP BY gemPackID, window(ts, '8 seconds', '4 seconds')",
    "plain": "SELECT k, ts FROM events WHERE k > 1",
    "joined": f"SELECT e.k, e.ts AS left_ts, o.ts AS right_ts, o.gemPackID FROM events e JOIN others o {_PAIR}",
    "joined_windows": "SELECT e.k, count(*) AS n, max(o.ts) AS last, window.end AS until FROM events e "
    f"JOIN others o {_PAIR} GROUP BY e.k, window(e.ts, '5 seconds')",
    "chain": "SELECT a.k, a.ts AS first_ts, o.ts AS middle_ts, b.ts AS last_ts FROM events a "
    "JOIN others o ON a.k = o.k WITHIN 1 SECOND JOIN events b ON o.gemPackID = b.gemPackID WITHIN 1 SECOND",
    "unpaired": f"SELECT e.k, e.ts AS left_ts, o.ts AS right_ts FROM events e LEFT JOIN others o {_PAIR}",
}


# -- what there is to do ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    name: str
    select: str
    sink: str
    """memory | files | callable."""
    approximate: tuple[str, ...] = ()


@dataclass(frozen=True)
class World:
    feeds: tuple[Feed, ...]
    from_files: frozenset[str]
    """The streams that are read from files; the others are appended to."""
    steps: tuple[tuple[str, Any], ...]
    """("create", Query), ("drop", name), ("feed", number of the batch) and ("run", None), one after another."""

    @property
    def queries(self) -> dict[str, Query]:
        return {step.name: step for kind, step in self.steps if kind == "create"}

    @property
    def dropped(self) -> set[str]:
        return {step for kind, step in self.steps if kind == "drop"}


@lru_cache(maxsize=WORLDS)
def make_world(number: int) -> World:
    rng = random.Random(f"chaos world {number}")
    feeds, texts = _joins(number) if number % 3 == 2 else _aggregations(rng, number)
    chosen = rng.sample(sorted(texts), min(len(texts), rng.randint(2, 5)))
    queries = [
        Query(name, texts[name][0], rng.choice(("memory", "memory", "files", "callable")), texts[name][1])
        for name in chosen
    ]
    from_files = frozenset(feed.stream for feed in feeds if rng.random() < 0.5)
    return World(tuple(feeds), from_files, tuple(_steps(rng, feeds, queries)))


Texts = dict[str, tuple[str, tuple[str, ...]]]


def _aggregations(rng: random.Random, number: int) -> tuple[list[Feed], Texts]:
    shape = Shape(batches=rng.randint(4, 7), rows=30)
    feeds = [random_feed(number, shape), random_feed(number + 1000, shape, stream="others")]
    texts: Texts = {q.name: (q.select, tuple(q.approximate)) for q in random_queries(number, feeds[0], 4)}
    return feeds, texts | {name: (select, ()) for name, select in _OVER_EVENTS.items()}


def _joins(number: int) -> tuple[list[Feed], Texts]:
    world = random_world(number, Crowd(batches=5, rows=20), queries=6)
    return list(world.feeds), {q.name: (q.select, tuple(q.approximate)) for q in world.queries}


def _steps(rng: random.Random, feeds: Sequence[Feed], queries: Sequence[Query]) -> Iterator[tuple[str, Any]]:
    """All input in order; queries come between, and one may go."""
    later = [query for query in queries[1:] if rng.random() < 0.3]
    for query in queries:
        if query not in later:
            yield "create", query
    running = [query.name for query in queries if query not in later]
    batches = len(feeds[0].batches)
    for number in range(batches):
        yield "feed", number
        if rng.random() < 0.3 or number == batches - 1:
            yield "run", None
            if later:
                yield "create", later[0]
                running.append(later.pop(0).name)
            elif len(running) > 1 and rng.random() < 0.15:
                yield "drop", running.pop(rng.randrange(len(running)))
    yield "run", None


# -- doing it --------------------------------------------------------------------------------------------------


class Client:
    """The program that uses the pipeline, and outlives it: it knows what it was told, and asks again if it was not.

    Callables do as the guide says: they keep what they were given under the id of the batch.
    """

    def __init__(self, world: World, place: Path) -> None:
        self.world = world
        self.place = place
        self.done = 0
        """The steps that were acknowledged."""
        self.given: dict[str, dict[int, pa.Table]] = {q.name: {} for q in world.queries.values()}
        self.emitted: dict[str, pa.Table] = {}
        """What a dropped query had given, as far as the client saw it."""
        self._sources: dict[str, Any] = {}

    def live(self, session: LocalSession) -> None:
        """Everything that is left to do, in a session that was just opened."""
        for feed in self.world.feeds:
            self._open_stream(session, feed)
        for kind, step in self.world.steps[: self.done]:
            if kind == "create" and step.name in session.queries:
                self._create(session, step)
        while self.done < len(self.world.steps):
            kind, step = self.world.steps[self.done]
            getattr(self, f"_{kind}")(session, step)
            self.done += 1

    def _open_stream(self, session: LocalSession, feed: Feed) -> None:
        if feed.stream in self.world.from_files:
            directory = self.inputs / feed.stream
            directory.mkdir(parents=True, exist_ok=True)
            source: Any = thalweg.files(f"{directory}/*.parquet", max_files_per_batch=1)
        else:
            source = thalweg.memory(feed.schema, max_files_per_batch=1)
        self._sources[feed.stream] = source
        delay = f"{feed.delay_us} microseconds"
        session.create_stream(feed.stream, source, time=feed.time, watermark=delay, schema=feed.schema)

    @property
    def inputs(self) -> Path:
        return self.place / "inputs"

    def _create(self, session: LocalSession, query: Query) -> None:
        known = session.queries.get(query.name)
        if known is not None and not known.restored:
            return
        session.create_query(query.name, query.select, self._sink(query))

    def _sink(self, query: Query) -> Any:
        if query.sink == "files":
            return thalweg.to_files(self.place / "disk" / "sinks" / query.name)
        if query.sink == "callable":
            return lambda table, batch: self.given[query.name].setdefault(batch, table)
        return None

    def _drop(self, session: LocalSession, name: str) -> None:
        if name in session.queries:
            session.drop_query(name)

    def _feed(self, session: LocalSession, number: int) -> None:
        for feed in self.world.feeds:
            source, table = self._sources[feed.stream], feed.batches[number]
            if feed.stream in self.world.from_files:
                path = self.inputs / feed.stream / f"{number:04d}.parquet"
                if not path.exists():
                    pq.write_table(table, path, row_group_size=7)
                    os.utime(path, ns=(number, number))
            elif source._next <= number:
                rows = table.num_rows
                source.append(pa.concat_tables([table.slice(0, rows // 2), table.slice(rows // 2)]))

    def _run(self, session: LocalSession, _: None) -> None:
        session.run_available()

    def results(self, session: LocalSession) -> dict[str, pa.Table]:
        """query -> all that its sink has."""
        found = {}
        for name, query in self.world.queries.items():
            if query.sink == "memory" and name in session.queries:
                found[name] = session.query(name).results()
            elif query.sink == "callable":
                found[name] = _concat([self.given[name][batch] for batch in sorted(self.given[name])])
            elif query.sink == "files":
                parts = sorted((self.place / "disk" / "sinks" / name).glob("part-*"))
                found[name] = _concat([pq.read_table(part) for part in parts])
        return found


def _concat(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables) if tables else pa.table({})


def _define_total() -> None:
    def added(one: int | None, other: int | None) -> int | None:
        return other if one is None else one if other is None else one + other

    def update(state: int | None, batch: pa.RecordBatch) -> int | None:
        return added(state, pc.sum(batch.column(0)).as_py())

    thalweg.aggregate("chaos_total", lambda: None, update, added, lambda state: state, returns="bigint")


# -- how lives end ---------------------------------------------------------------------------------------------


@dataclass
class Story:
    """What happened in a seed."""

    seed: int
    deaths: int = 0
    lost: int = 0
    doubled: int = 0
    known: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def say(self, text: str) -> None:
        self.log.append(text)


class Fault:
    """One way for a life to end, drawn from the seed; `verbs`: how many a life without faults has."""

    only = ""
    """The fault point that counts; all do if it is empty."""

    def __init__(self, rng: random.Random, verbs: int) -> None:
        self.rng = rng
        self.kind = rng.choice(("verb", "verb", "verb", "point", "point", "failing"))
        self.at = rng.randint(1, max(2, verbs))
        self.points = rng.randint(1, 60)
        self.code = rng.choice((errno.ENOSPC, errno.EIO, errno.EROFS))
        self.times = rng.choice((1, 1, 3, None))

    @contextlib.contextmanager
    def in_force(self, disk: FaultyDisk) -> Iterator[None]:
        if self.kind == "verb":
            disk.die_at(disk.verbs + self.at, self.rng.randrange(1 << 30))
        elif self.kind == "failing":
            disk.fail_at(disk.verbs + self.at, self.code, self.times, seed=self.rng.randrange(1 << 30))
        with faults.watch(self._pass(disk)) if self.kind == "point" else contextlib.nullcontext():
            yield

    def _pass(self, disk: FaultyDisk) -> Callable[[str], None]:
        def passed(name: str) -> None:
            self.points -= not self.only or name == self.only
            if self.points <= 0:
                disk.die_at(disk.verbs)  # no clean-up of the dying changes anything
                raise Death(f"at {name}")

        return passed

    def __str__(self) -> str:
        if self.kind == "failing":
            return f"{errno.errorcode[self.code]} at verb {self.at}, {self.times or 'all'} times"
        return f"death at verb {self.at}" if self.kind == "verb" else f"death at fault point {self.points}"


def open_session(place: Path, rng: random.Random | None, answers: Answers, record: bool = False) -> LocalSession:
    """`rng` None: an orderly life."""
    chance = {} if rng is None else {"chance": Seeded(rng), "tasks": rng.randint(1, 3), "slots": rng.randint(1, 3)}
    return LocalSession(state_dir=place / "disk" / "state", recorded=answers, record=record, **chance)


@dataclass(frozen=True)
class Undisturbed:
    results: dict[str, pa.Table]
    state: dict[str, Any]
    verbs: int


_undisturbed: dict[int, Undisturbed] = {}
_answers: list[Answers] = []


def answers() -> Answers:
    """Read once a process."""
    if not _answers:
        _answers.append(Answers(RECORDED, "./dev chaos --record"))
        _define_total()
    return _answers[0]


def undisturbed(number: int, record: bool = False) -> Undisturbed:
    """What a world gives if nothing goes wrong."""
    if number not in _undisturbed:
        with tempfile.TemporaryDirectory(prefix="thalweg-chaos-") as place:
            client, disk = Client(make_world(number), Path(place)), FaultyDisk(Path(place) / "disk")
            disk.root.mkdir()
            with durable.use(disk):
                session = open_session(client.place, None, answers(), record)
                client.live(session)
                results = client.results(session)
                session.stop()
            state = described(latest_manifest(client.place / "disk" / "state"))
            _undisturbed[number] = Undisturbed(results, state, disk.verbs)
    return _undisturbed[number]


def described(manifest: Manifest | None) -> dict[str, Any]:
    """What a manifest says of the state, whichever tasks wrote it and whenever it was merged."""
    if manifest is None:
        return {}
    return {
        "streams": {name: (p.max_time_us, p.rows, p.late, p.rejected) for name, p in manifest.streams.items()},
        "closed": {n: us for n, us in manifest.extra["closed"].items() if n in manifest.streams},
        "reached": manifest.extra["reached"]["streams"],
        "queries": {q["query"]["name"]: (q["state"], q["emitted"]) for q in manifest.queries.values()},
    }


# -- one seed --------------------------------------------------------------------------------------------------


def at_point(name: str, passage: int) -> Fault:
    """The life ends at this fault point."""
    fault = Fault(random.Random(0), 1)
    fault.kind, fault.only, fault.points = "point", name, passage
    return fault


def run_seed(seed: int, faults: Sequence[Fault] | None = None) -> Story:
    """`faults`: how the first lives end; drawn from the seed unless given."""
    story = Story(seed)
    place = Path(tempfile.mkdtemp(prefix=f"thalweg-chaos-{seed}-"))
    try:
        _run_seed(random.Random(f"chaos {seed}"), story, place, faults)
    except Exception:
        story.wrong.append("raised: " + traceback.format_exc())
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return story


def _run_seed(rng: random.Random, story: Story, place: Path, faults: Sequence[Fault] | None) -> None:
    number = story.seed % WORLDS
    wanted = undisturbed(number)
    client, disk = Client(make_world(number), place), FaultyDisk(place / "disk")
    disk.root.mkdir()
    story.say(f"world {number}: {len(client.world.steps)} steps, {wanted.verbs} verbs undisturbed")
    if faults is None:
        faults = [Fault(rng, wanted.verbs) for _ in range(rng.randint(1, MOST_LIVES))]
    for life, fault in enumerate(faults):
        _live(client, disk, rng, story, fault, life)
    session = _last_life(client, disk, rng, story)
    _compare(client, session, wanted, story)
    session.stop()
    _check_state(place, wanted, story)
    _check_files(place, disk, rng, story)


def _live(client: Client, disk: FaultyDisk, rng: random.Random, story: Story, fault: Fault, life: int) -> None:
    """A life that may end early; what is left on the disk afterwards is what the next one finds."""
    if client.done == len(client.world.steps):
        return
    before, session, dead = client.done, None, False
    with durable.use(disk):
        try:
            with fault.in_force(disk):
                session = open_session(client.place, rng, answers())
                if rng.random() < 0.5:
                    unsettle(session, rng.randrange(1000))
                client.live(session)
                end = "done"
        except Death as death:
            dead, end = True, str(death)
        except (ThalwegError, OSError) as error:
            end = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        disk.heal()
        if session is not None:
            with contextlib.suppress(Death, OSError, ThalwegError):
                session.stop()
            session._lock.release()
    story.say(f"life {life}: steps {before} to {client.done}, {fault}: {end}")
    if dead:
        story.deaths += 1
        if rng.random() < 0.5:
            disk.power_cut(rng.randrange(1 << 30))
            story.say("  and the power was cut")
            return
    disk.revive()


def _last_life(client: Client, disk: FaultyDisk, rng: random.Random, story: Story) -> LocalSession:
    with durable.use(disk):
        session = open_session(client.place, rng, answers())
        client.live(session)
        if client.done == len(client.world.steps):
            session.run_available()  # what the last death left undone after the last step was acknowledged
    story.say("last life: done")
    return session


def _compare(client: Client, session: LocalSession, wanted: Undisturbed, story: Story) -> None:
    found = client.results(session)
    for name, query in client.world.queries.items():
        if name not in wanted.results or name in client.world.dropped:
            continue
        handle = session.queries[name]
        if handle.status.state == "failed" and query.sink in ("files", "callable"):
            story.known.append("trust 2")
            continue
        table, right = found[name], wanted.results[name]
        if right.num_rows == table.num_rows == 0:
            continue
        message = difference(table, right, approximate=query.approximate)
        if message:
            story.lost += max(0, right.num_rows - table.num_rows)
            story.doubled += max(0, table.num_rows - right.num_rows)
            story.wrong.append(f"query {name} into {query.sink}: {query.select}\n{message}")


def _check_state(place: Path, wanted: Undisturbed, story: Story) -> None:
    found = described(latest_manifest(place / "disk" / "state"))
    if "trust 2" in story.known:
        return
    for part, value in wanted.state.items():
        if found.get(part) != value:
            story.wrong.append(f"the last manifest has other {part}: {found.get(part)} instead of {value}")


def _check_files(place: Path, disk: FaultyDisk, rng: random.Random, story: Story) -> None:
    """A session that starts deletes what the dead have left; after it everything has an owner."""
    state_dir = place / "disk" / "state"
    with durable.use(disk):
        open_session(place, rng, answers()).stop()
    manifest = latest_manifest(state_dir)
    leaked = [] if manifest is None else unreferenced(state_dir, manifest)
    leaked += [path for path in state_dir.rglob("*") if durable.is_temporary(path)]
    leaked += (state_dir / "spill").glob("*")
    if leaked:
        story.wrong.append("leaked: " + ", ".join(str(path.relative_to(place)) for path in leaked))
    if any(durable.is_temporary(path) for path in (place / "disk" / "sinks").rglob("*")):
        story.known.append("trust 46")


# -- many seeds ------------------------------------------------------------------------------------------------


def record() -> None:
    """Asks Spark what the worlds have to know."""
    for number in range(WORLDS):
        undisturbed(number, record=True)
        print(f"world {number}", flush=True)
    answers().save()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./dev chaos", description="Pipelines that die by seed.")
    parser.add_argument("--seeds", type=int, default=200, help="how many, from --first on")
    parser.add_argument("--minutes", type=float, help="stop after this time, however many seeds are left")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seed", type=int, help="this seed only, and all that happened in it")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--record", action="store_true", help="ask Spark what the worlds have to know, and keep it")
    given = parser.parse_args(arguments)
    if given.record:
        record()
        return 0
    if given.seed is not None:
        story = run_seed(given.seed)
        print("\n".join(story.log))
        return _tell([story], 0.0)
    began = time.monotonic()
    return _tell(list(_run_many(given, began)), time.monotonic() - began)


def _run_many(given: argparse.Namespace, began: float) -> Iterator[Story]:
    seeds = iter(range(given.first, given.first + given.seeds))
    end = float("inf") if given.minutes is None else began + 60 * given.minutes
    with ProcessPoolExecutor(given.processes, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(run_seed, seed) for _, seed in zip(range(4 * given.processes), seeds, strict=False)}
        tried = 0
        while running:
            for future in as_completed(running):
                running.remove(future)
                if time.monotonic() < end and (seed := next(seeds, None)) is not None:
                    running.add(pool.submit(run_seed, seed))
                story = future.result()
                tried += 1
                if story.wrong:
                    print(f"seed {story.seed}: {story.wrong[0].splitlines()[0]}", flush=True)
                if tried % 100 == 0:
                    print(f"{tried} seeds, {time.monotonic() - began:.0f} s", flush=True)
                yield story
                break


def _tell(stories: Sequence[Story], seconds: float) -> int:
    failed = [story for story in stories if story.wrong]
    for story in failed[:5]:
        print(f"\nseed {story.seed}")
        print("\n".join([*story.log, *story.wrong]))
    known = Counter(entry for story in stories for entry in set(story.known))
    print(f"\nseeds tried: {len(stories)}   deaths: {sum(s.deaths for s in stories)}   seconds: {seconds:.0f}")
    print(f"rows lost: {sum(s.lost for s in stories)}   rows doubled: {sum(s.doubled for s in stories)}")
    for entry, count in sorted(known.items()):
        print(f"known ({entry}), in {count} seeds: {KNOWN[entry]}")
    print(f"failed: {len(failed)}")
    if failed:
        print(f"repeat with: ./dev chaos --seed {min(story.seed for story in failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
