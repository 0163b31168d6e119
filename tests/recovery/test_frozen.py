"""Recovery: state directories that older releases left behind open, finish, and equal batch Spark SQL over all rows.

`freeze.py` has made them. Up to format 4 offsets are in Spark's checkpoint, and a batch whose intent is there without
its manifest may have been seen by sinks. From format 5 on the manifest is all: what sinks were not given, it holds.
"""

from __future__ import annotations

import json
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.recovery.freeze import expected_results
from tests.recovery.frozen_case import (
    LIVES,
    Archive,
    Case,
    Program,
    archives,
    define_aggregates,
    load_case,
    table_from_json,
)

import thalweg
from thalweg import user_aggregates
from thalweg.batch.decisions import from_intent
from thalweg.errors import StateError
from thalweg.model.bucket import Section
from thalweg.model.manifest import FORMAT, READABLE, Manifest
from thalweg.source.memory_units import MemoryUnits
from thalweg.state.container import read_section
from thalweg.state.local_storage import LocalStorage
from thalweg.state.manifest import latest_manifest, manifest_batches, read_manifest
from thalweg.state.migrate import find_old_intent
from thalweg.state.requests import CreateRequest, RequestLog
from thalweg.state.results import StoredResults
from thalweg.testing import LocalSession
from thalweg.testing.compare import rows_equal

