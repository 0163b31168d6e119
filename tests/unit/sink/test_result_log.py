from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thalweg.sink.memory import ResultLog

from thalweg.sink import memory

SCHEMA = pa.schema([("n", pa.int64())])


def rows(*values: int) -> pa.Table:
    return pa.table([pa.array(values, pa.int64())], schema=SCHEMA)


def values(log: ResultLog, query: str, through: int) -> list[int]:
    table = log.read(query, SCHEMA, through)
    assert table.schema == SCHEMA
    found: list[int] = table["n"].to_pylist()
    return found


def files(state_dir: Path) -> list[str]:
    return sorted(p.name for p in (state_dir / "results").iterdir())


def test_a_batch_of_many_queries_is_one_file(tmp_path: Path) -> None:
    log = ResultLog(tmp_path)
    log.commit(3, {f"q{n}": rows(n) for n in range(300)} | {"quiet": rows()})
    log.commit(4, {"quiet": rows()})
    assert files(tmp_path) == ["000000000003.arrow"]
    assert values(log, "q7", 4) == [7]
    assert values(log, "quiet", 4) == values(log, "unknown", 4) == []


def test_reads_stop_at_the_committed_batch_and_survive_a_restart(tmp_path: Path) -> None:
    log = ResultLog(tmp_path)
    for batch in range(3):
        log.commit(batch, {"q": rows(batch, batch)})
    for reader in (log, ResultLog(tmp_path)):
        assert values(reader, "q", 1) == [0, 0, 1, 1]
        assert values(reader, "q", 2) == [0, 0, 1, 1, 2, 2]
        assert values(reader, "q", 0) == [0, 0]


def test_a_repeated_batch_replaces_itself(tmp_path: Path) -> None:
    log = ResultLog(tmp_path)
    log.commit(0, {"q": rows(1)})
    assert values(log, "q", 0) == [1]
    log.commit(0, {"q": rows(2)})
    assert values(log, "q", 0) == [2]
    log.commit(0, {"q": rows()})
    assert values(log, "q", 0) == []
    assert files(tmp_path) == []


def test_repeated_reads_do_not_read_files_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = ResultLog(tmp_path)
    for batch in range(3):
        log.commit(batch, {"q": rows(batch)})
    read: list[str] = []
    original = memory.read_section
    monkeypatch.setattr(memory, "read_section", lambda d, s: (read.append(s.file), original(d, s))[1])
    first = log.read("q", SCHEMA, 2)
    assert log.read("q", SCHEMA, 2) is first
    log.commit(3, {"q": rows(3)})
    assert values(log, "q", 3) == [0, 1, 2, 3]
    assert len(read) == 4


def test_forgetting_the_last_query_of_a_file_deletes_it(tmp_path: Path) -> None:
    log = ResultLog(tmp_path)
    log.commit(0, {"a": rows(1)})
    log.commit(1, {"a": rows(2), "b": rows(3)})
    log.forget("a")
    assert files(tmp_path) == ["000000000001.arrow"]
    assert values(log, "a", 1) == []
    assert values(log, "b", 1) == [3]
    restarted = ResultLog(tmp_path)
    restarted.retain({"b"})
    assert values(restarted, "a", 1) == []
    restarted.retain(set())
    assert files(tmp_path) == []


def test_many_files_are_merged_and_stay_merged_after_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MERGE_FILES", 3)
    log = ResultLog(tmp_path)
    for batch in range(11):
        log.commit(batch, {"q": rows(batch), "gone": rows(batch)})
        if batch == 4:
            log.forget("gone")
    left_over = (tmp_path / "results" / "000000000001.arrow").read_bytes()
    log.compact(9)
    assert files(tmp_path) == [
        "000000000000-000000000008.arrow",
        "000000000009.arrow",
        "000000000010.arrow",
    ]
    assert values(log, "q", 10) == list(range(11))
    (tmp_path / "results" / "000000000001.arrow").write_bytes(left_over)
    restarted = ResultLog(tmp_path)
    assert values(restarted, "q", 10) == list(range(11))
    assert values(restarted, "gone", 10) == [5, 6, 7, 8, 9, 10]
    assert len(files(tmp_path)) == 3
    restarted.commit(8, {"q": rows(99)})
    assert values(restarted, "q", 10) == list(range(11))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), min_size=1, max_size=25))
def test_any_life_of_the_log_gives_the_same_results(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool, bool]]
) -> None:
    directory = tmp_path_factory.mktemp("log")
    log = ResultLog(directory)
    expected: dict[str, list[int]] = {"a": [], "b": [], "c": []}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "MERGE_FILES", 3)
        for batch, (query, restart, compact) in enumerate(steps):
            if restart:
                log = ResultLog(directory)
            log.commit(batch, {query: rows(batch)})
            expected[query].append(batch)
            if compact:
                log.compact(batch)
            assert {q: values(log, q, batch) for q in "abc"} == expected
