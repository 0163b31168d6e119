"""Recovery: pipelines that die by seed lose nothing and double nothing; a few seeds of `./dev chaos`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.recovery import chaos
from tests.recovery.chaos import answers, main, run_seed
from tests.recovery.chaos_client import Client
from tests.recovery.chaos_fault import Fault, after_request, after_steps, at_call, at_point, at_verb
from tests.recovery.chaos_input import Count, Inputs
from tests.recovery.chaos_oracle import Outcome, Reasons, Story, check_verbs, compare
from tests.recovery.chaos_sink import Trouble
from tests.recovery.chaos_world import Query, World, make_world

import thalweg.batch.ingest_stage
import thalweg.batch.run
import thalweg.batch.slot_stage  # noqa: F401 - they register fault points
from thalweg import faults
from thalweg.batch import queue as queue_module
from thalweg.batch import read_splits
from thalweg.batch.queues import Queues
from thalweg.batch.run import BatchRunner
from thalweg.errors import ThalwegError, UsageError
from thalweg.model.entry import Entry
from thalweg.model.manifest import Manifest, Prepared
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
OFTEN = 24
"""A world in which a callable is given something by most batches."""
PAUSED = 4
"""A world in which a callable is paused while there is something for it."""


@slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 9, 12, 14, 17, 18, 23, 24, 29, 33, 36, 39, 65, 168])
def test_every_row_comes_once_whatever_dies(seed: int) -> None:
    """12 and 33 have only memory sources, 17, 18 and 23 JSON lines, 2 and 14 CSV, 3, 17, 36 and 65 a static table;
    9, 14 and 23 arrays among the lines, and a query that fails at a row; in 29 a stream is silent, and idle; 39 has
    real threads."""
    story = run_seed(seed)
    assert not story.wrong, "\n".join([*story.log, *story.wrong])


@slow
def test_a_seed_has_the_same_story_every_time() -> None:
    """But for names that are made up."""
    one, other = ([re.sub(r"\S*[/.-]\S*", "", line) for line in run_seed(163).log] for _ in range(2))
    assert one == other


@slow
@pytest.mark.parametrize("world", [2, 7])
@pytest.mark.parametrize("phase", faults.PHASES)
def test_killed_at_every_phase(phase: str, world: int) -> None:
    """The second passage: the first batch is complete, the next one dies half way. Then once more, in a new life."""
    story = run_seed(world, [at_point(phase, 2), at_point(phase, 3)])
    assert not story.wrong, "\n".join([*story.log, *story.wrong])
    reached = 1 if phase in ("task.stored",) else 2
    if phase.startswith("delivery."):
        reached = 0 if all(q.sink == "memory" for q in make_world(world).queries.values()) else 1
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
        monkeypatch.setattr(BatchRunner, "note_delivery", lambda self: None)
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

    def give_first(self: BatchRunner, after: Manifest, plan: Plan, new: Sequence[Prepared]) -> None:
        self.offers.delivery.newest = after.batch
        self.offers.queues.offer(new, dict(after.queries))
        self.offers.queues.flush()
        commit(self, after, plan, ())

    chaos.undisturbed(CALLED)
    monkeypatch.setattr(BatchRunner, "_commit", give_first)
    assert "before its manifest" in first_wrong([CALLED], [at_point("batch.prepared", 2)])


@slow
def test_results_that_come_again_after_a_clean_stop_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    chaos.undisturbed(OFTEN)
    monkeypatch.setattr(BatchRunner, "note_delivery", lambda self: None)
    told = (first_wrong([OFTEN], [after_steps(steps)]) for steps in range(8, 13))
    assert any("again after a stop in good order" in found for found in told)


@slow
def test_leftovers_in_the_directory_of_a_sink_that_is_used_again_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    chaos.undisturbed(CALLED)
    monkeypatch.setattr(FilesSink, "_sweep", lambda self, through, parts=(): None)
    assert "leaked: sinks/" in first_wrong([CALLED], [at_point("batch.prepared", 2)])


@slow
@pytest.mark.parametrize("phase", ["task.bucket", "batch.prepared"])
def test_garbage_that_nobody_collects_is_told(monkeypatch: pytest.MonkeyPatch, phase: str) -> None:
    chaos.undisturbed(CALLED)
    monkeypatch.setattr("thalweg.batch.clean_up.collect_garbage", lambda storage, newest, before=None: [])
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


# -- sinks in trouble, on purpose forgotten --------------------------------------------------------------------

FOREVER = Trouble(calls=1, manner="raises", times=None)
"""A callable that raises until somebody sees to it."""


@slow
@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("seconds", [1.0, 10.0, 400.0, float("inf")])
def test_a_sink_that_does_not_return_gets_all_in_the_end(seconds: float, keeps: bool) -> None:
    trouble = Trouble(1, "rests", 2, seconds, keeps)
    story = run_seed(CALLED, [at_call(trouble), after_request("pause"), after_request("resume")])
    assert not story.wrong, "\n".join([*story.log, *story.wrong])


@slow
def test_a_queue_that_is_forgotten_at_a_restart_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    restore = Queues.restore

    def forget(self: Queues, waiting: object, given: object, paused: object, entries: dict[str, Entry]) -> None:
        restore(self, (), {}, {}, entries)

    chaos.undisturbed(CALLED)
    monkeypatch.setattr(Queues, "restore", forget)
    assert run_seed(CALLED, [at_point("batch.manifest", 2)]).lost
    assert any(run_seed(OFTEN, [at_call(FOREVER, dies_at=verb)]).lost for verb in (250, 300, 350, 400))


@slow
def test_a_retry_that_skips_a_batch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    fail = Queues._fail

    def skip(self: Queues, queue: Any, prepared: Prepared, error: BaseException) -> None:
        fail(self, queue, prepared, error)
        queue.take()

    chaos.undisturbed(CALLED)
    monkeypatch.setattr(Queues, "_fail", skip)
    assert run_seed(CALLED, [at_call(Trouble(1, "raises", 1))]).lost


@slow
def test_a_batch_that_comes_before_an_earlier_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def put(self: Any, prepared: Prepared) -> None:
        self.items.insert(0, prepared)
        self.last = prepared.batch
        self.rows += prepared.rows
        self.nbytes += prepared.nbytes

    chaos.undisturbed(OFTEN)
    monkeypatch.setattr(queue_module.Queue, "put", put)
    assert " after batch " in first_wrong([OFTEN], [at_call(FOREVER)])


@slow
def test_a_pause_that_is_forgotten_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    chaos.undisturbed(PAUSED)
    monkeypatch.setattr(Queues, "pause", lambda self, entry, reason="": None)
    assert "while it was paused" in first_wrong([PAUSED], [])


@slow
def test_a_pause_that_a_restart_forgets_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    restore = Queues.restore

    def forget(self: Queues, waiting: Any, given: Any, paused: object, entries: dict[str, Entry]) -> None:
        restore(self, waiting, given, {}, entries)

    chaos.undisturbed(PAUSED)
    monkeypatch.setattr(Queues, "restore", forget)
    assert "was paused, and is" in first_wrong([PAUSED], [after_request("pause")])


# -- input that is set aside, on purpose forgotten -------------------------------------------------------------

IDLE = 29
"""A world with a stream that is silent for so long that the others go on."""
POISONED = 14
"""A world with rows and files that are not let in."""


@slow
def test_rows_that_were_set_aside_and_are_not_kept_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = read_splits.keep_rejected

    def forget(storage: Any, name: str, stream: str, rows: pa.Table, *others: Any) -> int:
        return keep(storage, name, stream, rows.slice(1), *others)

    chaos.undisturbed(POISONED)
    monkeypatch.setattr(read_splits, "keep_rejected", forget)
    assert "were set aside as unreadable" in first_wrong([POISONED], [])


@slow
def test_rows_that_were_set_aside_and_are_not_counted_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    chaos.undisturbed(POISONED)
    monkeypatch.setattr("thalweg.batch.settle._set_aside", lambda progress, name, ran: progress)
    assert "was given" in first_wrong([POISONED], [])


@slow
def test_rows_that_are_taken_twice_or_not_at_all_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the sums alone: nobody has to know what is right."""
    monkeypatch.setattr(Inputs, "_count", lambda self, feed, number: Count(1, feed.batches[number].num_rows))
    monkeypatch.setattr(chaos, "_undisturbed", {})
    with pytest.raises(AssertionError, match="was given"):
        chaos.undisturbed(POISONED)


