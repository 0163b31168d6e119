"""Unit: the Python processes that Spark starts import PySpark as it is installed."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from thalweg.engine.spark import SETTINGS

START = SETTINGS["spark.executorEnv.PYTHONPATH"]
SCRIPT = (
    "import builtins, sys, pyspark; print(pyspark.NAME, sys.argv[1] in sys.path, getattr(builtins, 'own', 'none'))"
)


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """An environment with PySpark, which has brought a zip of itself along."""
    site = tmp_path / "site"
    for name in ("py4j", "pyspark", "pyspark/python/lib"):
        (site / name).mkdir(parents=True)
    (site / "py4j" / "__init__.py").touch()
    (site / "pyspark" / "__init__.py").write_text("NAME = 'installed'")
    _zip(site / "pyspark" / "python" / "lib")
    return site


def _zip(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "pyspark.zip"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("pyspark/__init__.py", "NAME = 'zip'")
    return path


def _start(*path: str | Path) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    arguments = [sys.executable, "-c", SCRIPT, START]
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.split()


def test_the_installed_one_is_imported_and_not_its_zip(site: Path) -> None:
    zip_ = site / "pyspark" / "python" / "lib" / "pyspark.zip"
    assert _start(zip_, site) == ["zip", "False", "none"]
    assert _start(zip_, START, site) == ["installed", "False", "none"]


def test_the_zip_of_another_spark_stays(site: Path, tmp_path: Path) -> None:
    """Whose processes have to speak as that one does."""
    assert _start(_zip(tmp_path / "other" / "python" / "lib"), START, site) == ["zip", "False", "none"]


def test_what_the_environment_does_at_the_start_is_done(site: Path) -> None:
    (site / "sitecustomize.py").write_text("import builtins; builtins.own = 'own'")
    assert _start(site / "pyspark" / "python" / "lib" / "pyspark.zip", START, site) == ["installed", "False", "own"]


def test_workers_have_the_drivers_pyspark(spark: SparkSession) -> None:
    def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [pyspark.__file__]})

    assert [row.file for row in spark.range(1).mapInArrow(where, "file string").collect()] == [pyspark.__file__]
