"""Unit: a manifest is created once and comes back whole; what is damaged, missing or another is refused by name."""

from __future__ import annotations

import errno
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.disk import FaultyDisk
from tests.support.profiles import examples

from thalweg.errors import StateError
from thalweg.model.bucket import Layout, RowBucket, Section, SliceBucket, StoredIndex
from thalweg.model.entry import Entry, Gap
from thalweg.model.expr import Expr
from thalweg.model.history import History, RowHistory, SliceHistory, WantedRows
from thalweg.model.join_statistics import Estimate, FoundPerLook, JoinMeasurements, JoinStatistics, PredicateSample
from thalweg.model.manifest import FORMAT, MANIFEST_FORMAT, Manifest, Prepared, ResultFile, StreamProgress
from thalweg.model.measurements import (
    Combining,
    Dealing,
    HotJoinKeys,
    KeyGroupMoves,
    Measurements,
    Partitioners,
    ProbeOrders,
    SlotAssignment,
)
from thalweg.model.offsets import Offsets, SourceMark
from thalweg.model.probe_order import OrdersInForce
from thalweg.model.query import Aggregate, Output, Query, SinkSpec
from thalweg.model.window import Window
from thalweg.state import durable
from thalweg.state.local_storage import LocalStorage
from thalweg.state.manifest import Manifests, latest_manifest, manifest_batches, read_manifest, read_query
from thalweg.state.sealed import Header, seal
from thalweg.testing.faults import Death

SECTION = Section("buckets/000000000003-1-ab.arrow", "g0", 64, 100, 7, 0xDEADBEEF)
JOINS = JoinMeasurements(
    average={"a|b|k": 1.25},
    matches={"a|b|k": 1.0},
    samples={"a": PredicateSample(("p",) * 70, (1, 1 << 69), 12.0, {"k": 3.0})},
    cohorts=(("q",),),
    since={"+a+b": {"q": 4}},
    ready={"+a+b": ("q",)},
    held={"a": 2.0},
    statistics=JoinStatistics(
        3, 1, {"rows|a": FoundPerLook(1, 1.0, 12.0, 0.5)}, {"rows|a": Estimate(12.0, 0.25, 8, 2)}
    ),
    sent={"g": 3.5},
)
SLICES = SliceBucket(
    section=SECTION,
    relation="g0",
    level=1,
    batch_from=0,
    batch_to=2,
    place=3,
    spans=((0, 10), (10, 10)),
    offsets=b"\0\1\xff",
)
ROWS = RowBucket(
    section=SECTION,
    relation="purchases",
    level=0,
    batch_from=2,
    batch_to=2,
    place=1,
    indexes={"i": StoredIndex(SECTION, 5)},
    layout=Layout(("p",), True, 3, 9, {"purchases": 2}, ("q",)),
    columns=("a", "b"),
    distinct={"i": 4},
)


def query(name: str) -> Query:
    return Query(
        name,
        "SELECT 'é\n'",
        "purchases",
        (Output("n", Expr('"n"', "bigint", ("n",))),),
        window=Window(10, 5),
        keys=(Expr('"k"', "int", ("k",)),),
        aggregates=(Aggregate("count_all", (), "bigint", parameters=(0.5,)),),
        sink=SinkSpec("files", (("path", "/out"), ("format", "csv"))),
    )


def manifest(batch: int, **changes: Any) -> Manifest:
    whole = Manifest(
        batch=batch,
        groups=256,
        hash="thalweg-1",
        timeline="ab" * 16,
        term=3,
        clock_us=1_700_000_000_000_000,
        reached=Offsets(4, {"purchases": 17}),
        marks={"purchases": SourceMark(20, 0xFFFFFFFF)},
        through=9,
        closed={"purchases": -1},
        streams={"purchases": StreamProgress(17, 5, 1, 2), "quiet": StreamProgress()},
        buckets=(SLICES,),
        stores=(ROWS,),
        queries={
            "q": Entry("q", query("q"), created=3, fence=(4, 5), emitted=batch, complete_from=7),
            "r": Entry("r", query("r"), "stopped", "no\nway", emitted=2, paused="why", gap=Gap(3, 4)),
        },
        history=History(
            {"g0": SliceHistory({"p": 1}, ((5, 0, 0),), (Window(10, 5),))},
            {
                "purchases": RowHistory(2, (WantedRows(("p",), False, frozenset({"a"}), 9),)),
                "+a+b": RowHistory(3, None),
            },
        ),
        measured=Measurements(
            combining=Combining(loads={"g0": 0.25}, shipped=("g0",)),
            hot_join_keys=HotJoinKeys(spread={"r": [1, 2]}),
            partitioners=Partitioners(dealing={"r": Dealing(3, 2, 0.5, 0.25, "hash")}),
            probe_orders=ProbeOrders(joins=JOINS, ordering=OrdersInForce({"q": {"a": (("b",),)}}, ("q",))),
            slot_assignment=SlotAssignment(
                assignment={"r": [0, 1]}, co_located_with={"a": "r"}, slots=2, moves=KeyGroupMoves(1, 2, 3)
            ),
        ),
        results=(ResultFile("results/000000000001-ab.arrow", 0, 1, 1),),
        undelivered=(Prepared("q", batch, 7, (SECTION,)), Prepared("r", batch, 1, token=".part-1")),
    )
    return replace(whole, **changes)


