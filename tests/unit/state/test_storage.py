"""Unit: one contract, three storages: a directory, memory, and an object store (moto's S3)."""

from __future__ import annotations

import os
import pickle
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from thalweg.errors import StateError
from thalweg.state.local_storage import LocalStorage
from thalweg.state.object_cache import ObjectCache, worker_cache
from thalweg.state.object_storage import ObjectStorage
from thalweg.state.ownership import MARKER
from thalweg.state.places import open_storage
from thalweg.state.storage import Storage
from thalweg.testing.faults import Death
from thalweg.testing.memory_storage import MemoryStorage

OBJECTS = pytest.param("objects", marks=pytest.mark.slow)


@pytest.fixture
def at_store(new_place: Callable[[], str]) -> Callable[..., ObjectStorage]:
    return lambda **options: ObjectStorage.at(new_place(), **options)


@pytest.fixture(params=["local", "memory", OBJECTS])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return LocalStorage(str(tmp_path / "state"))
    if request.param == "memory":
        return MemoryStorage(f"memory://{secrets.token_hex(4)}")
    found: Storage = request.getfixturevalue("at_store")()
    return found


# -- all of them -----------------------------------------------------------------------------------------------


def test_an_object_is_read_whole_and_in_parts(storage: Storage) -> None:
    storage.write("manifests/1", b"0123456789")
    assert storage.find("manifests/1") == storage.read("manifests/1") == b"0123456789"
    assert storage.open("manifests/1").to_pybytes() == b"0123456789"
    parts = [(0, 4), (3, 2), (8, 50), (10, 1), (20, 5), (0, 0), (4, None), (10, None), (20, None)]
    for start, length in parts:
        expected = b"0123456789"[start : None if length is None else start + length]
        assert storage.read("manifests/1", start, length) == expected, (start, length)


def test_an_object_may_be_empty(storage: Storage) -> None:
    storage.write("a/b", b"")
    assert (storage.read("a/b"), storage.find("a/b"), storage.open("a/b").size) == (b"", b"", 0)
    with storage.writer("buckets/empty") as writer:
        writer.finish()
    assert storage.open("buckets/empty").size == 0


def test_an_object_is_replaced(storage: Storage) -> None:
    storage.write("a/b", b"first")
    before = storage.stamp("a/b")
    storage.write("a/b", memoryview(bytearray(b"later")), durable=False)
    assert storage.find("a/b") == b"later"
    assert before is not None
    assert storage.stamp("a/b") not in (before, None)


def test_a_missing_object(storage: Storage) -> None:
    assert storage.find("a/b") is None
    assert storage.stamp("a/b") is None
    assert storage.stamp("buckets/b") is None
    assert storage.names("a/") == []
    for read in (
        storage.read,
        storage.open,
        lambda name: storage.read(name, 0, 0),
        lambda name: storage.read(name, 5),
    ):
        with pytest.raises(StateError, match="a/b is missing"):
            read("a/b")
    with pytest.raises(StateError, match="buckets/b is missing"):
        storage.open("buckets/b")


def test_names_are_in_order_and_below_the_prefix(storage: Storage) -> None:
    names = ["m/10", "m/2", "m/a/1", "m/a.b", "mm/1", "n", "m/a-b/2"]
    for name in names:
        storage.write(name, b"x")
    assert storage.names("") == sorted(names)
    assert storage.names("m/") == sorted(name for name in names if name.startswith("m/"))
    assert storage.names("m/a/") == ["m/a/1"]
    assert storage.names("x/") == []


def test_of_all_who_create_one_wins(storage: Storage) -> None:
    with ThreadPoolExecutor(8) as pool:
        for turn in range(20):
            barrier = threading.Barrier(8)

            def create(writer: int, turn: int = turn, barrier: threading.Barrier = barrier) -> bool:
                barrier.wait()
                return storage.create(f"manifests/{turn}", b"%d" % writer)

            won = list(pool.map(create, range(8)))
            assert won.count(True) == 1
            assert storage.find(f"manifests/{turn}") == b"%d" % won.index(True)


def test_a_name_is_taken_also_for_the_same_content(storage: Storage) -> None:
    assert storage.create("terms/1", b"same")
    assert not storage.create("terms/1", b"same")
    storage.write("terms/2", b"same")
    assert not storage.create("terms/2", b"same")
    storage.delete("terms/1")
    assert storage.create("terms/1", b"other")


@pytest.mark.parametrize("name", ["buckets/1", "spill/1"])
def test_a_writer_is_seen_when_it_is_finished(storage: Storage, name: str) -> None:
    writer = storage.writer(name)
    writer.write(b"ab")
    writer.write(pa.py_buffer(bytes(300_000)))
    assert writer.tell() == 300_002
    assert storage.names("") == []
    assert storage.stamp(name) is None
    writer.finish()
    assert writer.closed
    assert storage.open(name).to_pybytes() == storage.read(name) == b"ab" + bytes(300_000)
    assert storage.stamp(name) == storage.stamp(name) != None  # noqa: E711
    assert storage.names("") == [name]


