from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from thalweg.model.bucket import Bucket, Section
from thalweg.state.collect import bucket_name, collect_garbage, leftover_temporaries, unreferenced
from thalweg.state.container import ContainerWriter
from thalweg.state.durable import make_directory, temporary_name
from thalweg.state.manifest import Manifest, write_intent, write_manifest


def write_bucket(state_dir: Path, batch: int) -> Section:
    make_directory(state_dir / "buckets")
    with ContainerWriter(state_dir / bucket_name(batch, 0), root=state_dir) as writer:
        section = writer.add("g", pa.table({"n": [batch]}))
        writer.close()
    return section


def manifest(batch: int, *sections: Section) -> Manifest:
    return Manifest(batch, 16, "h", buckets=tuple(Bucket(s, "g", 0, 0, 0, 0, (), 1) for s in sections))


def test_only_what_neither_manifest_names_and_no_later_batch_wrote_goes(tmp_path: Path) -> None:
    old, failed, merged, fresh, running = (write_bucket(tmp_path, batch) for batch in (0, 1, 1, 2, 3))
    half_old = temporary_name(tmp_path / bucket_name(1, 0))
    half_running = temporary_name(tmp_path / bucket_name(3, 0))
    foreign = tmp_path / "buckets" / "README"
    for path in (half_old, half_running, foreign):
        path.write_bytes(b"")
    older = write_bucket(tmp_path, 0)
    write_manifest(tmp_path, manifest(0, older))
    write_manifest(tmp_path, manifest(1, old, merged))
    newest = manifest(2, merged, fresh)
    write_manifest(tmp_path, newest)

    doomed = {tmp_path / failed.file, tmp_path / older.file, half_old}
    assert set(unreferenced(tmp_path, newest)) == doomed
    assert set(collect_garbage(tmp_path, newest)) == doomed
    left = {path.name for path in (tmp_path / "buckets").iterdir()}
    named = {Path(s.file).name for s in (old, merged, fresh, running)}
    assert left == named | {half_running.name, "README"}


def test_results_that_nobody_fetched_go_once_their_batch_has_happened(tmp_path: Path) -> None:
    make_directory(tmp_path / "spill")
    old, running = (tmp_path / "spill" / f"{batch:012d}-0-0123456789ab.arrow" for batch in (2, 3))
    old.write_bytes(b"")
    running.write_bytes(b"")
    assert collect_garbage(tmp_path, manifest(2)) == [old]
    assert running.exists()


def test_a_start_deletes_again_what_a_power_cut_has_brought_back(tmp_path: Path) -> None:
    for batch in range(4):
        write_manifest(tmp_path, manifest(batch))
        write_intent(tmp_path, batch, {})
    for name in ("manifests", "intents"):
        (tmp_path / name / f"{1:012d}.json").write_bytes(b"")
    collect_garbage(tmp_path, manifest(3), starting=True)
    for name in ("manifests", "intents"):
        assert [path.stem[-1] for path in sorted((tmp_path / name).iterdir())] == ["2", "3"]


def test_a_start_clears_temporaries_of_every_kind(tmp_path: Path) -> None:
    paths = []
    for name in ("buckets", "manifests", "intents", "results", "."):
        make_directory(tmp_path / name)
        paths.append(temporary_name(tmp_path / name / "000000000009.x"))
        paths[-1].write_bytes(b"half")
    keep = tmp_path / "buckets" / "000000000009-0-a.arrow"
    keep.write_bytes(b"")
    assert set(leftover_temporaries(tmp_path)) == set(paths)
    collect_garbage(tmp_path, None, starting=True)
    assert not any(path.exists() for path in paths)
    assert keep.exists()
