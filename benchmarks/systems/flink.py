"""Flink SQL in one process of its own: all queries as one StatementSet, so that they share the scan.

Of Flink only the jars are needed (the package apache-flink-libraries; it has no dependencies). They are driven
through py4j, which PySpark brings along: a local executor, its cluster within the one JVM.

Flink reads CSV: the jars have no Parquet. The files are made from the workload's once and kept beside it, two for
each stream with every other row each, one for each parallel reader: so both read in the order of time, and no row is
late. `flink-scan` parses the same columns into nothing: what the queries need besides is `flink`'s seconds less its.

There are no batches: what a first one would have brought counts as one. The span that is measured lasts from when the
sources have read that many rows until they have read all, both from Flink's own metrics. A query is behind its source
by the watermark's delay, for which rows are held back before they are added up, and by a few buffers: as much at
either moment, if a first batch is longer than the delay. What follows (`drain_seconds`) is left out in favour of
Flink: at the end of its input it closes every window, also those that other systems leave open.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import tempfile
import threading
import time
import urllib.request
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from benchmarks.result import CORES
from benchmarks.systems import Given
from benchmarks.systems import flink_sql as sql
from benchmarks.systems.usage import CpuWatch, process_started

PACKAGE = "apache-flink-libraries"
HEAP = "6g"
"""State lies on it; besides there is what SETTINGS give."""
JAVA = "-XX:+UseParallelGC"
SETTINGS = {
    "execution.target": "local",
    "parallelism.default": str(CORES),
    "taskmanager.numberOfTaskSlots": str(CORES),
    "taskmanager.memory.managed.size": "1g",
    "taskmanager.memory.network.min": "256m",
    "taskmanager.memory.network.max": "256m",
    "metrics.fetcher.update-interval": "200 ms",
    "state.backend.type": "hashmap",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "50000",
    "table.optimizer.agg-phase-strategy": "TWO_PHASE",
    "table.optimizer.reuse-source-enabled": "true",
    # A join gives two event times, of which a sink would ask which one is meant.
    "table.exec.sink.rowtime-inserter": "disabled",
}
"""No checkpoints: there are none unless an interval is set. For 8 queries of facts, CPU for a row was less than with
one-phase aggregation (by a sixth) or with group windows in place of window functions (by two fifths)."""
OPENED = "java.lang java.net java.io java.nio sun.nio.ch java.lang.reflect java.text java.time java.util"
LOGGING = """
rootLogger.level = WARN
rootLogger.appenderRef.err.ref = err
appender.err.type = CONSOLE
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{HH:mm:ss} %p %c{1} %m%n
"""


def missing() -> str | None:
    if _jars() is None:
        return "not installed (./dev peers installs it)"
    return None if shutil.which(_java()) else "Java was not found (./dev setup finds or installs it)"


def _jars() -> Path | None:
    try:
        return Path(str(distribution(PACKAGE).locate_file("pyflink/lib")))
    except PackageNotFoundError:
        return None


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    return f"{home}/bin/java" if home else "java"


def run(system: str, given: Given) -> dict[str, Any]:
    before = time.time()
    files = {stream.name: csv_files(given, stream.name) for stream in given.work.streams}
    prepared = time.time() - before
    with tempfile.TemporaryDirectory() as scratch, CpuWatch() as cpu, _flink(given, Path(scratch)) as flink:
        began = time.time()
        inserts = _scans(flink, given, files) if system == "flink-scan" else _queries(flink, given, files, scratch)
        job = flink.start(inserts)
        watch = SourceWatch(flink.port, job.id)
        created = time.time()
        job.wait()
        ended = time.time()
        watch.stop()
        found = measured(watch.samples, given, (created, ended), cpu)
        found["start_seconds"] = created - process_started() - prepared
        found["create_seconds"] = created - began
        if given.out is not None and system == "flink":
            found["output_rows"] = sum(_results(flink, given, Path(scratch)))
    return found


# -- the files ---------------------------------------------------------------------------------------------


def csv_files(given: Given, stream: str) -> Path:
    """A folder with the stream's first files as CSV, every other row in either of two; what is there is kept."""
    import duckdb

    folder = given.directory / "csv" / f"{stream}-{given.files}"
    if folder.exists():
        return folder
    schema = next(one.schema for one in given.work.streams if one.name == stream)
    paths = ", ".join(f"'{path}'" for path in given.paths(stream))
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
    temporary.mkdir(parents=True)
    for part in range(CORES):
        duckdb.execute(
            f"COPY (SELECT {sql.csv_select(schema)} FROM read_parquet([{paths}], file_row_number = true) "
            f"WHERE file_row_number % {CORES} = {part}) TO '{temporary}/{part}.csv' (FORMAT csv, HEADER false)"
        )
    temporary.rename(folder)
    return folder


