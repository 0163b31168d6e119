"""Unit: streams are dropped, replaced and altered; what was is gone, and results stay right."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import thalweg
from thalweg import faults
from thalweg.errors import NamingError, SourceError, ThalwegError, UsageError
from thalweg.testing import LocalSession
from thalweg.testing.memory_storage import MemoryStorage

Local = Callable[..., LocalSession]
SCHEMA = "ts timestamp, v bigint"
PLAIN = "SELECT v FROM s"
WINDOWED = "SELECT window.start AS since, sum(v) AS total FROM s GROUP BY window(ts, '10 seconds')"
JOINED = "SELECT s.v AS a, t.v AS b FROM s JOIN t ON s.v = t.v AND t.ts BETWEEN s.ts AND s.ts + INTERVAL 5 SECONDS"


def at(second: float) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)


def rows(*pairs: tuple[float, int]) -> list[dict[str, Any]]:
    return [{"ts": at(second), "v": value} for second, value in pairs]


def totals(handle: thalweg.QueryHandle) -> list[tuple[int, int]]:
    found = handle.results().to_pylist()
    return sorted(((row["since"] - at(0)) // timedelta(seconds=1), row["total"]) for row in found)


def make(session: LocalSession, name: str = "s", delay: str = "0 seconds", **options: Any) -> Any:
    source = thalweg.memory(SCHEMA)
    session.create_stream(name, source, time="ts", watermark=delay, max_ahead=None, **options)
    return source


def drop(session: LocalSession, *queries: str) -> None:
    for name in queries:
        session.drop_query(name)
    session.drop_stream("s")


def objects(session: LocalSession, *folders: str) -> list[str]:
    return [name for folder in folders for name in session.storage.names(folder)]


# -- DROP STREAM -------------------------------------------------------------------------------------------


def test_a_stream_that_is_read_is_not_dropped(local: Local) -> None:
    session = local()
    make(session)
    session.create_query("one", PLAIN)
    session.create_query("two", WINDOWED)
    with pytest.raises(UsageError, match="read by one, two") as raised:
        session.drop_stream("s")
    assert "DROP QUERY one; DROP QUERY two" in str(raised.value)
    drop(session, "one", "two")
    assert not session.streams
    with pytest.raises(NamingError, match="no stream named 's'"):
        session.drop_stream("s")
    session.drop_stream("s", if_exists=True)


@pytest.mark.parametrize("runs_between", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
def test_one_of_the_same_name_begins_with_nothing(local: Local, restarts: bool, runs_between: bool) -> None:
    """Neither offsets nor a watermark nor state nor counters of the one before are its own."""
    storage = MemoryStorage(f"memory://streams-{restarts}-{runs_between}")
    session = local(state_dir=storage)
    source = make(session)
    query = session.create_query("q", WINDOWED)
    source.append(rows((0, 1), (12, 2), (1_000_000, 3), (1_000_001, 4)))
    session.run_available()
    assert totals(query) == [(0, 1), (10, 2)]
    source.append(rows((1_000_002, 5)))
    session.drop_query("q")
    session.drop_stream("s")
    if runs_between:
        session.run_available()
    if restarts:
        session.stop()
        session = local(state_dir=storage)
        assert not session.streams
    source = make(session)
    query = session.create_query("q", WINDOWED)
    assert session.progress()["streams"]["s"]["rows"] == 0
    assert session.progress()["streams"]["s"]["watermark"] is None
    source.append(rows((3, 10), (14, 20), (25, 30)))
    session.run_available()
    assert totals(query) == [(0, 10), (10, 20)]
    told = session.progress()["streams"]["s"]
    assert (told["rows"], told["late"]) == (3, 0)
    assert not objects(session, "sources/s/")
    source.append(rows((1_000_020, 0)))
    session.run_available()
    assert totals(query) == [(0, 10), (10, 20), (20, 30)]
    session.stop()
    session = local(state_dir=storage)
    session.create_stream("s", source, time="ts", watermark="0 seconds")
    source.append(rows((1_000_040, 0)))
    session.run_available()
    assert totals(session.query("q"))[-1] == (1_000_020, 0)


def test_what_it_kept_is_given_back(local: Local) -> None:
    session = local()
    source = make(session)
    make(session, "t").append(rows((0, 1)))
    session.create_query("q", PLAIN)
    session.create_query("other", "SELECT v FROM t")
    source.append(rows((0, 1)))
    session.alter_stream("s", max_ahead="1 day")
    source.append([{"ts": datetime.now(UTC) + timedelta(days=9), "v": 7}])
    session.run_available()
    assert session.rejected("s").num_rows == 1
    drop(session, "q")
    session.run_available()
    assert not objects(session, "sources/s/", "rejected/s/")
    assert objects(session, "sources/t/")
    manifest = session._parts.runner.manifest
    assert {*manifest.streams, *manifest.closed, *manifest.reached.streams, *manifest.marks} == {"t"}
    make(session).append(rows((0, 2)))
    assert session.rejected("s").num_rows == 0
    assert session.rejected("s").schema.names == session.rejected("t").schema.names


def test_what_is_set_aside_of_another_is_its_own(local: Local) -> None:
    session = local()
    for value in (1, 2):
        source = make(session)
        session.alter_stream("s", max_ahead="1 day")
        session.create_query("q", PLAIN)
        source.append([{"ts": datetime.now(UTC) + timedelta(days=9), "v": value}])
        source.append(rows((0, value)))
        session.run_available()
        found = session.rejected("s")
        assert (found.num_rows, found["stream"].to_pylist()) == (1, ["s"])
        assert session.progress()["streams"]["s"]["rejected"] == 1
        drop(session, "q")


def test_joined_streams_begin_anew(local: Local) -> None:
    """State and watermarks of joins with a stream that was dropped do not meet rows of the next of its name."""
    session = local()
    s, t = make(session), make(session, "t")
    session.create_query("q", JOINED)
    s.append(rows((0, 1), (100, 9)))
    t.append(rows((1, 1), (100, 9)))
    session.run_available()
    assert session.query("q").results().num_rows == 2
    session.drop_query("q")
    session.drop_stream("s")
    s = make(session)
    session.create_query("q", JOINED)
    t.append(rows((101, 9), (102, 5)))
    s.append(rows((99, 5), (100, 8)))
    session.run_available()
    assert session.query("q").results().to_pylist() == [{"a": 5, "b": 5}]


def test_a_drop_while_batches_run(local: Local) -> None:
    session = local()
    source = make(session)
    session.create_query("q", PLAIN)
    session.start("0 seconds")
    for value in range(20):
        source.append(rows((value, value)))
        if value == 10:
            drop(session, "q")
            source = make(session)
            session.create_query("q", PLAIN)
    runner, query = session._parts.runner, session.query("q")
    with runner.finished:
        assert runner.finished.wait_for(lambda: query.results().num_rows == 9, timeout=30)
    session.stop()
    assert sorted(query.results()["v"].to_pylist()) == [*range(11, 20)]


@pytest.mark.parametrize("point", ["batch.start", "batch.tasks", "batch.prepared", "batch.manifest", "batch.end"])
def test_a_drop_survives_a_crash(local: Local, point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch that applies it is run again from its beginning, or has happened."""
    storage = MemoryStorage(f"memory://crash-{point}")
    session = local(state_dir=storage)
    source = make(session)
    session.create_query("q", WINDOWED)
    source.append(rows((1_000, 1), (1_020, 2)))
    session.run_available()
    drop(session, "q")
    source = make(session)
    session.create_query("q", WINDOWED)
    source.append(rows((1, 5), (12, 6)))

    def fail(name: str) -> None:
        if name == point:
            raise RuntimeError("died")

    monkeypatch.setattr(faults, "point", fail)
    with pytest.raises(ThalwegError):
        session.run_available()
    monkeypatch.undo()
    session.stop()
    session = local(state_dir=storage)
    session.create_stream("s", source, time="ts", watermark="0 seconds")
    session.run_available()
    assert totals(session.query("q")) == [(0, 5)]
    assert session.progress()["streams"]["s"]["rows"] == 2
    session.run_available()
    assert not objects(session, "sources/s/")