def storage_of(path: Path) -> LocalStorage:
    return LocalStorage(str(path))


def write(path: Path, *found: Manifest) -> Manifests:
    manifests = Manifests(storage_of(path))
    for one in found:
        manifests.create(one)
        manifests.prune()
    return manifests


def objects(path: Path, *prefixes: str) -> list[Path]:
    return [storage_of(path).root / name for prefix in prefixes for name in storage_of(path).names(prefix)]


def place(path: Path, batch: int) -> Path:
    return path / "manifests" / f"{batch:012d}"


# -- there and back


def test_a_manifest_comes_back_and_two_are_kept(tmp_path: Path) -> None:
    storage = storage_of(tmp_path)
    assert latest_manifest(storage) is None
    write(tmp_path, *(manifest(batch) for batch in range(5)))
    assert latest_manifest(storage) == manifest(4)
    assert manifest_batches(storage) == [3, 4]
    assert read_manifest(storage, 3)[0] == manifest(3)
    assert place(tmp_path, 4).exists()


def test_the_least_that_can_be_said_comes_back(tmp_path: Path) -> None:
    least = Manifest(0, 16, "h")
    write(tmp_path, least)
    found = latest_manifest(storage_of(tmp_path))
    assert found == least
    assert found is not None
    assert found.format == FORMAT


TEXTS = st.text(max_size=4)
MICROSECONDS = st.integers(-(1 << 63), (1 << 63) - 1)
COUNTS = st.integers(0, 1 << 40)
SECTIONS = st.builds(Section, TEXTS, TEXTS, COUNTS, COUNTS, COUNTS, st.integers(-1, (1 << 32) - 1))
OF_ANY = {"section": SECTIONS, "relation": TEXTS, "level": COUNTS, "batch_from": COUNTS, "batch_to": COUNTS}
SLICE_BUCKETS = st.builds(
    SliceBucket,
    **OF_ANY,
    place=COUNTS,
    spans=st.lists(st.tuples(MICROSECONDS, MICROSECONDS), max_size=2).map(tuple),
    offsets=st.binary(max_size=9),
)
ROW_BUCKETS = st.builds(
    RowBucket,
    **OF_ANY,
    place=COUNTS,
    indexes=st.dictionaries(TEXTS, st.builds(StoredIndex, SECTIONS, COUNTS), max_size=2),
    layout=st.builds(
        Layout,
        st.lists(TEXTS, max_size=2).map(tuple),
        st.booleans(),
        MICROSECONDS,
        MICROSECONDS,
        st.dictionaries(TEXTS, MICROSECONDS, max_size=2),
        st.lists(TEXTS, max_size=2).map(tuple),
    ),
    columns=st.lists(TEXTS, max_size=2).map(tuple),
    distinct=st.dictionaries(TEXTS, COUNTS, max_size=2),
)
ENTRIES = st.builds(
    Entry,
    st.just(""),
    TEXTS.map(query),
    st.sampled_from(["pending", "running", "failed"]),
    st.none() | TEXTS,
    COUNTS,
    st.none() | st.tuples(MICROSECONDS, MICROSECONDS),
    COUNTS,
    st.none() | MICROSECONDS,
    st.none() | TEXTS,
    st.none() | st.builds(Gap, COUNTS, COUNTS, st.none() | COUNTS),
)
PROGRESS = st.builds(StreamProgress, st.none() | MICROSECONDS, COUNTS, COUNTS, COUNTS)
WANTED = st.builds(
    WantedRows, st.lists(TEXTS, max_size=2).map(tuple), st.booleans(), st.frozensets(TEXTS, max_size=2), MICROSECONDS
)
PREPARED = st.builds(Prepared, TEXTS, COUNTS, COUNTS, st.lists(SECTIONS, max_size=2).map(tuple), TEXTS)
MANIFESTS = st.builds(
    Manifest,
    batch=COUNTS,
    groups=COUNTS,
    hash=TEXTS,
    timeline=TEXTS,
    term=COUNTS,
    clock_us=MICROSECONDS,
    reached=st.builds(Offsets, COUNTS, st.dictionaries(TEXTS, COUNTS, max_size=2)),
    marks=st.dictionaries(TEXTS, st.builds(SourceMark, COUNTS, COUNTS), max_size=2),
    through=COUNTS,
    closed=st.dictionaries(TEXTS, MICROSECONDS, max_size=2),
    streams=st.dictionaries(TEXTS, PROGRESS, max_size=2),
    buckets=st.lists(SLICE_BUCKETS, max_size=2).map(tuple),
    stores=st.lists(ROW_BUCKETS, max_size=2).map(tuple),
    queries=st.dictionaries(TEXTS, ENTRIES, max_size=3).map(
        lambda found: {id_: replace(entry, id=id_) for id_, entry in found.items()}
    ),
    history=st.builds(
        History,
        rows=st.dictionaries(
            TEXTS,
            st.builds(RowHistory, MICROSECONDS, st.none() | st.lists(WANTED, max_size=2).map(tuple)),
            max_size=2,
        ),
    ),
    results=st.lists(st.builds(ResultFile, TEXTS, COUNTS, COUNTS, COUNTS), max_size=2).map(tuple),
    undelivered=st.lists(PREPARED, max_size=2).map(tuple),
)


