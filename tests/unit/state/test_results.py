"""Unit: results of memory queries are one file per batch, which the manifest names; nothing else counts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thalweg.errors import StateError
from thalweg.model.bucket import Section
from thalweg.model.manifest import Manifest, ResultFile
from thalweg.state import results as module
from thalweg.state.collect import collect_garbage
from thalweg.state.container import ContainerWriter
from thalweg.state.local_storage import LocalStorage
from thalweg.state.results import StoredResults

SCHEMA = pa.schema([("n", pa.int64())])


def rows(*values: int) -> pa.Table:
    return pa.table([pa.array(values, pa.int64())], schema=SCHEMA)


class Log:
    """Results as batches use them: prepared, named by a manifest, committed; what is not named goes."""

    def __init__(self, path: Path, files: tuple[ResultFile, ...] = ()) -> None:
        self.storage = LocalStorage(str(path))
        self.files = files
        self.results = StoredResults(self.storage, files)

    def commit(self, batch: int, tables: Mapping[str, pa.Table], wanted: Collection[str] | None = None) -> None:
        """`wanted`: all of this batch when left out."""
        files = self.results.prepare(batch, tables, {*tables} if wanted is None else wanted)
        self.results.commit(files)
        self.files = files
        collect_garbage(self.storage, Manifest(batch, 16, "h", results=files))

    def restarted(self) -> Log:
        return Log(self.storage.root, self.files)

    def values(self, query: str) -> list[int]:
        table = self.results.read(query, SCHEMA)
        assert table.schema == SCHEMA
        found: list[int] = table["n"].to_pylist()
        return found

    def batches(self) -> list[str]:
        """Of the files that are there."""
        return [name.removeprefix("results/")[:12].lstrip("0") or "0" for name in self.storage.names("results/")]


def test_a_batch_of_many_queries_is_one_file(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.commit(3, {f"q{n}": rows(n) for n in range(300)} | {"quiet": rows()})
    log.commit(4, {"quiet": rows()}, {f"q{n}" for n in range(300)})
    assert log.batches() == ["3"]
    assert [(file.first, file.last, file.level) for file in log.files] == [(3, 3, 0)]
    assert log.values("q7") == [7]
    assert log.values("quiet") == log.values("unknown") == []


def test_nothing_is_seen_before_the_commit_and_all_after_a_restart(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for batch in range(3):
        log.commit(batch, {"q": rows(batch, batch)})
    assert log.values("q") == [0, 0, 1, 1, 2, 2]
    files = log.results.prepare(3, {"q": rows(3)}, {"q"})
    assert log.values("q") == log.restarted().values("q") == [0, 0, 1, 1, 2, 2]
    log.results.commit(files)
    assert log.values("q") == Log(tmp_path, files).values("q") == [0, 0, 1, 1, 2, 2, 3]


def test_an_attempt_that_did_not_come_to_its_manifest_counts_for_nothing(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.commit(0, {"q": rows(0)})
    log.results.prepare(1, {"q": rows(99)}, {"q"})
    log.commit(1, {"q": rows(1)})
    assert log.values("q") == [0, 1]
    log.results.prepare(2, {"q": rows(99)}, {"q"})
    log.commit(2, {"q": rows()})
    assert log.values("q") == log.restarted().values("q") == [0, 1]
    assert log.batches() == ["0", "1"], "what was prepared in vain went"


def test_repeated_reads_do_not_read_files_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path)
    for batch in range(3):
        log.commit(batch, {"q": rows(batch)})
    read: list[str] = []
    original = module.read_section
    monkeypatch.setattr(module, "read_section", lambda d, s: (read.append(s.file), original(d, s))[1])
    first = log.results.read("q", SCHEMA)
    assert log.results.read("q", SCHEMA) is first
    log.commit(3, {"q": rows(3)})
    assert log.values("q") == [0, 1, 2, 3]
    assert len(read) == 4


def test_the_file_whose_last_query_is_forgotten_goes(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.commit(0, {"a": rows(1)}, {"a", "b"})
    log.commit(1, {"a": rows(2), "b": rows(3)})
    assert log.values("a") == [1, 2]
    log.commit(2, {}, {"b"})
    assert log.batches() == ["1"]
    assert log.values("b") == log.restarted().values("b") == [3]
    log.results.forget_reads({"b"})
    restarted = log.restarted()
    restarted.commit(3, {}, ())
    assert restarted.batches() == []
    assert restarted.values("a") == restarted.values("b") == []


def test_what_was_read_of_a_query_that_is_gone_is_let_go(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.commit(0, {"a": rows(1), "b": rows(2)})
    tables = {query: log.results.read(query, SCHEMA) for query in "ab"}
    log.results.forget_reads({"b"})
    assert log.results.read("b", SCHEMA) is tables["b"]
    assert log.results.read("a", SCHEMA) is not tables["a"]


def test_many_files_are_merged_and_what_nobody_wants_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MERGE_FILES", 3)
    log = Log(tmp_path)
    for batch in range(4):
        log.commit(batch, {"q": rows(batch), "gone": rows(batch)})
    for batch in range(4, 11):
        log.commit(batch, {"q": rows(batch), "late": rows(batch)}, {"q", "late"})
    assert [(file.first, file.last, file.level) for file in log.files] == [(0, 8, 2), (9, 9, 0), (10, 10, 0)]
    assert log.batches() == ["8", "9", "10"]
    restarted = log.restarted()
    for found in (log, restarted):
        assert found.values("q") == list(range(11))
        assert found.values("late") == list(range(4, 11))
    log.results.commit(log.results.prepare(11, {}, {"q", "late"}))
    assert log.values("q") == list(range(11))


def test_a_merge_in_the_middle_of_what_was_read_is_read_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MERGE_FILES", 3)
    log = Log(tmp_path)
    log.commit(0, {"q": rows(0)})
    assert log.values("q") == [0]
    for batch in range(1, 6):
        log.commit(batch, {"q": rows(batch)})
    assert log.values("q") == [0, 1, 2, 3, 4, 5]


def test_files_of_earlier_releases_go_on(tmp_path: Path) -> None:
    """A manifest that is read from format 4 names them as they were called."""
    log = Log(tmp_path)
    log.commit(0, {"q": rows(0)})
    (name,) = log.storage.names("results/")
    (tmp_path / name).rename(tmp_path / "results" / "000000000000-000000000004.arrow")
    old = Log(tmp_path, (ResultFile("results/000000000000-000000000004.arrow", 0, 4, 1),))
    assert old.values("q") == [0]
    old.commit(5, {"q": rows(5)})
    assert old.values("q") == old.restarted().values("q") == [0, 5]
    assert old.batches() == ["0", "5"]


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.commit(0, {"q": rows(0)})
    path = tmp_path / log.files[0].file
    good = path.read_bytes()
    path.write_bytes(good[:-1])
    with pytest.raises(StateError, match=str(path)):
        log.restarted().values("q")
    path.unlink()
    with pytest.raises(StateError, match=f"{path} is missing"):
        log.restarted().values("q")


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans(), st.sampled_from(["", "a", "b"])),
        min_size=1,
        max_size=25,
    )
)
@pytest.mark.slow
def test_any_life_of_the_results_gives_the_same(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool, bool, str]]
) -> None:
    """Restarts, attempts in vain, queries that are dropped."""
    log = Log(tmp_path_factory.mktemp("log"))
    expected: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MERGE_FILES", 3)
        for batch, (query, restart, in_vain, dropped) in enumerate(steps):
            if restart:
                log = log.restarted()
            if in_vain:
                log.results.prepare(batch, {query: rows(-1)}, "abc")
            if dropped:
                expected.pop(dropped, None)
            if query in expected:
                expected[query].append(batch)
            log.commit(batch, {query: rows(batch)} if query in expected else {}, {*expected})
            assert {q: log.values(q) for q in expected} == expected
            assert {*log.storage.names("results/")} == {file.file for file in log.files}


def test_of_what_tasks_have_written_only_what_counts_is_read_and_as_users_see_it(tmp_path: Path) -> None:
    """Not of a query that has failed, nor of one whose rows the driver had to put into order."""
    log = Log(tmp_path)
    with ContainerWriter(log.storage, "prepared/000000000000-0-a.arrow") as writer:
        for query in ("q", "other"):
            writer.stream(query, pa.table({"0": pa.array([7], pa.int32()), "more": ["x"]}))
        writer.close()
    files = log.results.prepare(0, {"q": rows(1)}, {"q", "other"}, {"prepared/000000000000-0-a.arrow": ["q"]})
    log.results.commit(files)
    for results in (log.results, StoredResults(log.storage, files)):
        assert sorted(results.read("q", SCHEMA)["n"].to_pylist()) == [1, 7]
        assert results.read("other", SCHEMA).num_rows == 0
    merged = log.results._merge(files, {"q", "other"})
    assert sorted(StoredResults(log.storage, merged).read("q", SCHEMA)["n"].to_pylist()) == [1, 7]
    assert StoredResults(log.storage, merged).read("other", SCHEMA).num_rows == 0


# -- only the newest


def keep_newest(log: Log, batch: int, query: str, limit: int, *others: str) -> None:
    """A thousand rows a batch of each query. `limit`: of the first."""
    tables = {name: rows(*[batch] * 1000) for name in (query, *others)}
    files = log.results.prepare(batch, tables, {"q", "other"}, None, {query: limit})
    log.results.commit(files)
    log.files = files
    collect_garbage(log.storage, Manifest(batch, 16, "h", results=files))


def batches_of(log: Log, query: str) -> list[int]:
    values = log.values(query)
    assert values[::1000] == values[999::1000]
    return values[::1000]


def test_the_newest_results_of_a_query_are_kept_and_all_of_others(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for number in range(20):
        keep_newest(log, number, "q", 20_000, "other")  # 8,000 bytes a batch
        assert batches_of(log, "q") == [*range(max(0, number - 2), number + 1)]
        assert batches_of(log, "other") == [*range(number + 1)]
    assert log.results.size("q")[0] == 3_000
    assert 24_000 < log.results.size("q")[1] < 27_000
    assert log.results.size("other")[0] == 20_000
    assert batches_of(log.restarted(), "q") == [17, 18, 19]
    keep_newest(log, 20, "other", 1, "q")  # another one from now on: what is gone stays gone
    assert batches_of(log, "other") == [20]
    assert batches_of(log, "q") == [17, 18, 19, 20]


def test_where_results_are_merged_the_disk_holds_not_much_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MERGE_FILES", 4)
    log = Log(tmp_path)
    for number in range(130):
        keep_newest(log, number, "q", 60_000, *(["other"] if number < 70 else []))
        kept = batches_of(log, "q")
        assert kept == [*range(number - len(kept) + 1, number + 1)]
        assert min(8, number + 1) <= len(kept) <= 16
        if number % 7 == 0:
            log = log.restarted()
    assert batches_of(log, "other") == [*range(70)]
    assert sum(len(log.storage.read(name)) for name in log.storage.names("results/")) < 110 * 8_000


def test_results_of_one_batch_are_kept_or_not_as_a_whole(tmp_path: Path) -> None:
    """Also where tasks have written some of them."""
    log = Log(tmp_path)
    for batch in range(3):
        with ContainerWriter(log.storage, f"prepared/{batch:012d}-0-a.arrow") as writer:
            writer.add("q", rows(*range(100)))
            writer.close()
        more = {f"prepared/{batch:012d}-0-a.arrow": ["q"]}
        log.results.commit(log.results.prepare(batch, {"q": rows(-1)}, {"q"}, more, {"q": 1}))
        assert log.results.read("q", SCHEMA).num_rows == 101


def test_sizes_follow_what_commits_change_and_look_at_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, looked = Log(tmp_path), list[str]()
    of_file = StoredResults._sections_of

    def counted(results: StoredResults, file: ResultFile) -> tuple[Section, ...]:
        looked.append(file.file)
        return of_file(results, file)

    wanted = {f"q{n}" for n in range(5)}
    for batch in range(60):
        tables = {f"q{n}": rows(*range(batch % (n + 2))) for n in range(5)}
        wanted = wanted - {"q3"} if batch == 40 else wanted
        log.commit(batch, tables, wanted)
        fresh = log.restarted().results
        assert [log.results.size(f"q{n}") for n in range(5)] == [fresh.size(f"q{n}") for n in range(5)]
    monkeypatch.setattr(StoredResults, "_sections_of", counted)
    before = {*log.files}
    log.results.commit([*log.files, log.files[-1]])
    log.results.size("q1")
    assert not {*looked} & {file.file for file in before}
