"""Unit: what is not let in is set aside with its reason, counted and told; the rest, and all others, go on."""

from __future__ import annotations

import gzip
import json
import logging
import os
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import thalweg
from thalweg.batch.retention import retain
from thalweg.errors import ThalwegError
from thalweg.model.times import joint_time
from thalweg.state.rejected import Batched
from thalweg.testing import LocalSession

Local = Callable[..., LocalSession]
NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
DDL = "k bigint, v bigint, ts timestamp"
ALL = "SELECT k, v FROM events"
SUMS = "SELECT k, sum(v) AS s, window.start AS w FROM events GROUP BY k, window(ts, '10 seconds')"
LEFT = "SELECT a.v AS x, b.v AS y FROM a LEFT JOIN b ON a.k = b.k WITHIN 1 SECOND"
INNER = "SELECT a.v AS x, b.v AS y FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND"
COUNTS = """SELECT count(*) AS n, window.start AS w FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND
    GROUP BY window(a.ts, '10 seconds')"""


class Clock:
    """A wall clock that a test sets."""

    def __init__(self, session: LocalSession, at: datetime = NOW) -> None:
        self.at = at
        session._parts.runner.planning.wall_clock = lambda: round(self.at.timestamp() * 1e6)


def at(seconds: float, v: int = 0, k: int = 1) -> dict[str, Any]:
    return {"k": k, "v": v, "ts": NOW + timedelta(seconds=seconds)}


def told(session: LocalSession, stream: str = "events") -> dict[str, Any]:
    found: dict[str, Any] = session.progress()["streams"][stream]
    return found


def with_memory(session: LocalSession, name: str = "events", **limits: Any) -> Any:
    source = thalweg.memory(DDL)
    session.create_stream(name, source, time="ts", watermark="0 seconds", **limits)
    return source


def one_batch(session: LocalSession) -> None:
    """Without the last one that closes what the final watermark closes."""
    session._parts.pipeline.tick()
    session._parts.pipeline._next(None)  # type: ignore[attr-defined]


def rows_of(session: LocalSession, query: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in session.results(query).to_pylist()), key=str)


# -- too far ahead


def test_a_row_too_far_ahead_moves_no_watermark(local: Local, caplog: pytest.LogCaptureFixture) -> None:
    session = local()
    Clock(session)
    source = with_memory(session)
    session.create_query("sums", SUMS)
    source.append([at(0, 1), {"k": 1, "v": 9, "ts": datetime(2999, 1, 1, tzinfo=UTC)}, at(86_400, 5)])
    with caplog.at_level(logging.WARNING, "thalweg.source"):
        session.run_available()
        source.append([at(1, 2), {"k": 1, "v": 9, "ts": datetime(2999, 1, 1, tzinfo=UTC)}])
        session.run_available()
    state = told(session)
    assert (state["ahead"], state["rejected"], state["late"], state["rows"]) == (2, 2, 1, 3)
    assert state["watermark"] == NOW + timedelta(days=1)  # one day ahead is let in, and closes windows
    first = session.rejected("events").to_pylist()[0]
    assert first["reason"].startswith("column ts: later than 2026-06-02 12:00:00Z, which is max_ahead beyond")
    assert (first["file"], first["line"], first["batch"], first["stream"]) == (None, 2, 0, "events")
    assert first["time"] == NOW
    assert json.loads(first["row"])["v"] == "9"
    lines = [record.getMessage() for record in caplog.records if record.name == "thalweg.source"]
    assert len(lines) == 1  # once of each stream and kind
    assert lines[0].startswith('set_aside stream=events batch=0 kind=ahead rows=1 reason="column ts: later')


@pytest.mark.parametrize(("given", "count"), [(None, 0), ("1 hour", 2), (timedelta(hours=25), 1)])
def test_the_bound_is_the_streams_own(local: Local, given: Any, count: int) -> None:
    session = local()
    Clock(session)
    source = with_memory(session, max_ahead=given)
    session.create_query("all", ALL)
    source.append([at(0), at(2 * 3600), at(26 * 3600)])
    assert session.results("all").num_rows == 3 - count
    assert told(session)["ahead"] == count


