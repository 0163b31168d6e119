"""Pipelines that die by seed: killed, cut off from power, out of disk, and started again until they are done.

    ./dev chaos --seeds 3000 [--minutes 20]     seeds 0, 1, 2, ...
    ./dev chaos --seed 17                       this one, and what happened in it

A seed decides a world: streams, queries, sinks, when they come and go, are paused and resumed; rows and files that
are not let in, a row at which a query fails, streams that are silent or far ahead of others. It decides what may go
wrong there: how input is cut into tasks, in which order tasks and cells come, which tasks are tried twice, one
attempt beside the other or long after it, the number of tasks and slots of every life, the plan of every batch; when
sinks are given what is for them, which of them raise, are slow or do not return, and how little may wait for them. It
decides how each life ends: at a fault point or in the middle of any write, rename or sync, by a kill, a full disk,
one that fails, or one that cannot be written, or right after a request was acknowledged; and whether the power is cut
then, which takes all that was not synced.

In the end every sink has each row of an undisturbed run exactly once, in the order of batches, and still after more
rows that bring to light what the state holds; what was paused by hand has stayed so; what streams were given is taken
or set aside, counted and kept; and no file is there without a reason. What is known to differ is listed in KNOWN.

    chaos_world     what there is to do         chaos_fault     how lives end
    chaos_client    who does it                 chaos_oracle    what is right
    chaos_input     what streams are given      chaos_sink      callables in trouble
    chaos_hands     when sinks are given something
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from tests.recovery.chaos_client import Client
from tests.recovery.chaos_fault import Fault, draw_options, limits
from tests.recovery.chaos_hands import Drawn
from tests.recovery.chaos_oracle import (
    KNOWN,
    Outcome,
    Story,
    check_files,
    check_litter,
    check_sums,
    check_verbs,
    compare,
    look,
)
from tests.recovery.chaos_world import WORLDS, define_total, make_world
from tests.support.chance import Seeded
from tests.support.disk import FaultyDisk
from tests.support.unsettled import unsettle

from thalweg import faults
from thalweg.batch.hands import Inline, Threads
from thalweg.errors import ThalwegError
from thalweg.state import durable
from thalweg.testing import LocalSession
from thalweg.testing.faults import Death
from thalweg.testing.recorded import Answers

RECORDED = Path(__file__).parents[1] / "golden" / "chaos"
MOST_LIVES = 5
_THREADED = 40
"""Of so many seeds one has real threads: nobody knows the order of events then."""


# -- undisturbed -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Undisturbed:
    end: Outcome
    after: Outcome
    """With the epilogue."""
    verbs: int


_undisturbed: dict[int, Undisturbed] = {}
_answers: list[Answers] = []


def answers() -> Answers:
    """Read once a process."""
    if not _answers:
        _answers.append(Answers(RECORDED, "./dev chaos --record"))
        define_total()
    return _answers[0]


def undisturbed(number: int, record: bool = False) -> Undisturbed:
    """What a world gives if nothing goes wrong."""
    if number not in _undisturbed:
        with tempfile.TemporaryDirectory(prefix="thalweg-chaos-") as place:
            client, disk = Client(make_world(number), Path(place)), FaultyDisk(Path(place) / "disk")
            disk.root.mkdir()
            end = _live_orderly(client, disk, record)
            verbs = disk.verbs
            client.go_on()
            _undisturbed[number] = Undisturbed(end, _live_orderly(client, disk, record), verbs)
    return _undisturbed[number]


def _live_orderly(client: Client, disk: FaultyDisk, record: bool) -> Outcome:
    with durable.use(disk):
        session = LocalSession(state_dir=disk.root / "state", recorded=answers(), record=record, hands=Inline())
        with faults.watch(client.pass_point):
            client.live(session)
        seen, story = look(client, session), Story(-1)
        check_sums(client, session, story)
        session.stop()
    client.note_stop()
    check_files(client, disk.trace, 0, (), story)
    check_verbs(disk.trace, story)
    assert not story.wrong + client.wrong, story.wrong + client.wrong
    return seen


# -- one seed --------------------------------------------------------------------------------------------------


def run_seed(seed: int, ends: Sequence[Fault] | None = None) -> Story:
    """`ends`: how the first lives end; drawn from the seed unless given."""
    story = Story(seed)
    place = Path(tempfile.mkdtemp(prefix=f"thalweg-chaos-{seed}-"))
    try:
        with _quiet():
            _Seed(story, place).run(ends)
    except Exception:
        story.wrong.append("raised: " + traceback.format_exc())
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return story


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What goes wrong is meant to."""
    logger = logging.getLogger("thalweg")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


