"""Unit: the manifest is the one point at which a batch happens. Nobody sees anything before it, everybody gets all of
it after, and of two sessions on one state one goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from thalweg import faults
from thalweg.batch import commit as module
from thalweg.batch import offers
from thalweg.batch.hands import Inline
from thalweg.errors import StateError, ThalwegError
from thalweg.model.manifest import Manifest
from thalweg.sink.files import to_files
from thalweg.state.delivered import Delivered, find_delivered, save_delivered
from thalweg.state.local_storage import LocalStorage
from thalweg.state.manifest import Manifests, latest_manifest
from thalweg.state.places import open_storage
from thalweg.testing import LocalSession

Local = Callable[..., LocalSession]
START = datetime(2026, 1, 1, tzinfo=UTC)
ALL = "SELECT k, v FROM events WHERE v >= 0"
EVENTS = pa.schema([("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("v", pa.int64())])


class Death(BaseException):
    """The process ends here."""


def rows(*seconds: int) -> pa.Table:
    found = [{"ts": START + timedelta(seconds=s), "k": 1, "v": s} for s in seconds]
    return pa.Table.from_pylist(found, EVENTS)


class World:
    """A session with a query for each kind of sink."""

    def __init__(self, local: Local, state_dir: Path, *seconds: int) -> None:
        self.out = state_dir.with_name("out")
        self.got: list[tuple[int, list[int]]] = []
        self.refusal: Exception | None = None
        self.session = local({"events": rows(*seconds)}, state_dir=state_dir, hands=Inline())
        self.called = self.session.create_query("called", ALL, self.take)
        self.kept = self.session.create_query("kept", ALL)
        self.filed = self.session.create_query("filed", ALL, to_files(self.out, "json"))

    def take(self, table: pa.Table, batch: int) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.got.append((batch, table["v"].to_pylist()))

    def seen(self) -> dict[str, Any]:
        """What each sink has to show."""
        return {
            "called": [value for _, values in self.got for value in values],
            "kept": self.kept.results()["v"].to_pylist(),
            "filed": [path.name for path in sorted(self.out.glob("part-*"))],
        }

    def run(self, *seconds: int) -> None:
        if seconds:
            self.session.append("events", rows(*seconds))
        self.session.run_available()

    def die(self, point: str) -> None:
        """In the next batch."""

        def watch(name: str) -> None:
            if name == point:
                raise Death

        with faults.watch(watch), pytest.raises(Death):
            self.session.run_available()
        self.session._parts.delivery.queues.close()
        self.session._parts.hold.release()


NOTHING: dict[str, Any] = {"called": [], "kept": [], "filed": []}


def test_nobody_sees_anything_before_the_manifest_and_sinks_follow_it(local: Local, state_dir: Path) -> None:
    world = World(local, state_dir, 1)
    storage = open_storage(state_dir)
    passed: list[tuple[str, bool, bool, bool]] = []

    def watch(name: str) -> None:
        if name.startswith("batch.") and len(passed) < 6:  # of the first one
            seen, is_there = world.seen(), latest_manifest(storage) is not None
            passed.append((name, is_there, seen["kept"] == [1], seen["called"] == [1] and bool(seen["filed"])))
            assert is_there or seen == NOTHING

    with faults.watch(watch):
        world.run()
    assert passed == [
        ("batch.start", False, False, False),
        ("batch.tasks", False, False, False),
        ("batch.prepared", False, False, False),
        ("batch.manifest", True, True, False),
        ("batch.sinks", True, True, True),
        ("batch.end", True, True, True),
    ]


@pytest.mark.parametrize("point", [p for p in faults.PHASES if p.startswith(("batch.", "delivery."))])
def test_after_a_death_anywhere_all_sinks_have_the_batch(local: Local, state_dir: Path, point: str) -> None:
    """Files and results once. The callable may see the batch again, under the same number."""
    first = World(local, state_dir, 1)
    first.die(point)
    second = World(local, state_dir)
    if point in ("batch.start", "batch.tasks", "batch.prepared"):
        assert second.seen() == NOTHING
    second.run()
    seen = second.seen()
    assert seen["kept"] == [1]
    assert seen["filed"] == ["part-000000000000.json"]
    assert [path.name for path in second.out.glob(".part-*")] == []
    calls = [*first.got, *second.got]
    assert calls == [(0, [1])] * (2 if point in ("batch.sinks", "batch.end") else 1)


def run_with_results_last(world: World) -> Manifest:
    """A second row of the same time moves no watermark, so no batch without rows follows; the newest manifest."""
    world.run(1)
    world.run(1)
    newest = latest_manifest(open_storage(world.session.state_dir))
    assert newest is not None
    assert {prepared.query.partition("@")[0] for prepared in newest.undelivered} == {"called", "filed"}
    return newest


def test_a_run_that_ended_in_good_order_gives_nothing_out_again(local: Local, state_dir: Path) -> None:
    """No later manifest says so: the object `delivered` does."""
    first = World(local, state_dir)
    newest = run_with_results_last(first)
    assert find_delivered(open_storage(state_dir)) == Delivered(
        newest.batch, given={prepared.query: newest.batch for prepared in newest.undelivered}
    )
    assert first.seen()["called"] == [1, 1]
    first.session.stop()
    second = World(local, state_dir)
    second.run()
    assert second.got == []
    assert second.seen()["kept"] == [1, 1]
    second.run(2)
    assert [values for _, values in second.got] == [[2]]


def test_what_says_so_of_another_batch_does_not_count(local: Local, state_dir: Path) -> None:
    first = World(local, state_dir)
    newest = run_with_results_last(first)
    first.session.stop()
    save_delivered(open_storage(state_dir), Delivered(newest.batch - 1))
    second = World(local, state_dir)
    second.run()
    assert second.got == [(newest.batch, [1])]


def test_what_a_sink_objected_to_is_known_after_a_restart(local: Local, state_dir: Path) -> None:
    first = World(local, state_dir)
    run_with_results_last(first)
    first.refusal = ValueError("not today")
    first.run(1)
    newest = latest_manifest(open_storage(state_dir))
    assert newest is not None
    assert newest.undelivered
    assert {entry.paused for entry in newest.queries.values()} == {None}
    assert first.called.status.state == "paused"
    first.session.stop()
    second = World(local, state_dir)
    for n in range(1, 3):  # also once a manifest says so
        status = second.called.status
        assert (status.state, status.undelivered.rows) == ("paused", n)
        assert "not today" in str(status.error)
        assert second.kept.status.state == "idle"
        second.run(2)
    assert second.got == []
    assert second.kept.results()["v"].to_pylist() == [1, 1, 1, 2, 2]
    second.called.resume()
    assert [values for _, values in second.got] == [[1], [2], [2]]


@pytest.mark.parametrize("happened", [True, False])
def test_a_commit_that_failed_is_what_the_storage_says(
    local: Local, state_dir: Path, monkeypatch: pytest.MonkeyPatch, happened: bool
) -> None:
    world, create, failures = World(local, state_dir, 1), Manifests.create, [OSError(5, "Input/output error")]

    def fail_once(manifests: Manifests, manifest: Any) -> None:
        if happened or not failures:
            create(manifests, manifest)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(Manifests, "create", fail_once)
    with pytest.raises(ThalwegError, match="has stopped in batch 0"):
        world.run()
    assert world.seen() == NOTHING
    world.run(2)
    seen = world.seen()
    assert seen["called"] == seen["kept"] == [1, 2]
    assert [values for _, values in world.got] == ([[1], [2]] if happened else [[1, 2]])
    assert len(seen["filed"]) == (2 if happened else 1)


# -- two sessions on one state


@dataclass(frozen=True)
class Unheld(LocalStorage):
    """A place that cannot keep a second session out, as an object store cannot."""

    def hold(self) -> Unheld:
        return self

    def check(self) -> None:
        pass

    def release(self) -> None:
        pass


@pytest.fixture
def unheld(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thalweg.testing.local.open_storage", lambda place: Unheld(str(place)))


@pytest.mark.usefixtures("unheld")
def test_an_older_session_is_refused_before_its_sinks_see_anything(local: Local, state_dir: Path) -> None:
    one = World(local, state_dir, 1)
    two = World(local, state_dir)
    with pytest.raises(StateError, match="another session has opened this state since"):
        one.run()
    assert one.seen() == NOTHING
    assert latest_manifest(open_storage(state_dir)) is None
    two.run()
    assert two.seen() == {"called": [1], "kept": [1], "filed": ["part-000000000000.json"]}
    with pytest.raises(StateError, match="another session has opened this state since"):
        one.run()
    assert one.got == []


@pytest.mark.usefixtures("unheld")
def test_a_session_that_is_overtaken_in_its_batch_is_refused_at_its_end(local: Local, state_dir: Path) -> None:
    one = World(local, state_dir, 1)
    opened: list[World] = []

    def watch(name: str) -> None:
        if name == "batch.prepared" and not opened:
            opened.append(World(local, state_dir))

    with faults.watch(watch), pytest.raises(StateError, match="this session is number 1, the newest is 2"):
        one.run()
    assert one.seen() == NOTHING
    (two,) = opened
    two.run()
    assert two.seen() == {"called": [1], "kept": [1], "filed": ["part-000000000000.json"]}
    assert one.got == []


@pytest.mark.usefixtures("unheld")
def test_of_two_that_commit_one_batch_the_second_raises_before_its_sinks_see_anything(
    local: Local, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where neither has noticed the other by its term."""
    monkeypatch.setattr(module, "check_term", lambda storage, term: None)
    one, two = World(local, state_dir, 1), World(local, state_dir)
    two.run()
    with pytest.raises(StateError, match=r"another session has run batch 0: .*manifests/000000000000 is there"):
        one.run()
    assert one.got == []
    assert two.seen() == {"called": [1], "kept": [1], "filed": ["part-000000000000.json"]}
    newest = latest_manifest(open_storage(state_dir))
    assert newest is not None
    assert newest.term == 2


