"""Unit: what the analyser leaves to be said by Thalweg's own error, and what it does not touch."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from thalweg.engine.analyzer import _LOGGERS, _SILENCE, SparkAnalyzer
from thalweg.errors import SourceError, SqlError
from thalweg.model.stream import Field, Schema

COLUMNS = Schema((Field("k", "int"),))


class Noted(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.names.append(record.name)


@pytest.fixture
def noted() -> Iterator[list[str]]:
    """The names of PySpark's loggers that have logged."""
    handler = Noted()
    loggers = [PySparkLogger.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.names
    for logger in loggers:
        logger.removeHandler(handler)


def test_a_typo_is_told_by_the_error_alone(spark: SparkSession, noted: list[str]) -> None:
    analyzer = SparkAnalyzer(spark)
    analyzer.register_table("t", COLUMNS)
    with pytest.raises(SqlError, match="unknown column 'kk'"):
        analyzer.analyze("SELECT kk FROM t")
    with pytest.raises(SourceError, match="cannot be used"):
        analyzer.check_table("u", Schema((Field("k", "no_such_type"),)))
    assert noted == []
    # What the user's own code asks of Spark is logged as before.
    with pytest.raises(PySparkException):
        spark.sql("SELECT kk FROM VALUES (1) AS t(k)").collect()
    assert noted == ["SQLQueryContextLogger"]


def test_only_the_thread_that_analyses_is_silent(noted: list[str]) -> None:
    logger = PySparkLogger.getLogger(_LOGGERS[1])

    def log() -> None:
        logger.error("of another thread")

    with _SILENCE.kept():
        with _SILENCE.kept():
            logger.error("of the analyser")
        logger.error("still of the analyser")
        assert noted == []
        other = threading.Thread(target=log)
        other.start()
        other.join()
        assert noted == [_LOGGERS[1]]
    assert not any(PySparkLogger.getLogger(name).filters for name in _LOGGERS)
    logger.error("afterwards")
    assert len(noted) == 2