@pytest.mark.slow
@settings(max_examples=examples(100))
@given(MANIFESTS)
def test_any_manifest_comes_back(tmp_path_factory: pytest.TempPathFactory, given_: Manifest) -> None:
    path = tmp_path_factory.mktemp("state")
    write(path, given_)
    found = latest_manifest(storage_of(path))
    assert found == given_
    assert found is not None
    assert [*found.queries] == [*given_.queries], "in order"


# -- once


def test_a_batch_is_committed_by_one_session_alone(tmp_path: Path) -> None:
    write(tmp_path, manifest(3))
    storage = storage_of(tmp_path)
    one, other = Manifests(storage), Manifests(storage)
    one.create(manifest(4))
    with pytest.raises(StateError, match=r"another session has run batch 4: .*manifests/000000000004"):
        other.create(manifest(4, term=4))
    assert latest_manifest(storage) == manifest(4)


def test_the_same_again_is_no_loss(tmp_path: Path) -> None:
    """A commit that failed after it had happened, tried again."""
    write(tmp_path, manifest(3), manifest(4), manifest(4))
    assert manifest_batches(storage_of(tmp_path)) == [3, 4]
    assert latest_manifest(storage_of(tmp_path)) == manifest(4)


def test_what_did_not_change_is_not_written_again(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        manifests = write(tmp_path, manifest(0))
        first = len(disk.trace)
        manifests.create(manifest(1))  # the counts of rows are others
        made = [name for verb, name in disk.trace[first:] if verb == "link"]
        assert made == ["manifests/000000000001"]
        before = set(objects(tmp_path, "parts/", "queries/"))
        assert len(before) == 3
        queries = dict(manifest(2).queries)
        queries["s"] = Entry("s", query("s"))
        manifests.create(manifest(2, queries=queries))
    new = set(objects(tmp_path, "parts/", "queries/")) - before
    assert sorted(path.parent.name for path in new) == ["parts", "queries"]


def test_definitions_that_come_with_one_batch_are_one_object(tmp_path: Path) -> None:
    def with_queries(batch: int, *names: str) -> Manifest:
        return manifest(batch, queries={name: Entry(name, QUERIES[name]) for name in names})

    names = [f"q{i}" for i in range(50)]
    QUERIES = {name: query(name) for name in (*names, "alone", "more", "most")}  # noqa: N806
    first = with_queries(0, *names)
    manifests = write(tmp_path, first)
    assert len(objects(tmp_path, "queries/")) == 1
    assert latest_manifest(storage_of(tmp_path)) == first
    # Those that stay are found where they are, whatever goes and comes, also by a session that has read them.
    second = with_queries(1, "q3", "alone", "q41")
    manifests.create(second)
    manifests = Manifests(storage_of(tmp_path))
    read = manifests.newest()
    assert read == second
    third = manifest(2, queries={**read.queries, **with_queries(2, "more", "most").queries})
    manifests.create(third)
    assert len(objects(tmp_path, "queries/")) == 3
    assert latest_manifest(storage_of(tmp_path)) == third
    fourth, fifth = with_queries(3, "alone"), with_queries(4, "alone")
    for one in (fourth, fifth):
        manifests.create(one)
        manifests.prune()
    assert len(objects(tmp_path, "queries/")) == 1
    assert latest_manifest(storage_of(tmp_path)) == fifth


def test_a_place_among_definitions_that_is_none_is_damage(tmp_path: Path) -> None:
    storage = storage_of(tmp_path)
    manifests = write(tmp_path, manifest(0))
    stored = msgspec.json.decode(next(iter(objects(tmp_path, "manifests/"))).read_bytes().split(b"\n")[1])
    entries = msgspec.json.decode((tmp_path / stored["queries"]).read_bytes().split(b"\n")[1])
    assert [entry["place"] for entry in entries] == [0, 1]
    for wrong in (2, -1):
        entries[1]["place"] = wrong
        stored["queries"] = manifests._part("queries", entries)
        place(tmp_path, 0).write_bytes(seal("manifest", stored))
        with pytest.raises(StateError, match="definitions"):
            latest_manifest(storage)


def test_a_session_that_has_read_the_newest_does_not_write_its_parts_again(tmp_path: Path) -> None:
    write(tmp_path, manifest(0))
    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        manifests = Manifests(storage_of(tmp_path))
        assert manifests.newest() == manifest(0)
        manifests.create(manifest(1))
    assert [name for verb, name in disk.trace if verb == "link"] == ["manifests/000000000001"]


def test_what_only_manifests_that_are_gone_have_named_goes(tmp_path: Path) -> None:
    def with_query(batch: int, name: str) -> Manifest:
        return manifest(batch, queries={name: Entry(name, query(name))})

    manifests = write(tmp_path, *(with_query(batch, f"q{batch}") for batch in range(4)))
    assert len(objects(tmp_path, "queries/")) == 2
    assert len(objects(tmp_path, "parts/")) == 3  # two lists of queries, one history of slices
    assert manifests.read(2) == with_query(2, "q2")
    assert manifests.read(3) == with_query(3, "q3")
    again = Manifests(storage_of(tmp_path))
    again.create(with_query(4, "q0"))
    again.prune()
    assert again.newest() == with_query(4, "q0")
    assert again.read(3) == with_query(3, "q3")


def test_what_went_before_a_deletion_failed_is_written_again(tmp_path: Path) -> None:
    def with_query(batch: int, name: str) -> Manifest:
        return manifest(batch, queries={name: Entry(name, query(name))})

    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        manifests = write(tmp_path, with_query(0, "a"), with_query(1, "b"))
        manifests.create(with_query(2, "c"))
        start = sum(verb == "unlink" for verb, _ in disk.trace)
        disk.fail_at(
            disk.verbs + 3, errno.EIO, times=1, only=["unlink"]
        )  # the manifest, one object, and not the next
        with pytest.raises(OSError, match="Input/output error"):
            manifests.prune()
        assert sum(verb == "unlink" for verb, _ in disk.trace) == start + 3
        manifests.create(with_query(3, "a"))
    assert latest_manifest(storage_of(tmp_path)) == with_query(3, "a")


def test_a_definition_with_a_field_that_is_not_known_is_refused(tmp_path: Path) -> None:
    storage, value = storage_of(tmp_path), msgspec.to_builtins(query("q"))
    manifests = Manifests(storage)
    assert read_query(storage, manifests._keep("queries/", "query", value)) == query("q")
    value["outputs"][0]["expr"]["newer"] = 1
    with pytest.raises(StateError, match="newer"):
        read_query(storage, manifests._keep("queries/", "query", value))


def test_a_start_sweeps_what_no_manifest_came_to_name(tmp_path: Path) -> None:
    manifests = write(tmp_path, manifest(0), manifest(1))
    kept = objects(tmp_path, "parts/", "queries/", "manifests/")
    manifests._keep("queries/", "query", query("never"))
    manifests._keep("parts/", "lanes", {"never": SliceHistory({}, (), ())})
    assert len(objects(tmp_path, "parts/", "queries/", "manifests/")) == len(kept) + 2
    again = Manifests(storage_of(tmp_path))
    again.newest()
    again.sweep()
    assert objects(tmp_path, "parts/", "queries/", "manifests/") == kept


def test_a_start_deletes_again_what_a_power_cut_has_brought_back(tmp_path: Path) -> None:
    write(tmp_path, *(manifest(batch) for batch in range(4)))
    place(tmp_path, 1).write_bytes(b"")
    manifests = Manifests(storage_of(tmp_path))
    manifests.newest()
    manifests.sweep()
    assert manifest_batches(storage_of(tmp_path)) == [2, 3]


@pytest.mark.slow
def test_after_a_death_anywhere_the_newest_is_the_one_before_or_the_new_one(tmp_path: Path) -> None:
    """Whole, with all that it names."""

    def live(root: Path) -> None:
        manifests = Manifests(storage_of(root))
        manifests.newest()
        manifests.create(manifest(1, queries={"n": Entry("n", query("n"))}))
        manifests.prune()

    root = tmp_path / "once"
    write(root, manifest(0))
    with durable.use(disk := FaultyDisk(root)):
        live(root)
    for verb in range(1, disk.verbs + 1):
        for seed in range(3):
            root = tmp_path / f"{verb}-{seed}"
            write(root, manifest(0))
            disk = FaultyDisk(root)
            disk.die_at(verb, seed=seed)
            with durable.use(disk), pytest.raises(Death):
                live(root)
            disk.power_cut(seed)
            with durable.use(disk):
                found = latest_manifest(storage_of(root))
                assert found is not None
                if found.batch == 0:
                    live(root)
            found = latest_manifest(storage_of(root))
            assert found is not None
            assert [*found.queries] == ["n"]


# -- damage


@pytest.mark.slow
def test_damage_at_any_byte_of_the_newest_is_named(tmp_path: Path) -> None:
    """Cut there, or one bit changed: of the manifest, of its parts, of definitions. It is never passed over."""
    write(tmp_path, manifest(0), manifest(1))
    storage = storage_of(tmp_path)
    found = objects(tmp_path, "parts/", "queries/")
    assert len(found) == 3
    for path in (place(tmp_path, 1), *found):
        good = path.read_bytes()
        for at in range(len(good)):
            for bad in (good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]):
                path.write_bytes(bad)
                with pytest.raises(StateError) as raised:
                    latest_manifest(storage)
                assert str(path) in str(raised.value)
        path.write_bytes(good)
    assert latest_manifest(storage) == manifest(1)