def test_limits_in_sql(local: Local) -> None:
    session = local()
    text = "CREATE STREAM s (k BIGINT, ts TIMESTAMP, WATERMARK FOR ts AS ts) WITH (source = 'memory')"
    stream = session.sql(
        f"{text} OPTIONS (max_ahead = '2 hours', idle_timeout = '5 minutes', retain_rejected = '1.5 MB')"
    )
    assert (stream.max_ahead_us, stream.idle_us, stream.retain_rejected) == (7_200_000_000, 300_000_000, 1_500_000)
    free = session.sql(f"{text.replace(' s ', ' t ')} OPTIONS (max_ahead = 'none')")
    assert (free.max_ahead_us, free.idle_us, free.retain_rejected) == (None, None, None)
    plain = session.sql(text.replace(" s ", " u "))
    assert plain.max_ahead_us == 86_400_000_000
    with pytest.raises(ThalwegError, match="there is no option 'max_behind'"):
        session.sql(f"{text.replace(' s ', ' w ')} OPTIONS (max_behind = '1 day')")
    for wrong in ({"max_ahead": 5}, {"idle_timeout": "0 seconds"}, {"retain_rejected": "much"}):
        with pytest.raises(ThalwegError, match=f"{next(iter(wrong))} cannot be"):
            with_memory(session, "x", **wrong)


def test_generators_are_not_bound(local: Local) -> None:
    stream = local().create_stream("g", thalweg.generate("purchases", rows=10), time="ts", watermark="0 seconds")
    assert stream.max_ahead_us is None


def test_a_stream_that_is_known_keeps_its_limits_unless_they_are_given(local: Local, tmp_path: Path) -> None:
    def create(**limits: Any) -> Any:
        session = local(state_dir=tmp_path)
        try:
            return session.create_stream("s", thalweg.memory(DDL), time="ts", watermark="0 seconds", **limits)
        finally:
            session.stop()

    assert create(max_ahead=None, idle_timeout="1 minute").max_ahead_us is None
    known = create()
    assert (known.max_ahead_us, known.idle_us) == (None, 60_000_000)
    assert create(max_ahead="1 hour").max_ahead_us == 3_600_000_000
    assert create().max_ahead_us == 3_600_000_000


# -- times


def test_rows_without_a_time_and_of_other_years_are_counted(local: Local, tmp_path: Path) -> None:
    times = [None, -62_135_596_800_000_001, 253_402_300_800_000_000, 253_402_300_799_999_999, 0]
    table = pa.table({"k": range(5), "v": range(5), "ts": pa.array(times, pa.timestamp("us", "UTC"))})
    pq.write_table(table, tmp_path / "a.parquet")
    session = local()
    session.create_stream("events", thalweg.files(str(tmp_path)), time="ts", watermark="0 seconds", max_ahead=None)
    session.create_query("all", ALL)
    session.create_query("sums", SUMS)
    assert rows_of(session, "all") == [(0, 0), (4, 4)]
    assert (told(session)["untimed"], told(session)["rejected"]) == (1, 3)
    reasons = session.rejected("events").select(["line", "reason"]).to_pylist()
    assert [r["line"] for r in reasons] == [2, 3, 4]
    assert "not of the years 1 to 9999" in reasons[0]["reason"]
    assert "years 2 to 9998" in reasons[2]["reason"]
    session.query("sums").results().to_pylist()


# -- files


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def csv_session(local: Local, tmp_path: Path, **options: Any) -> LocalSession:
    session = local()
    source = thalweg.files(f"{tmp_path}/*.csv", **options)
    session.create_stream("events", source, time="ts", watermark="0 seconds", schema=DDL, max_ahead=None)
    session.create_query("all", ALL)
    return session


def test_a_header_without_the_event_time_sets_the_file_aside(local: Local, tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "k,v,ts\n1,1,2026-01-01T00:00:00\n")
    bad = write(tmp_path / "b.csv", "Ident,Wert,event_time\n2,2,2026-01-01T00:00:00\n")
    session = csv_session(local, tmp_path)
    assert rows_of(session, "all") == [(1, 1)]
    found = session.rejected("events").to_pylist()
    assert [r["file"] for r in found] == [str(bad)]
    assert found[0]["reason"] == "it has no column ts, the event time; its columns: Ident, Wert, event_time"


