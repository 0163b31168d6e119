"""Unit: a kind of source that a program has registered is read by Spark's workers, which do not know it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct
from pyspark.sql import SparkSession

import thalweg
from thalweg.model.split import Split
from thalweg.source.contract import SourceKind, Units
from thalweg.source.kinds import SOURCES


def test_workers_read_it(spark: SparkSession, tmp_path: Path) -> None:
    class Options(Struct, frozen=True):
        rows: int

    class RowUnits(Units):
        def available(self) -> int:
            return 6

        def splits(self, start: int, end: int, parts: int) -> list[Split]:
            return [Split(self.stream, "numbers", "", i, i + 1, 1, extra="!") for i in range(start, end)]

    class Numbers(SourceKind[Options]):  # within a function: workers get it with its code
        name = "numbers"
        options = Options

        def schema(self, options: Options) -> str:
            return "ts timestamp, n bigint, word string"

        def units(self, stream: Any, storage: Any) -> Units:
            return RowUnits(stream, storage)

        def rows(self, options: Options, split: Split, columns: Sequence[str]) -> Iterator[pa.Table]:
            time = pa.array([split.start * 1_000_000], pa.timestamp("us", tz="UTC"))
            yield pa.table({"ts": time, "n": [split.start], "word": [f"{split.start}{split.extra}"]})

    thalweg.register_source(Numbers())
    try:
        with thalweg.connect(tmp_path / "state", spark) as session:
            session.sql("CREATE STREAM s WATERMARK FOR ts AS ts WITH (source = 'numbers', rows = '6')")
            words = session.create_query("words", "SELECT word FROM s WHERE n > 2")
            session.run_available()
            assert sorted(words.results()["word"].to_pylist()) == ["3!", "4!", "5!"]
    finally:
        SOURCES.forget("numbers")