CASES = ("aggregates", "joined_windows", "joins", "own")
ARCHIVES = archives()
REFUSED = [a for a in ARCHIVES if a.case == "joined_windows" and a.format < 4]
"""Partials of joined rows had other names then."""
FINISHED = [a for a in ARCHIVES if a not in REFUSED]
ON_SPARK = [
    a for a in FINISHED if (a.format, a.case) in ((2, "own"), (3, "aggregates"), (4, "joins"), (5, "aggregates"))
]
"""The others run in this process."""
FORMATS = READABLE
OLD = FORMAT - 1
"""The last format with intents."""
MACHINES = re.compile(rb"/(?:home|root|tmp|var|Users|opt|usr|mnt|srv)/")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aggregates that a test defines are not there for the next."""
    monkeypatch.setattr(user_aggregates, "_defined", {})


def named(archive: Archive) -> str:
    return archive.path.name.removesuffix(".tar.xz")


@cache
def case_of(name: str) -> Case:
    return load_case(name)


def sections(manifest: Manifest) -> Iterator[Section]:
    for bucket in manifest.buckets:
        yield bucket.section
    for stored in manifest.stores:
        yield stored.section
        yield from (index.section for index in stored.indexes.values())


def opened(archive: Archive, place: Path) -> tuple[LocalStorage, Manifest]:
    """The state, and its newest manifest."""
    storage = LocalStorage(str(archive.unpack(place)))
    manifest = latest_manifest(storage)
    assert manifest is not None
    return storage, manifest


def unsettled(archive: Archive) -> int:
    """How many batches of rows it had been given that no manifest knows."""
    return LIVES[archive.life] if archive.format <= OLD else 0


def contents(state_dir: Path) -> dict[str, bytes]:
    """Every file but the lock, which says who held it last."""
    files = [path for path in sorted(state_dir.rglob("*")) if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(state_dir)): path.read_bytes() for path in files}


def test_every_readable_format_is_frozen_in_both_lives() -> None:
    frozen = {(a.format, a.case, a.life) for a in ARCHIVES}
    assert frozen >= {
        (n, case, life) for n in FORMATS for case in CASES for life in LIVES if case != "joined_windows"
    }
    assert frozen >= {(n, "joined_windows", "stopped") for n in FORMATS}
    assert {a.format for a in FINISHED} == set(FORMATS)
    assert {a.format for a in REFUSED} == {n for n in READABLE if n < 4}


@pytest.mark.parametrize("archive", ARCHIVES, ids=named)
def test_an_archive_says_nothing_of_the_machine_that_made_it(archive: Archive) -> None:
    with tarfile.open(archive.path) as tar:
        members = tar.getmembers()
        names = [member.name for member in members]
        assert names == sorted(names, key=PurePosixPath)
        assert ("state/checkpoint/metadata" in names) == (archive.format <= OLD)
        assert ("state/timeline" in names) == (archive.format > OLD)
        assert "state/lock" not in names
        for member in members:
            assert (member.uid, member.gid, member.uname, member.gname, member.mtime) == (0, 0, "", "", 0)
            body = tar.extractfile(member)
            assert body is not None
            data = body.read()
            assert not MACHINES.search(data), member.name
            if member.name.startswith("state/terms/"):
                said = json.loads(data.split(b"\n")[1])
                assert (said["host"], said["process"]) == ("host", 1)


@pytest.mark.parametrize("archive", ARCHIVES, ids=named)
def test_all_that_a_frozen_manifest_names_can_be_read(archive: Archive, tmp_path: Path) -> None:
    storage, newest = opened(archive, tmp_path)
    case = case_of(archive.case)
    assert newest.format == archive.format
    for batch in manifest_batches(storage):
        manifest, _ = read_manifest(storage, batch)
        assert manifest.format == archive.format
        for section in sections(manifest):
            assert read_section(storage, section).num_rows == section.rows
    # The batches of rows before the freeze are numbered from 0, and the empty one follows them.
    assert newest.batch == case.fed + LIVES[archive.life] - unsettled(archive)
    assert (find_old_intent(storage, newest.batch) is not None) == (archive.format <= OLD)
    is_cut_short = archive.format <= OLD and archive.life == "killed"
    assert (find_old_intent(storage, newest.batch + 1) is not None) == is_cut_short


@pytest.mark.parametrize("archive", ARCHIVES, ids=named)
def test_a_frozen_directory_holds_a_request_and_rows_that_no_batch_knows(archive: Archive, tmp_path: Path) -> None:
    storage, manifest = opened(archive, tmp_path)
    case = case_of(archive.case)
    waiting = RequestLog(storage, manifest.through).read_after(manifest.through)
    names = [request.query.name for _, request in waiting if isinstance(request, CreateRequest)]
    is_known = archive.format > OLD and archive.life == "killed"
    assert names == ([] if is_known else list(case.later))
    for feed in case.feeds:
        assert MemoryUnits(storage, feed.stream).count() == case.fed + LIVES[archive.life]
        assert manifest.reached.streams[feed.stream] == case.fed + LIVES[archive.life] - unsettled(archive)
    if archive.life == "stopped":
        return
    # The plan of the batch that was cut short is another than that of the batch before it.
    if archive.format <= OLD:
        intent = find_old_intent(storage, manifest.batch + 1)
        assert intent is not None
        assert intent.through == waiting[-1][0]
        assert (
            from_intent(intent, manifest.batch + 1).decided.placement.assignment
            != manifest.measured.slot_assignment.assignment
        )
    else:
        before, _ = read_manifest(storage, manifest.batch - 1)
        assert before.measured.slot_assignment.assignment != manifest.measured.slot_assignment.assignment


@pytest.mark.parametrize("archive", ARCHIVES, ids=named)
def test_a_frozen_directory_has_windows_or_rows_that_wait_for_others(archive: Archive, tmp_path: Path) -> None:
    _, manifest = opened(archive, tmp_path)
    if archive.case != "joins":
        assert sum(bucket.section.rows for bucket in manifest.buckets) > 5
    if archive.case in ("joins", "joined_windows"):
        rows = {bucket.relation: bucket.section.rows for bucket in manifest.stores}
        assert {"r", "s", "t"} < rows.keys()
        intermediates = [relation for relation in rows if relation.startswith("+")]
        assert intermediates
        assert manifest.measured.probe_orders.joins.ready.keys() & set(intermediates)


@pytest.mark.parametrize("archive", ARCHIVES, ids=named)
def test_results_before_the_freeze_are_a_part_of_the_expected(archive: Archive, tmp_path: Path) -> None:
    storage, manifest = opened(archive, tmp_path)
    case = case_of(archive.case)
    results = StoredResults(storage, manifest.results)
    ids = {entry.query.name: id_ for id_, entry in manifest.queries.items()}
    is_later_known = archive.format > OLD and archive.life == "killed"
    assert ids.keys() == {*case.queries, *(case.later if is_later_known else ())}
    for name, id_ in ids.items():
        if name not in case.called:
            rows = results.read(id_, case.expected[name].schema).num_rows
            # The two batches more that killed ones of format 5 have seen gave the last of these.
            is_all = (named(archive), name) == ("format-5-own-killed", "medians")
            assert 0 < rows < case.expected[name].num_rows + is_all, name
    if archive.format <= OLD:
        names = [Path(name).stem for name in storage.names("results/")]
        given_ahead = f"{manifest.batch + 1:012d}" in names
        assert given_ahead == (archive.life == "killed" and case.phase == "batch.sinks")
    given = {int(path.stem) for path in (tmp_path / "given").glob("*.json")}
    assert bool(given) == bool(case.called)
    if archive.format > OLD and case.called:
        waits = {prepared.batch for prepared in manifest.undelivered}
        assert waits == {manifest.batch}
        assert (manifest.batch in given) == (archive.life == "stopped")


# going on


def finish(session: Any, archive: Archive, case: Case) -> dict[str, pa.Table]:
    """What the program does that starts again: the same definitions, then the rest of the rows."""
    program = Program(session, case)
    program.create(case.later)
    program.append(case.fed + LIVES[archive.life])
    session.run_available()
    return program.results()


def check_end(state_dir: Path, results: dict[str, pa.Table], case: Case) -> None:
    assert results.keys() == case.expected.keys()
    for name, wanted in case.expected.items():
        try:
            rows_equal(results[name], wanted)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
    manifest = latest_manifest(LocalStorage(str(state_dir)))
    assert manifest is not None
    assert manifest.format == FORMAT
    # Everything that was appended: one unit for a batch.
    assert manifest.reached.streams == {feed.stream: len(feed.batches) for feed in case.feeds}
    left = {name.split("/")[0] for name in contents(state_dir)}
    assert not left & {"checkpoint", "intents", "control.json", "changes.log", "streams.json", "identity", "spill"}
    assert not [name for name in contents(state_dir) if name.startswith("manifests/") and name.endswith(".json")]


@pytest.mark.slow
@pytest.mark.parametrize("archive", FINISHED, ids=named)
def test_a_frozen_directory_goes_on_and_equals_the_oracle(
    local: Callable[..., LocalSession], tmp_path: Path, archive: Archive
) -> None:
    state_dir = archive.unpack(tmp_path)
    case = case_of(archive.case)
    session = local(state_dir=state_dir, slots=3)
    check_end(state_dir, finish(session, archive, case), case)


@pytest.mark.slow
@pytest.mark.parametrize("archive", [a for a in FINISHED if case_of(a.case).called], ids=named)
def test_only_what_a_kill_kept_from_a_function_is_given_to_it_once_more(
    local: Callable[..., LocalSession], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archive: Archive
) -> None:
    """An old batch that was cut short is repeated as its intent says, and is the same."""
    storage, manifest = opened(archive, tmp_path)
    case = case_of(archive.case)
    given = {int(path.stem): json.loads(path.read_text()) for path in (tmp_path / "given").glob("*.json")}
    calls: list[int] = []
    give = Program._give

    def count(self: Program, table: pa.Table, batch: int) -> None:
        calls.append(batch)
        give(self, table, batch)

    monkeypatch.setattr(Program, "_give", count)
    check_end(Path(storage.place), finish(local(state_dir=storage.place, slots=3), archive, case), case)
    first = manifest.batch + (archive.format <= OLD or archive.life == "stopped")
    assert calls
    assert calls == sorted(set(calls)), "each once"
    assert min(calls) >= first
    if archive.life == "killed" and archive.format > OLD:
        assert calls[0] == manifest.batch
    for batch in set(given) & set(calls):
        again = json.loads((tmp_path / "given" / f"{batch:04d}.json").read_text())
        rows_equal(table_from_json(again), table_from_json(given[batch]))


@pytest.mark.slow
def test_a_files_sink_takes_the_batch_again_that_an_older_release_had_shown_it(
    local: Callable[..., LocalSession], tmp_path: Path
) -> None:
    """Its directory is ahead of the manifest, and not ahead of the intent."""
    archive = next(a for a in ARCHIVES if (a.format, a.case, a.life) == (OLD, "aggregates", "killed"))
    state_dir, case = archive.unpack(tmp_path), case_of(archive.case)
    shown, batch = tmp_path / "shown", case.fed
    options = {"format": "json", "path": str(shown)}
    path = state_dir / "manifests" / f"{batch:012d}.json"
    _, body = path.read_bytes().split(b"\n", 1)
    value = json.loads(body)
    (query,) = (e["query"] for e in value["queries"].values() if e["query"]["name"] == "dear")
    query["sink"] = {**query["sink"], "kind": "files", "options": list(options.items())}
    write_old(path, value)
    shown.mkdir()
    identity = (state_dir / "identity").read_text() if (state_dir / "identity").exists() else str(state_dir)
    (shown / ".thalweg-owner.json").write_text(json.dumps({"query": "dear", "owner": identity}))
    (shown / f"part-{batch + 1:012d}.json").write_text("")
    session = local(state_dir=state_dir, slots=3)
    define_aggregates()
    handle = session.query("dear")
    session.create_query("dear", case.queries["dear"], thalweg.to_files(shown, "json"))
    session.create_query("called", case.queries["called"], lambda table, batch: None)
    session.run_available()
    assert handle.status.state == "idle", handle.status.error
    assert (shown / f"part-{batch + 1:012d}.json").read_text()


@pytest.mark.slow
def test_requests_of_an_older_release_that_never_ran_a_batch_are_kept(
    local: Callable[..., LocalSession], tmp_path: Path
) -> None:
    archive = next(a for a in ARCHIVES if (a.format, a.case, a.life) == (OLD, "own", "stopped"))
    storage, manifest = opened(archive, tmp_path)
    records = [{"op": "create", "query": msgspec.to_builtins(entry.query)} for entry in manifest.queries.values()]
    lines = [json.dumps({"sequence": n, "record": record}).encode() for n, record in enumerate(records, 1)]
    for name in contents(Path(storage.place)):
        if not name.startswith(("catalog.json", "thalweg.json")):
            storage.delete(name)
    (Path(storage.place) / "changes.log").write_bytes(b"".join(b"%08x %s\n" % (zlib.crc32(x), x) for x in lines))
    define_aggregates()
    for _ in range(2):  # a session that only looks leaves them to the next
        session = local(state_dir=storage.place, slots=3)
        assert {*session.queries} == {*case_of("own").queries}
        session.stop()
    session = local(state_dir=storage.place, slots=3)
    session.run_available()
    assert {handle.status.state for handle in session.queries.values()} == {"idle"}
    assert storage.find("changes.log") is None


@pytest.mark.parametrize("archive", ON_SPARK, ids=named)
def test_a_frozen_directory_goes_on_where_it_was_made(spark: SparkSession, tmp_path: Path, archive: Archive) -> None:
    state_dir = archive.unpack(tmp_path)
    case = case_of(archive.case)
    with thalweg.connect(state_dir, spark=spark, slots=3) as session:
        check_end(state_dir, finish(session, archive, case), case)


def write_old(path: Path, value: dict[str, Any]) -> None:
    """As releases up to format 4 wrote manifests."""
    header = json.loads(path.read_bytes().split(b"\n", 1)[0])
    body = json.dumps(value).encode()
    header |= {"length": len(body), "crc": zlib.crc32(body)}
    path.write_bytes(json.dumps(header).encode() + b"\n" + body + b"\n")


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("torn", [False, True])
def test_offsets_that_are_lost_are_told_by_name(
    local: Callable[..., LocalSession], tmp_path: Path, life: str, torn: bool
) -> None:
    """Of the last batch that happened, or of one that sinks may have seen."""
    archive = next(a for a in ARCHIVES if (a.format, a.case, a.life) == (OLD, "own", life))
    state_dir, case = archive.unpack(tmp_path), case_of(archive.case)
    path = state_dir / "checkpoint" / "offsets" / str(case.fed + (life == "killed"))
    path.write_bytes(path.read_bytes()[:-3]) if torn else path.unlink()
    before = contents(state_dir)
    for _ in range(2):
        with pytest.raises(StateError, match="offsets of batch") as raised:
            local(state_dir=state_dir, slots=3)
        assert str(path) in raised.value.message
        assert "bring back" in str(raised.value.hint)
    assert before.items() <= contents(state_dir).items()


@pytest.mark.parametrize("archive", REFUSED, ids=named)
def test_old_windows_of_joins_are_refused_by_name_and_left_as_they_are(
    spark: SparkSession, tmp_path: Path, archive: Archive
) -> None:
    state_dir = archive.unpack(tmp_path)
    before = contents(state_dir)
    with pytest.raises(StateError, match=f"written in format {archive.format}: open windows of joins") as raised:
        thalweg.connect(state_dir, spark=spark)
    assert raised.value.detail is not None
    assert "paired, chained" in raised.value.detail
    assert before.items() <= contents(state_dir).items()


@pytest.mark.parametrize("number", [1, 99])
def test_other_formats_are_refused_by_number_and_left_as_they_are(
    spark: SparkSession, tmp_path: Path, number: int
) -> None:
    archive = next(a for a in ARCHIVES if (a.format, a.case, a.life) == (OLD, "own", "killed"))
    state_dir = archive.unpack(tmp_path)
    for path in [*(state_dir / "manifests").iterdir(), *(state_dir / "intents").iterdir()]:
        header, body = path.read_bytes().split(b"\n", 1)
        path.write_bytes(json.dumps(json.loads(header) | {"format": number}).encode() + b"\n" + body)
    before = contents(state_dir)
    with pytest.raises(StateError, match=f"written in format {number}, this release reads 2, 3, 4"):
        thalweg.connect(state_dir, spark=spark)
    assert before.items() <= contents(state_dir).items()


def test_a_later_format_is_refused_by_number_and_left_as_it_is(
    local: Callable[..., LocalSession], tmp_path: Path
) -> None:
    archive = next(a for a in ARCHIVES if (a.format, a.case, a.life) == (FORMAT, "own", "killed"))
    state_dir = archive.unpack(tmp_path)
    for path in (state_dir / "manifests").iterdir():
        header, body = path.read_bytes().split(b"\n", 1)
        path.write_bytes(json.dumps(json.loads(header) | {"format": 99}).encode() + b"\n" + body)
    before = contents(state_dir)
    with pytest.raises(StateError, match="written in format 99, this release reads"):
        local(state_dir=state_dir)
    assert before.items() <= contents(state_dir).items()


@pytest.mark.parametrize("name", CASES)
def test_the_expected_is_what_spark_gives(spark: SparkSession, name: str) -> None:
    case = case_of(name)
    found = expected_results(spark, case)
    assert found.keys() == case.expected.keys()
    for query, table in found.items():
        rows_equal(table, case.expected[query])