@slow
def test_a_stream_that_is_idle_by_another_clock_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where time stands still."""
    chaos.undisturbed(IDLE)
    monkeypatch.setattr(Inputs, "clock", lambda self, runs: self._began)
    assert "query q3" in first_wrong([IDLE], [])


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


def test_only_a_gap_that_is_said_excuses_a_query() -> None:
    assert _compared([1], [1, 2], failed=False, gaps={3: 1}).wrong == []
    assert _compared([1], [1, 2], failed=False, gaps={3: 1}).known == ["gap"]
    assert "failed: no" in _compared([1], [1, 2], failed=True).wrong[0]
    assert len(_compared([1], [1, 2], failed=False).wrong) == 1
    assert "lacks 3, by its own count, of 3" in _compared([1], [1, 2, 3], failed=False, gaps={3: 3}).wrong[0]
    assert _compared([1, 1], [1, 2], failed=False, gaps={3: 1}).doubled == 1  # what it has is right all the same
    assert "by its own count" in _compared([1], [1, 2], failed=False, gaps={3: 1}, emitted=2).wrong[0]


def _compared(
    found: list[int],
    wanted: list[int],
    *,
    failed: bool,
    gaps: dict[int, int] | None = None,
    emitted: int | None = None,
) -> Story:
    query, story = Query("q", "SELECT v FROM events", "files"), Story(0)
    world = World(make_world(0).feeds, {}, steps=(("create", query),))

    def outcome(rows: list[int], errors: dict[str, str], gaps: dict[int, int] | None = None) -> Outcome:
        state = {"queries": {"q": ("running", emitted or len(rows))}} if gaps else {}
        return Outcome({"q": pa.table({"v": rows})}, {}, state, errors, gaps={"q": gaps} if gaps else {})

    compare(world, outcome(found, {"q": "no"} if failed else {}, gaps), outcome(wanted, {}), story)
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
            compare(world, found, wanted, story)
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
