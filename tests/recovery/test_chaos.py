"""Recovery: pipelines that die by seed lose nothing and double nothing; a few seeds of `./dev chaos`."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest
from tests.recovery import chaos
from tests.recovery.chaos import answers, main, run_seed
from tests.recovery.chaos_fault import at_point
from tests.recovery.chaos_oracle import Outcome, Reasons, Story, compare
from tests.recovery.chaos_world import Query, World, make_world

import thalweg.batch.ingest_stage
import thalweg.batch.run
import thalweg.batch.slot_stage  # noqa: F401 - they register fault points
from thalweg import faults
from thalweg.errors import UsageError
from thalweg.state import durable
from thalweg.state.manifest import latest_manifest, write_manifest
from thalweg.testing import LocalSession

slow = pytest.mark.slow


@slow
@pytest.mark.parametrize("seed", [1, 2, 3, 4, 6, 10, 12, 16, 17, 18, 22, 26, 33, 730, 1300])
def test_every_row_comes_once_whatever_dies(seed: int) -> None:
    """12 and 26 failed when units of streams that nobody reads any more stayed, 33 when half-written units of memory
    sources did. 17, 18 and 22 have JSON lines, 2, 6, 10 and 16 CSV, 3 and 17 a static table. In 730 and 1300
    a sink fails, and its query is dropped in the next step."""
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


# -- the oracle can fail ---------------------------------------------------------------------------------------


@slow
@pytest.mark.parametrize(("kind", "seed"), [("buckets", 7), ("stores", 2)])
def test_state_that_is_missing_shows_in_the_epilogue(monkeypatch: pytest.MonkeyPatch, kind: str, seed: int) -> None:
    """The last manifest lacks a bucket, and is all right otherwise."""
    live = chaos._Seed._last_life

    def lose(self: chaos._Seed, name: str, wanted: Outcome) -> None:
        live(self, name, wanted)
        assert not self.story.wrong or name == "epilogue"
        if name == "last life":
            manifest = latest_manifest(self.disk.root / "state")
            assert manifest is not None
            object.__setattr__(manifest, kind, getattr(manifest, kind)[:-1])
            write_manifest(self.disk.root / "state", manifest)

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
@pytest.mark.parametrize("seed", [730, 1300])
def test_a_query_that_was_dropped_needs_the_same_excuse(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """These two had failed, one into files and one into a callable. If something else was refused, that is a
    mistake."""
    monkeypatch.setattr(chaos, "refused_sinks", lambda client, _: {q: {"another"} for q in client.world.dropped})
    story = run_seed(seed)
    assert "not by its sink" in story.wrong[0]
    assert "missing" in story.wrong[1]
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


STRAY = (
    "stray.json",
    "buckets/000000000000-0-0123456789ab.arrow",
    "buckets/.000000000000-0-0123456789ab.arrow.1-01234567.tmp",
    "spill/000000000000-0-0123456789ab.arrow",
    "manifests/000000000009.txt",
    "intents/000000000007.json",
    "sources/events/0000000000.arrow",
    "sources/nobody/stream.json",
    "tables/names-0123456789ab.arrow",
    "rejected/events/000000000099-part.arrow",
)


@slow
def test_a_file_without_a_reason_is_told_by_its_name(tmp_path: Path) -> None:
    from tests.recovery.chaos_client import Client

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
