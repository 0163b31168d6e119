"""Chaos: the program that uses the pipeline, and outlives it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.recovery.chaos_world import NAMES, Query, Step, World

import thalweg
from thalweg.sink.text import csv_lines, json_lines
from thalweg.testing import LocalSession
from thalweg.testing.oracle import Feed


class RefusalError(Exception):
    """What a callable raises once."""


class Client:
    """It knows what it was told, and asks again if it was not. Callables do as the guide says: they keep what they
    were given under the id of the batch. After a crash a batch may be given again, and is the same then."""

    def __init__(self, world: World, place: Path) -> None:
        self.world = world
        self.place = place
        self.steps: Sequence[Step] = world.steps
        self.done = 0
        """The steps that were acknowledged."""
        self.calls_until_refusal: int | None = None
        self.steps_until_stop: int | None = None
        self.raised: set[str] = set()
        """The queries whose callables have raised."""
        self._given: dict[str, dict[int, pa.Table]] = {q.name: {} for q in world.queries.values()}
        self._offered: set[tuple[str, int]] = set()
        """(query, batch) of the calls of this life, whether they raised or not."""
        self._settled: set[tuple[str, int]] = set()
        """Those of lives up to the last that stopped in good order: they may not come again."""
        self.wrong: list[str] = []
        """What callables were given and should not have been."""
        self._before_drop: dict[str, pa.Table] = {}
        """What queries without a sink of their own had given when they were dropped."""
        self._errors_before_drop: dict[str, str] = {}
        """Why queries had failed when they were dropped. The session forgets it with them."""
        self._sources: dict[str, Any] = {}
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
        for feed in self.world.feeds:
            self._open_stream(session, feed)
        told = self.steps[: self.done]
        versions = [step for kind, step in told if kind == "table"]
        if versions and self._lives % 2:  # a program may give its table again, or leave it as it is
            self._table(session, versions[-1])
        for kind, step in told:
            if kind == "create" and step.name in session.queries:
                self._create(session, step)
        end, self.steps_until_stop = self.done + (self.steps_until_stop or len(self.steps)), None
        while not self.is_done and self.done < end:
            kind, step = self.steps[self.done]
            getattr(self, f"_{kind}")(session, step)
            self.done += 1

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
        """stream -> its rows that could not be read."""
        return {stream: session.rejected(stream) for stream in self.world.texts}

    # -- streams and tables ------------------------------------------------------------------------------------

    def _open_stream(self, session: LocalSession, feed: Feed) -> None:
        kind = self.world.formats.get(feed.stream)
        if kind is not None:
            directory = self._inputs(feed)
            directory.mkdir(parents=True, exist_ok=True)
            source: Any = thalweg.files(f"{directory}/*.{kind}", max_files_per_batch=1)
        else:
            source = thalweg.memory(feed.schema, max_files_per_batch=1)
        self._sources[feed.stream] = source
        delay = f"{feed.delay_us} microseconds"
        session.create_stream(feed.stream, source, time=feed.time, watermark=delay, schema=feed.schema)

    def _inputs(self, feed: Feed) -> Path:
        return self.place / "inputs" / feed.stream

    def _feed(self, session: LocalSession, number: int) -> None:
        for feed in self.world.feeds:
            source, table = self._sources[feed.stream], feed.batches[number]
            if feed.stream in self.world.formats:
                self._write(feed, number)
            elif source._next <= number:
                rows = table.num_rows
                source.append(pa.concat_tables([table.slice(0, rows // 2), table.slice(rows // 2)]))

    def _write(self, feed: Feed, number: int) -> None:
        kind, table = self.world.formats[feed.stream], feed.batches[number]
        path = self._inputs(feed) / f"{number:04d}.{kind}"
        if path.exists():
            return
        if kind == "parquet":
            pq.write_table(table, path, row_group_size=7)
        else:
            path.write_bytes(_text(table, kind, (feed.stream, number) in self.world.spoiled, number % 2 == 0))
        os.utime(path, ns=(number, number))

    def _table(self, session: LocalSession, version: int) -> None:
        session.create_table("names", NAMES[version], replace=True)

    # -- queries -----------------------------------------------------------------------------------------------

    def _create(self, session: LocalSession, query: Query) -> None:
        known = session.queries.get(query.name)
        if known is not None and not known.restored:
            return
        session.create_query(query.name, query.select, self._sink(query))

    def _sink(self, query: Query) -> Any:
        if query.sink == "files":
            return thalweg.to_files(self.sink_directory(query.name))
        if query.sink == "callable":
            return lambda table, batch: self._take(query.name, table, batch)
        return None

    def sink_directory(self, name: str) -> Path:
        return self.place / "disk" / "sinks" / name

    def _take(self, name: str, table: pa.Table, batch: int) -> None:
        self._check_call(name, table, batch)
        if self.calls_until_refusal is not None:
            self.calls_until_refusal -= 1
            if self.calls_until_refusal <= 0:
                self.calls_until_refusal = None
                self.raised.add(name)
                raise RefusalError(name)
        self._given[name].setdefault(batch, table)

    def _check_call(self, name: str, table: pa.Table, batch: int) -> None:
        call = (name, batch)
        if call in self._settled:
            self.wrong.append(f"{name} was given batch {batch} again after a stop in good order")
        if call in self._offered:
            self.wrong.append(f"{name} was given batch {batch} twice in one life")
        if not self._given[name].get(batch, table).equals(table):
            self.wrong.append(f"{name} was given batch {batch} again, and it was another")
        if not (self.place / "disk" / "state" / "manifests" / f"{batch:012d}").exists():
            self.wrong.append(f"{name} was given batch {batch} before its manifest")
        self._offered.add(call)

    def _note_completeness(self, session: LocalSession) -> None:
        for name, handle in session.queries.items():
            since = handle.status.complete_from
            if handle.definition.join is not None and since is not None:
                self.complete_from[name] = int(since.timestamp() * 1e6)

    def _note_error(self, session: LocalSession, name: str) -> None:
        """Of a query that is dropped next. If a death undoes that, what the next life finds counts."""
        self._errors_before_drop.pop(name, None)
        errors = _errors(session)
        if name in errors:
            self._errors_before_drop[name] = errors[name]

    def _drop(self, session: LocalSession, name: str) -> None:
        if name in session.queries:
            self._note_completeness(session)
            self._note_error(session, name)
            if self.world.queries[name].sink == "memory":
                self._before_drop[name] = session.query(name).results()
            session.drop_query(name)

    def _run(self, session: LocalSession, _: None) -> None:
        session.run_available()

    def _results(self, session: LocalSession, query: Query) -> pa.Table:
        if query.sink == "callable":
            given = self._given[query.name]
            return _concat([given[batch] for batch in sorted(given)])
        if query.sink == "files":
            return _concat([pq.read_table(part) for part in sorted(self.sink_directory(query.name).glob("part-*"))])
        if query.name in self.world.dropped:
            return self._before_drop[query.name]
        return session.query(query.name).results()


def _errors(session: LocalSession) -> dict[str, str]:
    return {name: str(h.status.error) for name, h in session.queries.items() if h.status.state == "failed"}


def _concat(tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables) if tables else pa.table({})


def _text(table: pa.Table, kind: str, is_spoiled: bool, is_ended: bool) -> bytes:
    """`is_spoiled`: with a line in the middle that is not a row; `is_ended`: the last line has its end."""
    data = csv_lines(table) if kind == "csv" else json_lines(table)
    lines = data.splitlines(keepends=True)
    if is_spoiled:
        lines.insert(1 + len(lines) // 2, b"broken\n" if kind == "csv" else b'{"k": 1, "nam\n')
    data = b"".join(lines)
    return data if is_ended else data.removesuffix(b"\n")