def test_a_changed_byte_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, manifest(1))
    good = place(tmp_path, 1).read_bytes()
    changed = good.replace(b'"groups":256', b'"groups":257')
    assert changed != good
    place(tmp_path, 1).write_bytes(changed)
    with pytest.raises(StateError, match="checksum"):
        latest_manifest(storage_of(tmp_path))


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    write(tmp_path, manifest(1))
    for path in objects(tmp_path, "parts/", "queries/"):
        good = path.read_bytes()
        path.unlink()
        with pytest.raises(StateError, match=f"{path} is missing"):
            latest_manifest(storage_of(tmp_path))
        path.write_bytes(good)
    assert latest_manifest(storage_of(tmp_path)) == manifest(1)


def test_objects_that_changed_places_are_named(tmp_path: Path) -> None:
    """Each is whole, and not what its name says."""
    newest = manifest(1, queries={**manifest(1).queries, "s": Entry("s", query("s"))})
    write(tmp_path, manifest(0), newest)
    for first, second in ((place(tmp_path, 1), place(tmp_path, 0)), tuple(objects(tmp_path, "queries/"))):
        good = first.read_bytes()
        first.write_bytes(second.read_bytes())
        with pytest.raises(StateError, match=f"{first} is not what was written"):
            latest_manifest(storage_of(tmp_path))
        first.write_bytes(good)
    assert latest_manifest(storage_of(tmp_path)) == newest


