"""Property: random verbs on a faulty disk, power cuts and deaths at random places, against what was promised."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.disk import FaultyDisk

from thalweg.state import durable
from thalweg.state.container import ContainerWriter, read_footer, read_section
from thalweg.state.local_storage import LocalStorage
from thalweg.state.requests import DropRequest, RequestLog
from thalweg.testing.faults import Death

NAMES = ("a", "b", "d/a", "d/b", "e/a")
FOLDERS = ("", "d", "e")
verbs = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.sampled_from(NAMES), st.binary(min_size=1, max_size=4)),
        st.tuples(st.just("cut"), st.sampled_from(NAMES), st.integers(0, 3)),
        st.tuples(st.just("sync"), st.sampled_from(NAMES)),
        st.tuples(st.just("unlink"), st.sampled_from(NAMES)),
        st.tuples(st.just("replace"), st.sampled_from(["a", "b", "d/a", "d/b"])),
        st.tuples(st.just("link"), st.sampled_from(["a", "b", "d/a", "d/b"])),
        st.tuples(st.just("mkdir"), st.sampled_from(["d", "e"])),
        st.tuples(st.just("rmdir"), st.sampled_from(["d", "e"])),
        st.tuples(st.just("sync_directory"), st.sampled_from(FOLDERS)),
    ),
    max_size=25,
)

pytestmark = pytest.mark.slow
seeds = st.one_of(st.none(), st.integers(0, 10_000))


class Promises:
    """What must be there after a power cut. A file or name that was touched since its sync promises nothing here."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        """name -> content, of files whose content is synced."""
        self.names: set[str] = set()
        """Names, of files and folders, that are synced and were not touched since."""
        self.gone: set[str] = set()
        """Names that are not there, durably so."""

    def touch(self, name: str) -> None:
        self.names.discard(name)
        self.gone.discard(name)

    def hold(self, name: str) -> bool:
        """Whether a name, or that there is none, is durable, and the folder it is in."""
        folder = name.rpartition("/")[0]
        return name in self.names | self.gone and (not folder or folder in self.names)


def follow(promises: Promises, root: Path, step: tuple[str, ...]) -> None:
    verb, name = step[0], step[1]
    if verb in ("append", "cut"):
        for same in names_of(root, name):
            promises.contents.pop(same, None)
    elif verb == "sync":
        for same in names_of(root, name):
            promises.contents[same] = (root / name).read_bytes()
    elif verb in ("unlink", "mkdir", "rmdir"):
        promises.touch(name)
        if verb == "unlink":
            promises.contents.pop(name, None)
    elif verb == "link":
        other = other_of(name)
        promises.touch(other)
        promises.contents.pop(other, None)
        if name in promises.contents:
            promises.contents[other] = promises.contents[name]
    elif verb == "replace":
        if (root / name).exists():  # they were two names of one file: both stay
            return
        other = other_of(name)
        for touched in (name, other):
            promises.touch(touched)
        content = promises.contents.pop(name, None)
        promises.contents.pop(other, None)
        if content is not None:
            promises.contents[other] = content
    else:
        inside = [n for n in (*NAMES, *FOLDERS[1:]) if n.rpartition("/")[0] == name]
        promises.names |= {n for n in inside if (root / n).exists()}
        promises.gone |= {n for n in inside if not (root / n).exists()}


def names_of(root: Path, name: str) -> list[str]:
    """All names of the file, as far as it was linked."""
    return [other for other in NAMES if (root / other).exists() and (root / other).samefile(root / name)]


def other_of(name: str) -> str:
    return name[:-1] + ("b" if name.endswith("a") else "a")


def perform(disk: FaultyDisk, root: Path, step: tuple[object, ...]) -> None:
    verb, name = step[0], str(step[1])
    path = root / name
    if verb in ("append", "cut", "sync"):
        handle = disk.open(path)
        try:
            if isinstance(step[-1], bytes):
                handle.write(step[-1])
            elif isinstance(step[-1], int):
                handle.truncate(step[-1])
            else:
                handle.sync()
        finally:
            handle.close()
    elif verb in ("replace", "link"):
        getattr(disk, str(verb))(path, root / other_of(name))
    else:
        getattr(disk, str(verb))(path)


@settings(deadline=None, max_examples=300)
@given(verbs, seeds)
def test_what_was_synced_survives_every_power_cut(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, ...]], seed: int | None
) -> None:
    root = tmp_path_factory.mktemp("disk")
    disk, promises = FaultyDisk(root), Promises()
    for step in steps:
        is_new = step[0] in ("append", "cut", "sync") and not (root / step[1]).exists()
        with contextlib.suppress(OSError):
            perform(disk, root, step)
            if is_new:
                promises.touch(step[1])
            follow(promises, root, step)
    disk.power_cut(seed)
    for name in filter(promises.hold, (*NAMES, *FOLDERS[1:])):
        assert (root / name).exists() == (name in promises.names)
        if (root / name).is_file() and name in promises.contents:
            assert (root / name).read_bytes() == promises.contents[name]
    assert disk.unsynced == []


@settings(deadline=None, max_examples=150)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.integers(1, 22), st.integers(0, 10_000), seeds)
def test_a_file_that_is_replaced_is_the_last_acknowledged_or_the_next(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], verb: int, seed: int, cut: int | None
) -> None:
    root = tmp_path_factory.mktemp("disk")
    disk, done = FaultyDisk(root), 0
    disk.die_at(verb, seed)
    with durable.use(disk), contextlib.suppress(Death):
        for content in contents:
            durable.write_atomic(root / "x", content)
            done += 1
    disk.power_cut(cut)
    found = (root / "x").read_bytes() if (root / "x").exists() else None
    assert found in [None, *contents][done : done + 2]


@settings(deadline=None, max_examples=150)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=4), st.integers(1, 26), st.integers(0, 10_000), seeds)
def test_a_file_that_is_created_once_is_the_first_ever_after(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes], verb: int, seed: int, cut: int | None
) -> None:
    root = tmp_path_factory.mktemp("disk")
    disk, told = FaultyDisk(root), []
    disk.die_at(verb, seed)
    with durable.use(disk), contextlib.suppress(Death):
        for content in contents:
            told.append(durable.create_atomic(root / "x", content))
    disk.power_cut(cut)
    found = (root / "x").read_bytes() if (root / "x").exists() else None
    assert told == [True, False, False, False][: len(told)]
    assert found == contents[0] or (found is None and not told)


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.one_of(st.just("append"), st.integers(0, 6)), min_size=1, max_size=10),
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 10_000), st.booleans()), min_size=1, max_size=3),
)
def test_every_acknowledged_request_is_kept_through_several_lives(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str | int], lives: list[tuple[int, int, bool]]
) -> None:
    """Each life dies at a verb, then the machine with it or not. Numbers never begin again. A number as a step: a
    manifest has applied the requests up to it."""
    root = tmp_path_factory.mktemp("disk")
    disk, storage = FaultyDisk(root), LocalStorage(str(root / "state"))
    acknowledged: list[int] = []
    through = 0
    for verb, seed, has_power in lives:
        disk.die_at(disk.verbs + verb, seed)
        with durable.use(disk), contextlib.suppress(Death):
            storage.claim()
            log = RequestLog(storage, through)
            for step in steps:
                if step == "append":
                    acknowledged.append(log.append(DropRequest(str(log.last + 1))))
                else:
                    through = max(through, min(int(step), log.last))
                    log.forget_through(through)
        if has_power:
            disk.revive()
        else:
            disk.power_cut(seed)
        with durable.use(disk):
            log = RequestLog(storage, through)
            found = log.read_after(0)
            assert [(number, request.name) for number, request in found] == [
                (number, str(number)) for number in range(through + 1, log.last + 1)
            ]
            assert log.last >= max(acknowledged, default=0)
            assert acknowledged == sorted(set(acknowledged))
            log.close()


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(0, 3000), max_size=4), st.integers(1, 30), st.integers(0, 10_000), seeds)
def test_a_container_has_its_name_only_when_it_is_whole(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], verb: int, seed: int, cut: int | None
) -> None:
    root = tmp_path_factory.mktemp("disk")
    disk, is_done = FaultyDisk(root), False
    disk.die_at(verb, seed)
    storage = LocalStorage(str(root))
    with durable.use(disk), contextlib.suppress(Death), ContainerWriter(storage, "x.arrow") as writer:
        for number, size in enumerate(sizes):
            writer.add(str(number), pa.table({"n": pa.array(range(size), pa.int64())}))
        writer.close()
        is_done = True
    disk.power_cut(cut)
    assert (root / "x.arrow").exists() or not is_done
    if (root / "x.arrow").exists():
        sections = read_footer(storage, "x.arrow")
        assert [read_section(storage, section).num_rows for section in sections] == sizes