@pytest.mark.parametrize("missing", ["null", "refuse"])
def test_other_missing_columns_are_told_once_of_each_file(
    local: Local, tmp_path: Path, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "a.csv", "k,ts\n1,2026-01-01T00:00:00\n")
    write(tmp_path / "b.csv", "k,v,ts\n2,2,2026-01-01T00:00:00\n")
    session = csv_session(local, tmp_path, missing=missing)
    with caplog.at_level(logging.WARNING, "thalweg.source"):
        found = rows_of(session, "all")
    lines = [record.getMessage() for record in caplog.records if record.name == "thalweg.source"]
    if missing == "null":
        assert found == [(1, None), (2, 2)]
        assert (told(session)["incomplete_files"], told(session)["rejected"]) == (1, 0)
        assert lines == [f"columns_missing stream=events batch=0 file={tmp_path}/a.csv columns=v"]
    else:
        assert found == [(2, 2)]
        assert session.rejected("events")["reason"].to_pylist() == ["it has no column v; its columns: k, ts"]
        assert told(session)["incomplete_files"] == 0


def test_rows_of_text_are_kept_as_they_are_with_their_lines(local: Local, tmp_path: Path) -> None:
    lines = ["k,v,ts", "1,1,2026-01-01T00:00:00", "", '"7","1.234,56",2026-01-01T00:00:00', "1,2", "3,3,soon"]
    write(tmp_path / "a.csv", "\n".join(lines))
    session = csv_session(local, tmp_path)
    assert rows_of(session, "all") == [(1, 1)]
    found = {r["line"]: (r["row"], r["reason"]) for r in session.rejected("events").to_pylist()}
    assert found == {
        4: (lines[3], "column v: not a bigint"),
        5: (lines[4], "expected 3 fields, got 2"),
        6: (lines[5], "column ts: not a timestamp"),
    }


def test_a_file_that_is_not_what_was_seen_is_said(local: Local, tmp_path: Path) -> None:
    row = "{0},{0},2026-01-01T00:00:00\n"
    grown = write(tmp_path / "a.csv", "k,v,ts\n" + row.format(1) + row.format(2)[:-1])
    again = write(tmp_path / "b.csv", "k,v,ts\n" + row.format(3))
    whole = write(tmp_path / "c.csv", "k,v,ts\n" + row.format(4)[:-1])
    session = csv_session(local, tmp_path)
    seen = session._parts.pipeline._planner.target()  # type: ignore[attr-defined]  # the files are in the log now
    assert seen is not None
    with grown.open("a") as file:
        file.write("5\n" + row.format(6))
    write(again, "k,v,ts\n" + row.format(7))
    os.utime(again, ns=(1, 1))
    # Of the file that grew, the lines that were whole; the last line of one that is the same has no end.
    assert rows_of(session, "all") == [(1, 1), (4, 4)]
    found = {r["file"]: r["reason"] for r in session.rejected("events").to_pylist()}
    assert found == {
        str(grown): f"the file has grown since it was seen: it had 54 bytes and has {grown.stat().st_size}; "
        "what came later is not read",
        str(again): "the file is not the one that was seen: it was written again",
    }
    assert whole.exists()


@pytest.mark.parametrize("form", ["csv", "json"])
@pytest.mark.parametrize("is_beside_another", [True, False])
def test_a_line_is_utf8_as_a_whole(local: Local, tmp_path: Path, form: str, is_beside_another: bool) -> None:
    """Also where nobody reads it, and whatever else is wrong with the lines that a task reads."""
    good, bad, worse = b'1,1,"2026-01-01T00:00:00",z\n', b'2,2,"2026-01-01T00:00:00",\xff\n', b"3\n"
    head = b"k,v,ts,z\n"
    if form == "json":
        good, bad = (
            b'{"k":%b,"v":1,"ts":"2026-01-01T00:00:00","%b":1}\n' % pair for pair in ((b"1", b"z"), (b"2", b"\xff"))
        )
        head = b""
    (tmp_path / f"a.{form}").write_bytes(head + good + bad + worse * is_beside_another)
    session = local()
    source = thalweg.files(f"{tmp_path}/*.{form}")
    session.create_stream("events", source, time="ts", watermark="0 seconds", schema=DDL, max_ahead=None)
    session.create_query("all", ALL)
    assert rows_of(session, "all") == [(1, 1)]
    reasons = session.rejected("events")["reason"].to_pylist()
    assert "not UTF-8" in reasons
    assert len(reasons) == 1 + is_beside_another


