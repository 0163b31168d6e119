"""Chaos: the program that uses the pipeline, and outlives it."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.recovery.chaos_hands import Drawn
from tests.recovery.chaos_input import Inputs
from tests.recovery.chaos_sink import TIMEOUT, Trouble
from tests.recovery.chaos_world import NAMES, Query, Step, World
from tests.support.disk import FaultyDisk

import thalweg
from thalweg.model.shown import shown, shown_schema
from thalweg.state.container import read_section
from thalweg.testing import LocalSession
from thalweg.testing.faults import Death

_TRIES = 6
"""How often a query is resumed before it is given up."""


@dataclass(frozen=True)
class Turn:
    """How far a batch has come."""

    reached: Mapping[str, int]
    """Stream -> how many of its units are read."""
    closed_us: Mapping[str, int]
    """Stream -> the event time before which nothing is taken."""


class Client:
    """It knows what it was told, and asks again if it was not. Callables do as the guide says: they keep what they
    were given under the id of the batch. After a crash a batch may be given again, and is the same then."""

    def __init__(
        self,
        world: World,
        place: Path,
        disk: FaultyDisk | None = None,
        rng: random.Random | None = None,
        options: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """`rng`: when it looks after queries that are paused; None: at once. `options`: of queries."""
        self.world = world
        self.place = place
        self._disk = disk
        self._rng = rng
        self._options = options or {}
        self.hands: Drawn | None = None
        """Of this life."""
        self.trouble: Trouble | None = None
        self.dies_after: str | None = None
        """The kind of step after which the process is killed, as soon as it has been acknowledged."""
        self.steps: Sequence[Step] = world.steps
        self.done = 0
        """The steps that were acknowledged."""
        self.steps_until_stop: int | None = None
        self._given: dict[str, dict[int, pa.Table]] = {q.name: {} for q in world.queries.values()}
        self._offered: set[tuple[str, int]] = set()
        """(query, batch) of the calls of this life that returned in time."""
        self._settled: set[tuple[str, int]] = set()
        """Those of lives up to the last that stopped in good order: they may not come again."""
        self.wrong: list[str] = []
        """What callables were given and should not have been."""
        self._before_drop: dict[str, pa.Table] = {}
        """What queries without a sink of their own had given when they were dropped."""
        self._errors_before_drop: dict[str, str] = {}
        """Why queries had failed when they were dropped. The session forgets it with them."""
        self._parts_when_paused: dict[str, int] = {}
        """How many files the sinks of queries had that were paused."""
        self._before_drop_kept: dict[str, dict[int, pa.Table]] = {}
        """Queries that were dropped while they were paused by hand -> batch -> what waited for their sinks then."""
        self.gaps: dict[str, dict[int, int]] = {}
        """Query -> batch from which on results are missing -> how many rows of it, as it was said."""
        self.ends_of_gaps: dict[str, dict[int, int]] = {}
        """Query -> batch from which on results are missing -> the last batch before it goes on."""
        self.ranges: dict[str, int] = {}
        """Query -> how long its windows are, in microseconds; 0 without any."""
        self.turns: dict[int, Turn] = {}
        """Batch -> how far it has come."""
        self._session: LocalSession | None = None
        self.inputs = Inputs(world, place)
        self._lives = 0
        self.complete_from: dict[str, int] = {}
        """Queries over joins that came later -> the event time, in microseconds, after which nothing is missing."""

    @property
    def is_done(self) -> bool:
        return self.done == len(self.steps)

    def go_on(self) -> None:
        """There is more to do: the epilogue."""
        self.steps = (*self.world.steps, *self.world.epilogue)

    def live(self, session: LocalSession) -> None:
        """Everything that is left to do, or as many steps of it as it shall, in a session that was just opened."""
        self._lives += 1
        self._offered.clear()
        self._session = session
        self._note_turn()
        session._parts.runner.planning.wall_clock = self._clock
        for feed in self.world.feeds:
            self.inputs.open_stream(session, feed)
        told = self.steps[: self.done]
        versions = [step for kind, step in told if kind == "table"]
        if versions and self._lives % 2:  # a program may give its table again, or leave it as it is
            self._table(session, versions[-1])
        for kind, step in told:
            if kind == "create" and step.name in session.queries:
                self._create(session, step)
        self._check_pauses(session)
        end, self.steps_until_stop = self.done + (self.steps_until_stop or len(self.steps)), None
        while not self.is_done and self.done < end:
            if self._draws(0.4):
                self._look_after(session)
            kind, step = self.steps[self.done]
            getattr(self, f"_{kind}")(session, step)
            self.done += 1
            if kind == self.dies_after and self._disk is not None:
                self._disk.die_at(self._disk.verbs)
                raise Death(f"when {kind} {step} was acknowledged")

    def finish(self, session: LocalSession) -> None:
        """What is still on its way comes to its sinks."""
        session.run_available()
        for name in list(session.queries):
            if name not in self.by_hand:
                self._cure(session, name)

    def pass_point(self, name: str) -> None:
        """A batch has come to this fault point."""
        if name == "batch.start":
            self.inputs.grow()
        if name == "batch.end":
            self._note_turn()
        if self.hands is not None:
            self.hands.pass_point(name)

    def _note_turn(self) -> None:
        """What the newest manifest says. One that died before it could be looked at is looked at by the next life."""
        assert self._session is not None
        manifest = self._session._parts.runner.manifest
        self.turns[manifest.batch] = Turn(dict(manifest.reached.streams), dict(manifest.closed))

    def end_life(self, session: LocalSession | None) -> None:
        """The process is gone, with all that sinks were in the middle of."""
        self.trouble = self.dies_after = self.steps_until_stop = None
        if session is not None:
            session._parts.delivery.queues.close()
        if self.hands is not None:
            self.hands.end()

    def note_stop(self) -> None:
        """The life has stopped in good order: what callables were given counts as given."""
        self._settled |= self._offered

    def results(self, session: LocalSession) -> dict[str, pa.Table]:
        """query -> all that its sink has; of a dropped one without a sink, what it had then."""
        self._note_completeness(session)
        return {name: self._results(session, query) for name, query in self.world.queries.items()}

    def errors(self, session: LocalSession) -> dict[str, str]:
        """The queries that have failed, and why; of a dropped one, what was so then."""
        return self._errors_before_drop | _errors(session)

    def rejected(self, session: LocalSession) -> dict[str, pa.Table]:
        """stream -> what was set aside of it. In which batch that was, and when, differs from life to life."""
        return {feed.stream: _placed(session.rejected(feed.stream)) for feed in self.world.feeds}

    def _clock(self) -> int:
        return self.inputs.clock(sum(kind == "run" for kind, _ in self.steps[: self.done + 1]))

    # -- streams and tables ------------------------------------------------------------------------------------

    def _feed(self, session: LocalSession, number: int) -> None:
        self.inputs.give(number)

    def _table(self, session: LocalSession, version: int) -> None:
        session.create_table("names", NAMES[version], replace=True)

    # -- queries whose sinks take nothing -----------------------------------------------------------------------

    @property
    def by_hand(self) -> set[str]:
        """The queries whose pause was asked for and acknowledged, and for which nothing else was asked since."""
        return self._paused(self.done) & self._paused(self.done + 1)

    def _paused(self, steps: int) -> set[str]:
        """After so many."""
        paused: set[str] = set()
        for kind, name in self.steps[:steps]:
            if kind in ("resume", "drop"):
                paused.discard(name)
            elif kind == "pause":
                paused.add(name)
        return paused

    def _check_pauses(self, session: LocalSession) -> None:
        for name in self.by_hand & session.queries.keys():
            if session.query(name).status.state not in ("paused", "stopped"):
                self.wrong.append(f"{name} was paused, and is {session.query(name).status.state} after a restart")

    def _draws(self, chance: float) -> bool:
        return self._rng is None or self._rng.random() < chance

    def _look_after(self, session: LocalSession) -> None:
        """Sinks that had trouble take now what was kept for them."""
        self._note_gaps(session)
        for name in sorted(session.queries.keys() - self._paused(self.done)):
            if session.query(name).status.state in ("paused", "stopped"):
                self._mend(name)
                self._go_on(session, name)

    def _mend(self, name: str) -> None:
        if self.trouble is not None:
            self.trouble.heal(name)
        if self._disk is not None:
            self._disk.heal(f"sinks/{name}/")

    def _cure(self, session: LocalSession, name: str) -> None:
        """Until its sink has all that is for it."""
        for _ in range(_TRIES):
            self._note_gaps(session)
            status = session.query(name).status
            is_well = status.state not in ("paused", "stopped")
            if is_well and not status.undelivered.batches:
                return
            self._mend(name)
            if not is_well:
                self._go_on(session, name)
            session.run_available()
        self.wrong.append(f"{name} was resumed, and its sink did not get all that was kept: {status}")

    def _note_gaps(self, session: LocalSession) -> None:
        for name, handle in session.queries.items():
            status = handle.status
            if status.gap is not None:
                self.gaps.setdefault(name, {})[status.gap.from_batch] = status.gap.rows
                if status.gap.until_batch is not None:
                    self.ends_of_gaps.setdefault(name, {})[status.gap.from_batch] = status.gap.until_batch
            if status.state == "stopped" and (status.gap is None or f"{status.gap.rows:,} rows" not in status.error):
                self.wrong.append(f"{name} stopped, and does not say what is missing: {status}")

    def _pause(self, session: LocalSession, name: str) -> None:
        if name in session.queries:
            if session.query(name).status.state != "paused" or self._draws(0.5):
                self._cure(session, name)
            session.pause_query(name)
            self._parts_when_paused[name] = len(self._parts(name))

    def _resume(self, session: LocalSession, name: str) -> None:
        if name in session.queries:
            if name == "frail" and session.query(name).status.state != "failed" and self._lives == 1:
                self.wrong.append(f"{name} did not fail: {session.query(name).status}")
            self._note_gaps(session)
            parts = self._parts_when_paused.pop(name, None)
            if parts is not None and len(self._parts(name)) != parts:
                self.wrong.append(f"{name} got files while it was paused")
            self._mend(name)
            self._go_on(session, name)

    def _go_on(self, session: LocalSession, name: str) -> None:
        """One that has stopped is as one that comes now: of windows and pairs that began before, rows are missing."""
        query, streams = session.query(name), session._parts.runner.manifest.streams
        if query.status.state == "stopped" and (query.definition.window or query.definition.join):
            read = {*re.findall(r"\w+", self.world.queries[name].select)} & streams.keys()
            times = [streams[stream].max_time_us or 0 for stream in read]
            self.complete_from[name] = max([self.complete_from.get(name, 0), *times])
        session.resume_query(name)

    # -- queries -----------------------------------------------------------------------------------------------

    def _create(self, session: LocalSession, query: Query) -> None:
        known = session.queries.get(query.name)
        if known is not None and not known.restored:
            return
        handle = session.create_query(
            query.name, query.select, self._sink(query), options=self._options.get(query.name)
        )
        window = handle.definition.window
        self.ranges[query.name] = 0 if window is None else window.range_us

    def _sink(self, query: Query) -> Any:
        if query.sink == "files":
            return thalweg.to_files(self.sink_directory(query.name))
        if query.sink == "callable":
            return lambda table, batch: self._take(query.name, table, batch)
        return None

    def _parts(self, name: str) -> list[Path]:
        return sorted(self.sink_directory(name).glob("part-*"))

    def sink_directory(self, name: str) -> Path:
        return self.place / "disk" / "sinks" / name

    def _take(self, name: str, table: pa.Table, batch: int) -> None:
        if self._disk is not None and self._disk.is_dead:
            raise Death("before a call of a sink")
        self._check_call(name, table, batch)
        began = 0.0 if self.hands is None else self.hands.now()
        trouble = self.trouble if self.trouble is not None and self.trouble.strikes(name) else None
        if trouble is not None and not trouble.keeps:
            trouble.act(self.hands)
        self._given[name].setdefault(batch, table)
        if trouble is not None and trouble.keeps:
            trouble.act(self.hands)
        if self.hands is None or self.hands.now() - began <= TIMEOUT:  # else it may have been given up
            self._offered.add((name, batch))

    def _check_call(self, name: str, table: pa.Table, batch: int) -> None:
        call, given = (name, batch), self._given[name]
        if call in self._settled:
            self.wrong.append(f"{name} was given batch {batch} again after a stop in good order")
        if call in self._offered:
            self.wrong.append(f"{name} was given batch {batch} twice in one life")
        if not given.get(batch, table).equals(table):
            self.wrong.append(f"{name} was given batch {batch} again, and it was another")
        if batch not in given and batch < max(given, default=-1):
            self.wrong.append(f"{name} was given batch {batch} after batch {max(given)}")
        if name in self.by_hand:
            self.wrong.append(f"{name} was given batch {batch} while it was paused")
        manifests = (self.place / "disk" / "state" / "manifests").glob("[0-9]*")
        if batch > max((int(path.name) for path in manifests if path.name.isdigit()), default=-1):
            self.wrong.append(f"{name} was given batch {batch} before its manifest")

    def _note_completeness(self, session: LocalSession) -> None:
        for name, handle in session.queries.items():
            since = handle.status.complete_from
            if handle.definition.join is not None and since is not None:
                self.complete_from[name] = max(self.complete_from.get(name, 0), int(since.timestamp() * 1e6))

    def _note_error(self, session: LocalSession, name: str) -> None:
        """Of a query that is dropped next. If a death undoes that, what the next life finds counts."""
        self._errors_before_drop.pop(name, None)
        status = session.query(name).status
        if status.state == "failed":
            self._errors_before_drop[name] = str(status.error)

    def _drop(self, session: LocalSession, name: str) -> None:
        if name in session.queries:
            if name in self._paused(self.done):
                self._note_kept(session, name)
            else:
                self._cure(session, name)
            self._note_gaps(session)
            self._note_completeness(session)
            self._note_error(session, name)
            if self.world.queries[name].sink == "memory":
                self._before_drop[name] = session.query(name).results()
            session.drop_query(name)

    def _note_kept(self, session: LocalSession, name: str) -> None:
        """What waits for a sink goes with its query, if that is dropped while it is paused. So many rows of it are
        counted, and these are they."""
        handle, kept = session.query(name), {}
        for one in session._parts.delivery.queues.items_of(handle.id):
            files = [self.sink_directory(name) / file for file in (one.token, *one.parts) if file]
            parts = [read_section(session.storage, section) for section in one.sections]
            table = _concat(
                [*(shown(part, shown_schema(handle.definition)) for part in parts), *map(pq.read_table, files)]
            )
            kept[one.batch] = table
        self._before_drop_kept[name] = kept
        rows, told = sum(table.num_rows for table in kept.values()), handle.status.undelivered
        if (told.batches, told.rows) != (len(kept), rows):
            self.wrong.append(f"{name} is dropped with {rows} rows of {len(kept)} batches, and says {told}")

    def _run(self, session: LocalSession, _: None) -> None:
        session.run_available()

    def _results(self, session: LocalSession, query: Query) -> pa.Table:
        """What went with the drop of a query counts, too: it is the rest, whichever batch was given last."""
        kept = self._before_drop_kept.get(query.name, {})
        if query.sink == "callable":
            given = {**kept, **self._given[query.name]}
            return _concat([given[batch] for batch in sorted(given)])
        if query.sink == "files":
            parts = {int(part.name[5:17]): part for part in self._parts(query.name)}
            rest = [table for batch, table in kept.items() if batch not in parts]
            return _concat([*(pq.read_table(part) for part in parts.values()), *rest])
        if query.name in self.world.dropped:
            return self._before_drop[query.name]
        return session.query(query.name).results()


def _errors(session: LocalSession) -> dict[str, str]:
    return {name: str(h.status.error) for name, h in session.queries.items() if h.status.state == "failed"}


def _concat(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables) if tables else pa.table({})


def _placed(rejected: pa.Table) -> pa.Table:
    """File, line, reason and row; each run has a directory of its own."""
    files = rejected["file"].to_pylist()
    rows = [
        Path(file).name if row == file else row for row, file in zip(rejected["row"].to_pylist(), files, strict=True)
    ]
    names = [file and Path(file).name for file in files]
    told = {"file": pa.array(names, pa.string()), "row": pa.array(rows, pa.string())}
    return pa.table({**told, "line": rejected["line"], "reason": rejected["reason"]})