def test_a_writer_that_is_abandoned_leaves_nothing(storage: Storage) -> None:
    writer = storage.writer("buckets/1")
    writer.write(bytes(300_000))
    writer.abandon()
    writer.abandon()
    assert writer.closed
    assert storage.names("") == []
    storage.sweep()
    assert storage.find("buckets/1") is None


def test_a_writer_replaces(storage: Storage) -> None:
    stamps = []
    for content in (b"first", b"later"):
        writer = storage.writer("buckets/1")
        writer.write(content)
        writer.finish(durable=False)
        assert storage.open("buckets/1").to_pybytes() == content
        stamps.append(storage.stamp("buckets/1"))
    assert stamps[0] != stamps[1]


def test_an_object_is_deleted_once_and_twice(storage: Storage) -> None:
    for name in ("a/b", "buckets/b"):
        storage.write(name, b"x")
        assert storage.open(name).size == 1
        storage.delete(name)
        storage.delete(name)
        assert (storage.find(name), storage.stamp(name), storage.names("")) == (None, None, [])
        with pytest.raises(StateError, match="is missing"):
            storage.open(name)


def test_a_storage_is_a_value(storage: Storage) -> None:
    storage.write("a/b", b"x")
    other: Storage = pickle.loads(pickle.dumps(storage))
    assert (other, hash(other), other.find("a/b")) == (storage, hash(storage), b"x")
    assert storage.locate("a/b") == f"{storage.place}/a/b"


def test_a_place_is_claimed_when_it_is_empty_or_ours(storage: Storage) -> None:
    storage.claim()
    assert storage.names("") == [MARKER]
    storage.write("manifests/1", b"x")
    pickle.loads(pickle.dumps(storage)).claim()
    hold = storage.hold()
    hold.check()
    hold.release()
    assert set(storage.names("")) - {"lock"} == {MARKER, "manifests/1"}


@pytest.mark.parametrize("name", ["notes/mine.txt", MARKER])
def test_a_place_of_somebody_else_is_refused_as_it_is(storage: Storage, name: str) -> None:
    storage.write(name, b"{}")
    with pytest.raises(StateError, match="neither empty nor a state directory") as caught:
        storage.claim()
    assert name.split("/")[0] in str(caught.value)
    assert (storage.names(""), storage.find(name)) == ([name], b"{}")


# -- memory ----------------------------------------------------------------------------------------------------


def test_memory_dies_before_or_after_a_verb_and_stays_dead() -> None:
    left = set()
    for seed in range(20):
        storage = MemoryStorage(f"memory://{secrets.token_hex(4)}")
        storage.write("a", b"1")
        storage.world.die_at(2, seed)
        with pytest.raises(Death):
            storage.write("b", b"2")
        with pytest.raises(Death):
            storage.find("a")
        storage.world.revive()
        left.add(tuple(MemoryStorage(storage.place).names("")))
    assert left == {("a",), ("a", "b")}


def test_memory_fails_on_cue() -> None:
    storage = MemoryStorage(f"memory://{secrets.token_hex(4)}")
    storage.world.fail_at(2, times=2)
    outcomes = []
    for number in range(4):
        try:
            outcomes.append(storage.create(f"{number}", b""))
        except OSError:
            outcomes.append(False)
    assert outcomes == [True, False, False, True]
    assert storage.names("") == ["0", "3"]
    assert storage.world.trace[-1] == ("names", "")


# -- places ----------------------------------------------------------------------------------------------------


def test_a_place_is_a_path_or_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert open_storage("state") == open_storage(tmp_path / "state") == LocalStorage(str(tmp_path / "state"))
    assert open_storage(f"file://{tmp_path}/with%20space") == LocalStorage(str(tmp_path / "with space"))
    assert open_storage("s3://bucket/a/b/") == ObjectStorage("s3://bucket/a/b")


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("hdfs://name/a", "not a place for state"),
        ("s3://", "not a place for state"),
        ("file://host/a", "not a place for state"),
        (Path("s3://bucket/a"), "meant to be a URL"),
        ("s3://me:hidden@bucket/a", "password or a query"),
        ("az://c/a?sig=hidden", "password or a query"),
    ],
)
def test_a_place_that_cannot_be_is_refused(place: str | Path, message: str) -> None:
    with pytest.raises(StateError, match=message) as caught:
        open_storage(place)
    assert "hidden" not in str(caught.value)