def test_damaged_files_are_set_aside_by_name_and_other_streams_go_on(local: Local, tmp_path: Path) -> None:
    good = pa.table({"k": [1], "v": [1], "ts": pa.array([0], pa.timestamp("us", "UTC"))})
    (tmp_path / "parquet").mkdir()
    pq.write_table(good, tmp_path / "parquet" / "a.parquet")
    (tmp_path / "parquet" / "b.parquet").write_bytes(b"")
    (tmp_path / "parquet" / "c.parquet").write_bytes((tmp_path / "parquet" / "a.parquet").read_bytes()[:-9])
    (tmp_path / "lines").mkdir()
    packed = gzip.compress(b'{"k":1,"v":1,"ts":"2026-01-01T00:00:00"}\n' * 2_000)
    (tmp_path / "lines" / "a.json.gz").write_bytes(packed[: len(packed) // 2])
    write(tmp_path / "lines" / "b.json", '[\n {"k":1},\n {"k":2}\n]\n')
    session = local()
    for name, pattern in (("events", "parquet/*.parquet"), ("lines", "lines/*")):
        session.create_stream(
            name, thalweg.files(f"{tmp_path}/{pattern}"), time="ts", watermark="0 seconds", schema=DDL
        )
    session.create_query("all", ALL)
    session.create_query("lines", "SELECT k, v FROM lines")
    assert rows_of(session, "all") == [(1, 1)]
    aside = {Path(r["file"]).name: r["reason"] for s in ("events", "lines") for r in session.rejected(s).to_pylist()}
    assert sorted(aside) == ["a.json.gz", "b.json", "b.parquet", "c.parquet"]
    assert "it is empty" in aside["b.parquet"]
    assert "Truncated compressed stream" in aside["a.json.gz"]
    assert "an array; JSON lines are wanted" in aside["b.json"]


def test_the_error_of_a_column_of_times_names_the_line_and_a_schema(local: Local, tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "id,ts\n1,2026-01-01T00:00:00\n2,yesterday\n")
    session = local()
    with pytest.raises(ThalwegError) as raised:
        session.create_stream("s", thalweg.files(f"{tmp_path}/*.csv"), time="ts", watermark=10)  # type: ignore[arg-type]
    text = str(raised.value)
    assert f"what line 3 of {tmp_path}/a.csv says: 2,yesterday is no time" in text
    assert 'schema="id bigint, ts timestamp"' in text
    assert "watermark cannot be 10" in text
    session.create_stream(
        "s", thalweg.files(f"{tmp_path}/*.csv"), time="ts", watermark="0 seconds", schema="id bigint, ts timestamp"
    )


def test_the_error_of_json_with_two_types_names_the_line_and_a_schema(tmp_path: Path) -> None:
    lines = write(tmp_path / "a.json", '{"id": 1, "ts": "2026-01-01"}\n{"id": 2, "ts": "2026-01-01"}\n{"id": "x"}\n')
    with pytest.raises(ThalwegError) as raised:
        thalweg.files(str(lines)).schema()
    assert 'column id is a number in line 2, and a string in line 3: {"id": "x"}' in str(raised.value)
    assert 'schema="id bigint, ts ' in str(raised.value)
    array = write(tmp_path / "b.json", '[\n  {"id": 1}\n]\n')
    with pytest.raises(ThalwegError, match="an array; JSON lines are wanted"):
        thalweg.files(str(array)).schema()


# -- rows of the program


def test_rows_are_appended_in_any_form(local: Local) -> None:
    pandas = pytest.importorskip("pandas")
    session = local()
    source = with_memory(session, max_ahead=None)
    session.create_query("all", ALL)
    source.append([at(0, 1), {"k": 1, "ts": NOW}])
    source.append(pandas.DataFrame([at(1, 2)]))
    source.append(pa.Table.from_pylist([at(2, 3)]).to_batches()[0])
    source.append([])
    assert rows_of(session, "all") == [(1, 1), (1, 2), (1, 3), (1, None)]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"k": 1, "v": 1}], "They have no column ts"),
        (pa.table({"k": [1], "v": [1]}), "They have no column ts"),
        ([{**at(0), "other": 1}], "There is no column other"),
        ([1, 2], "is not a table"),
        (7, "not iterable"),
        ({"k": [1]}, "is not a table"),
        ([{**at(0), "v": "x"}], "column v: not a bigint, in row 1"),
        ([{**at(0), "v": 1}, {**at(0), "v": "x"}], "appended rows do not fit"),
    ],
)
def test_what_does_not_fit_is_refused(rows: Any, said: str) -> None:
    with pytest.raises(ThalwegError, match=said):
        thalweg.memory(DDL).append(rows)


