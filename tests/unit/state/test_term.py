"""Unit: a state has a timeline, and every connect a term; only the newest may write."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest
from tests.support.disk import FaultyDisk

from thalweg.errors import StateError
from thalweg.state import durable
from thalweg.state.local_storage import LocalStorage
from thalweg.state.sealed import seal
from thalweg.state.term import Term, check_term, forget_terms, newest_term, take_term
from thalweg.testing.faults import Death


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path / "state"))


def test_terms_are_taken_in_order_and_know_those_before(storage: LocalStorage) -> None:
    assert newest_term(storage) == 0
    terms = [take_term(storage) for _ in range(3)]
    assert [term.number for term in terms] == [1, 2, 3]
    assert newest_term(storage) == 3
    assert len({term.token for term in terms}) == 3
    assert len({term.timeline for term in terms}) == 1
    assert {*terms[2].known} == {term.token for term in terms}
    assert storage.names("terms/") == [f"terms/00000000000{n}" for n in (1, 2, 3)]


def test_an_old_term_is_refused(storage: LocalStorage) -> None:
    old = take_term(storage)
    check_term(storage, old)
    new = take_term(storage)
    with pytest.raises(StateError, match="another session has opened this state since") as raised:
        check_term(storage, old)
    assert "this session is number 1, the newest is 2" in str(raised.value)
    assert "nothing of this batch was given to a sink" in str(raised.value)
    check_term(storage, new)


def test_terms_that_are_taken_at_once_are_different_ones(storage: LocalStorage) -> None:
    take_term(storage)
    taken: list[Term] = []
    barrier = threading.Barrier(8)

    def work() -> None:
        barrier.wait()
        taken.append(take_term(storage))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(term.number for term in taken) == list(range(2, 10))
    for term in taken:
        if term.number < 9:
            with pytest.raises(StateError, match="another session"):
                check_term(storage, term)


def test_those_long_past_are_forgotten_and_numbers_go_on(storage: LocalStorage) -> None:
    for _ in range(70):
        last = take_term(storage)
    forget_terms(storage, last)
    assert storage.names("terms/") == [f"terms/{number:012d}" for number in range(7, 71)]
    assert take_term(storage).number == 71


@pytest.mark.slow
def test_a_damaged_or_another_object_is_named(storage: LocalStorage) -> None:
    take_term(storage)
    for name in ("timeline", "terms/000000000001"):
        path = storage.root / name
        good = path.read_bytes()
        for at in range(len(good)):
            for bad in (good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]):
                path.write_bytes(bad)
                with pytest.raises(StateError) as raised:
                    take_term(storage)
                assert str(path) in str(raised.value)
                for made in storage.names("terms/")[1:]:
                    storage.delete(made)
        path.write_bytes(good)
    assert take_term(storage).number == 2


def test_a_file_of_somebody_else_is_no_term(storage: LocalStorage) -> None:
    take_term(storage)
    (storage.root / "terms" / "notes.txt").write_text("mine")
    term = take_term(storage)
    assert term.number == 2
    check_term(storage, term)
    forget_terms(storage, term)
    assert (storage.root / "terms" / "notes.txt").exists()


# -- the timeline


def test_a_state_keeps_its_timeline_and_one_made_anew_has_another(tmp_path: Path, storage: LocalStorage) -> None:
    first = take_term(storage).timeline
    assert len(first) == 32
    assert take_term(storage).timeline == first
    moved = LocalStorage(shutil.move(storage.place, tmp_path / "moved"))
    assert take_term(moved).timeline == first
    assert take_term(storage).timeline != first


def test_a_timeline_that_went_missing_is_noticed(storage: LocalStorage) -> None:
    """A new one would be taken for another pipeline by every sink."""
    first = take_term(storage)
    storage.delete("timeline")
    with pytest.raises(StateError, match="timeline is missing"):
        take_term(storage)
    assert take_term(storage, fork=True).timeline != first.timeline


def test_a_fork_has_a_timeline_of_its_own_and_keeps_it(tmp_path: Path, storage: LocalStorage) -> None:
    first = take_term(storage)
    copy = LocalStorage(str(shutil.copytree(storage.place, tmp_path / "copy")))
    assert take_term(copy).timeline == first.timeline
    fork = take_term(copy, fork=True)
    assert fork.timeline != first.timeline
    assert fork.number == 3
    assert take_term(copy).timeline == fork.timeline
    assert first.timeline in (copy.root / "timeline").read_text(), "what it was forked from"
    assert take_term(storage).timeline == first.timeline


def test_what_earlier_releases_called_it_becomes_the_timeline(storage: LocalStorage) -> None:
    storage.claim()
    (storage.root / "identity").write_text("0123456789abcdef" * 2)
    assert take_term(storage).timeline == "0123456789abcdef" * 2
    os.unlink(storage.root / "identity")
    assert take_term(storage).timeline == "0123456789abcdef" * 2
    assert take_term(storage, fork=True).timeline != "0123456789abcdef" * 2


@pytest.mark.parametrize("damaged", ["", "0123", "0123456789ABCDEF" * 2, "0123456789abcdef" * 2 + "\n"])
def test_a_damaged_identity_is_named(storage: LocalStorage, damaged: str) -> None:
    storage.claim()
    (storage.root / "identity").write_text(damaged)
    for fork in (False, True):
        with pytest.raises(StateError, match=r"identity is not what was written"):
            take_term(storage, fork)
    assert storage.find("timeline") is None


@pytest.mark.parametrize("data", [b"", seal("timeline", {"id": ""}), seal("timeline", {"id": "a", "news": 1})])
def test_an_empty_timeline_is_refused(storage: LocalStorage, data: bytes) -> None:
    storage.write("timeline", data)
    with pytest.raises(StateError, match=r"timeline is not what was written"):
        take_term(storage)
    assert storage.names("terms/") == []


def take_until_death(storage: LocalStorage, taken: list[Term]) -> None:
    while True:
        taken.append(take_term(storage))


@pytest.mark.slow
def test_after_a_death_anywhere_a_term_that_was_taken_stays_taken(tmp_path: Path) -> None:
    root = tmp_path / "once"
    root.mkdir()
    with durable.use(disk := FaultyDisk(root)):
        for _ in range(2):
            take_term(LocalStorage(str(root)))
    for verb in range(1, disk.verbs + 1):
        for seed in range(3):
            root = tmp_path / f"{verb}-{seed}"
            root.mkdir()
            storage = LocalStorage(str(root))
            taken: list[Term] = []
            disk = FaultyDisk(root)
            disk.die_at(verb, seed=seed)
            with durable.use(disk), pytest.raises(Death):  # noqa: PT012
                while True:
                    taken.append(take_term(storage))
            disk.power_cut(seed)
            with durable.use(disk):
                term = take_term(storage)
            assert term.number > len(taken)
            assert all(term.timeline == old.timeline and old.token in term.known for old in taken)