def rewrite(path: Path, change: Any) -> None:
    """The body changed, and sealed as it should be."""
    head, body, _ = path.read_bytes().split(b"\n")
    value = json.loads(body)
    change(value)
    path.write_bytes(seal(json.loads(head)["thalweg"], value))


@pytest.mark.parametrize(
    "change",
    [
        lambda value: value.update(news=1),
        lambda value: value["reached"].update(news=1),
        lambda value: value["buckets"][0].update(news=1),
        lambda value: value["buckets"][0].update(type="another kind"),
        lambda value: value["buckets"][1]["layout"].update(news=1),
        lambda value: value["streams"]["quiet"].update(news=1),
        lambda value: value["undelivered"][0].update(news=1),
        lambda value: value.pop("hash"),
        lambda value: value.update(batch="1"),
    ],
)
def test_a_field_that_is_not_known_missing_or_of_another_type_is_refused(tmp_path: Path, change: Any) -> None:
    write(tmp_path, manifest(1))
    rewrite(place(tmp_path, 1), change)
    with pytest.raises(StateError, match=f"{place(tmp_path, 1)} is not what was written"):
        latest_manifest(storage_of(tmp_path))


def test_a_list_of_queries_of_another_length_is_refused(tmp_path: Path) -> None:
    write(tmp_path, manifest(1))
    rewrite(place(tmp_path, 1), lambda value: value["emitted"].pop())
    with pytest.raises(StateError, match="expected counts of 2 queries, found 1"):
        latest_manifest(storage_of(tmp_path))


