"""Recovery: pipelines that die by seed lose nothing and double nothing; a few seeds of `./dev chaos`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tests.recovery import chaos
from tests.recovery.chaos import answers, main, run_seed
from tests.recovery.chaos_client import Client
from tests.recovery.chaos_fault import Fault, after_steps, at_call, at_point, at_verb
from tests.recovery.chaos_oracle import Outcome, Reasons, Story, check_verbs, compare
from tests.recovery.chaos_world import Query, World, make_world

import thalweg.batch.ingest_stage
import thalweg.batch.run
import thalweg.batch.slot_stage  # noqa: F401 - they register fault points
from thalweg import faults
from thalweg.batch.loop import Loop
from thalweg.batch.run import BatchRunner
from thalweg.errors import ThalwegError, UsageError
from thalweg.model.manifest import Manifest
from thalweg.model.plan import Plan
from thalweg.sink.files import FilesSink
from thalweg.state import durable
from thalweg.state.local_storage import LocalStorage
from thalweg.state.manifest import Manifests, latest_manifest, manifest_name
from thalweg.state.storage import Data
from thalweg.testing import LocalSession

slow = pytest.mark.slow
CALLED = 40
"""A world with a callable and files."""


@slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 6, 10, 12, 16, 17, 18, 22, 26, 33, 36, 65, 93, 266])
def test_every_row_comes_once_whatever_dies(seed: int) -> None:
    """12 and 33 have only memory sources, 26 a stream that nobody reads any more, 17, 18 and 22 JSON lines, 2, 6, 10
    and 16 CSV, 3, 17, 36 and 65 a static table. In 266 a sink fails, and its query is dropped in the next step."""
    story = run_seed(seed)
    assert not story.wrong, "\n".join([*story.log, *story.wrong])


@slow
@pytest.mark.parametrize("world", [2, 7])
@pytest.mark.parametrize("phase", faults.PHASES)
def test_killed_at_every_phase(phase: str, world: int) -> None:
    """The second passage: the first batch is complete, the next one dies half way. Then once more, in a new life."""
    story = run_seed(world, [at_point(phase, 2), at_point(phase, 3)])
    assert not story.wrong, "\n".join([*story.log, *story.wrong])
    reached = 1 if phase in ("task.stored",) else 2
    assert story.deaths >= reached, "\n".join(story.log)


@slow
def test_a_seed_that_fails_is_told_last(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipeline that forgets to sync its manifests loses some at a power cut, and chaos says so."""
    monkeypatch.setattr(durable, "sync_directory", lambda path: None)
    found = next((seed for seed in range(40) if run_seed(seed).wrong), None)
    assert found is not None, "nothing was lost"
    assert main(["--seed", str(found)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"repeat with: ./dev chaos --seed {found}"


@slow
@pytest.mark.parametrize("notes", [True, False])
def test_a_run_that_failed_gives_nothing_again_after_a_stop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, notes: bool
) -> None:
    """Of the batches before the one that failed; unless nobody has noted that."""
    if not notes:
        monkeypatch.setattr(Loop, "_note_delivery", lambda self: None)
    told = []
    for batches in range(1, 7):
        client, left = Client(make_world(CALLED), tmp_path / str(batches)), [batches]

        def passed(name: str, left: list[int] = left) -> None:
            left[0] -= name == "batch.tasks"
            if left[0] < 0 and name == "batch.tasks":
                raise ValueError("the batch fails")

        for watcher in (passed, lambda name: None):
            session = LocalSession(state_dir=client.place / "disk" / "state", recorded=answers())
            with faults.watch(watcher), contextlib.suppress(ThalwegError):
                client.live(session)
            session.stop()
            client.note_stop()
        assert client.is_done
        told += client.wrong
    assert bool(told) != notes, told


# -- a pipeline that is broken on purpose ----------------------------------------------------------------------


def first_wrong(seeds: Iterable[int], faults: Sequence[Fault] | None = None) -> str:
    """What chaos says of the first seed that fails."""
    wrong = (run_seed(seed, faults).wrong for seed in seeds)
    return next(("\n".join(found) for found in wrong if found), "")


@slow
def test_sinks_that_commit_before_the_manifest_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = BatchRunner._commit

    def give_first(self: BatchRunner, after: Manifest, plan: Plan) -> None:
        self.delivery.newest = after.batch
        self.delivery.commit(after.undelivered, dict(after.queries))
        commit(self, after, plan)
        self.undelivered = ()

    chaos.undisturbed(CALLED)
    monkeypatch.setattr(BatchRunner, "_commit", give_first)
    assert "before its manifest" in first_wrong([CALLED], [at_point("batch.prepared", 2)])


@slow
def test_results_that_are_forgotten_after_a_crash_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    load = BatchRunner._load

    def forget(self: BatchRunner) -> None:
        load(self)
        self.undelivered = ()

    chaos.undisturbed(CALLED)
    monkeypatch.setattr(BatchRunner, "_load", forget)
    story = run_seed(CALLED, [at_point("batch.manifest", 2)])
    assert story.lost, story.log


@slow
def test_results_that_come_again_after_a_clean_stop_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    chaos.undisturbed(CALLED)
    monkeypatch.setattr(BatchRunner, "note_delivery", lambda self: None)
    assert "again after a stop in good order" in first_wrong([CALLED], [after_steps(8)])


@slow
def test_leftovers_in_the_directory_of_a_sink_that_is_used_again_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    chaos.undisturbed(CALLED)
    monkeypatch.setattr(FilesSink, "_sweep", lambda self, keep: None)
    assert "leaked: sinks/" in first_wrong([CALLED], [at_point("batch.prepared", 2)])


@slow
@pytest.mark.parametrize("phase", ["task.bucket", "batch.prepared"])
def test_garbage_that_nobody_collects_is_told(monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    chaos.undisturbed(CALLED)
    monkeypatch.setattr("thalweg.batch.run.collect_garbage", lambda storage, newest, before=None: [])
    assert "leaked: state/" in first_wrong([CALLED], [at_point(phase, 2)])


@slow
def test_temporaries_that_a_start_leaves_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    chaos.undisturbed(CALLED)
    monkeypatch.setattr(LocalStorage, "sweep", lambda self: None)
    wrong = (first_wrong([CALLED], [at_verb(verb)]) for verb in range(100, 120))
    assert any("leaked: state/" in found and ".tmp" in found for found in wrong)


@slow
def test_parts_of_manifests_that_stay_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Manifests, "sweep", lambda self: None)
    monkeypatch.setattr(Manifests, "prune", lambda self: None)
    monkeypatch.setattr(chaos, "_undisturbed", {})
    with pytest.raises(AssertionError, match="leaked: state/manifests"):
        chaos.undisturbed(CALLED)


@slow
def test_a_manifest_that_is_replaced_instead_of_created_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    create = LocalStorage.create

    def replace_it(self: LocalStorage, name: str, data: Data) -> bool:
        if not name.startswith("manifests/"):
            return create(self, name, data)
        self.write(name, data)
        return True

    chaos.undisturbed(CALLED)
    monkeypatch.setattr(LocalStorage, "create", replace_it)
    assert "replaced: state/manifests/" in first_wrong([CALLED], [])


# -- the oracle can fail ---------------------------------------------------------------------------------------


@slow
@pytest.mark.parametrize(("kind", "seed"), [("buckets", 7), ("stores", 50)])
def test_state_that_is_missing_shows_in_the_epilogue(monkeypatch: pytest.MonkeyPatch, kind: str, seed: int) -> None:
    """The last manifest lacks a bucket, and is all right otherwise."""
    live = chaos._Seed._last_life

    def lose(self: chaos._Seed, name: str, wanted: Outcome) -> None:
        live(self, name, wanted)
        assert not self.story.wrong or name == "epilogue"
        if name == "last life":
            storage = LocalStorage(str(self.disk.root / "state"))
            manifest = latest_manifest(storage)
            assert manifest is not None
            storage.delete(manifest_name(manifest.batch))
            Manifests(storage).create(replace(manifest, **{kind: getattr(manifest, kind)[:-1]}))

    monkeypatch.setattr(chaos._Seed, "_last_life", lose)
    assert "expected" in run_seed(seed).wrong[0]


def test_one_row_lost_and_one_doubled_are_two_mistakes() -> None:
    story = _compared([1, 2, 2], [1, 2, 3], failed=False)
    assert (story.lost, story.doubled, len(story.wrong)) == (1, 1, 1)


def test_only_a_sink_that_was_made_to_fail_excuses_its_query() -> None:
    reason = "sinks/q/part'"
    assert _compared([1], [1, 2], failed=True, refused=reason).wrong == []
    assert _compared([1], [1, 2], failed=True, refused=reason).known == ["trust 2"]
    assert "not by its sink" in _compared([1], [1, 2], failed=True).wrong[0]
    assert "not by its sink" in _compared([1], [1, 2], failed=True, refused="sinks/q/another'").wrong[0]
    assert len(_compared([1], [1, 2], failed=False, refused=reason).wrong) == 1
    assert len(_compared([1, 1], [1, 2], failed=True, refused=reason).wrong) == 1  # what it has is right all the same


@slow
@pytest.mark.parametrize(("seed", "faults"), [(266, None), (4, [at_call(1)])], ids=["files", "callable"])
def test_a_query_that_was_dropped_needs_the_same_excuse(
    monkeypatch: pytest.MonkeyPatch, seed: int, faults: list[Fault] | None
) -> None:
    """These two had failed, one into files and one into a callable. If something else was refused, that is a
    mistake."""
    monkeypatch.setattr(chaos, "refused_sinks", lambda client, _: {q: {"another"} for q in client.world.dropped})
    story = run_seed(seed, faults)
    assert "not by its sink" in story.wrong[0]
    assert story.wrong[1].startswith("query ")
    assert story.lost


def _compared(found: list[int], wanted: list[int], *, failed: bool, refused: str = "") -> Story:
    query, story = Query("q", "SELECT v FROM events", "files"), Story(0)
    world = World(make_world(0).feeds, {}, steps=(("create", query),))

    def outcome(rows: list[int], errors: dict[str, str]) -> Outcome:
        return Outcome({"q": pa.table({"v": rows})}, {}, {}, errors)

    errors = {"q": "No space left on device: '/tmp/disk/sinks/q/part'"} if failed else {}
    compare(world, outcome(found, errors), outcome(wanted, {}), {"q": {refused}} if refused else {}, story)
    return story


def test_a_join_that_came_later_is_compared_from_when_on_it_is_complete() -> None:
    """Chaos seed 494: how far back it finds rows depends on how stores were cut."""
    complete, after = 5_000_000, 30_000_000
    for time, mistakes in ((complete - 1, 0), (after, 1)):
        query, story = Query("q", "SELECT a.ts FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND", "memory"), Story(0)
        world = World((), {}, steps=(("create", query),))
        kinds = pa.schema([("ts", pa.timestamp("us", tz="UTC"))])
        have, lack = pa.table({"ts": [time, after + 1]}, kinds), pa.table({"ts": [after + 1]}, kinds)
        for one, other in ((have, lack), (lack, have)):
            found, wanted = (Outcome({"q": rows}, {}, {}, {}, {"q": complete}) for rows in (one, other))
            compare(world, found, wanted, {}, story)
        assert (story.lost, story.doubled, len(story.wrong)) == (mistakes, mistakes, 2 * mistakes)
        assert story.known == ["by design"] * (2 - 2 * mistakes)


def test_verbs_in_the_wrong_order_are_mistakes() -> None:
    link, sync = ("link", "state/manifests/000000000007"), ("sync_directory", "state/manifests")
    show = ("replace", "sinks/q/part-000000000007.parquet")
    for trace, wrong in (
        ([link, sync, show], []),
        ([link, show, sync], [f"shown before its manifest: {show[1]}"]),
        ([sync, show], [f"shown before its manifest: {show[1]}"]),
        ([("replace", "state/requests/000000000001")], ["replaced: state/requests/000000000001"]),
        ([("replace", "state/requests/last"), ("replace", "state/sources/s/files/000000000000-000000000002")], []),
    ):
        story = Story(0)
        check_verbs(trace, story)
        assert story.wrong == wrong


STRAY = (
    "stray.json",
    "buckets/000000000000-0-0123456789ab.arrow",
    "buckets/.000000000000-0-0123456789ab.arrow.1-01234567.tmp",
    "spill/000000000000-0-0123456789ab.arrow",
    "manifests/000000000000",
    "manifests/000000000009.txt",
    "intents/000000000007.json",
    "changes.log",
    "parts/0123456789abcdef0123456789abcdef",
    "queries/0123456789abcdef0123456789abcdef",
    "prepared/000000000001-0-0123456789ab.arrow",
    "results/000000000001-0123456789ab.arrow",
    "requests/000000000001",
    "terms/last",
    "sources/events/0000000000.arrow",
    "sources/events/stream.json",
    "sources/nobody/units",
    "tables/names-0123456789ab.arrow",
    "rejected/events/000000000099-part.arrow",
)


@slow
def test_a_file_without_a_reason_is_told_by_its_name(tmp_path: Path) -> None:
    client = Client(make_world(7), tmp_path)
    state_dir = tmp_path / "disk" / "state"
    session = LocalSession(state_dir=state_dir, recorded=answers())
    client.live(session)
    session.stop()
    assert Reasons(state_dir).leaked() == []
    for name in STRAY:
        assert not (state_dir / name).exists()
        (state_dir / name).parent.mkdir(parents=True, exist_ok=True)
        (state_dir / name).write_bytes(b"")
    assert Reasons(state_dir).leaked() == sorted(STRAY)


def test_what_is_not_recorded_is_told_with_the_chore_of_chaos(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not recorded") as error:
        LocalSession({"nowhere": [{"ts": datetime(2026, 1, 1)}]}, state_dir=tmp_path, recorded=answers())
    assert "./dev chaos --record" in str(error.value)
