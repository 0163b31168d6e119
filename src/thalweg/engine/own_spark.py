"""The Spark that Thalweg makes: one for all sessions of a process. The last of them ends it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from thalweg.engine.spark import create_session
from thalweg.errors import settings_too_late

Settings = Mapping[str, Any]


class OwnSpark:
    """Counts who uses it: every `take` wants a `give_back`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spark: SparkSession | None = None
        self._settings: Settings = {}
        self._users = 0

    def take(self, settings: Settings) -> SparkSession | None:
        """None: a process has one Spark, and somebody else has made it."""
        with self._lock:
            running = SparkContext._active_spark_context
            if self._spark is None or self._spark.sparkContext is not running:  # none yet, or a user has stopped it
                if running is not None:
                    self._check(settings, {})
                    return None
                self._spark, self._settings, self._users = create_session(**settings), dict(settings), 0
            self._check(settings, self._settings)
            self._users += 1
            return self._spark

    def give_back(self, spark: SparkSession) -> bool:
        """Whether nobody uses it any more, and it has ended."""
        with self._lock:
            if self._spark is None or spark is not self._spark:  # a user has stopped it, and another one runs since
                return True
            self._users -= 1
            if self._users:
                return False
            self._spark = None
            spark.stop()
            return True

    def _check(self, wanted: Settings, running: Settings) -> None:
        if wanted and dict(wanted) != running:
            raise settings_too_late(sorted(name for name in wanted if wanted[name] != running.get(name)))


OWN = OwnSpark()