# -- retention


def test_the_newest_that_fit_are_retained() -> None:
    kept = [Batched(number, 1, 10) for number in range(5)]
    assert [b.batch for b in retain(kept, 30).batches] == [2, 3, 4]
    assert retain(kept, 30).forgotten == 2
    assert [b.batch for b in retain(kept, 0).batches] == [4]  # the newest, however large
    assert retain(kept, 1_000).forgotten == 0


def test_rows_set_aside_do_not_fill_the_state(local: Local, tmp_path: Path) -> None:
    session = local(state_dir=tmp_path)
    Clock(session)
    source = with_memory(session, retain_rejected="5 kB")
    session.create_query("all", ALL)
    for number in range(12):
        source.append([at(10**7, v=number)])
        session.run_available()
    state = told(session)
    kept = session.rejected("events")
    assert state["rejected"] == 12
    assert 0 < kept.num_rows < 12
    assert 0 < state["rejected_bytes"] <= 5_000
    assert kept["batch"].to_pylist() == sorted(kept["batch"].to_pylist())
    assert len(session.storage.names("rejected/")) == kept.num_rows
    session.stop()
    again = local(state_dir=tmp_path)
    Clock(again)
    source = with_memory(again)
    source.append([at(10**7)])
    again.run_available()
    assert told(again)["rejected"] == 13
    assert again.rejected("events").num_rows == kept.num_rows
    assert again.rejected("events")["batch"].to_pylist()[-1] > kept["batch"].to_pylist()[-1]


# -- idle streams


def test_an_idle_stream_no_longer_holds_a_join(local: Local) -> None:
    session = local()
    clock = Clock(session)
    a, b = with_memory(session, "a"), with_memory(session, "b", idle_timeout="1 minute")
    session.create_query("joined", LEFT)
    session.create_query("counts", COUNTS)
    b.append([at(0, 100)])
    a.append([at(0, 1), at(10, 2), at(20, 3)])
    assert rows_of(session, "joined") == [(1, 100)]
    assert session.progress()["queries"]["joined"]["held_by"] == ["b"]
    assert not told(session, "b")["idle"]
    clock.at += timedelta(seconds=59)
    session.run_available()
    assert rows_of(session, "joined") == [(1, 100)]
    clock.at += timedelta(seconds=1)
    assert rows_of(session, "joined") == [(1, 100), (2, None)]  # the third may have partners yet
    assert told(session, "b")["idle"]
    assert session.progress()["queries"]["joined"]["held_by"] == []
    assert rows_of(session, "counts") == [(1, NOW)]
    # What is behind when it goes on is late, and counted; what is not, is joined.
    b.append([at(5, 200), at(20.5, 300)])
    a.append([at(40, 4)])
    assert rows_of(session, "joined") == [(1, 100), (2, None), (3, 300)]
    assert told(session, "b")["late"] == 1
    assert not told(session, "b")["idle"]


def test_if_all_are_idle_nobody_moves(local: Local) -> None:
    session = local()
    clock = Clock(session)
    a, b = (with_memory(session, name, idle_timeout="1 minute") for name in "ab")
    session.create_query("joined", LEFT)
    b.append([at(0, 100)])
    a.append([at(0, 1), at(20, 2)])
    session.run_available()
    clock.at += timedelta(hours=1)
    assert rows_of(session, "joined") == [(1, 100)]
    b.append([at(20, 200)])
    assert rows_of(session, "joined") == [(1, 100), (2, 200)]


