"""Recovery: state directories that older releases left behind open, finish, and equal batch Spark SQL over all rows.

`freeze.py` has made them. Offsets are in Spark's checkpoint there.
"""

from __future__ import annotations

import json
import re
import tarfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.recovery.freeze import expected_results
from tests.recovery.frozen_case import LIVES, Archive, Case, Program, archives, load_case
from thalweg.sink.memory import ResultLog
from thalweg.state.changes import ChangeLog

import thalweg
from thalweg import aggregates
from thalweg.errors import StateError
from thalweg.model.bucket import Section
from thalweg.source.listing import count_memory_units
from thalweg.state.container import read_section
from thalweg.state.manifest import (
    FORMAT,
    READ,
    Manifest,
    latest_manifest,
    manifest_batches,
    read_intent,
    read_manifest,
)
from thalweg.testing import LocalSession
from thalweg.testing.compare import rows_equal

CASES = ("aggregates", "joined_windows", "joins", "own")
ARCHIVES = archives()
REFUSED = [a for a in ARCHIVES if a.case == "joined_windows" and a.format < 4]
"""Partials of joined rows had other names then."""
FINISHED = [a for a in ARCHIVES if a not in REFUSED]
ON_SPARK = [a for a in FINISHED if (a.format, a.case) in ((2, "own"), (3, "aggregates"), (4, "joins"))]
"""The others run in this process."""
MACHINES = re.compile(rb"/(?:home|root|tmp|var|Users|opt|usr|mnt|srv)/")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aggregates that a test defines are not there for the next."""
    monkeypatch.setattr(aggregates, "_defined", {})


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
        yield from stored.indexes.values()


def contents(state_dir: Path) -> dict[str, bytes]:
    """Every file but the lock, which says who held it last."""
    files = [path for path in sorted(state_dir.rglob("*")) if path.is_file() and path.name != "lock"]
    return {str(path.relative_to(state_dir)): path.read_bytes() for path in files}


def test_every_readable_format_is_frozen_in_both_lives() -> None:
    frozen = {(a.format, a.case, a.life) for a in ARCHIVES}
    assert frozen >= {(n, case, life) for n in READ for case in CASES for life in LIVES if case != "joined_windows"}
    assert frozen >= {(n, "joined_windows", "stopped") for n in READ}
    assert {a.format for a in FINISHED} == set(READ)
    assert {a.format for a in REFUSED} == {n for n in READ if n < 4}


@pytest.mark.parametrize("archive", ARCHIVES, ids=named)
def test_an_archive_says_nothing_of_the_machine_that_made_it(archive: Archive) -> None:
    with tarfile.open(archive.path) as tar:
        members = tar.getmembers()
        names = [member.name for member in members]
        assert names == sorted(names, key=PurePosixPath)
        assert "state/checkpoint/metadata" in names
        assert "state/lock" not in names
        for member in members:
            assert (member.uid, member.gid, member.uname, member.gname, member.mtime) == (0, 0, "", "", 0)
            body = tar.extractfile(member)
            assert body is not None
            assert not MACHINES.search(body.read()), member.name


@pytest.mark.parametrize("archive", ARCHIVES, ids=named)
def test_all_that_a_frozen_manifest_names_can_be_read(archive: Archive, tmp_path: Path) -> None:
    state_dir = archive.unpack(tmp_path)
    case = case_of(archive.case)
    newest = latest_manifest(state_dir)
    assert newest is not None
    assert newest.format == archive.format
    for batch in manifest_batches(state_dir):
        manifest = read_manifest(state_dir, batch)
        assert manifest.format == archive.format
        for section in sections(manifest):
            assert read_section(state_dir, section).num_rows == section.rows
    # The batches of rows before the freeze are numbered from 0, and the empty one follows them.
    assert newest.batch == case.fed
    assert read_intent(state_dir, newest.batch) is not None
    assert (read_intent(state_dir, newest.batch + 1) is not None) == (archive.life == "killed")


@pytest.mark.parametrize("archive", ARCHIVES, ids=named)
def test_a_frozen_directory_holds_a_request_and_rows_that_no_batch_knows(archive: Archive, tmp_path: Path) -> None:
    state_dir = archive.unpack(tmp_path)
    case = case_of(archive.case)
    manifest = latest_manifest(state_dir)
    assert manifest is not None
    changes = ChangeLog(state_dir)
    waiting = changes.read_after(manifest.extra["through"])
    changes.close()
    assert [change["query"]["name"] for _, change in waiting] == list(case.later)
    for feed in case.feeds:
        assert count_memory_units(state_dir / "sources" / feed.stream) == case.fed + LIVES[archive.life]
    if archive.life == "killed":
        intent = read_intent(state_dir, manifest.batch + 1)
        assert intent is not None
        assert intent["through"] == waiting[-1][0]
        # The plan of the batch that was cut short is another than that of the batch before it.
        assert intent["assignment"] != manifest.extra["assignment"]


@pytest.mark.parametrize("archive", ARCHIVES, ids=named)
def test_a_frozen_directory_has_windows_or_rows_that_wait_for_others(archive: Archive, tmp_path: Path) -> None:
    manifest = latest_manifest(archive.unpack(tmp_path))
    assert manifest is not None
    if archive.case != "joins":
        assert sum(bucket.rows for bucket in manifest.buckets) > 5
    if archive.case in ("joins", "joined_windows"):
        rows = {bucket.stream: bucket.section.rows for bucket in manifest.stores}
        assert {"r", "s", "t"} < rows.keys()
        intermediates = [stream for stream in rows if stream.startswith("+")]
        assert intermediates
        assert manifest.extra["joins"]["ready"].keys() & set(intermediates)


@pytest.mark.parametrize("archive", ARCHIVES, ids=named)
def test_results_before_the_freeze_are_a_part_of_the_expected(archive: Archive, tmp_path: Path) -> None:
    state_dir = archive.unpack(tmp_path)
    case = case_of(archive.case)
    manifest = latest_manifest(state_dir)
    assert manifest is not None
    log = ResultLog(state_dir)
    ids = {entry["query"]["name"]: id_ for id_, entry in manifest.queries.items()}
    assert ids.keys() == case.queries.keys()
    for name, id_ in ids.items():
        if name not in case.called:
            given = log.read(id_, case.expected[name].schema, manifest.batch)
            assert 0 < given.num_rows < case.expected[name].num_rows, name
    given_ahead = any(path.stem == f"{manifest.batch + 1:012d}" for path in (state_dir / "results").iterdir())
    assert given_ahead == (archive.life == "killed" and case.phase == "batch.sinks")


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
    manifest = latest_manifest(state_dir)
    assert manifest is not None
    assert manifest.format == FORMAT
    # Everything that was appended: one unit for a batch.
    assert manifest.extra["reached"]["streams"] == {feed.stream: len(feed.batches) for feed in case.feeds}
    assert not (state_dir / "checkpoint").exists(), "offsets are in the manifest now"
    assert not (state_dir / "control.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("archive", FINISHED, ids=named)
def test_a_frozen_directory_goes_on_and_equals_the_oracle(
    local: Callable[..., LocalSession], tmp_path: Path, archive: Archive
) -> None:
    state_dir = archive.unpack(tmp_path)
    case = case_of(archive.case)
    session = local(state_dir=state_dir, slots=3)
    check_end(state_dir, finish(session, archive, case), case)


@pytest.mark.parametrize("archive", ON_SPARK, ids=named)
def test_a_frozen_directory_goes_on_where_it_was_made(spark: SparkSession, tmp_path: Path, archive: Archive) -> None:
    state_dir = archive.unpack(tmp_path)
    case = case_of(archive.case)
    with thalweg.connect(state_dir, spark=spark, slots=3) as session:
        check_end(state_dir, finish(session, archive, case), case)


@pytest.mark.parametrize("life", LIVES)
@pytest.mark.parametrize("torn", [False, True])
def test_offsets_that_are_lost_are_told_by_name(
    local: Callable[..., LocalSession], tmp_path: Path, life: str, torn: bool
) -> None:
    """Of the last batch that happened, or of one that sinks may have seen."""
    archive = next(a for a in ARCHIVES if (a.format, a.case, a.life) == (FORMAT, "own", life))
    state_dir, case = archive.unpack(tmp_path), case_of(archive.case)
    path = state_dir / "checkpoint" / "offsets" / str(case.fed + (life == "killed"))
    path.write_bytes(path.read_bytes()[:-3]) if torn else path.unlink()
    before = contents(state_dir)
    session = local(state_dir=state_dir, slots=3)
    Program(session, case)
    for run in (session.run_available, lambda: run_in_background(session)):
        with pytest.raises(StateError, match="offsets of batch") as raised:
            run()
        assert str(path) in raised.value.message
        assert "bring back" in str(raised.value.hint)
    after = contents(state_dir)
    assert {name for name in before if before[name] != after.get(name)} <= {"streams.json", "catalog.json"}


def run_in_background(session: LocalSession) -> None:
    """Raises what ends it."""
    session.start()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        session.progress()
        time.sleep(0.01)


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
    archive = next(a for a in ARCHIVES if (a.format, a.case, a.life) == (FORMAT, "own", "killed"))
    state_dir = archive.unpack(tmp_path)
    for path in [*(state_dir / "manifests").iterdir(), *(state_dir / "intents").iterdir()]:
        header, body = path.read_bytes().split(b"\n", 1)
        path.write_bytes(json.dumps(json.loads(header) | {"format": number}).encode() + b"\n" + body)
    before = contents(state_dir)
    with pytest.raises(StateError, match=f"written in format {number}, this release reads 2, 3, 4"):
        thalweg.connect(state_dir, spark=spark)
    assert before.items() <= contents(state_dir).items()


@pytest.mark.parametrize("name", CASES)
def test_the_expected_is_what_spark_gives(spark: SparkSession, name: str) -> None:
    case = case_of(name)
    found = expected_results(spark, case)
    assert found.keys() == case.expected.keys()
    for query, table in found.items():
        rows_equal(table, case.expected[query])