@pytest.mark.usefixtures("unheld")
def test_the_newest_session_goes_on_from_what_an_older_one_has_just_committed(
    local: Local, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which had looked at the terms before there was a newer one."""
    one, two = World(local, state_dir, 1), World(local, state_dir)
    check = module.check_term
    monkeypatch.setattr(module, "check_term", lambda storage, term: None)
    one.run()
    assert one.seen()["called"] == [1]
    monkeypatch.setattr(module, "check_term", check)
    with pytest.raises(StateError, match="another session has run batch 0"):
        two.run()
    assert two.got == []
    two.run(2)
    assert two.kept.results()["v"].to_pylist() == [1, 2]
    with pytest.raises(StateError, match="another session has opened this state since"):
        one.run()
    assert one.seen()["called"] == [1]


def test_a_commit_that_is_unsure_stays_so_until_all_that_it_left_has_been_read(
    local: Local, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest is there and its answer was lost; and then the state cannot be read for a moment, too."""
    world = World(local, state_dir, 1)
    commits = world.session._parts.runner.commits
    create = commits.manifests.create

    def lose_the_answer(manifest: Manifest) -> None:
        create(manifest)
        raise OSError("no answer")

    def fail(storage: Any) -> None:
        raise OSError("not now")

    with monkeypatch.context() as patch:
        patch.setattr(commits.manifests, "create", lose_the_answer)
        with pytest.raises(ThalwegError, match="no answer"):
            world.run()
    with monkeypatch.context() as patch:
        patch.setattr(offers, "find_delivered", fail)
        with pytest.raises(ThalwegError, match="not now"):
            world.run()
    assert world.got == []
    world.run()
    assert world.seen() == {"called": [1], "kept": [1], "filed": ["part-000000000000.json"]}