# -- formats


@pytest.mark.parametrize("other", [4, 7, 9])
def test_another_format_says_which_and_what_to_do(tmp_path: Path, other: int) -> None:
    write(tmp_path, manifest(1))
    for path in (place(tmp_path, 1), *objects(tmp_path, "parts/", "queries/")):
        good = path.read_bytes()
        head, body = good.split(b"\n", 1)
        path.write_bytes(json.dumps(json.loads(head) | {"format": other}).encode() + b"\n" + body)
        with pytest.raises(StateError, match=f"format {other}, this release reads 2, 3, 4, 5, 6") as raised:
            latest_manifest(storage_of(tmp_path))
        assert str(path) in str(raised.value)
        assert raised.value.hint
        assert "release" in raised.value.hint
        path.write_bytes(good)


def write_old(path: Path, batch: int, format_: int, **extra: Any) -> Path:
    """As formats 2 to 4 had it."""
    body = json.dumps(
        {
            "batch": batch,
            "groups": 256,
            "hash": "thalweg-1",
            "streams": {"purchases": {"max_time_us": 17, "rows": 5, "late": 1, "rejected": 2}},
            "buckets": [],
            "queries": {},
            "lanes": {},
            "extra": {"through": 3, "reached": {"tick": 1, "streams": {"purchases": 2}}, **extra},
        }
    ).encode()
    head = json.dumps({"format": format_, "crc": zlib.crc32(body), "length": len(body)}).encode()
    file = path / "manifests" / f"{batch:012d}.json"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(head + b"\n" + body + b"\n")
    return file


@pytest.mark.parametrize("format_", [2, 3, 4])
def test_the_formats_before_are_read(tmp_path: Path, format_: int) -> None:
    write_old(tmp_path, 1, format_, slots=3)
    found = latest_manifest(storage_of(tmp_path))
    assert found is not None
    assert (found.batch, found.format, found.through) == (1, format_, 3)
    assert found.reached == Offsets(1, {"purchases": 2})
    assert found.streams == {"purchases": StreamProgress(17, 5, 1, 2)}
    assert found.measured.slot_assignment.slots == 3


@pytest.mark.parametrize("format_", [1, 5])
def test_under_an_old_name_only_old_formats_are_read(tmp_path: Path, format_: int) -> None:
    file = write_old(tmp_path, 1, format_)
    with pytest.raises(StateError, match=f"format {format_}, this release reads 2, 3, 4") as raised:
        latest_manifest(storage_of(tmp_path))
    assert str(file) in str(raised.value)


