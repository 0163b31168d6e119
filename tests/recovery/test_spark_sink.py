"""Recovery: what Spark's writers are given is there once, wherever the process dies; what they cannot take is refused
when the query is created."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import thalweg
from thalweg import faults
from thalweg.engine.spark_sink import SparkSink, grouped
from thalweg.engine.writer_check import check_jdbc, check_kafka
from thalweg.errors import SinkError
from thalweg.model.bucket import Section
from thalweg.model.expr import Expr
from thalweg.model.query import Output, Query, SinkSpec
from thalweg.sink.contract import SectionSink, SinkContext
from thalweg.sink.spark import to_spark
from thalweg.state.container import ContainerWriter
from thalweg.state.local_storage import LocalStorage

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FORMATS = ("parquet", "orc", "csv", "json", "text")
POINTS = ("spark.written", "spark.staged", "spark.moved", "spark.committed")
CONTEXT = SinkContext("q", "timeline", term="term-1", known_terms=frozenset({"term-0", "term-1"}), newest=1000)
DDL = "k bigint, v bigint, name string, ts timestamp"
ALL = "SELECT k, v, name FROM events"


class Died(BaseException):
    pass


def rows(first: int, count: int) -> pa.Table:
    times = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=n) for n in range(first, first + count)]
    numbers = list(range(first, first + count))
    return pa.table(
        {
            "k": pa.array([n % 3 for n in numbers], pa.int64()),
            "v": pa.array(numbers, pa.int64()),
            "name": [f"row {n}" for n in numbers],
            "ts": pa.array(times, pa.timestamp("us", "UTC")),
        }
    )


def query(spec: SinkSpec, columns: dict[str, str] | None = None) -> Query:
    columns = {"v": "bigint", "name": "string"} if columns is None else columns
    return Query("q", "", "s", tuple(Output(n, Expr(f'"{n}"', kind, (n,))) for n, kind in columns.items()), sink=spec)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    made = LocalStorage(str(tmp_path / "state"))
    made.claim()
    return made


def sections(storage: LocalStorage, batch: int, *tables: pa.Table) -> tuple[Section, ...]:
    with ContainerWriter(storage, f"prepared/{batch:012d}.arrow") as writer:
        for table in tables:
            writer.stream("q", table)
        return writer.close()


def results(spark: SparkSession, path: Path, format_: str = "parquet") -> list[Any]:
    """The values of v, or the lines of text."""
    schema = "value string" if format_ == "text" else "v bigint, name string"
    read = spark.read.schema(schema).format(format_).load(str(path)).collect()
    return sorted(row[0] for row in read)


def left_over(path: Path) -> list[str]:
    """What is kept beside the results."""
    return sorted(p.name for p in (path / ".thalweg").rglob("*") if not p.name.endswith(".crc") and p.is_file())


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("format_", ["parquet", "csv"])
def test_a_batch_shows_once_wherever_it_dies(
    spark: SparkSession,
    storage: LocalStorage,
    tmp_path: Path,
    point: str,
    format_: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the second of three batches, whose three files are moved one by one."""
    out, spec = tmp_path / "out", to_spark(format_, path=str(tmp_path / "out"))
    batches = {
        n: sections(storage, n, *(rows(30 * n + 10 * i, 10).select(["v", "name"]) for i in range(3)))
        for n in range(3)
    }
    monkeypatch.setattr("thalweg.engine.spark_sink.INLINE_BYTES", 0)
    monkeypatch.setattr("thalweg.engine.spark_sink._TASK_BYTES", 1)

    def die(passed: str) -> None:
        if passed == point:
            raise Died

    first = SparkSink(spark, query(spec), "q@1", CONTEXT, storage)
    first.commit_sections(0, batches[0])
    with faults.watch(die), pytest.raises(Died):
        first.commit_sections(1, batches[1])
    seen = results(spark, out, format_)
    assert set(seen) <= set(range(60))
    assert len(seen) == len(set(seen))
    later = SinkContext("q", "timeline", term="term-2", known_terms=frozenset({"term-1"}), newest=1000)
    for _ in range(2):  # twice: what is committed is not done again
        second = SparkSink(spark, query(spec), "q@1", later, storage)
        second.commit_sections(1, batches[1])
    assert results(spark, out, format_) == list(range(60))
    second.commit_sections(2, batches[2])
    assert results(spark, out, format_) == list(range(90))
    assert left_over(out) == ["committed-2"]
    parts = sorted(p.name for p in out.glob("part-*"))
    assert [name[:23] for name in parts] == [f"part-{n:012d}-{i:05d}" for n in range(3) for i in range(3)]


