"""Unit: what no manifest names goes; what may still be committed, and what is not ours, stays."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from thalweg.batch.work import unique
from thalweg.model.bucket import Section, SliceBucket
from thalweg.model.manifest import Manifest, Prepared, ResultFile
from thalweg.state.collect import (
    bucket_name,
    collect_garbage,
    prepared_name,
    result_name,
    unreferenced,
)
from thalweg.state.container import ContainerWriter
from thalweg.state.durable import temporary_name
from thalweg.state.local_storage import LocalStorage

NAMES = {
    "buckets": lambda batch: bucket_name(batch, 0, unique()),
    "results": result_name,
    "prepared": lambda batch: prepared_name(batch, 0, unique()),
    "spill": lambda batch: f"spill/{batch:012d}-0-0123456789ab.arrow",
}


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(str(tmp_path))


def write(storage: LocalStorage, name: str) -> Section:
    with ContainerWriter(storage, name) as writer:
        section = writer.add("g", pa.table({"n": [1]}))
        writer.close()
    return section


def bucket(section: Section) -> SliceBucket:
    return SliceBucket(
        section=section, relation="g", level=0, batch_from=0, batch_to=0, place=0, spans=(), offsets=b""
    )


def manifest(batch: int, *sections: Section) -> Manifest:
    return Manifest(batch, 16, "h", buckets=tuple(bucket(s) for s in sections))


def test_only_what_neither_manifest_names_and_no_later_batch_wrote_goes(storage: LocalStorage) -> None:
    old, failed, merged, fresh, running = (
        write(storage, bucket_name(batch, 0, unique())) for batch in (0, 1, 1, 2, 3)
    )
    half = [temporary_name(storage.root / bucket_name(batch, 0, unique())) for batch in (1, 3)]
    foreign = storage.root / "buckets" / "README"
    for path in (*half, foreign):
        path.write_bytes(b"")
    older = write(storage, bucket_name(0, 0, unique()))
    before, newest = manifest(1, old, merged), manifest(2, merged, fresh)

    doomed = {failed.file, older.file}
    assert {*unreferenced(storage, newest, before)} == doomed
    assert {*collect_garbage(storage, newest, before)} == doomed
    left = {path.name for path in (storage.root / "buckets").iterdir()}
    named = {Path(s.file).name for s in (old, merged, fresh, running)}
    assert left == named | {"README"} | {path.name for path in half}
    assert collect_garbage(storage, newest) == [old.file], "what only the manifest before named"


@pytest.mark.parametrize("kind", NAMES)
def test_of_every_kind_what_nobody_names_goes_once_its_batch_has_happened(storage: LocalStorage, kind: str) -> None:
    old, running = (write(storage, NAMES[kind](batch)).file for batch in (2, 3))
    assert collect_garbage(storage, manifest(2)) == [old]
    assert storage.names("") == [running]


def test_results_and_what_waits_for_sinks_stay_while_a_manifest_names_them(storage: LocalStorage) -> None:
    results = [write(storage, result_name(batch)).file for batch in (0, 1)]
    waiting = [write(storage, prepared_name(batch, 0, unique())) for batch in (0, 1)]
    before = Manifest(
        0, 16, "h", results=(ResultFile(results[0], 0, 0),), undelivered=(Prepared("q", 0, 1, (waiting[0],)),)
    )
    newest = Manifest(
        1,
        16,
        "h",
        results=(ResultFile(results[1], 0, 1, 1),),
        undelivered=(Prepared("q", 1, 1, (waiting[1],)), Prepared("r", 1, 1, token=".part-1")),
    )
    assert collect_garbage(storage, newest, before) == []
    assert {*collect_garbage(storage, newest)} == {results[0], waiting[0].file}
    assert {*storage.names("")} == {results[1], waiting[1].file}


def test_two_attempts_of_a_task_get_two_names() -> None:
    for kind in ("buckets", "results", "prepared"):
        assert NAMES[kind](3) != NAMES[kind](3)
        assert NAMES[kind](3).startswith(f"{kind}/000000000003-")
    assert bucket_name(3, 1, "x") == "buckets/000000000003-1-x.arrow"
