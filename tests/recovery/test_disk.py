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
from tests.support.disk import FaultyDisk

from thalweg.errors import ThalwegError
from thalweg.model.history import History, SliceHistory
from thalweg.model.manifest import Manifest, Prepared
from thalweg.model.stream import Stream
from thalweg.sink.contract import SinkContext
from thalweg.sink.files import FilesSink
from thalweg.source.inventory import Inventory
from thalweg.source.log import FILES, File, Log
from thalweg.source.memory import memory
from thalweg.source.memory_units import MemoryUnits
from thalweg.source.schema import parse_schema
from thalweg.state import durable, manifest
from thalweg.state.collect import collect_garbage
from thalweg.state.container import ContainerWriter, read_footer, read_section
from thalweg.state.delivered import Delivered, find_delivered, save_delivered
from thalweg.state.local_storage import LocalStorage
from thalweg.state.reader import StateReader
from thalweg.state.requests import DropRequest, RequestLog
from thalweg.state.results import StoredResults
from thalweg.state.term import newest_term, take_term
from thalweg.testing.faults import Death

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


def storage_in(root: Path) -> LocalStorage:
    """As a session opens it: what a writer that died has left is swept away."""
    storage = LocalStorage(str(root / "state"))
    storage.claim()
    storage.sweep()
    return storage


class Requests:
    """Some are applied now and then, and forgotten; `known` are those."""

    def __init__(self, root: Path, known: set[int]) -> None:
        self.known = known
        self.log = RequestLog(storage_in(root), len(known))

    def act(self, step: int) -> None:
        if step in self._steps():
            return  # it was durable though nobody was told
        self.log.append(DropRequest(str(step)))
        if step % 2:
            self.known |= {int(request.name) for number, request in self._all() if number < self.log.last}
            self.log.forget_through(self.log.last - 1)

    def found(self) -> set[int]:
        numbers = [number for number, _ in self._all()]
        assert numbers == list(range(len(self.known) + 1, self.log.last + 1))
        return self._steps()

    def close(self) -> None:
        self.log.close()

    def _all(self) -> list[tuple[int, DropRequest]]:
        return self.log.read_after(len(self.known))

    def _steps(self) -> set[int]:
        return {int(request.name) for _, request in self._all()} | self.known


class Manifests:
    """Every manifest has parts of its own, and one that none before the last two had."""

    def __init__(self, root: Path, known: set[int]) -> None:
        self.storage = storage_in(root)
        self.manifests = manifest.Manifests(self.storage)
        self.manifests.newest()
        self.manifests.sweep()

    def act(self, step: int) -> None:
        history = History({f"lane {step % 3}": SliceHistory({}, (), ())})
        self.manifests.create(Manifest(step, 8, "hash", through=step, history=history))
        self.manifests.prune()

    def found(self) -> set[int]:
        newest = manifest.latest_manifest(self.storage)
        there = set()
        for batch in manifest.manifest_batches(self.storage):
            found, named = manifest.read_manifest(self.storage, batch)
            assert (found.batch, found.through) == (batch, batch)
            assert list(found.history.slices) == [f"lane {batch % 3}"]
            assert all(self.storage.find(name) for name in named)
            there.add(batch)
        return there | set(range(newest.batch - 1 if newest else 0))

    def close(self) -> None: ...


class Files:
    """Results are prepared, then committed; `known` are the steps whose manifest would have them."""

    def __init__(self, root: Path, known: set[int]) -> None:
        self.root, self.known = root / "results" / "of" / "query", known
        newest = max(known, default=-1)
        pending = frozenset(path.name for path in self.root.glob(f".part-{newest:012d}-*"))
        self.left = {path for path in self.root.glob(".*") if path.name not in (".thalweg-owner.json", *pending)}
        held = [Prepared("q", newest, 3, token=token) for token in sorted(pending)]
        context = SinkContext("q", "state-1", "term", newest=newest, pending=lambda: held)
        self.sink = FilesSink(context, self.root, "json")
        for token in sorted(pending)[-1:]:
            self.sink.commit(newest, token, None)

    def act(self, step: int) -> None:
        token = self.sink.prepare(step, rows(step, 3))
        self.known.add(step)
        self.sink.commit(step, token, None)
        assert not any(path.exists() for path in self.left), "what was left is swept"

    def found(self) -> set[int]:
        parts = {int(path.stem[5:]): path.read_text() for path in self.root.glob("part-*")}
        for step, text in parts.items():
            assert [json.loads(line) for line in text.splitlines()] == [{"n": step}] * 3
        assert set(parts) <= self.known
        return set(parts)

    def close(self) -> None: ...


class Units:
    """A `memory` source."""

    def __init__(self, root: Path, known: set[int]) -> None:
        self.storage = storage_in(root)
        self.source = memory("n bigint")
        self.source.attach(self.storage, "s", lambda: None)

    def act(self, step: int) -> None:
        self.source.append(rows(step))

    def found(self) -> set[int]:
        units = MemoryUnits(self.storage, "s")
        tables = [StateReader(self.storage).read_unit(units.name(number)) for number in range(units.count())]
        return {table.column("n")[0].as_py() for table in tables}

    def close(self) -> None: ...


