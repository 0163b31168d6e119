"""Fixtures that every kind of test shares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from thalweg.engine.spark import create_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One small Spark for the whole run, set up as the engine's own: starting one takes seconds."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    session = create_session("local[2]", **{"spark.sql.warehouse.dir": str(warehouse)})
    yield session
    session.stop()


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    """A state directory that does not exist yet."""
    return tmp_path / "state"