def static_file(given: Given, name: str) -> Path:
    import duckdb

    file = given.directory / "csv" / f"{name}.csv"
    if not file.exists():
        schema = next(one.schema for one in given.work.statics if one.name == name)
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{os.getpid()}")
        source = f"read_parquet('{given.directory / name}.parquet')"
        duckdb.execute(
            f"COPY (SELECT {sql.csv_select(schema)} FROM {source}) TO '{temporary}' (FORMAT csv, HEADER false)"
        )
        temporary.rename(file)
    return file


# -- what is run -------------------------------------------------------------------------------------------


def _queries(flink: Flink, given: Given, files: Mapping[str, Path], scratch: str) -> list[str]:
    """The tables are made; the statements that fill the sinks."""
    for stream in given.work.streams:
        watermark = (stream.time, stream.delay_seconds)
        flink.execute(sql.table_ddl(stream.name, stream.schema, str(files[stream.name]), watermark))
    for static in given.work.statics:
        flink.execute(sql.table_ddl(static.name, static.schema, str(static_file(given, static.name)), None))
    inserts = []
    for i, query in enumerate(given.work.queries):
        text = sql.text_of(query, given.work.streams)
        path = f"{scratch}/q{i}" if given.out else None
        flink.execute(sql.sink_ddl(f"sink_{i}", flink.columns(text), path))
        inserts.append(f"INSERT INTO sink_{i} {text}")
    return inserts


def _scans(flink: Flink, given: Given, files: Mapping[str, Path]) -> list[str]:
    """Without a watermark: nothing but the parsing of what the queries need."""
    texts = [sql.text_of(query, given.work.streams) for query in given.work.queries]
    inserts = []
    for stream in given.work.streams:
        flink.execute(sql.table_ddl(stream.name, stream.schema, str(files[stream.name]), None))
        listed = ", ".join(f"`{column}`" for column in sql.parsed_columns(stream, texts))
        select = f"SELECT {listed} FROM `{stream.name}`"
        flink.execute(sql.sink_ddl(f"sink_{stream.name}", flink.columns(select), None))
        inserts.append(f"INSERT INTO sink_{stream.name} {select}")
    return inserts


def _results(flink: Flink, given: Given, scratch: Path) -> Iterator[int]:
    """What Flink wrote as CSV, as Parquet where all systems put their results; rows of each query."""
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for i, query in enumerate(given.work.queries):
        columns = flink.columns(sql.text_of(query, given.work.streams))
        folder = Path(str(given.out)) / f"q{i}"
        folder.mkdir(parents=True, exist_ok=True)
        paths = [str(path) for path in (scratch / f"q{i}").rglob("part-*")]
        rows = 0
        if paths:
            source = f"read_csv({paths}, header = false, columns = {sql.result_columns(columns)}, nullstr = '')"
            made = connection.execute(
                f"COPY (SELECT {sql.result_select(columns)} FROM {source}) "
                f"TO '{folder}/part-0.parquet' (FORMAT parquet)"
            )
            rows = int(made.fetchall()[0][0])
        yield rows


# -- Flink -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    id: str
    result: Any

    def wait(self) -> None:
        # A keyword of Python's is a method's name of Java's.
        getattr(self.result, "await")()


@dataclass(frozen=True)
class Flink:
    """A table environment in a JVM."""

    tables: Any
    port: int
    """Of its REST interface, while a job runs."""

    def execute(self, statement: str) -> None:
        self.tables.executeSql(statement)

    def columns(self, select: str) -> list[tuple[str, str]]:
        """Names and types of what a query gives."""
        schema = self.tables.sqlQuery(select).getResolvedSchema()
        types = [sql.plain_type(str(type_)) for type_ in schema.getColumnDataTypes()]
        return list(zip(schema.getColumnNames(), types, strict=True))

    def start(self, inserts: Sequence[str]) -> Job:
        statements = self.tables.createStatementSet()
        for insert in inserts:
            statements.addInsertSql(insert)
        result = statements.execute()
        return Job(result.getJobClient().get().getJobID().toString(), result)