class Entries:
    """The log of a source: two entries at a time, merged by threes."""

    def __init__(self, root: Path, known: set[int]) -> None:
        self.storage = storage_in(root)
        self.log = Log(self.storage, "s", FILES)
        self.log.tidy()

    def act(self, step: int) -> None:
        self.log.append([File(str(step), 1), File(str(step), 2)])
        self.log.tidy()

    def found(self) -> set[int]:
        read = Log(self.storage, "s", FILES).entries
        assert [file.size for file in read] == [1, 2] * (len(read) // 2)
        return {int(file.path) for file in read if file.size == 2}

    def close(self) -> None: ...


class Containers:
    def __init__(self, root: Path, known: set[int]) -> None:
        self.storage = storage_in(root)

    def act(self, step: int) -> None:
        with ContainerWriter(self.storage, f"buckets/{step}.arrow") as writer:
            writer.add("a", rows(step, 1500))
            writer.stream("b", rows(step, 5))
            writer.close()

    def found(self) -> set[int]:
        there = set()
        for name in self.storage.names("buckets/"):
            sections, step = read_footer(self.storage, name), int(Path(name).stem)
            assert [section.name for section in sections] == ["a", "b"]
            tables = [read_section(self.storage, section) for section in sections]
            assert {n for table in tables for n in table.column("n").to_pylist()} == {step}
            there.add(step)
        return there

    def close(self) -> None: ...


class ResultFiles:
    """Three files are merged into one: see `merging`. A manifest names them."""

    def __init__(self, root: Path, known: set[int]) -> None:
        self.storage = storage_in(root)
        self.manifests = manifest.Manifests(self.storage)
        newest = self.manifests.newest()
        self.results = StoredResults(self.storage, newest.results if newest else ())

    def act(self, step: int) -> None:
        before = self.manifests.newest()
        if before is not None and before.batch >= step:
            self.results.commit(before.results)
            return  # it was durable though nobody was told
        files = self.results.prepare(step, {"q": rows(step)}, {"q"})
        after = Manifest(step, 8, "hash", results=files)
        self.manifests.create(after)
        self.results.commit(files)
        collect_garbage(self.storage, after, before)

    def found(self) -> set[int]:
        numbers = self.results.read("q", SCHEMA).column("n").to_pylist()
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


class Terms:
    """`known` holds the number of the newest, and the timeline, that were told."""

    def __init__(self, root: Path, known: set[int]) -> None:
        self.storage, self.known = storage_in(root), known

    def act(self, step: int) -> None:
        term = take_term(self.storage)
        assert all(term.number > number for number in self.known if number < _TIMELINES)
        self.known |= {term.number, _TIMELINES + int(term.timeline, 16)}
        assert len([number for number in self.known if number >= _TIMELINES]) == 1

    def found(self) -> set[int]:
        told = [number for number in self.known if number < _TIMELINES]
        return set(STEPS) if newest_term(self.storage) >= max(told, default=0) else set()

    def close(self) -> None: ...


_TIMELINES = 1 << 20


class Deliveries:
    def __init__(self, root: Path, known: set[int]) -> None:
        self.storage = storage_in(root)

    def act(self, step: int) -> None:
        save_delivered(self.storage, Delivered(step, {"q": str(step)}))

    def found(self) -> set[int]:
        done = find_delivered(self.storage)
        assert done is None or done.failed == {"q": str(done.batch)}
        return set() if done is None else set(range(done.batch + 1))

    def close(self) -> None: ...


WRITERS: list[type[Writer]] = [
    Requests,
    Manifests,
    Files,
    Units,
    Entries,
    Containers,
    ResultFiles,
    Directories,
    Terms,
    Deliveries,
]
every_writer = pytest.mark.parametrize("kind", WRITERS, ids=lambda kind: kind.__name__)


@pytest.fixture(autouse=True)
def merging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thalweg.state.results.MERGE_FILES", 3)
    monkeypatch.setattr("thalweg.source.log.MERGE", 3)


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


@pytest.mark.parametrize("kind", [Requests, Units, Entries, Manifests], ids=lambda kind: kind.__name__)
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


@pytest.mark.parametrize("again", ["a", "b"])
def test_a_part_that_is_gone_is_written_again_though_another_could_not_be_deleted(tmp_path: Path, again: str) -> None:
    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        storage = storage_in(tmp_path)
        manifests = manifest.Manifests(storage)

        def create(batch: int, lane: str) -> None:
            manifests.create(Manifest(batch, 8, "hash", history=History({lane: SliceHistory({}, (), ())})))

        for batch, lane in enumerate("abcd"):
            create(batch, lane)
        assert manifest.manifest_batches(storage) == [0, 1, 2, 3]  # and their names are synced: only deletions follow
        disk.fail_at(disk.verbs + 4, errno.EIO, 1, only=["unlink"])  # after two manifests and a part
        with pytest.raises(OSError, match="error"):
            manifests.prune()
        deleted = [path for verb, path in disk.trace if verb == "unlink" and not path.endswith(".tmp")]
        assert [path.split("/")[1] for path in deleted] == ["manifests", "manifests", "parts", "parts"]
        assert [path for _, _, path in disk.refused] == deleted[-1:]
        create(4, again)
        found = manifest.latest_manifest(storage)
        assert found is not None
        assert list(found.history.slices) == [again]


def units_of(world: World) -> list[object]:
    """What a process that opens the directory offers to a batch, by number."""
    with durable.use(world.disk):
        storage = storage_in(world.root)
        if world.kind is Requests:
            requests: list[object] = [*RequestLog(storage, len(world.known)).read_after(0)]
            return requests
        if world.kind is Manifests:
            return [manifest.latest_manifest(storage)]
        if world.kind is Entries:
            return [*Log(storage, "s", FILES).entries]
        source = memory("n bigint")
        source.attach(storage, "s", lambda: None)
        stream = Stream("s", parse_schema("n bigint"), "n", 0, source.spec())
        inventory = Inventory(stream, storage)
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