def test_a_crash_between_the_request_and_the_catalog(local: Local, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request alone says that the stream is gone."""
    from thalweg.verbs import streams

    storage = MemoryStorage("memory://between")
    session = local(state_dir=storage)
    source = make(session)
    session.create_query("q", PLAIN)
    source.append(rows((0, 1)))
    session.run_available()
    session.drop_query("q")

    class Died(BaseException):
        pass

    def die(*given: object) -> None:
        raise Died

    monkeypatch.setattr(streams, "note_drop", die)
    with pytest.raises(Died):
        session.drop_stream("s")
    monkeypatch.undo()
    session._parts.requests.close()
    session._parts.hold.release()
    again = local(state_dir=storage)
    assert not again.streams
    source = make(again)
    assert again.stream("s").place != "s"
    again.create_query("q", PLAIN)
    source.append(rows((0, 2)))
    again.run_available()
    assert again.query("q").results()["v"].to_pylist() == [2]


# -- CREATE OR REPLACE, IF NOT EXISTS ----------------------------------------------------------------------


def test_a_stream_is_replaced_if_nobody_reads_it(local: Local) -> None:
    session = local()
    source = make(session)
    session.create_query("q", PLAIN)
    source.append(rows((0, 1)))
    session.run_available()
    again = make(session, replace=True)  # the same: it goes on
    again.append(rows((1, 2)))
    session.run_available()
    assert session.query("q").results()["v"].to_pylist() == [1, 2]
    with pytest.raises(UsageError, match="cannot be replaced by a different one") as raised:
        make(session, delay="5 seconds", replace=True)
    assert "read by q" in str(raised.value)
    session.drop_query("q")
    other = make(session, delay="5 seconds", replace=True)
    query = session.create_query("q", PLAIN)
    other.append(rows((0, 7)))
    session.run_available()
    assert query.results()["v"].to_pylist() == [7]
    assert session.stream("s").delay_us == 5_000_000
    with pytest.raises(UsageError):
        again.append(rows((0, 0)))


def test_a_stream_that_is_there_is_left_as_it_is(local: Local) -> None:
    storage = MemoryStorage("memory://kept")
    session = local(state_dir=storage)
    make(session, delay="3 seconds")
    assert session.stream("s").delay_us == 3_000_000
    make(session, delay="9 seconds", if_not_exists=True)
    assert session.stream("s").delay_us == 3_000_000
    session.stop()
    session = local(state_dir=storage)
    make(session, delay="9 seconds", if_not_exists=True)
    assert session.stream("s").delay_us == 3_000_000
    source = make(session, delay="3 seconds", if_not_exists=True)  # the same: it is taken up
    query = session.create_query("q", PLAIN)
    source.append(rows((0, 1)))
    session.run_available()
    assert query.results().num_rows == 1


# -- ALTER STREAM ------------------------------------------------------------------------------------------


def test_a_shorter_delay_moves_the_watermark_forward_at_once(local: Local) -> None:
    session = local()
    source = make(session, delay="1 hour")
    query = session.create_query("q", WINDOWED)
    source.append(rows((0, 1), (5, 2), (30, 3)))
    session.run_available()
    assert totals(query) == []
    session.alter_stream("s", watermark="5 seconds")
    assert session.stream("s").delay_us == 5_000_000
    session.run_available()
    assert totals(query) == [(0, 3)]
    source.append(rows((3, 9), (45, 1)))
    session.run_available()
    assert totals(query) == [(0, 3), (30, 3)]
    assert session.progress()["streams"]["s"]["late"] == 1


def test_a_longer_delay_keeps_windows_open_and_never_goes_back(local: Local) -> None:
    session = local()
    source = make(session, delay="0 seconds")
    query = session.create_query("q", WINDOWED)
    source.append(rows((0, 1), (12, 2)))
    session.run_available()
    assert totals(query) == [(0, 1)]
    session.alter_stream("s", watermark="20 seconds")
    source.append(rows((5, 9), (25, 3), (15, 4)))  # the first is late still; the second would have closed (10, 20)
    session.run_available()
    assert totals(query) == [(0, 1)]
    assert session.progress()["streams"]["s"]["watermark"] == at(12)
    assert session.progress()["streams"]["s"]["late"] == 1
    source.append(rows((41, 5), (11, 6)))  # 11 is late for no open window: it is still open
    session.run_available()
    assert totals(query) == [(0, 1), (10, 12)]


def test_an_alteration_takes_effect_with_the_batch_that_applies_it(local: Local) -> None:
    """Rows that were there before are read by the same batch, whatever comes in between."""
    storage = MemoryStorage("memory://altered")
    session = local(state_dir=storage)
    source = make(session, delay="1 hour")
    session.create_query("q", WINDOWED)
    source.append(rows((0, 1), (30, 2)))
    session.alter_stream("s", watermark="0 seconds", idle_timeout="5 minutes", max_ahead="3 hours")
    session.stop()
    session = local(state_dir=storage)
    stream = session.stream("s")
    assert (stream.delay_us, stream.idle_us, stream.max_ahead_us) == (0, 300_000_000, 10_800_000_000)
    with pytest.raises(NamingError, match="defined differently"):
        session.create_stream("s", source, time="ts", watermark="1 hour")
    session.create_stream("s", source, time="ts", watermark="0 seconds")
    assert session.stream("s") == stream
    session.run_available()
    assert totals(session.query("q")) == [(0, 1)]


@pytest.mark.parametrize("point", ["batch.start", "batch.tasks", "batch.prepared", "batch.manifest", "batch.end"])
def test_a_batch_that_is_repeated_sees_the_same_alteration(
    local: Local, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = MemoryStorage(f"memory://repeated-{point}")
    session = local(state_dir=storage)
    source = make(session, delay="1 hour")
    session.create_query("q", WINDOWED)
    source.append(rows((0, 1), (30, 2)))
    session.run_available()
    session.alter_stream("s", watermark="0 seconds")

    def fail(name: str) -> None:
        if name == point:
            raise RuntimeError("died")

    monkeypatch.setattr(faults, "point", fail)
    with pytest.raises(ThalwegError):
        session.run_available()
    monkeypatch.undo()
    session.stop()
    session = local(state_dir=storage)
    session.run_available()
    assert totals(session.query("q")) == [(0, 1)]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"watermark": "-1 second"}, "0 on"),
        ({"watermark": 5}, "a length of time"),
        ({"watermark": "soon"}, "soon"),
        ({"idle_timeout": "0 seconds"}, "above 0"),
        ({"max_ahead": 7}, "a length of time"),
    ],
)
def test_what_is_no_length_of_time_is_refused(local: Local, changes: dict[str, Any], said: str) -> None:
    session = local()
    make(session)
    before = session.stream("s")
    with pytest.raises(ThalwegError, match=said):
        session.alter_stream("s", **changes)
    assert session.stream("s") == before


def test_the_bound_of_times_ahead_is_altered(local: Local) -> None:
    session = local()
    source = make(session)
    query = session.create_query("q", PLAIN)
    ahead = datetime.now(UTC) + timedelta(hours=5)
    source.append([{"ts": ahead, "v": 1}])
    session.run_available()
    session.alter_stream("s", max_ahead="1 hour")
    source.append([{"ts": ahead, "v": 2}])
    session.run_available()
    session.alter_stream("s", max_ahead=None)
    source.append([{"ts": ahead, "v": 3}])
    session.run_available()
    assert query.results()["v"].to_pylist() == [1, 3]
    assert session.rejected("s").num_rows == 1


def test_a_bound_that_the_program_gives_again_is_the_last_word(local: Local) -> None:
    """Also over an alteration that no batch has applied yet."""
    storage = MemoryStorage("memory://last-word")
    session = local(state_dir=storage)
    make(session)
    session.create_query("q", PLAIN)
    session.alter_stream("s", max_ahead="1 hour")
    session.stop()
    session = local(state_dir=storage)
    make(session)
    session.stop()
    session = local(state_dir=storage)
    assert session.stream("s").max_ahead_us is None
    source = make(session)
    source.append([{"ts": datetime.now(UTC) + timedelta(days=9), "v": 7}])
    session.run_available()
    assert session.query("q").results()["v"].to_pylist() == [7]


def test_a_drop_that_could_not_be_acknowledged_leaves_nothing_behind(
    local: Local, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog may have been written all the same: another one of the name begins with nothing then, too."""
    from thalweg.verbs import streams

    storage = MemoryStorage("memory://unsure")
    session = local(state_dir=storage)
    source = make(session)
    session.create_query("q", PLAIN)
    source.append(rows((0, 1)))
    source.append(rows((1, 2)))
    session.run_available()
    session.drop_query("q")
    save = streams.save_streams

    def save_and_fail(*given: Any) -> None:
        save(*given)
        raise OSError("no answer")

    monkeypatch.setattr(streams, "save_streams", save_and_fail)
    with pytest.raises(ThalwegError):
        session.drop_stream("s")
    monkeypatch.undo()
    session.stop()
    session = local(state_dir=storage)
    source = make(session)
    query = session.create_query("q", PLAIN)
    source.append(rows((2, 3)))
    session.run_available()
    assert query.results()["v"].to_pylist() == [3]


# -- what a stream must have -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"time": "ts"}, "stream 'o' has no watermark"),
        ({"watermark": "1 second"}, "stream 'o' has no event time"),
        ({}, "stream 'o' has no event time and no watermark"),
    ],
)
def test_a_stream_without_time_or_watermark_is_told_what_to_give(
    local: Local, given: dict[str, str], said: str
) -> None:
    session = local()
    with pytest.raises(UsageError, match=said) as refused:
        session.create_stream("o", thalweg.memory(SCHEMA), **given)
    assert isinstance(refused.value, TypeError)  # as of any call that lacks an argument
    assert "time='ts', watermark='10 seconds'" in (refused.value.hint or "")
    assert "o" not in session.streams


