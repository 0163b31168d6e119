"""Recovery: a death in any verb of a storage, before its effect or after it, and verbs that fail: rows come once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest
from tests.support.pipeline_program import Program, finished, rows

from thalweg.batch.hands import Inline
from thalweg.errors import ThalwegError
from thalweg.source.memory_units import MemoryUnits
from thalweg.testing import LocalSession
from thalweg.testing.faults import Death
from thalweg.testing.memory_storage import MemoryStorage

pytestmark = pytest.mark.slow

BATCHES = 4
SEEDS = range(40)


def live(program: Program, storage: MemoryStorage) -> None:
    """One life, from wherever the one before has got."""
    program.start()
    for batch in range(BATCHES):
        for stream, source in program.sources.items():
            if MemoryUnits(storage, stream).count() == batch:
                source.append(rows(batch))
        program.session.run_available()
    program.session.stop()


def verbs_of_a_life(local: Callable[..., LocalSession]) -> int:
    storage = MemoryStorage("memory://undisturbed")
    storage.forget()
    live(Program(lambda: local(state_dir=storage, hands=Inline())), storage)
    return storage.world.verbs


def test_deaths(local: Callable[..., LocalSession]) -> None:
    verbs, wanted = verbs_of_a_life(local), finished(Program(local), BATCHES)
    for seed in SEEDS:
        chance = Random(seed)
        storage = MemoryStorage(f"memory://death-{seed}")
        program = Program(lambda storage=storage: local(state_dir=storage, hands=Inline()))  # type: ignore[misc]
        for _ in range(chance.randint(1, 3)):
            storage.world.die_at(storage.world.verbs + chance.randint(1, verbs), seed)
            with suppress(Death):
                live(program, storage)
            storage.world.revive()
        live(program, storage)
        program.start()
        assert program.found() == wanted, f"seed {seed}"
        storage.forget()


def test_verbs_that_fail(local: Callable[..., LocalSession]) -> None:
    verbs, wanted = verbs_of_a_life(local), finished(Program(local), BATCHES)
    for seed in SEEDS:
        chance = Random(seed)
        storage = MemoryStorage(f"memory://failure-{seed}")
        program = Program(lambda storage=storage: local(state_dir=storage, hands=Inline()))  # type: ignore[misc]
        storage.world.fail_at(storage.world.verbs + chance.randint(1, verbs), chance.randint(1, 3))
        try:
            live(program, storage)
        except (OSError, ThalwegError):
            if hasattr(program, "session"):
                program.session.stop()
        storage.world.revive()
        live(program, storage)
        program.start()
        assert program.found() == wanted, f"seed {seed}"
        storage.forget()