class _Seed:
    def __init__(self, story: Story, place: Path) -> None:
        self.story = story
        self.rng = random.Random(f"chaos {story.seed}")
        self.number = story.seed % WORLDS
        self.disk, world = FaultyDisk(place / "disk"), make_world(self.number)
        self.disk.root.mkdir()
        self.has_threads = story.seed % _THREADED == _THREADED - 1
        options = draw_options(self.rng, world, self.has_threads)
        self.client = Client(world, place, self.disk, self.rng, options)
        self.chance = Seeded(self.rng)

    def run(self, ends: Sequence[Fault] | None) -> None:
        wanted = undisturbed(self.number)
        steps = len(self.client.steps)
        self.story.say(f"world {self.number}: {steps} steps, {wanted.verbs} verbs undisturbed")
        if ends is None:
            ends = [Fault(self.rng, wanted.verbs) for _ in range(self.rng.randint(1, MOST_LIVES))]
        for life, fault in enumerate(ends):
            if not self.client.is_done:
                self._live(fault, life)
        self._last_life("last life", wanted.end)
        self.client.go_on()
        self._last_life("epilogue", wanted.after)
        check_verbs(self.disk.trace, self.story)
        self.story.wrong += self.client.wrong

    def _live(self, fault: Fault, life: int) -> None:
        """A life that may end early; what is left on the disk afterwards is what the next one finds."""
        before, began, session, is_clean = self.client.done, self.disk.verbs, None, False
        with durable.use(self.disk), limits(self.rng):
            try:
                with fault.in_force(self.disk, self.client):
                    session = self._open()
                    self.client.live(session)
                    is_clean, end = True, "done"
            except Death as death:
                self.story.deaths += 1
                end = str(death)
            except (ThalwegError, OSError) as error:
                end = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            self.disk.heal()
            if session is not None:
                with contextlib.suppress(Death, OSError, ThalwegError), faults.watch(self.client.pass_point):
                    session.stop()
            self.client.end_life(session)
            if session is not None:
                self._end_threads(session)
                session._parts.hold.release()
            try:
                self.chance.end_zombies()
            except Death as death:  # after the session has stopped in good order, or before
                is_clean, end = False, f"{end}, then {death}"
        self.story.say(f"life {life}: steps {before} to {self.client.done}, {fault}: {end}")
        if is_clean:
            self._end_well(began)
        self._end_life()

    def _end_threads(self, session: LocalSession) -> None:
        """Of a process that is gone."""
        while self.has_threads and session._parts.delivery.queues._calls:
            time.sleep(0.001)

    def _last_life(self, name: str, wanted: Outcome) -> None:
        """A life that nothing disturbs, and what there is to see in the end."""
        began = self.disk.verbs
        with durable.use(self.disk), limits(self.rng):
            session = self._open()
            if name == "epilogue":
                check_litter(self.client, self.story)
            with faults.watch(self.client.pass_point):
                self.client.live(session)
                self.client.finish(session)  # also what the last death left undone after the last step
            found = look(self.client, session)
            check_sums(self.client, session, self.story)
            is_early = self.rng.random() < 0.5
            if is_early:
                self.chance.end_zombies()
            session.stop()
            self.client.end_life(session)
            self.chance.end_zombies()
        self.story.say(f"{name}: done")
        compare(self.client.world, found, wanted, self.story)
        self._end_well(began)
        self._end_life()

    def _open(self) -> LocalSession:
        rng, disk = self.rng, self.disk
        self.chance = Seeded(rng, written=lambda: disk.verbs)
        tasks, slots = rng.randint(1, 3), rng.randint(1, 3)
        place = disk.root / "state"
        self.client.hands = None if self.has_threads else Drawn(rng)
        hands = self.client.hands or Threads()
        session = LocalSession(
            state_dir=place, recorded=answers(), chance=self.chance, tasks=tasks, slots=slots, hands=hands
        )
        if rng.random() < 0.5:
            unsettle(session, rng.randrange(1000))
        return session

    def _end_well(self, began: int) -> None:
        """The session has stopped in good order. Only attempts that did not count may have left something: what lives
        before have left, the start took away."""
        litter = {path for after, through in self.chance.lost for _, path in self.disk.trace[after:through]}
        check_files(self.client, self.disk.trace, began, litter, self.story)
        self.client.note_stop()

    def _end_life(self) -> None:
        if self.rng.random() < 0.5:
            self.disk.power_cut(self.rng.randrange(1 << 30))
            self.story.say("  and the power was cut")
        else:
            self.disk.revive()


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
        tried = deaths = lost = doubled = 0
        while running:
            for future in as_completed(running):
                running.remove(future)
                if time.monotonic() < end and (seed := next(seeds, None)) is not None:
                    running.add(pool.submit(run_seed, seed))
                story = future.result()
                tried, deaths = tried + 1, deaths + story.deaths
                lost, doubled = lost + story.lost, doubled + story.doubled
                if story.wrong:
                    print(f"seed {story.seed}: {story.wrong[0].splitlines()[0]}", flush=True)
                if tried % 100 == 0:
                    seconds = time.monotonic() - began
                    print(
                        f"{tried} seeds, {deaths} deaths, {lost} lost, {doubled} doubled, {seconds:.0f} s", flush=True
                    )
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