# -- object stores ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_store_that_cannot_create_once_is_refused(
    at_store: Callable[..., ObjectStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = at_store(aws_conditional_put="disabled")
    with pytest.raises(StateError, match="cannot refuse the second"):
        storage.claim()
    assert storage.names("") == []
    storage = at_store()
    monkeypatch.setattr(ObjectStorage, "create", lambda self, name, data: self.write(name, data) is None)
    with pytest.raises(StateError, match="created twice"):
        storage.claim()
    assert storage.names("") == []


@pytest.mark.slow
def test_a_missing_bucket_is_named(at_store: Callable[..., ObjectStorage]) -> None:
    at_store()
    with pytest.raises(StateError, match="bucket of s3://nowhere/a does not exist"):
        ObjectStorage.at("s3://nowhere/a").claim()


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_named_in_seconds(
    at_store: Callable[..., ObjectStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    storage, began = at_store(), time.monotonic()
    with pytest.raises(StateError, match="does not answer") as caught:
        storage.claim()
    assert time.monotonic() - began < 15
    assert "secret" not in str(caught.value)
    with pytest.raises(OSError, match="error sending request"):
        storage.find("a")


@pytest.mark.slow
def test_an_answer_that_was_lost_does_not_cost_the_win(
    at_store: Callable[..., ObjectStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library sends a request again: the second time the object is there, and it is ours."""
    import obstore

    storage, put = at_store(), obstore.put

    def put_twice(*args: object, **options: object) -> object:
        put(*args, **options)  # type: ignore[arg-type]
        return put(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(obstore, "put", put_twice)
    assert storage.create("terms/1", b"x")
    monkeypatch.setattr(obstore, "put", put)
    assert not storage.create("terms/1", b"x")


@pytest.mark.slow
def test_a_large_object_goes_in_parts(at_store: Callable[..., ObjectStorage]) -> None:
    storage, content = at_store(), os.urandom(20 << 20)
    writer = storage.writer("buckets/large")
    writer.write(content)
    writer.finish()
    assert storage.read("buckets/large") == storage.open("buckets/large").to_pybytes() == content


@pytest.mark.slow
def test_a_forked_process_is_told_instead_of_hanging(at_store: Callable[..., ObjectStorage]) -> None:
    storage = at_store()
    storage.write("a", b"x")
    child = os.fork()
    if child == 0:
        try:
            storage.find("a")
        except StateError as error:
            os._exit(7 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


# -- the cache -------------------------------------------------------------------------------------------------


def fill(storage: Storage, name: str, content: bytes) -> None:
    writer = storage.writer(name)
    writer.write(content)
    writer.finish()


def files_of(cache: ObjectCache) -> list[Path]:
    return sorted(Path(cache.directory).iterdir())


@pytest.mark.slow
def test_what_was_written_or_opened_is_not_fetched_again(
    at_store: Callable[..., ObjectStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = at_store()
    fill(storage, "buckets/1", b"one")
    storage.write("buckets/2", b"two")
    storage.open("buckets/2")
    stamps = [storage.stamp("buckets/1"), storage.stamp("buckets/2")]
    monkeypatch.setattr(ObjectStorage, "_store", lambda self: pytest.fail("the store was asked"))
    assert [storage.open(f"buckets/{n}").to_pybytes() for n in (1, 2)] == [b"one", b"two"]
    assert [storage.stamp(f"buckets/{n}") for n in (1, 2)] == stamps
    assert [ObjectCache(worker_cache().directory).stamp(storage.locate(f"buckets/{n}")) for n in (1, 2)] == stamps
    assert (os.stat(worker_cache().directory).st_mode & 0o777) == 0o700


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["content", "tail", "truncated", "empty"])
def test_a_damaged_file_is_fetched_again(
    at_store: Callable[..., ObjectStorage], monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    storage, content = at_store(), bytes(range(256)) * 40
    fill(storage, "buckets/1", content)
    (path,) = files_of(worker_cache())
    held = path.read_bytes()
    cut = {"content": 100, "tail": len(held) - 3}.get(damage)
    path.write_bytes(
        held[: {"truncated": 5000}.get(damage, 0)] if cut is None else held[:cut] + b"\xff" + held[cut + 1 :]
    )
    monkeypatch.setattr("thalweg.state.object_cache._caches", {})  # as another process sees it
    assert storage.open("buckets/1").to_pybytes() == content
    assert path.read_bytes() == held


def test_the_cache_keeps_its_bound_and_what_was_used_last(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache", limit=100_000)
    for number in range(50):
        with cache.spool() as spool:
            spool.write_all(bytes(10_000))
            cache.keep(f"s3://b/{number}", spool, f"tag {number}")
        os.utime(cache._path(f"s3://b/{number}"), ns=(number, number))
        assert cache.find("s3://b/0") is not None
        assert sum(path.stat().st_size for path in files_of(cache)) <= 100_000
    assert cache.find("s3://b/49") is not None
    assert cache.find("s3://b/1") is None
    assert cache.stamp("s3://b/1") == ("tag 1", 10_000)


def test_a_spool_that_is_not_kept_goes(tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path / "cache", limit=1000)
    with cache.spool() as spool:
        spool.write_all(bytes(10_000))
        content = spool.content()
        cache.keep("s3://b/large", spool, "tag")
    assert content.to_pybytes() == bytes(10_000)
    assert files_of(cache) == []
    stale = cache.spool()
    os.utime(stale.path, (0, 0))
    with cache.spool() as spool:
        spool.write_all(b"x")
        cache.keep("s3://b/small", spool, "tag")
    assert not os.path.exists(stale.path)
    stale.close()


def test_a_cache_of_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "cache").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateError, match="not a directory of this user"):
        ObjectCache(tmp_path / "cache")
    (tmp_path / "wide").mkdir(mode=0o755)
    assert os.stat(ObjectCache(tmp_path / "wide").directory).st_mode & 0o777 == 0o700
