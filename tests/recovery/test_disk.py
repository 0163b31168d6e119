"""Recovery: whatever writes durable files, with a disk that dies, loses or refuses at each of its verbs.

Each writer does a few steps; one that returned is acknowledged. Afterwards a new process opens what is left: it has
all that was acknowledged, refuses nothing as damaged, and goes on.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa
import pytest
from thalweg.sink.memory import ResultLog
from thalweg.source.registry import source_dir
from thalweg.state.changes import ChangeLog
from thalweg.state.identity import identity

from thalweg.errors import ThalwegError
from thalweg.model.stream import Stream
from thalweg.sink.base import SinkContext
from thalweg.sink.files import FilesSink
from thalweg.source.inventory import FILES_LOG, Inventory
from thalweg.source.listing import count_memory_units, memory_unit
from thalweg.source.log import Log
from thalweg.source.schema import parse_schema
from thalweg.source.sources import memory
from thalweg.state import durable
from thalweg.state.container import ContainerWriter, read_footer, read_section
from thalweg.state.manifest import (
    Manifest,
    latest_manifest,
    manifest_batches,
    read_intent,
    read_manifest,
    write_intent,
    write_manifest,
)
from thalweg.testing.disk import Death, FaultyDisk

pytestmark = pytest.mark.slow

STEPS = range(4)
Result = TypeVar("Result")
SCHEMA = pa.schema([("n", pa.int64())])


def rows(number: int, count: int = 1) -> pa.Table:
    return pa.table({"n": [number] * count}, SCHEMA)


class Writer(Protocol):
    """Opened by its constructor; `known` is what the world outside remembers over all lives."""

    def __init__(self, root: Path, known: set[int]) -> None: ...

    def act(self, step: int) -> None:
        """Acknowledged when it returns. A step that was refused may be done again."""
        ...

    def found(self) -> set[int]:
        """The steps whose effect is there. Whatever else is to be seen is whole."""
        ...

    def close(self) -> None: ...


class Requests:
    """A log that is truncated now and then; `known` are the requests that may be gone."""

    def __init__(self, root: Path, known: set[int]) -> None:
        self.log, self.known = ChangeLog(root / "state"), known

    def act(self, step: int) -> None:
        self.log.append({"step": step})
        if step % 2:
            through = self.log.last_sequence - 1
            self.known |= {record["step"] for sequence, record in self.log.read_after(0) if sequence <= through}
            self.log.truncate_through(through)

    def found(self) -> set[int]:
        return {record["step"] for _, record in self.log.read_after(0)} | self.known

    def close(self) -> None:
        self.log.close()


class Manifests:
    def __init__(self, root: Path, known: set[int]) -> None:
        self.root = root / "state"

    def act(self, step: int) -> None:
        write_intent(self.root, step, {"step": step})
        write_manifest(self.root, Manifest(step, 8, "hash", extra={"step": step}))

    def found(self) -> set[int]:
        newest = latest_manifest(self.root)
        there = {batch for batch in manifest_batches(self.root) if read_manifest(self.root, batch).batch == batch}
        for step in STEPS:
            assert read_intent(self.root, step) in (None, {"step": step})
        return there | set(range(newest.batch - 1 if newest else 0))

    def close(self) -> None: ...


class Files:
    def __init__(self, root: Path, known: set[int]) -> None:
        self.root = root / "results" / "of" / "query"
        self.sink = FilesSink(SinkContext("q", "state-1"), self.root, "json")

    def act(self, step: int) -> None:
        self.sink.commit(step, rows(step, 3))

    def found(self) -> set[int]:
        parts = {int(path.stem[5:]): path.read_text() for path in self.root.glob("part-*")}
        for step, text in parts.items():
            assert [json.loads(line) for line in text.splitlines()] == [{"n": step}] * 3
        return set(parts)

    def close(self) -> None: ...


class Units:
    """A `memory` source."""

    def __init__(self, root: Path, known: set[int]) -> None:
        self.root = source_dir(root / "state", "s")
        self.source = memory("n bigint")
        self.source.bind(self.root)

    def act(self, step: int) -> None:
        self.source.append(rows(step))

    def found(self) -> set[int]:
        units = [memory_unit(self.root, number) for number in range(count_memory_units(self.root))]
        tables = [pa.ipc.open_file(path.read_bytes()).read_all() for path in units]
        return {table.column("n")[0].as_py() for table in tables}

    def close(self) -> None: ...


class Lines:
    """The log of a source: two entries at a time."""

    def __init__(self, root: Path, known: set[int]) -> None:
        self.log = Log(durable.make_directory(root / "sources" / "s") / FILES_LOG)
        self.entries = self.log.read_new()

    def act(self, step: int) -> None:
        entries = [[step, "a"], [step, "b"]]
        self.log.append(entries)
        self.entries += entries

    def found(self) -> set[int]:
        for step, half in self.entries:
            assert half == "a" or [step, "a"] in self.entries
        return {step for step, half in self.entries if half == "b"}

    def close(self) -> None: ...


class Containers:
    def __init__(self, root: Path, known: set[int]) -> None:
        self.root = durable.make_directory(root / "state" / "buckets")

    def act(self, step: int) -> None:
        with ContainerWriter(self.root / f"{step}.arrow") as writer:
            writer.add("a", rows(step, 1500))
            writer.stream("b", rows(step, 5))
            writer.close()

    def found(self) -> set[int]:
        there = set()
        for path in self.root.glob("[0-9]*"):
            sections = read_footer(path)
            assert [section.name for section in sections] == ["a", "b"]
            tables = [read_section(self.root, section) for section in sections]
            assert {n for table in tables for n in table.column("n").to_pylist()} == {int(path.stem)}
            there.add(int(path.stem))
        return there

    def close(self) -> None: ...


class Results:
    """Three files are merged into one: see `merging`."""

    def __init__(self, root: Path, known: set[int]) -> None:
        self.log = ResultLog(root / "state")

    def act(self, step: int) -> None:
        self.log.commit(step, {"q": rows(step)})
        self.log.compact(step)

    def found(self) -> set[int]:
        numbers = self.log.read("q", SCHEMA, max(STEPS)).column("n").to_pylist()
        assert numbers == sorted(set(numbers))
        return set(numbers)

    def close(self) -> None: ...


class Directories:
    """Each step makes a chain of directories of its own with a file at its end."""

    def __init__(self, root: Path, known: set[int]) -> None:
        self.root = root

    def act(self, step: int) -> None:
        durable.write_atomic(durable.make_directory(self.root / "a" / str(step) / "c") / "x", b"abc")

    def found(self) -> set[int]:
        there = {int(path.parts[-3]) for path in self.root.glob("a/*/c/x")}
        assert all((self.root / f"a/{step}/c/x").read_bytes() == b"abc" for step in there)
        return there

    def close(self) -> None: ...


class Identity:
    """`known` holds the one that was told."""

    def __init__(self, root: Path, known: set[int]) -> None:
        self.root, self.known = durable.make_directory(root / "state"), known

    def act(self, step: int) -> None:
        self.known.add(int(identity(self.root), 16))

    def found(self) -> set[int]:
        return set(STEPS) if self.known <= {int(identity(self.root), 16)} else set()

    def close(self) -> None: ...


WRITERS: list[type[Writer]] = [
    Requests,
    Manifests,
    Files,
    Units,
    Lines,
    Containers,
    Results,
    Directories,
    Identity,
]
every_writer = pytest.mark.parametrize("kind", WRITERS, ids=lambda kind: kind.__name__)


@pytest.fixture(autouse=True)
def merging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thalweg.sink.memory.MERGE_FILES", 3)


class World:
    """A directory on a faulty disk, a writer that lives there again and again, and what it acknowledged."""

    def __init__(self, root: Path, kind: type[Writer]) -> None:
        root.mkdir()
        self.root, self.kind = root, kind
        self.disk = FaultyDisk(root)
        self.acknowledged: set[int] = set()
        self.known: set[int] = set()

    def live(self, steps: Iterable[int] = STEPS) -> None:
        """One process: it opens what is there, does what is not acknowledged yet, and looks."""
        with durable.use(self.disk):
            writer = self.kind(self.root, self.known)
            self.expect(writer)
            for step in steps:
                if step not in self.acknowledged:
                    writer.act(step)
                    self.acknowledged.add(step)
            self.expect(writer)
            writer.close()

    def expect(self, writer: Writer) -> None:
        missing = self.acknowledged - writer.found()
        assert not missing, f"steps {missing} are lost, after {self.disk.trace}"


def verbs_of(tmp_path: Path, kind: type[Writer]) -> int:
    world = World(tmp_path / "undisturbed", kind)
    world.live()
    return world.disk.verbs


AFTER: dict[str, Callable[[FaultyDisk, int], None]] = {
    "killed": lambda disk, seed: disk.revive(),
    "cut off": lambda disk, seed: disk.power_cut(seed),
    "cut off, all unsynced lost": lambda disk, seed: disk.power_cut(),
}


@every_writer
@pytest.mark.parametrize("after", AFTER)
def test_nothing_acknowledged_is_lost_by_a_death_at_any_verb(tmp_path: Path, kind: type[Writer], after: str) -> None:
    verbs = verbs_of(tmp_path, kind)
    for verb in range(1, verbs + 1):
        world = World(tmp_path / str(verb), kind)
        seed = 3 * verb + list(AFTER).index(after)
        world.disk.die_at(verb, seed)
        with pytest.raises(Death):
            world.live()
        AFTER[after](world.disk, seed)
        world.live()
        world.disk.power_cut()
        world.live()


@every_writer
def test_a_power_cut_between_any_two_lives_takes_nothing_acknowledged(tmp_path: Path, kind: type[Writer]) -> None:
    for seed in range(20):
        world = World(tmp_path / str(seed), kind)
        for step in STEPS:
            world.live([step])
            world.disk.power_cut(seed)
        world.live()


@every_writer
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS], ids=errno.errorcode.get)
@pytest.mark.parametrize("times", [1, 2, None])
def test_nothing_acknowledged_is_lost_by_a_failure_at_any_verb(
    tmp_path: Path, kind: type[Writer], code: int, times: int | None
) -> None:
    """What is refused is tried again by the same process, until it has to be started again."""
    verbs = verbs_of(tmp_path, kind)
    for verb in range(1, verbs + 1):
        world = World(tmp_path / str(verb), kind)
        world.disk.fail_at(verb, code, times, seed=verb)
        with durable.use(world.disk):
            writer = insist(world.disk, lambda: kind(world.root, world.known))  # noqa: B023
            for step in STEPS:
                if writer is None or insist(world.disk, lambda: writer.act(step) or True) is None:  # noqa: B023
                    break
                world.acknowledged.add(step)
        world.disk.heal()
        world.disk.power_cut()
        world.live()


@pytest.mark.parametrize("kind", [Requests, Units, Lines, Manifests], ids=lambda kind: kind.__name__)
def test_what_a_new_process_takes_up_it_makes_durable_first(tmp_path: Path, kind: type[Writer]) -> None:
    """A batch is committed by the numbers of the units that it has read, a sink gets the batch after the newest
    manifest: neither may be another one later."""
    verbs = verbs_of(tmp_path, kind)
    for verb in range(1, verbs + 1):
        world = World(tmp_path / str(verb), kind)
        world.disk.die_at(verb, seed=verb)
        with pytest.raises(Death):
            world.live()
        world.disk.revive()
        before = units_of(world)
        world.disk.power_cut()
        assert units_of(world)[: len(before)] == before


def units_of(world: World) -> list[object]:
    """What a process that opens the directory offers to a batch, by number."""
    with durable.use(world.disk):
        if world.kind is Requests:
            requests: list[object] = [*ChangeLog(world.root / "state").read_after(0)]
            return requests
        if world.kind is Manifests:
            newest = latest_manifest(world.root / "state")
            at = newest.batch + 1 if newest else 0
            return [newest, read_intent(world.root / "state", at)]
        if world.kind is Lines:
            return Log(world.root / "sources" / "s" / FILES_LOG).read_new()
        stream = Stream("s", parse_schema("n bigint"), "n", 0, memory("n bigint").spec())
        inventory = Inventory(stream, world.root / "state")
        return [split.path for split in inventory.splits(0, inventory.available(), 1)]


def insist(disk: FaultyDisk, act: Callable[[], Result]) -> Result | None:
    """Try three times, and once more on a disk that is well again. None: refused even then."""
    for attempt in range(4):
        if attempt == 3:
            disk.heal()
        try:
            return act()
        except (OSError, ThalwegError):
            pass
    return None