# -- a directory that is not there -----------------------------------------------------------------------------


def create_from(session: LocalSession, folder: Path, way: str, replaces: bool = False) -> None:
    if way == "python":
        source = thalweg.files(f"{folder}/*.json")
        session.create_stream("s", source, time="ts", watermark="1 second", schema=SCHEMA, replace=replaces)
    else:
        verb = "CREATE OR REPLACE" if replaces else "CREATE"
        session.sql(
            f"{verb} STREAM s (ts TIMESTAMP, v BIGINT, WATERMARK FOR ts AS ts - INTERVAL 1 SECOND) "
            f"WITH (path = '{folder}/*.json')"
        )


@pytest.mark.parametrize("way", ["python", "sql"])
@pytest.mark.parametrize("replaces", [False, True])
def test_a_new_stream_of_a_directory_that_is_not_there_is_refused(
    local: Local, tmp_path: Path, way: str, replaces: bool
) -> None:
    session = local()
    if replaces:
        (tmp_path / "here").mkdir()
        create_from(session, tmp_path / "here", way)
    before = dict(session.streams)
    with pytest.raises(SourceError, match=r"no such directory: .*nowhere"):
        create_from(session, tmp_path / "nowhere", way, replaces)
    assert dict(session.streams) == before


@pytest.mark.parametrize("way", ["python", "sql"])
@pytest.mark.parametrize("replaces", [False, True])
def test_a_directory_that_goes_away_is_told_and_ends_nothing(
    local: Local, tmp_path: Path, way: str, replaces: bool
) -> None:
    storage, folder = MemoryStorage(f"memory://gone-{way}-{replaces}"), tmp_path / "in"
    folder.mkdir()
    session = local(state_dir=storage)
    create_from(session, folder, way)
    assert session.progress()["streams"]["s"]["error"] is None
    folder.rmdir()
    session.run_available()
    assert session.progress()["streams"]["s"]["error"] == f"no such directory: {folder}"
    session.stop()
    session = local(state_dir=storage)  # opened again, and created again by the program as before
    create_from(session, folder, way, replaces)
    session.run_available()
    assert session.progress()["streams"]["s"]["error"] == f"no such directory: {folder}"
    folder.mkdir()
    assert session.progress()["streams"]["s"]["error"] is None