def test_a_stream_that_never_had_rows_becomes_idle(local: Local, tmp_path: Path) -> None:
    session = local(state_dir=tmp_path)
    clock = Clock(session)
    a, _ = with_memory(session, "a"), with_memory(session, "b", idle_timeout="1 minute")
    session.create_query("joined", LEFT)
    a.append([at(0, 1), at(20, 2)])
    assert rows_of(session, "joined") == []
    session.stop()
    again = local(state_dir=tmp_path)
    clock = Clock(again, NOW + timedelta(minutes=1))
    assert clock.at > NOW
    assert rows_of(again, "joined") == [(1, None)]


@pytest.mark.slow
def test_a_batch_without_data_follows_when_a_stream_becomes_idle(local: Local) -> None:
    session = local()
    clock = Clock(session)
    a, _ = with_memory(session, "a"), with_memory(session, "b", idle_timeout="1 minute")
    query = session.create_query("joined", LEFT)
    a.append([at(0, 1), at(20, 2)])
    session.start("0 seconds")
    wait_for(lambda: told(session, "a")["rows"] == 2)
    clock.at += timedelta(minutes=2)
    wait_for(lambda: query.results().num_rows == 1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_results_are_those_of_the_rows_that_were_not_late(local: Local, seed: int) -> None:
    """Streams that fall silent and go on, in any order: inner and left joins against a plain loop over the rows that
    were admitted."""
    rng = random.Random(seed)
    session = local()
    clock = Clock(session)
    sources = {name: with_memory(session, name, idle_timeout="1 minute", max_ahead=None) for name in "ab"}
    session.create_query("joined", LEFT)
    admitted: dict[str, list[tuple[float, int, int]]] = {"a": [], "b": []}
    late = {"a": 0, "b": 0}
    second = number = 0
    for _ in range(25):
        closed = joint_time(session._parts.runner.manifest.closed, ["a", "b"])
        for name, source in sources.items():
            if rng.random() < 0.4:
                continue
            rows = []
            for _ in range(rng.randint(1, 4)):
                number += 1
                rows.append((second + rng.randint(-30, 10), number, rng.randint(0, 2)))
            source.append([at(*row) for row in rows])
            on_time = [r for r in rows if round((NOW + timedelta(seconds=r[0])).timestamp() * 1e6) > closed]
            admitted[name] += on_time
            late[name] += len(rows) - len(on_time)
        one_batch(session)
        second += rng.randint(0, 20)
        clock.at += timedelta(seconds=rng.choice([1, 30, 90]))
    for name, source in sources.items():
        source.append([at(10_000, -1, 99)])
        admitted[name].append((10_000, -1, 99))
    session.run_available()
    expected = []
    for t, v, k in admitted["a"]:
        found = [w for u, w, j in admitted["b"] if j == k and abs(u - t) <= 1]
        expected += [(v, w) for w in found] or [(v, None)]
    assert rows_of(session, "joined") == sorted(expected, key=str)
    assert {name: told(session, name)["late"] for name in "ab"} == late
    assert sum(late.values()) > 0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


# -- watermarks that begin anew


def test_a_watermark_begins_anew(local: Local, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    session = local(state_dir=tmp_path)
    source = with_memory(session, max_ahead=None)
    query = session.create_query("sums", SUMS)
    far = {"k": 1, "v": 900, "ts": datetime(2999, 1, 1, tzinfo=UTC)}
    source.append([at(0, 1), far])
    session.run_available()
    source.append([at(1, 2)])
    assert rows_of(session, "sums") == [(1, 1, NOW)]
    assert told(session)["late"] == 1
    session.sql("ALTER STREAM events RESET WATERMARK")
    session.stop()  # it is durable
    again = local(state_dir=tmp_path)
    source = with_memory(again)
    with caplog.at_level(logging.WARNING, "thalweg.source"):
        again.run_available()
    state = told(again)
    assert state["watermark"] is None
    assert state["reset"]["closed"] == datetime(2999, 1, 1, tzinfo=UTC)
    assert "watermark_reset stream=events batch=3 had_closed_up_to=2999-01-01" in caplog.text
    # Nothing comes twice by itself: the window that was given comes again with rows that came since, and says so.
    source.append([at(2, 4), at(30, 8), at(40, 16)])
    assert rows_of(again, "sums") == [(1, 1, NOW), (1, 4, NOW), (1, 8, NOW + timedelta(seconds=30))]
    assert again.query("sums").status.complete_from == datetime(2999, 1, 1, tzinfo=UTC)
    assert told(again)["late"] == 1
    # The window that was open is still there, with what came before.
    source.append([{**far, "v": 100}, {**far, "ts": datetime(2999, 1, 2, tzinfo=UTC)}])
    assert (1, 1000, datetime(2999, 1, 1, tzinfo=UTC)) in rows_of(again, "sums")
    assert query is not None


@pytest.mark.slow
def test_open_windows_of_many_slices_are_not_doubled(local: Local) -> None:
    session = local()
    source = with_memory(session, max_ahead=None)
    session.create_query(
        "long", "SELECT sum(v) AS s, window.start AS w FROM events GROUP BY window(ts, '64 seconds', '4 seconds')"
    )
    for second in range(0, 120, 2):
        source.append([at(second, 1)])
        session.run_available()
    before = rows_of(session, "long")
    session.reset_watermark("events")
    for second in range(120, 240, 2):
        source.append([at(second, 1)])
        session.run_available()
    after = [row for row in rows_of(session, "long") if row not in before]
    whole = [(s, w) for s, w in after if s == 32]
    assert len({w for _, w in after}) == len(after)  # no window twice
    assert len(whole) >= 15
    assert all(s <= 32 for s, _ in after)
    starts = [w for _, w in whole]
    assert max(starts) - min(starts) == timedelta(seconds=4) * (len(starts) - 1)  # without a gap


def test_joins_that_decide_do_not_go_back(local: Local) -> None:
    session = local()
    a, b = (with_memory(session, name, max_ahead=None) for name in "ab")
    session.create_query("left", LEFT)
    session.create_query("inner", INNER)
    for source, v in ((a, 1), (b, 100)):
        source.append([at(0, v), at(100, v + 1)])
    a.append([at(50, 7)])
    session.run_available()
    assert rows_of(session, "left") == [(1, 100), (2, 101), (7, None)]
    session.reset_watermark("a")
    session.reset_watermark("b")
    a.append([at(50, 8), at(100.5, 9), at(200, 10)])
    b.append([at(50, 108), at(200, 110)])
    assert rows_of(session, "left") == [(1, 100), (10, 110), (2, 101), (7, None), (9, 101)]
    assert (8, 108) not in rows_of(session, "inner")  # they share their watermark with the join that decides


def test_an_inner_join_goes_back(local: Local) -> None:
    session = local()
    a, b = (with_memory(session, name, max_ahead=None) for name in "ab")
    session.create_query("inner", INNER)
    for source, v in ((a, 1), (b, 100)):
        source.append([at(100, v)])
    session.run_available()
    a.append([at(50, 2)])
    b.append([at(50, 102)])
    assert rows_of(session, "inner") == [(1, 100)]
    session.reset_watermark("a")
    session.reset_watermark("b")
    a.append([at(50, 3)])
    b.append([at(50, 103)])
    assert rows_of(session, "inner") == [(1, 100), (3, 103)]


def test_a_query_that_comes_after_a_reset_does_not_claim_what_has_gone(local: Local) -> None:
    session = local()
    source = with_memory(session, max_ahead=None)
    session.create_query("sums", SUMS)
    source.append([at(0, 1), at(100, 2)])
    session.run_available()
    session.reset_watermark("events")
    session.run_available()
    session.create_query("later", SUMS)
    source.append([at(1, 4), at(100, 8), at(200, 16)])
    # The window from second 100 on was open: what is kept of it is whole for all. The one before had gone.
    opened = NOW + timedelta(seconds=100)
    assert rows_of(session, "later") == [(1, 10, opened), (1, 4, NOW)]
    assert session.query("later").status.complete_from == opened
    assert rows_of(session, "sums") == [(1, 1, NOW), (1, 10, opened), (1, 4, NOW)]
    assert session.query("sums").status.complete_from == opened


def test_only_known_streams_begin_anew(local: Local) -> None:
    session = local()
    with_memory(session)
    with pytest.raises(ThalwegError, match="event"):
        session.reset_watermark("event")
    with pytest.raises(ThalwegError, match="RESET WATERMARK"):
        session.sql("ALTER STREAM events DROP")