@pytest.mark.parametrize("format_", FORMATS)
def test_every_file_format_takes_few_and_many_results(
    spark: SparkSession, storage: LocalStorage, tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {"name": "string"} if format_ == "text" else {"v": "bigint", "name": "string"}
    sink = SparkSink(spark, query(to_spark(format_, path=str(tmp_path / "out")), columns), "q@1", CONTEXT, storage)
    assert isinstance(sink, SectionSink)
    sink.commit_sections(0, sections(storage, 0, rows(0, 5).select(list(columns))))
    monkeypatch.setattr("thalweg.engine.spark_sink.INLINE_BYTES", 0)
    sink.commit_sections(1, sections(storage, 1, rows(5, 5).select(list(columns)), rows(10, 5).select(list(columns))))
    wanted = sorted(f"row {n}" for n in range(15)) if format_ == "text" else list(range(15))
    assert results(spark, tmp_path / "out", format_) == wanted


def test_types_are_those_of_the_query_either_way(
    spark: SparkSession, storage: LocalStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = {
        "a`b": "timestamp_ntz",
        "t": "timestamp",
        "d": "decimal(10,2)",
        "window": "struct<start:timestamp,end:timestamp>",
        "list": "array<bigint>",
        "s": "varchar(3)",
    }
    asked = query(to_spark("parquet", path=str(tmp_path / "out")), columns)
    now, span = datetime(2026, 1, 1, 12), pa.struct({"start": pa.timestamp("us"), "end": pa.timestamp("us")})
    inner = pa.table(
        {
            "0": pa.array([now], pa.timestamp("us")),
            "1": pa.array([now], pa.timestamp("us")),
            "2": pa.array([None], pa.decimal128(10, 2)),
            "3": pa.array([{"start": now, "end": now}], span),
            "4": pa.array([[1, 2]], pa.list_(pa.int64())),
            "5": ["abc"],
        }
    )  # fmt: skip
    sink = SparkSink(spark, asked, "q@1", CONTEXT, storage)
    sink.commit_sections(0, sections(storage, 0, inner))
    monkeypatch.setattr("thalweg.engine.spark_sink.INLINE_BYTES", 0)
    sink.commit_sections(1, sections(storage, 1, inner))
    read = spark.read.parquet(str(tmp_path / "out"))
    assert dict(read.dtypes) == {**columns, "s": "string"}
    found = read.collect()
    assert len(found) == 2
    assert found[0] == found[1]


def test_an_older_copy_of_the_state_is_refused(spark: SparkSession, storage: LocalStorage, tmp_path: Path) -> None:
    asked = query(to_spark("parquet", path=str(tmp_path / "out")))
    given = sections(storage, 7, rows(0, 3).select(["v", "name"]))
    SparkSink(spark, asked, "q@1", CONTEXT, storage).commit_sections(7, given)
    behind = SinkContext("q", "timeline", term="term-2", known_terms=frozenset({"term-1"}), newest=6)
    with pytest.raises(SinkError, match="batch 7"):
        SparkSink(spark, asked, "q@1", behind, storage)
    other = SinkContext("q", "timeline", term="term-3", known_terms=frozenset({"term-0"}), newest=1000)
    with pytest.raises(SinkError, match="another copy of this state"):
        SparkSink(spark, asked, "q@1", other, storage)
    forked = SinkContext("q", "another timeline", term="term-3", newest=0)
    SparkSink(spark, asked, "q@1", forked, storage).commit_sections(0, given)
    assert results(spark, tmp_path / "out") == [0, 0, 1, 1, 2, 2], "another timeline writes results of its own"


class WithoutDelta(SparkSink):
    """Its package is not there: all but the writing."""

    def _writer(self, sections: Any, mode: str) -> Any:
        return (
            self._frame(sections).write.format("parquet").mode(mode).option("path", self._query.sink.option("path"))
        )


def test_an_older_copy_does_not_give_delta_numbers_that_it_knows(
    spark: SparkSession, storage: LocalStorage, tmp_path: Path
) -> None:
    """Delta would pass over rows that come under them."""
    asked = query(to_spark("delta", path=str(tmp_path / "out")))
    given = sections(storage, 7, rows(0, 3).select(["v", "name"]))
    sink = WithoutDelta(spark, asked, "q@1", CONTEXT, storage)
    sink.commit_sections(6, given)
    sink.commit_sections(7, given)
    assert left_over(tmp_path / "out") == ["committed-7"]
    again = WithoutDelta(spark, asked, "q@1", CONTEXT, storage)
    again.commit_sections(7, given)  # whether it arrived is Delta's to say
    assert len(results(spark, tmp_path / "out")) == 9
    behind = SinkContext("q", "timeline", term="term-2", known_terms=frozenset({"term-1"}), newest=6)
    with pytest.raises(SinkError, match="batch 7"):
        WithoutDelta(spark, asked, "q@1", behind, storage)
    other = SinkContext("q", "timeline", term="term-3", known_terms=frozenset({"term-0"}), newest=1000)
    with pytest.raises(SinkError, match="another copy of this state"):
        WithoutDelta(spark, asked, "q@1", other, storage)
    forked = SinkContext("q", "another timeline", term="term-3", newest=0)
    WithoutDelta(spark, asked, "q@1", forked, storage).commit_sections(0, given)
    assert len(results(spark, tmp_path / "out")) == 12


def test_staged_results_of_another_copy_are_not_taken_for_ours(
    spark: SparkSession, storage: LocalStorage, tmp_path: Path
) -> None:
    asked = query(to_spark("parquet", path=str(tmp_path / "out")))

    def die(passed: str) -> None:
        if passed == "spark.staged":
            raise Died

    with faults.watch(die), pytest.raises(Died):
        SparkSink(spark, asked, "q@1", CONTEXT, storage).commit_sections(
            1, sections(storage, 1, rows(0, 3).select(["v", "name"]))
        )
    with pytest.raises(SinkError, match="another copy of this state"):
        SparkSink(spark, asked, "q@1", CONTEXT, storage).commit_sections(
            1, sections(storage, 2, rows(0, 4).select(["v", "name"]))
        )


def test_what_a_dropped_query_was_about_to_give_is_swept(
    spark: SparkSession, storage: LocalStorage, tmp_path: Path
) -> None:
    asked, given = query(to_spark("parquet", path=str(tmp_path / "out"))), rows(0, 3).select(["v", "name"])

    def die(passed: str) -> None:
        if passed == "spark.staged":
            raise Died

    with faults.watch(die):
        for id_ in ("q@1", "other@2", "q@9"):
            with pytest.raises(Died):
                SparkSink(spark, asked, id_, CONTEXT, storage).commit_sections(1, sections(storage, 1, given))
    SparkSink(spark, asked, "q@5", CONTEXT, storage).commit_sections(2, sections(storage, 2, given))
    left = {path.relative_to(tmp_path / "out").parts[2] for path in (tmp_path / "out").rglob("moves")}
    assert left == {"other@2", "q@9"}
    assert results(spark, tmp_path / "out") == [0, 1, 2]


def test_two_queries_may_share_a_directory(spark: SparkSession, storage: LocalStorage, tmp_path: Path) -> None:
    asked = query(to_spark("parquet", path=str(tmp_path / "out")))
    for id_, first in (("a@1", 0), ("b@2", 3), ("a@3", 6)):
        given = sections(storage, first, rows(first, 3).select(["v", "name"]))
        SparkSink(spark, asked, id_, CONTEXT, storage).commit_sections(5, given)
    assert results(spark, tmp_path / "out") == list(range(9))


def test_jdbc_takes_results(spark: SparkSession, storage: LocalStorage, tmp_path: Path) -> None:
    url = f"jdbc:derby:{tmp_path / 'db'};create=true"
    asked = query(to_spark("jdbc", url=url, dbtable="t"))
    SparkSink(spark, asked, "q@1", CONTEXT, storage).commit_sections(
        0, sections(storage, 0, rows(0, 3).select(["v", "name"]))
    )
    assert spark.read.format("jdbc").options(url=url, dbtable="t").load().count() == 3


def test_what_a_writer_says_is_an_error_of_the_sink(
    spark: SparkSession, storage: LocalStorage, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("in the way")
    with pytest.raises(SinkError, match="query q: results could not be written to Spark's parquet") as raised:
        SparkSink(
            spark, query(to_spark("parquet", path=str(tmp_path / "out"))), "q@1", CONTEXT, storage
        ).commit_sections(0, sections(storage, 0, rows(0, 3).select(["v", "name"])))
    assert "directory that this user may write" not in str(raised.value)


def test_sections_are_dealt_out_by_size() -> None:
    made = [Section("f", "q", 0, length, 1, 0) for length in (5, 5, 20, 1, 1)]
    assert [[s.length for s in group] for group in grouped(made, 10)] == [[5, 5], [20], [1, 1]]


# -- at creation


@pytest.fixture
def session(spark: SparkSession, tmp_path: Path) -> Iterator[thalweg.Session]:
    with thalweg.connect(tmp_path / "session", spark=spark) as made:
        made.create_stream("events", thalweg.memory(DDL), time="ts", watermark="1 second")
        yield made


WINDOWS = "SELECT k, window, count(*) AS n FROM events GROUP BY k, window(ts, '1 second')"
REFUSED: list[tuple[str, dict[str, str], str, str, str]] = [
    ("delta", {"path": "d"}, ALL, "Spark has no writer 'delta'", "io.delta:delta-spark_2.13"),
    ("kafka", {"topic": "t"}, ALL, "Spark has no writer 'kafka'", "org.apache.spark:spark-sql-kafka-0-10_2.13:"),
    ("avro", {"path": "d"}, ALL, "Spark has no writer 'avro'", "org.apache.spark:spark-avro_2.13:"),
    ("carrier", {}, ALL, "Spark has no writer 'carrier'", "spark.jars.packages"),
    ("parquet", {}, ALL, "needs the option 'path'", "directory"),
    ("text", {"path": "d"}, ALL, "one column, of type string", "concat_ws"),
    ("text", {"path": "d"}, "SELECT v FROM events", "one column, of type string", "concat_ws"),
    ("csv", {"path": "d"}, WINDOWS, "column 'window' is of type struct<", "Select its parts"),
    ("parquet", {"path": "nowhere://x/y"}, ALL, "cannot write to nowhere://x/y", "scheme"),
    ("jdbc", {"dbtable": "t"}, ALL, "needs the option 'url'", "jdbc:postgresql"),
    ("jdbc", {"url": "jdbc:derby:memory:x"}, ALL, "needs the option 'dbtable'", "table"),
    ("jdbc", {"url": "jdbc:postgresql://u:hunter2@h/d", "dbtable": "t"}, ALL, "no driver", "spark.jars.packages"),
    ("jdbc", {"url": "jdbc:derby:x", "dbtable": "t", "driver": "no.such.Driver"}, ALL, "no driver", "spark.jars"),
]


def test_what_a_writer_cannot_take_is_refused(session: thalweg.Session) -> None:
    for format_, options, select, message, way_out in REFUSED:
        with pytest.raises(SinkError) as raised:
            session.create_query("q", select, to_spark(format_, **options))
        said = str(raised.value)
        assert message in said, said
        assert way_out in str(raised.value.hint), said
        assert "this user may write" not in said
        assert "hunter2" not in said
    assert not session.queries


def test_what_a_writer_can_take_is_accepted_without_effects(session: thalweg.Session, tmp_path: Path) -> None:
    place = tmp_path / "nothing" / "here"
    accepted = {
        "parquet": (WINDOWS, {"path": str(place)}),
        "orc": (WINDOWS, {"path": str(place)}),
        "json": (WINDOWS, {"path": str(place)}),
        "csv": (ALL, {"path": str(place)}),
        "text": ("SELECT name FROM events", {"path": str(place)}),
        "noop": (ALL, {}),
        "jdbc": (ALL, {"url": f"jdbc:derby:{tmp_path / 'db'}", "dbtable": "t", "password": "hunter2"}),
    }
    for format_, (select, options) in accepted.items():
        session.create_query(f"q_{format_}", select, to_spark(format_, **options))
    session.create_query("called", ALL, lambda table, batch_id: None)
    session.create_query("files", ALL, thalweg.to_files(tmp_path / "files"))
    assert not place.parent.exists()
    assert not (tmp_path / "db").exists()
    said = [str(session.sql("SHOW QUERIES").to_pylist()), session.explain(), repr(session.query("q_jdbc").definition)]
    assert "hunter2" not in "".join(said)
    shown = {row["query"]: row["delivery"] for row in session.sql("SHOW QUERIES").to_pylist()}
    at_least = {name for name, said in shown.items() if said == "at least once"}
    assert at_least == {"q_noop", "q_jdbc", "called"}
    assert {said for name, said in shown.items() if name not in at_least} == {"exactly once"}


def test_a_file_in_the_way_is_said(session: thalweg.Session, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="is a file, not a directory"):
        session.create_query("q", ALL, to_spark("parquet", path=str(tmp_path / "file" / "below")))


KAFKA = {"kafka.bootstrap.servers": "h:9092", "topic": "t"}


@pytest.mark.parametrize(
    ("options", "columns", "message"),
    [
        ({"topic": "t"}, {"value": "string"}, "needs the option 'kafka.bootstrap.servers'"),
        ({"kafka.bootstrap.servers": "h"}, {"value": "string"}, "needs the option 'topic'"),
        (KAFKA, {"v": "string"}, "no column 'value'"),
        (KAFKA, {"value": "bigint"}, "column 'value' is of type bigint"),
        (KAFKA, {"value": "string", "key": "double"}, "column 'key' is of type double"),
    ],
)
def test_what_kafka_needs(options: dict[str, str], columns: dict[str, str], message: str) -> None:
    with pytest.raises(SinkError, match=message) as raised:
        check_kafka(query(to_spark("kafka", **options), columns))
    assert raised.value.hint
    check_kafka(query(to_spark("kafka", **{"kafka.bootstrap.servers": "h"}), {"value": "binary", "topic": "string"}))
    check_kafka(query(to_spark("kafka", **KAFKA), {"value": "string"}))
    check_jdbc(query(to_spark("jdbc", url="u", dbtable="t")))


# -- end to end


def test_many_results_do_not_pass_through_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("a table in the driver")

    monkeypatch.setattr(type(spark), "createDataFrame", refuse)
    with thalweg.connect(tmp_path / "state", spark=spark) as session:
        source = thalweg.memory(DDL)
        session.create_stream("events", source, time="ts", watermark="1 second")
        asked = session.create_query("q", ALL, to_spark("parquet", path=str(tmp_path / "out")))
        source.append(rows(0, 100_000))
        session.run_available()
        assert asked.status["error"] is None
    assert results(spark, tmp_path / "out") == list(range(100_000))


PROGRAM = """
import sys
import thalweg
from tests.recovery.test_spark_sink import ALL, DDL, rows
state, out, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
with thalweg.connect(state, **{"spark.master": "local[2]"}) as session:
    source = thalweg.memory(DDL)
    session.create_stream("events", source, time="ts", watermark="1 second")
    session.create_query("q", ALL, thalweg.to_spark("parquet", path=out))
    source.append(rows(first, 3))
    session.run_available()
    assert session.query("q").status["error"] is None, session.query("q").status["error"]
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("point", ["batch.sinks", "spark.written", "spark.moved"])
def test_killed_between_write_move_and_commit(spark: SparkSession, tmp_path: Path, point: str) -> None:
    """By SIGKILL, Spark and all; the next life gives what was not given."""
    root = Path(__file__).resolve().parents[2]

    def run(first: int, fault: str | None) -> int:
        environment = {**os.environ, "PYTHONPATH": str(root)}
        environment.pop(faults.VARIABLE, None)
        if fault is not None:
            environment[faults.VARIABLE] = fault
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / "state"), str(tmp_path / "out"), str(first)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400, check=False)
        assert fault is not None or done.returncode == 0, done.stderr[-4000:]
        return done.returncode

    assert run(0, point) != 0, f"{point} was never reached"
    run(3, None)
    read = spark.read.parquet(str(tmp_path / "out")).select("v").collect()
    assert sorted(row[0] for row in read) == list(range(6))
