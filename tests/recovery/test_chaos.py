"""Recovery: pipelines that die by seed lose nothing and double nothing; a few seeds of `./dev chaos`."""

from __future__ import annotations

import pytest
from tests.recovery.chaos import main, run_seed
from tests.recovery.chaos_fault import at_point

import thalweg.batch.run
import thalweg.batch.tasks  # noqa: F401 - registers its fault points
from thalweg import faults

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(24))
def test_every_row_comes_once_whatever_dies(seed: int) -> None:
    story = run_seed(seed)
    assert not story.wrong, "\n".join([*story.log, *story.wrong])


@pytest.mark.parametrize("world", [0, 2, 7])
@pytest.mark.parametrize("phase", faults.PHASES)
def test_killed_at_every_phase(phase: str, world: int) -> None:
    """The second passage: the first batch is complete, the next one dies half way. Then once more, in a new life."""
    story = run_seed(world, [at_point(phase, 2), at_point(phase, 3)])
    assert not story.wrong, "\n".join([*story.log, *story.wrong])
    reached = 1 if phase in ("task.stored",) else 2
    assert story.deaths >= reached, "\n".join(story.log)


def test_a_seed_that_fails_is_told_last(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipeline that forgets to sync its manifests loses some at a power cut, and chaos says so."""
    from thalweg.state import durable

    monkeypatch.setattr(durable, "sync_directory", lambda path: None)
    found = [seed for seed in range(40) if run_seed(seed).wrong][:1]
    assert found, "nothing was lost"
    assert main(["--seed", str(found[0])]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == f"repeat with: ./dev chaos --seed {found[0]}"
