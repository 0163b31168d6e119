"""Oracle, on Spark: a streaming DataFrame as the source of a stream that is dropped and created anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import thalweg

pytestmark = pytest.mark.on_spark
SELECT = "SELECT k FROM landed"


def frame(spark: SparkSession, folder: Path) -> Any:
    return spark.readStream.schema("k bigint, ts timestamp").json(str(folder))


def put(folder: Path, name: str, *keys: int) -> None:
    folder.mkdir(exist_ok=True)
    lines = "".join(f'{{"k": {k}, "ts": "2026-01-01T00:00:0{k % 10}Z"}}\n' for k in keys)
    (folder / f"{name}.json").write_text(lines)


@pytest.mark.spark
def test_rows_that_landed_for_the_one_before_are_not_its_own(
    spark: SparkSession, state_dir: Path, tmp_path: Path
) -> None:
    put(tmp_path / "old", "a", 1, 2)
    put(tmp_path / "new", "a", 3)
    with thalweg.connect(state_dir, spark, slots=2) as session:
        session.create_stream("landed", frame(spark, tmp_path / "old"), time="ts", watermark="0 seconds")
        session.create_query("q", SELECT)
        session.run_available()
        assert sorted(session.query("q").results()["k"].to_pylist()) == [1, 2]
        put(tmp_path / "old", "b", 4)
        session.sql("DROP QUERY q; DROP STREAM landed")
        session.create_stream("landed", frame(spark, tmp_path / "new"), time="ts", watermark="0 seconds")
        session.create_query("q", SELECT)
        session.run_available()
        assert session.query("q").results()["k"].to_pylist() == [3]
        assert not (state_dir / "sources" / "landed").exists()
        assert session.sql("SELECT max(k) AS most FROM q").to_pylist() == [{"most": 3}]
    put(tmp_path / "new", "b", 5)
    with thalweg.connect(state_dir, spark, slots=2) as session:
        session.create_stream("landed", frame(spark, tmp_path / "new"), time="ts", watermark="0 seconds")
        session.run_available()
        assert sorted(session.query("q").results()["k"].to_pylist()) == [3, 5]
        session.create_stream(
            "landed", frame(spark, tmp_path / "new"), time="ts", watermark="0 seconds", if_not_exists=True
        )
