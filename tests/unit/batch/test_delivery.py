"""Unit: results wait, durable and unseen, until they are committed; what a sink raises concerns its query alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from thalweg.batch.delivery import Delivery
from thalweg.batch.hands import Inline
from thalweg.batch.made import Made
from thalweg.batch.prepare import Preparing
from thalweg.errors import StateError
from thalweg.model.entry import Entry
from thalweg.model.expr import Expr
from thalweg.model.manifest import Manifest, Prepared
from thalweg.model.query import Output, Query, SinkSpec
from thalweg.sink.files import to_files
from thalweg.state.container import read_section
from thalweg.state.local_storage import LocalStorage
from thalweg.state.term import Term

TABLE = pa.table({"a": [1, 2]})
TERM = Term("timeline", 1, "term-1", frozenset({"term-1"}))


class Sink:
    """Says what it was given."""

    kind = "callable"

    def __init__(
        self, token: str = "", prepare: BaseException | None = None, commit: BaseException | None = None
    ) -> None:
        self.token = token
        self.failures = {"prepare": prepare, "commit": commit}
        self.prepared: list[int] = []
        self.calls = 0
        self.got: list[tuple[int, str, list[int] | None]] = []

    def prepare(self, batch_id: int, table: pa.Table | None, parts: Sequence[str] = ()) -> str:
        self._fail("prepare")
        self.prepared.append(batch_id)
        return self.token

    def commit(self, batch_id: int, token: str, table: pa.Table | None) -> None:
        self.calls += 1
        self._fail("commit")
        self.got.append((batch_id, token, None if table is None else table["a"].to_pylist()))

    def _fail(self, step: str) -> None:
        failure = self.failures[step]
        if failure is not None:
            raise failure


def entry(id_: str, spec: SinkSpec | None = None) -> Entry:
    outputs = (Output("a", Expr('"a"', "bigint", ("a",))),)
    return Entry(id_, Query(id_, "", "s", outputs, sink=spec or SinkSpec("callable")))


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "state"))


def delivery_of(storage: LocalStorage, newest: Manifest | None = None, **sinks: Any) -> Delivery:
    delivery = Delivery(None, storage, TERM, Inline())  # type: ignore[arg-type]  # nobody writes with Spark
    delivery.newest = -1 if newest is None else newest.batch
    delivery._sinks = dict(sinks)
    delivery.callbacks = dict.fromkeys(sinks, lambda table, batch: None)
    return delivery


def commit(delivery: Delivery, waiting: Sequence[Prepared], *entries: Entry) -> dict[str, str]:
    """Query id -> why it is paused afterwards."""
    delivery.queues.offer(waiting, by_id(*entries))
    delivery.queues.begin()
    delivery.queues.check()
    return delivery.queues.paused()


def tables(*entries: Entry, table: pa.Table = TABLE) -> dict[str, Made]:
    return {e.id: Made(e, table) for e in entries}


def by_id(*entries: Entry) -> dict[str, Entry]:
    return {e.id: e for e in entries}


def test_rows_wait_in_the_state_and_what_a_sink_has_written_by_its_name(storage: LocalStorage) -> None:
    rows, more, own = Sink(), Sink(), Sink("token-1")
    delivery = delivery_of(storage, rows=rows, more=more, own=own)
    entries = [entry("rows"), entry("more"), entry("own")]
    ready = Preparing(storage, delivery).prepare(7, tables(*entries), by_id(*entries))
    assert rows.got == more.got == own.got == []
    assert [(p.query, p.batch, p.rows, p.token) for p in ready.undelivered] == [
        ("own", 7, 2, "token-1"),
        ("rows", 7, 2, ""),
        ("more", 7, 2, ""),
    ]
    sections = [section for p in ready.undelivered for section in p.sections]
    assert len(sections) == 2
    assert {section.file for section in sections} == {*storage.names("prepared/")}
    assert all(read_section(storage, section).equals(TABLE) for section in sections)
    assert commit(delivery, ready.undelivered, *entries) == {}
    assert rows.got == more.got == [(7, "", [1, 2])]
    assert own.got == [(7, "token-1", None)]


def test_nothing_waits_for_who_takes_nothing(storage: LocalStorage) -> None:
    quiet, noop, memory = entry("quiet"), entry("noop", SinkSpec("noop")), entry("memory", SinkSpec("memory"))
    sink = Sink()
    delivery = delivery_of(storage, quiet=sink)
    given = {**tables(quiet, table=TABLE.slice(0, 0)), **tables(noop, memory)}
    ready = Preparing(storage, delivery).prepare(7, given, by_id(quiet, noop, memory))
    assert ready.undelivered == []
    assert sink.prepared == []
    (file,) = ready.results
    assert (file.first, file.last) == (7, 7)
    assert delivery.results.read("memory", TABLE.schema).num_rows == 0
    delivery.results.commit(ready.results)
    assert delivery.results.read("memory", TABLE.schema).equals(TABLE)
    assert storage.names("") == [file.file]


RAISED = [ValueError("no"), SystemExit("no"), KeyboardInterrupt("no"), asyncio.CancelledError("no")]


@pytest.mark.parametrize("failure", RAISED, ids=lambda failure: type(failure).__name__)
@pytest.mark.parametrize("step", ["prepare", "commit"])
def test_whatever_a_sink_raises_concerns_its_query_alone(
    storage: LocalStorage, failure: BaseException, step: str
) -> None:
    """What it does not prepare waits with the state; what it does not take is kept."""
    bad, good = Sink("token", **{step: failure}), Sink()
    delivery = delivery_of(storage, bad=bad, good=good)
    entries = [entry("bad"), entry("good")]
    ready = Preparing(storage, delivery).prepare(7, tables(*entries), by_id(*entries))
    paused = commit(delivery, ready.undelivered, *entries)
    assert good.got == [(7, "", [1, 2])]
    if step == "prepare":
        assert paused == {}
        assert bad.got == [(7, "", [1, 2])]
    else:
        assert list(paused) == ["bad"]
        assert f"{type(failure).__name__}: no" in paused["bad"]
        assert [p.query for p in delivery.queues.waiting()] == ["bad"]


def test_after_the_last_retry_nothing_more_is_given_until_it_is_resumed(storage: LocalStorage) -> None:
    bad, good = Sink(commit=ValueError("no")), Sink()
    delivery = delivery_of(storage, bad=bad, good=good)
    waiting = [Prepared(id_, batch, 2, token="t") for batch in (7, 8) for id_ in ("bad", "good", "gone")]
    assert [*commit(delivery, waiting, entry("bad"), entry("good"))] == ["bad"]
    assert good.got == [(7, "t", None), (8, "t", None)]
    assert bad.calls == 8
    assert [(p.query, p.batch) for p in delivery.queues.waiting()] == [("bad", 7), ("bad", 8)]
    bad.failures["commit"] = None
    delivery.queues.resume("bad")
    assert bad.got == [(7, "t", None), (8, "t", None)]
    assert delivery.queues.waiting() == ()


def test_what_waits_and_is_damaged_is_no_fault_of_a_sink(storage: LocalStorage) -> None:
    sink = Sink()
    delivery = delivery_of(storage, q=sink)
    ready = Preparing(storage, delivery).prepare(7, tables(entry("q")), by_id(entry("q")))
    (name,) = storage.names("prepared/")
    storage.delete(name)
    with pytest.raises(StateError, match=f"{name} is missing"):
        commit(delivery, ready.undelivered, entry("q"))
    assert sink.got == []
    assert delivery.queues.paused() == {}


def test_a_sink_is_told_what_may_still_be_committed(storage: LocalStorage, tmp_path: Path) -> None:
    """After a death between manifest and sinks: what the manifest holds is not swept, the rest is."""
    files = entry("f", to_files(tmp_path / "out"))
    first = delivery_of(storage)
    held = Preparing(storage, first).prepare(3, tables(files), by_id(files)).undelivered
    lost = f".part-{4:012d}-{'a' * 12}.parquet"
    (tmp_path / "out" / lost).write_bytes(b"")
    second = delivery_of(storage, Manifest(3, 16, "h", undelivered=tuple(held)))
    second.queues.offer(held, by_id(files))
    ready = Preparing(storage, second).prepare(4, tables(files), by_id(files)).undelivered
    assert {path.name for path in (tmp_path / "out").iterdir()} == {held[0].token, ready[0].token}
    assert commit(second, [*held, *ready], files) == {}
    assert sorted(path.name for path in (tmp_path / "out").glob("part-*")) == [
        "part-000000000003.parquet",
        "part-000000000004.parquet",
    ]


def test_a_sink_that_knows_more_batches_than_the_state_is_refused(storage: LocalStorage, tmp_path: Path) -> None:
    files = entry("f", to_files(tmp_path / "out"))
    first = delivery_of(storage)
    first.newest = 3
    ready = Preparing(storage, first).prepare(3, tables(files), by_id(files))
    assert commit(first, ready.undelivered, files) == {}
    restored = delivery_of(storage, Manifest(2, 16, "h"))
    ready = Preparing(storage, restored).prepare(3, tables(files), by_id(files))
    assert "only as far as batch 2" in commit(restored, ready.undelivered, files)["f"]