@contextmanager
def _flink(given: Given, scratch: Path) -> Iterator[Flink]:
    """`given.settings`: `memory` is the heap, `java` options of the JVM; a name with a dot is one of Flink's own."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
    from py4j.protocol import Py4JJavaError

    log4j = scratch / "log4j2.properties"
    log4j.write_text(LOGGING)
    port, token = launch_gateway(
        classpath=f"{_jars()}/*",
        javaopts=[
            f"-Xmx{given.settings.get('memory', HEAP)}",
            *given.settings.get("java", JAVA).split(),
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED.split()),
            f"-Dlog4j.configurationFile={log4j}",
            # Where it unpacks its jars, and leaves them.
            f"-Djava.io.tmpdir={scratch}",
        ],
        java_path=_java(),
        redirect_stderr=None,
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    rest = _free_port()
    own = {key: value for key, value in given.settings.items() if "." in key}
    settings = {**SETTINGS, "rest.port": str(rest), "rest.bind-port": str(rest), **own}
    flink = gateway.jvm.org.apache.flink
    configuration = flink.configuration.Configuration.fromMap(settings)
    environment = flink.table.api.EnvironmentSettings.newInstance().inStreamingMode()
    environment = environment.withConfiguration(configuration).build()
    try:
        yield Flink(flink.table.api.TableEnvironment.create(environment), rest)
    except Py4JJavaError as error:
        # It asks the JVM for its text, which is gone when somebody prints it.
        raise RuntimeError(str(error)) from None
    finally:
        # It complains of every object that outlives the JVM.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
        gateway.shutdown()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


# -- what is measured --------------------------------------------------------------------------------------

EVERY_SECONDS = 0.2


class SourceWatch:
    """How many rows the sources of a job have read, asked again and again in a thread."""

    def __init__(self, port: int, job: str) -> None:
        self.samples: list[tuple[float, int]] = []
        self._address = f"http://127.0.0.1:{port}/jobs/{job}"
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(EVERY_SECONDS):
            try:
                with urllib.request.urlopen(self._address, timeout=5) as answer:
                    rows = rows_read(json.load(answer))
            except (OSError, ValueError):
                # Not there yet, or gone with the job.
                continue
            self.samples.append((time.time(), rows))


def rows_read(job: Mapping[str, Any]) -> int:
    """Of all sources, from what Flink tells about a job."""
    sources = (vertex for vertex in job["vertices"] if vertex["name"].startswith("Source:"))
    return sum(vertex["metrics"]["read-records"] for vertex in sources)


def passed(samples: Sequence[tuple[float, int]], rows: int) -> float | None:
    """When so many rows had been read, on the line between two samples; None: they never saw it."""
    at = bisect_left(samples, rows, key=lambda sample: sample[1])
    if at == len(samples):
        return None
    (t1, r1), (t0, r0) = samples[at], samples[max(0, at - 1)]
    return t1 if r1 == r0 else t0 + (t1 - t0) * (rows - r0) / (r1 - r0)


def measured(
    samples: Sequence[tuple[float, int]], given: Given, span: tuple[float, float], cpu: CpuWatch
) -> dict[str, Any]:
    """`span`: when the job was started and when it had ended."""
    began, ended = span
    first_rows = given.rows * min(given.files_per_batch, given.files) // given.files
    first, last = passed(samples, first_rows), passed(samples, given.rows)
    # A job that ends with its sources may be gone before it is asked again.
    first, last = first or ended, last or ended
    found: dict[str, Any] = {
        "batches": given.batches,
        "first_batch_seconds": first - began,
        "drain_seconds": ended - last,
    }
    rows = given.rows - first_rows
    if rows and last > first:
        found |= {
            "rows_per_second": rows / (last - first),
            "seconds": last - first,
            "rows": rows,
            "cpu_seconds_per_million": cpu.seconds_between(first, last) / rows * 1e6,
        }
    return found