def test_damage_at_any_byte_of_an_old_one_is_named(tmp_path: Path) -> None:
    file = write_old(tmp_path, 1, 4)
    good = file.read_bytes()
    for at in range(len(good)):
        for bad in (good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :]):
            file.write_bytes(bad)
            with pytest.raises(StateError) as raised:
                latest_manifest(storage_of(tmp_path))
            assert str(file) in str(raised.value)
    file.write_bytes(write_old(tmp_path, 2, 4).read_bytes())
    with pytest.raises(StateError, match="expected the manifest of batch 1, found that of 2"):
        read_manifest(storage_of(tmp_path), 1)


def test_the_first_new_manifest_follows_an_old_one(tmp_path: Path) -> None:
    write_old(tmp_path, 1, 4)
    manifests = Manifests(storage_of(tmp_path))
    assert manifests.newest() is not None
    manifests.create(manifest(2))
    manifests.prune()
    assert manifest_batches(storage_of(tmp_path)) == [1, 2]
    assert manifests.newest() == manifest(2)
    assert manifests.read(1).format == 4


# -- what was measured


def test_what_was_measured_in_another_version_begins_anew_and_nothing_else(tmp_path: Path) -> None:
    write(tmp_path, manifest(1))

    def change(value: dict[str, Any]) -> None:
        value["measured"]["combining"]["version"] = 2
        value["measured"]["hot_join_keys"] = {"version": 2, "spread": "in another form"}
        value["measured"]["partitioners"]["news"] = 1
        value["measured"]["never heard of"] = {"version": 1}
        del value["measured"]["probe_orders"]

    rewrite(place(tmp_path, 1), change)
    found = latest_manifest(storage_of(tmp_path))
    assert found == manifest(1, measured=Measurements(slot_assignment=manifest(1).measured.slot_assignment))


def test_a_header_is_what_it_says(tmp_path: Path) -> None:
    write(tmp_path, manifest(1))
    head, body, rest = place(tmp_path, 1).read_bytes().split(b"\n")
    assert msgspec.json.decode(head, type=Header) == Header("manifest", MANIFEST_FORMAT, len(body), zlib.crc32(body))
    assert rest == b""


def test_older_releases_refuse_manifests_and_nothing_else(tmp_path: Path) -> None:
    """They would pass over kept rows and lanes, which they do not know, and lose what windows need of them."""
    write(tmp_path, manifest(1, buckets=(SLICES,)))
    heads = [path.read_bytes().partition(b"\n")[0] for path in objects(tmp_path, "parts/", "queries/")]
    assert heads
    assert {msgspec.json.decode(head, type=Header).format for head in heads} == {5}
    newest = place(tmp_path, 1)
    head, body = newest.read_bytes().split(b"\n", 1)
    assert msgspec.json.decode(head, type=Header).format == 6
    newest.write_bytes(head.replace(b'"format":6', b'"format":5') + b"\n" + body)
    found = latest_manifest(storage_of(tmp_path))
    assert found is not None
    assert found.buckets == (SLICES,)


def test_what_waits_for_sinks_is_written_again_only_where_something_was_given(tmp_path: Path) -> None:
    """A part for each of the newest batches, one for all of an older block of 64, none where it is little."""
    held = [Prepared(f"q{n}", batch, 1, (SECTION,)) for batch in range(60, 70) for n in range(20)]
    manifests = write(tmp_path, manifest(69, undelivered=tuple(held)))
    found = latest_manifest(storage_of(tmp_path))
    assert found is not None
    assert found.undelivered == tuple(held)
    parts = {*storage_of(tmp_path).names("parts/")}
    assert len(parts) == 2 + 1 + 5, "queries and lanes; up to 63; 64 to 68. What batch 69 left is in the manifest"
    left = [p for p in held if p.query != "q3" or p.batch > 60]
    manifests.create(manifest(70, undelivered=(*left, Prepared("q0", 70, 1))))
    new = {*storage_of(tmp_path).names("parts/")} - parts
    assert len(new) == 2, "the block of 60, and batch 69"
    found = latest_manifest(storage_of(tmp_path))
    assert found is not None
    assert [(p.query, p.batch) for p in found.undelivered] == [*((p.query, p.batch) for p in left), ("q0", 70)]
    manifests.prune()
    few = [p for p in left if p.query == "q5"]
    manifests.create(manifest(71, undelivered=tuple(few)))
    manifests.prune()
    manifests.create(manifest(72))
    manifests.prune()
    assert len(storage_of(tmp_path).names("parts/")) <= 4
    found = manifests.read(71)
    assert found.undelivered == tuple(few)
