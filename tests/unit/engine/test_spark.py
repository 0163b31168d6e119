"""Unit: the Spark session under a pipeline, brought by the user or made by Thalweg. In processes of their own, as
each wants another Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import thalweg
from thalweg.engine.workers import explain
from thalweg.errors import UsageError

ORDINARY = """
import json, os, sys
from datetime import UTC, datetime, timedelta
import pyarrow as pa
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
builder = SparkSession.builder.master("local[2]").config("spark.driver.memory", "600m")
spark = builder.config("spark.ui.enabled", "false").getOrCreate()  # its time zone is the machine's
assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"

import thalweg

start = datetime(2026, 7, 1, 23, 30, tzinfo=UTC)
times = pa.array([start + timedelta(minutes=10 * n) for n in range(6)], pa.timestamp("us", "UTC"))
session = thalweg.connect(sys.argv[1], spark=spark)
source = thalweg.memory("ts timestamp, k bigint")
source.append(pa.table({"ts": times, "k": list(range(6))}))
session.create_stream("events", source, time="ts", watermark="0 seconds")

frame = spark.sql("SELECT id AS k, timestamp_seconds(1782948600 + 600 * id) AS at FROM range(6)")
session.create_table("times", frame)  # the same instants
frame.coalesce(1).write.json(sys.argv[2] + "/in")  # text with an offset of New York
landed = spark.readStream.schema("k bigint, at timestamp").json(sys.argv[2] + "/in")
session.create_stream("landed", landed, time="at", watermark="0 seconds")

day = session.create_query("day", "SELECT k, hour(ts) AS h, CAST(ts AS date) AS d, ts FROM events WHERE k >= 0")
counts = "SELECT count(*) AS n, window.start AS w FROM events GROUP BY window(ts, '1 hour')"
count = session.create_query("count", counts)
joined = session.create_query(
    "joined", "SELECT e.k, times.at = e.ts AS same FROM events e JOIN times ON e.k = times.k")
again = session.create_query("again", "SELECT k, at FROM landed WHERE k >= 0")
session.run_available()
rows = {
    query.name: sorted([str(value) for value in row.values()] for row in query.results().to_pylist())
    for query in (day, count, joined, again)
}
session.stop()
rows["zone"] = spark.conf.get("spark.sql.session.timeZone")
rows["alive"] = spark.range(3).count()
print(json.dumps(rows))
"""


def run(program: str, *arguments: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=cwd, env={**os.environ, **env})


@pytest.mark.spark
def test_an_ordinary_session_of_another_zone_computes_in_utc(tmp_path: Path) -> None:
    done = run(ORDINARY, str(tmp_path / "state"), str(tmp_path), cwd=tmp_path, TZ="America/New_York")
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert [row[1:3] for row in said["day"]] == [["23", "2026-07-01"]] * 3 + [["0", "2026-07-02"]] * 3
    assert said["count"] == [["3", "2026-07-01 23:00:00+00:00"]]
    assert [row[1] for row in said["joined"]] == ["True"] * 6
    assert [row[1] for row in said["again"]] == [row[3] for row in said["day"]]
    assert said["zone"] == "America/New_York"
    assert said["alive"] == 3


TWO = """
import sys, thalweg
from pyspark import SparkContext

def count(session):
    source = thalweg.generate("purchases", rows=2000, rows_per_second=100)
    session.create_stream("purchases", source, time="ts", watermark="2 seconds")
    query = session.create_query("counts", "SELECT count(*) AS n FROM purchases GROUP BY window(ts, '5 seconds')")
    session.run_available()
    return query.results().num_rows

first = thalweg.connect(sys.argv[1] + "/a")
second = thalweg.connect(sys.argv[1] + "/b")
for place, settings in (("/b", {}), ("/c", {"master": "local[1]"})):
    try:
        thalweg.connect(sys.argv[1] + place, **settings)
    except thalweg.ThalwegError as error:
        print(str(error).splitlines()[0].replace(sys.argv[1], ""))
first.stop()
first.stop()
print(count(second) > 0)
second.stop()
print(SparkContext._active_spark_context)
with thalweg.connect(sys.argv[1] + "/d") as third:
    print(count(third) > 0)

from pyspark.sql import SparkSession
mine = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
thalweg.connect(sys.argv[1] + "/d").stop()
print(mine.range(3).count())
"""


@pytest.mark.spark
def test_the_last_session_ends_the_spark_that_they_share(tmp_path: Path) -> None:
    done = run(TWO, str(tmp_path), cwd=tmp_path, PYSPARK_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    locked, settings, *said = done.stdout.splitlines()
    assert locked.startswith("the state directory /b is in use by process ")
    assert locked.endswith(", which is this one")
    assert settings == "Spark is running in this process, and takes no other settings: master"
    # The last one: a Spark that somebody else has made is used as it is, and left running.
    assert said == ["True", "None", "True", "3"]


def test_a_spark_session_as_the_directory_is_said() -> None:
    class Session:
        pass

    Session.__module__ = "pyspark.sql.session"
    with pytest.raises(UsageError, match="the first argument of connect is the state directory") as caught:
        thalweg.connect(Session())  # type: ignore[arg-type]
    assert "spark=spark" in str(caught.value.hint)


BARE = """
import sys, thalweg
from pyspark import SparkContext
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
for given in (spark, None):
    try:
        thalweg.connect("state", spark=given)
    except thalweg.ThalwegError as error:
        print(error)
    spark.stop()
print(SparkContext._active_spark_context)
"""


@pytest.mark.spark
def test_workers_without_the_package_are_said_so(tmp_path: Path) -> None:
    """Of a Spark that was brought, and of one that is made with the Python that the environment names."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')  # without its site-packages
    python.chmod(0o755)
    done = run(BARE, cwd=tmp_path, PYSPARK_PYTHON=str(python))
    assert done.stdout.count("Spark's workers cannot import ") == 2, done.stdout + done.stderr
    assert "os.environ['PYSPARK_PYTHON'] = sys.executable" in done.stdout
    assert done.stdout.splitlines()[-1] == "None"  # what was made for a session that could not be opened has ended


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, x",
            "the Python of Spark's workers is another one",
        ),
        ("ModuleNotFoundError: No module named 'thalweg.batch'", "Spark's workers cannot import thalweg"),
        (
            'x\nCaused by: java.io.IOException: Cannot run program "python9": error=2, No such file or directory',
            "Spark cannot run Python in its workers",
        ),
    ],
)
def test_what_spark_says_of_its_workers_is_told_plainly(said: str, message: str) -> None:
    found = explain(PySparkException(said))
    assert found.message.startswith(message)
    assert "PYSPARK_PYTHON" in str(found.hint)
