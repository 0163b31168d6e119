"""Unit: what Flink is told and how its figures are taken. None of it starts Flink."""

from __future__ import annotations

import csv
import re
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from benchmarks.systems import Given, flink
from benchmarks.systems import flink_sql as sql
from benchmarks.workloads.model import Query, Stream, Workload, make_files

SCHEMA = pa.schema(
    [("id", pa.int64()), ("ts", pa.timestamp("us", tz="UTC")), ("name", pa.string()), ("v", pa.float64())]
)
BOUND = "s_ts BETWEEN r_ts - INTERVAL '2' SECOND AND r_ts + INTERVAL '2' SECOND"


def table(number: int) -> pa.Table:
    """Four rows; times in microseconds that milliseconds cannot tell."""
    ids = [4 * number + i for i in range(4)]
    times = [1_700_000_000_000_000 + 10 * i for i in ids]
    return pa.table({"id": ids, "ts": times, "name": ["a", None, 'say "b"', "c,d"], "v": [0.25] * 4}).cast(SCHEMA)


def given(directory: Path, files: int = 3, files_per_batch: int = 1) -> Given:
    stream = Stream("events", SCHEMA, "ts", 10, table)
    query = Query("q0", "", flink="SELECT id, COUNT(*) AS n FROM events GROUP BY id")
    work = Workload("test", (stream,), (query,), 4, files_per_batch)
    return Given(work, make_files(work, files, directory), files)


def test_a_time_is_kept_in_microseconds_and_computed_in_milliseconds() -> None:
    ddl = sql.table_ddl("events", SCHEMA, "/csv", ("ts", 10))
    assert "`ts_us` BIGINT, `ts` AS TO_TIMESTAMP_LTZ(`ts_us` / 1000, 3)" in ddl
    assert "WATERMARK FOR `ts` AS `ts` - INTERVAL '10.000' SECOND(2, 3)" in ddl
    assert "WATERMARK" not in sql.table_ddl("events", SCHEMA, "/csv", None)


def test_csv_files_have_every_other_row_in_the_order_of_time(tmp_path: Path) -> None:
    folder = flink.csv_files(given(tmp_path), "events")
    rows = [list(csv.reader((folder / f"{part}.csv").read_text().splitlines())) for part in range(2)]
    assert [[int(row[0]) for row in part] for part in rows] == [[0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11]]
    assert rows[1][0] == ["1", "1700000000000010", "", "0.25"]
    assert rows[0][1][2] == 'say "b"'
    assert rows[1][1][2] == "c,d"


def test_csv_files_are_made_for_each_number_of_files(tmp_path: Path) -> None:
    make_files(given(tmp_path).work, 3, tmp_path)
    counts = [len((flink.csv_files(given(tmp_path, n), "events") / "0.csv").read_text().split()) for n in (3, 1)]
    assert counts[0] > counts[1]


def test_a_bound_between_event_times_is_said_in_microseconds_too() -> None:
    text = sql.exact(f"SELECT * FROM r JOIN s ON r_k = s_k AND {BOUND}", {"r_ts", "s_ts"})
    assert text.endswith(f"{BOUND} AND s_ts_us BETWEEN r_ts_us - 2000000 AND r_ts_us + 2000000")


def test_a_bound_of_a_named_stream_keeps_the_name() -> None:
    bound = "b.ts BETWEEN a.ts - INTERVAL '1' MINUTE AND a.ts + INTERVAL '3' MINUTE"
    assert sql.exact(bound, {"ts"}).endswith("AND b.ts_us BETWEEN a.ts_us - 60000000 AND a.ts_us + 180000000")


def test_a_bound_of_other_columns_stays_as_it_is() -> None:
    assert sql.exact(BOUND, {"r_ts"}) == BOUND


def test_a_scan_parses_what_the_queries_need() -> None:
    stream = Stream("events", SCHEMA, "ts", 10, table)
    assert sql.parsed_columns(stream, ["SELECT COUNT(*) FROM events WHERE v > 1"]) == ["ts_us", "v"]
    assert sql.parsed_columns(stream, ["SELECT * FROM events"]) == ["id", "ts_us", "name", "v"]


def test_results_regain_their_microseconds(tmp_path: Path) -> None:
    columns = [("start", "TIMESTAMP(3)"), ("ts_us", "BIGINT"), ("ts", "TIMESTAMP_LTZ(3)"), ("name", "STRING")]
    (tmp_path / "part-0").write_text('"2023-11-14 22:13:20",1700000000000010,"2023-11-14 22:13:20Z",a\n')
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    source = f"read_csv('{tmp_path}/part-0', header = false, columns = {sql.result_columns(columns)})"
    found = connection.sql(f"SELECT {sql.result_select(columns)} FROM {source}").to_arrow_table()
    assert found.column_names == ["start", "ts", "name"]
    start = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    assert found.to_pylist() == [{"start": start, "ts": start.replace(microsecond=10), "name": "a"}]


def test_a_sink_has_no_marks_of_a_result() -> None:
    assert sql.plain_type("TIMESTAMP_LTZ(3) *ROWTIME* NOT NULL") == "TIMESTAMP_LTZ(3)"
    assert sql.plain_type("BIGINT NOT NULL") == "BIGINT"


def test_a_query_that_flink_cannot_say_is_told_by_name() -> None:
    with pytest.raises(RuntimeError, match="q7 cannot be said"):
        sql.text_of(Query("q7", "SELECT 1", flink=""), ())


def test_rows_are_counted_at_the_sources_only() -> None:
    names = ("Source: r[1] -> Calc[2]", "IntervalJoin[3]", "Source: s[4]")
    vertices = [{"name": name, "metrics": {"read-records": 10}} for name in names]
    assert flink.rows_read({"vertices": vertices}) == 20


def test_the_first_batch_ends_between_two_samples() -> None:
    samples = [(1.0, 0), (2.0, 0), (3.0, 100), (4.0, 300), (5.0, 300)]
    assert flink.passed(samples, 200) == 3.5
    assert flink.passed(samples, 300) == 4.0
    assert flink.passed(samples, 301) is None


class Cpu:
    def seconds_between(self, began: float, ended: float) -> float:
        return 2 * (ended - began)


def test_the_rate_is_of_what_follows_the_first_batch_until_all_is_read(tmp_path: Path) -> None:
    samples = [(10.0, 0), (12.0, 8), (14.0, 12), (16.0, 12)]
    found = flink.measured(samples, given(tmp_path), (10.0, 17.0), Cpu())  # type: ignore[arg-type]
    assert found["first_batch_seconds"] == 1.0
    assert found["rows"] == 8
    assert found["rows_per_second"] == 8 / 3.0
    assert found["cpu_seconds_per_million"] == pytest.approx(2 * 3 / 8 * 1e6)
    assert found["drain_seconds"] == 3.0


def test_a_job_that_ended_unseen_counts_to_its_end(tmp_path: Path) -> None:
    found = flink.measured([(10.0, 0), (12.0, 8)], given(tmp_path), (10.0, 15.0), Cpu())  # type: ignore[arg-type]
    assert found["seconds"] == 4.0
    assert found["drain_seconds"] == 0.0


def test_one_batch_gives_no_rate(tmp_path: Path) -> None:
    samples = [(10.0, 0), (12.0, 4)]
    found = flink.measured(samples, given(tmp_path, files=1), (10.0, 15.0), Cpu())  # type: ignore[arg-type]
    assert found["first_batch_seconds"] == 2.0
    assert "rows_per_second" not in found


def test_what_is_missing_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flink, "PACKAGE", "apache-flink-of-nowhere")
    assert re.search(r"\./dev peers", flink.missing() or "")
