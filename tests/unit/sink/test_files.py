"""Unit: files are prepared where nobody sees them, and appear whole; a directory has one writer, which is known."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.disk import FaultyDisk

from thalweg.errors import SinkError
from thalweg.model.expr import Expr
from thalweg.model.manifest import Prepared
from thalweg.model.query import Output, Query
from thalweg.sink.contract import Sink, SinkContext
from thalweg.sink.files import FilesInTasks, to_files
from thalweg.sink.kinds import open_sink
from thalweg.state import durable
from thalweg.state.durable import temporary_name
from thalweg.testing.faults import Death

TABLE = pa.table({"n": [1, 2], "s": ["x", None]})
CONTEXT = SinkContext("revenue", "state-1", term="term-1", known_terms=frozenset({"term-0", "term-1"}), newest=100)
OWNER = ".thalweg-owner.json"


def sink_of(directory: Path, context: SinkContext = CONTEXT, format: str = "parquet", **changes: Any) -> Sink:
    return open_sink(to_files(directory, format), replace(context, **changes))


def write(sink: Sink, batch: int, table: pa.Table = TABLE) -> None:
    sink.commit(batch, sink.prepare(batch, table), None)


def names(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.iterdir() if not p.name.startswith("."))


def hidden(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.glob(".*") if p.name != OWNER)


def owner(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / OWNER).read_bytes())
    return found


# -- two steps


@pytest.mark.parametrize("format", ["parquet", "json", "csv"])
def test_a_batch_is_one_file_and_a_repeat_the_same_one(tmp_path: Path, format: str) -> None:
    out = tmp_path / "out"
    sink = sink_of(out, format=format)
    token = sink.prepare(7, TABLE)
    assert names(out) == []
    assert hidden(out) == [token]
    content = (out / token).read_bytes()
    sink.commit(7, token, None)
    name = f"part-000000000007.{format}"
    assert names(out) == [name]
    assert hidden(out) == []
    assert (out / name).read_bytes() == content
    written = (out / name).stat()
    sink.commit(7, token, None)
    sink_of(out, format=format, term="term-2", known_terms=frozenset({"term-1"})).commit(7, token, None)
    assert names(out) == [name]
    assert (out / name).read_bytes() == content
    assert ((out / name).stat().st_ino, (out / name).stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)
    if format == "parquet":
        assert pq.read_table(out / name).equals(TABLE)


def test_readers_never_see_half_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = sink_of(tmp_path)
    token = sink.prepare(0, TABLE)
    seen: list[list[str]] = []
    move = os.replace

    def watch(old: Any, new: Any) -> None:
        if Path(new).name != OWNER:
            assert pq.read_table(old).equals(TABLE)
            seen.append(names(tmp_path))
        move(old, new)

    monkeypatch.setattr(os, "replace", watch)
    sink.commit(0, token, None)
    assert seen == [[]]
    assert len(names(tmp_path)) == 1


def test_what_is_prepared_is_durable(tmp_path: Path) -> None:
    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        token = sink_of(tmp_path / "out").prepare(3, TABLE)
    disk.power_cut()
    with durable.use(disk):
        sink_of(tmp_path / "out", pending=lambda token=token: [Prepared("q", 3, 2, token=token)]).commit(
            3, token, None
        )
    disk.power_cut()
    assert pq.read_table(tmp_path / "out" / "part-000000000003.parquet").equals(TABLE)
    assert owner(tmp_path / "out")["batch"] == 3


@pytest.mark.slow
def test_after_a_death_anywhere_in_a_commit_it_can_be_done_again(tmp_path: Path) -> None:
    """One file, whole, whichever verb the death was in."""
    for verb in range(1, 10):
        for seed in range(4):
            root = tmp_path / f"{verb}-{seed}"
            root.mkdir()
            token = sink_of(root / "out").prepare(3, TABLE)
            disk = FaultyDisk(root)
            disk.die_at(verb, seed=seed)
            with durable.use(disk):
                try:
                    sink_of(root / "out", pending=lambda token=token: [Prepared("q", 3, 2, token=token)]).commit(
                        3, token, None
                    )
                except Death:
                    pass
                else:
                    assert verb > 7, "a commit has at least that many"
            disk.power_cut(seed)
            with durable.use(disk):
                again = sink_of(
                    root / "out", term="term-2", pending=lambda token=token: [Prepared("q", 3, 2, token=token)]
                )
                again.commit(3, token, None)
                write(again, 4)
            assert names(root / "out") == ["part-000000000003.parquet", "part-000000000004.parquet"]
            assert hidden(root / "out") == []
            assert pq.read_table(root / "out" / "part-000000000003.parquet").equals(TABLE)


def test_what_was_prepared_and_is_gone_is_an_error(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    token = sink.prepare(0, TABLE)
    (tmp_path / token).unlink()
    with pytest.raises(SinkError, match=r"part-000000000000\.parquet"):
        sink.commit(0, token, None)
    assert names(tmp_path) == []


# -- leftovers


def test_leftovers_of_batches_that_did_not_happen_are_swept(tmp_path: Path) -> None:
    """But not what a manifest holds, nor files of others."""
    first = sink_of(tmp_path)
    write(first, 0)
    lost, pending = first.prepare(1, TABLE), f".part-{1:012d}-{'a' * 12}.parquet"
    (tmp_path / pending).write_bytes(b"prepared")
    half = temporary_name(tmp_path / lost)
    foreign = [".part-of-mine", ".part-000000000001-xyz.parquet", ".hidden"]
    for name in (half.name, *foreign):
        (tmp_path / name).write_bytes(b"")
    sink = sink_of(tmp_path, pending=lambda: [Prepared("q", 1, 2, token=pending)])
    assert lost in hidden(tmp_path), "a sink that is only opened changes nothing"
    token = sink.prepare(1, TABLE)
    assert hidden(tmp_path) == sorted([*foreign, pending, token])


def test_what_could_not_be_swept_is_swept_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = f".part-{0:012d}-{'a' * 12}.parquet"
    (tmp_path / lost).write_bytes(b"")
    sink = sink_of(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("thalweg.sink.files.delete", lambda path: (_ for _ in ()).throw(OSError(30, "read-only")))
        with pytest.raises(SinkError, match="read-only"):
            sink.prepare(1, TABLE)
    sink.commit(1, "", TABLE)
    assert hidden(tmp_path) == []
    assert names(tmp_path) == ["part-000000000001.parquet"]


def test_leftovers_of_a_later_batch_go_when_it_is_prepared(tmp_path: Path) -> None:
    """Not when an earlier one is committed: tasks may be writing. Chaos seed 41."""
    lost = f".part-{3:012d}-{'a' * 12}.parquet"
    (tmp_path / lost).write_bytes(b"")
    sink = sink_of(tmp_path)
    sink.commit(2, "", TABLE)
    assert hidden(tmp_path) == [lost]
    sink.prepare(3, TABLE)
    assert lost not in hidden(tmp_path)


def test_an_attempt_in_vain_goes_with_the_next(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    first = sink.prepare(1, TABLE)
    second = sink.prepare(1, TABLE.slice(1))
    assert first != second
    assert hidden(tmp_path) == [second]
    sink.commit(1, second, None)
    third = sink.prepare(2, TABLE)
    assert hidden(tmp_path) == [third]
    assert pq.read_table(tmp_path / "part-000000000001.parquet").equals(TABLE.slice(1))


# -- what goes wrong


def test_what_a_failed_commit_has_written_goes_with_the_next(tmp_path: Path) -> None:
    """Chaos seed 300111: results that wait with the state are written when they are committed, under a new name each
    time."""
    sink, disk = sink_of(tmp_path), FaultyDisk(tmp_path)
    write(sink, 0)
    for only in ("replace", "sync_directory", "unlink", "sync"):
        with durable.use(disk):
            disk.fail_at(disk.verbs + 1, errno.EIO, times=2, only=(only,))
            for _ in range(3):
                with contextlib.suppress(SinkError):
                    sink.commit(1, "", TABLE)
        assert names(tmp_path) == [f"part-{batch:012d}.parquet" for batch in range(2)]
        assert hidden(tmp_path) == []


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match=r"revenue: results cannot be written to .*file") as raised:
        sink_of(tmp_path / "file")
    assert "stopped" not in str(raised.value)  # it has not been created


@pytest.mark.parametrize("step", ["prepare", "commit"])
def test_a_full_disk_is_a_sink_error(tmp_path: Path, step: str) -> None:
    disk = FaultyDisk(tmp_path)
    with durable.use(disk):
        sink = sink_of(tmp_path)
        act: Callable[[], object] = partial(sink.prepare, 0, TABLE)
        if step == "commit":
            act = partial(sink.commit, 0, sink.prepare(0, TABLE), None)
        disk.fail_at(disk.verbs + 1, errno.ENOSPC)
        with pytest.raises(SinkError, match="No space left") as raised:
            act()
        assert names(tmp_path) == []
        disk.heal()
        write(sink, 0)
    check_hint_of_a_failed_sink(raised.value)
    assert names(tmp_path) == ["part-000000000000.parquet"]
    assert hidden(tmp_path) == []


def test_a_first_commit_that_fails_anywhere_can_be_tried_again(tmp_path: Path) -> None:
    """Chaos seed 200079: a sink that was opened before the first manifest had left the name of batch 0, and failed
    then. It held that for the work of a state that knows more."""
    for verb in range(1, 40):
        out, disk = tmp_path / f"{verb}", FaultyDisk(tmp_path)
        with durable.use(disk):
            sink = sink_of(out, newest=-1)
            token = sink.prepare(0, TABLE)
            disk.fail_at(disk.verbs + verb, errno.EROFS, times=1)
            try:
                sink.commit(0, token, None)
            except SinkError:
                sink.commit(0, token, None)
        assert names(out) == ["part-000000000000.parquet"]
        assert owner(out)["batch"] == 0
        if not disk.refused:
            break
    assert 3 < verb < 39


def test_only_the_batch_that_is_committed_may_be_there_already(tmp_path: Path) -> None:
    """A later one is of a state that knows more."""
    sink = sink_of(tmp_path, newest=-1)
    token = sink.prepare(0, TABLE)
    write(sink_of(tmp_path), 1)
    with pytest.raises(SinkError, match="holds results of batch 1, but the state has got only as far as batch 0"):
        sink.commit(0, token, None)


def check_hint_of_a_failed_sink(error: SinkError) -> None:
    """What happens to a query whose sink has failed: its results are kept."""
    assert "The results are kept" in str(error.hint)
    assert "RESUME QUERY revenue" in str(error.hint)


def test_a_column_without_a_text_form_is_named(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, format="csv")
    with pytest.raises(SinkError, match=r"column 'l' of type list<.*cannot be written as csv"):
        sink.prepare(0, pa.table({"n": [1], "l": [[1]]}))
    assert [*tmp_path.iterdir()] == []


# -- whose directory it is


def test_a_directory_is_claimed_with_the_first_commit(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    token = sink.prepare(3, TABLE)
    assert not (tmp_path / OWNER).exists()
    sink_of(tmp_path, query="clicks")  # nobody's yet
    sink.commit(3, token, None)
    assert owner(tmp_path) == {"query": "revenue", "owner": "state-1", "batch": 3, "term": "term-1", "number": 0}
    assert (tmp_path / OWNER).stat().st_mode & 0o777 == 0o600
    write(sink, 4)
    assert owner(tmp_path)["batch"] == 4


@pytest.mark.parametrize("other", [{"query": "clicks"}, {"timeline": "state-2"}])
def test_two_queries_or_two_pipelines_cannot_share_a_directory(tmp_path: Path, other: dict[str, str]) -> None:
    late = sink_of(tmp_path, **other)
    token = late.prepare(0, TABLE)
    sink = sink_of(tmp_path)
    write(sink, 0)
    with pytest.raises(SinkError, match="already holds the results of query revenue"):
        sink_of(tmp_path, **other)
    with pytest.raises(SinkError, match="already holds the results of query revenue"):
        late.commit(0, token, None)
    assert pq.read_table(tmp_path / "part-000000000000.parquet").equals(TABLE)
    write(sink, 1)


@pytest.mark.parametrize("name", ["part-000000000000.parquet", "part-000000000012.csv"])
def test_a_directory_with_part_files_of_somebody_else_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"mine")
    with pytest.raises(SinkError, match="already holds the results of somebody else"):
        sink_of(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"mine"


def test_files_that_are_no_parts_do_no_harm(tmp_path: Path) -> None:
    for name in ("part-1.parquet", "README", "part-of.txt"):
        (tmp_path / name).write_bytes(b"")
    write(sink_of(tmp_path), 0)
    assert len(names(tmp_path)) == 4


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"query": "revenue"}', b"\xff\xfe"])
def test_an_owner_that_cannot_be_read_is_another(tmp_path: Path, damaged: bytes) -> None:
    (tmp_path / OWNER).write_bytes(damaged)
    with pytest.raises(SinkError, match="already holds the results of another query"):
        sink_of(tmp_path)


def test_an_owner_file_of_earlier_releases_is_accepted(tmp_path: Path) -> None:
    """It has the name of the state or, of the first releases, its path; neither batch nor term."""
    for at, by in enumerate(("state-1", "/state")):
        out = tmp_path / f"{at}"
        out.mkdir()
        (out / OWNER).write_text(json.dumps({"query": "revenue", "owner": by}))
        (out / "part-000000000005.parquet").write_bytes(b"")
        for other in ({"timeline": "other", "place": "/other"}, {"query": "clicks", "place": "/state"}):
            with pytest.raises(SinkError, match="already holds the results of query revenue"):
                sink_of(out, **other)
        with pytest.raises(SinkError, match="holds results of batch 5, but the state has got only as far as batch 4"):
            sink_of(out, place="/state", newest=4)
        write(sink_of(out, place="/state", newest=6), 6)
        assert owner(out) == {"query": "revenue", "owner": "state-1", "batch": 6, "term": "term-1", "number": 0}
        sink_of(out, place="/elsewhere")
        with pytest.raises(SinkError, match="already holds the results of query revenue"):
            sink_of(out, timeline="other", place="/state")


def test_a_sink_that_is_ahead_of_the_state_is_refused_by_name(tmp_path: Path) -> None:
    """The state was restored from a copy: its next batches would be other ones."""
    write(sink_of(tmp_path), 7)
    sink_of(tmp_path, newest=7)
    with pytest.raises(SinkError, match=r"revenue: .* holds results of batch 7, .* only as far as batch 6") as raised:
        sink_of(tmp_path, newest=6)
    assert str(tmp_path) in str(raised.value)
    assert "fork=True" in str(raised.value.hint)
    (tmp_path / "part-000000000007.parquet").unlink()  # whoever has read it has seen it
    with pytest.raises(SinkError, match="only as far as batch 6"):
        sink_of(tmp_path, newest=6)
    (tmp_path / "part-000000000009.parquet").write_bytes(b"")
    with pytest.raises(SinkError, match=r"holds results of batch 9, .* only as far as batch 8"):
        sink_of(tmp_path, newest=8)


def test_writes_of_a_copy_are_noticed(tmp_path: Path) -> None:
    """Two copies of one state go on beside each other: whoever comes second is refused, and so is the first then."""
    write(sink_of(tmp_path), 7)
    copy = sink_of(tmp_path, term="term-of-the-copy", known_terms=frozenset({"term-1", "term-of-the-copy"}))
    original = sink_of(tmp_path, term="term-2", known_terms=frozenset({"term-1", "term-2"}))
    waiting = original.prepare(8, TABLE)
    write(copy, 8, TABLE.slice(1))
    with pytest.raises(SinkError, match="revenue: another copy of this state writes to") as raised:
        original.commit(8, waiting, None)
    assert str(tmp_path) in str(raised.value)
    with pytest.raises(SinkError, match="another copy of this state writes to"):
        sink_of(tmp_path, term="term-2", known_terms=frozenset({"term-1", "term-2"}))
    assert pq.read_table(tmp_path / "part-000000000008.parquet").equals(TABLE.slice(1))
    write(copy, 9)


def test_a_copy_that_writes_while_this_session_does_is_noticed(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    write(sink, 7)
    write(sink_of(tmp_path, term="other", known_terms=frozenset({"term-1"})), 8)
    token = sink.prepare(8, TABLE)
    with pytest.raises(SinkError, match="another copy"):
        sink.commit(8, token, None)


def test_an_owner_file_that_went_is_noticed_by_who_wrote_it(tmp_path: Path) -> None:
    sink = sink_of(tmp_path)
    write(sink, 7)
    (tmp_path / OWNER).unlink()
    token = sink.prepare(8, TABLE)
    with pytest.raises(SinkError, match="another copy"):
        sink.commit(8, token, None)


# -- written by tasks ----------------------------------------------------------------------------------------


def in_tasks(out: Path, file_format: str = "parquet") -> FilesInTasks:
    outputs = (Output("n", Expr('"n"', "bigint", ("n",))), Output("t", Expr('"t"', "timestamp", ("t",))))
    return FilesInTasks.of(Query("revenue", "", "s", outputs, sink=to_files(out, file_format)))


def made(*numbers: int) -> pa.Table:
    """As operators make rows: named by their place, times without a zone."""
    return pa.table({"0": pa.array(numbers, pa.int64()), "1": pa.array(numbers, pa.timestamp("us"))})


def written_part(sink: FilesInTasks, place: int, *tables: pa.Table) -> str:
    part = sink.open_part(7, place, f"{place:012x}")
    for one in tables:
        part.write(one)
    assert part.rows == sum(one.num_rows for one in tables)
    return part.finish()


def test_what_tasks_have_written_is_seen_at_once_as_a_directory(tmp_path: Path) -> None:
    out = tmp_path / "out"
    sink, tasks = sink_of(out), in_tasks(out)
    parts = [written_part(tasks, 0, made(1), made(2, 3)), written_part(tasks, 1, made(4))]
    rest = pq.read_table(out / parts[1]).slice(0, 0)
    assert rest.schema.names == ["n", "t"]
    assert rest.schema.field("t").type == pa.timestamp("us", "UTC")
    token = sink.prepare(7, rest.schema.empty_table(), parts)
    assert not list(out.glob("part-*"))
    assert not any((out / part).exists() for part in parts)
    for _ in range(2):  # a second time changes nothing
        sink.commit(7, token, None)
    assert names(out) == ["part-000000000007"]
    assert sorted(pq.read_table(out / "part-000000000007")["n"].to_pylist()) == [1, 2, 3, 4]
    with pytest.raises(SinkError, match="only as far as batch 6"):
        sink_of(out, newest=6)


def test_text_that_tasks_write_has_one_header_a_file(tmp_path: Path) -> None:
    sink_of(tmp_path, format="csv")
    name = written_part(in_tasks(tmp_path, "csv"), 0, made(1), made(2))
    assert (tmp_path / name).read_text().splitlines()[0] == "n,t"
    assert len((tmp_path / name).read_text().splitlines()) == 3


def test_parts_of_attempts_that_did_not_count_are_swept(tmp_path: Path) -> None:
    sink, tasks = sink_of(tmp_path), in_tasks(tmp_path)
    counted, lost = written_part(tasks, 0, made(1)), written_part(tasks, 1, made(1))
    abandoned = tasks.open_part(7, 2, "a" * 12)
    abandoned.write(made(5))
    abandoned.abandon()
    sink.commit(7, sink.prepare(7, None, [counted]), None)
    assert not (tmp_path / lost).exists()
    assert {path.name for path in tmp_path.iterdir()} == {"part-000000000007", ".thalweg-owner.json"}
