"""The Spark of a session, for as long as it lasts: one that the user brought, or our own."""

from __future__ import annotations

import os
import sys
import threading

from pyspark.sql import SparkSession

from thalweg.engine.own_spark import OWN, Settings
from thalweg.engine.spark import warm_up
from thalweg.engine.workers import check_workers
from thalweg.observe import log


class Lease:
    def __init__(self, spark: SparkSession | None, settings: Settings) -> None:
        self._own = OWN.take(settings) if spark is None else None
        self._warming: threading.Thread | None = None
        try:
            self.spark = self._own or spark or SparkSession.active()
            zone, master = self.spark.conf.get("spark.sql.session.timeZone"), self.spark.sparkContext.master
            log.info("session", "spark", own=self._own is not None, master=master, zone=zone, computed_in="UTC")
            if self._own is None or os.environ.get("PYSPARK_PYTHON") != sys.executable:
                check_workers(self.spark)
            else:
                self._warming = warm_up(self.spark)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        if self._own is not None and OWN.give_back(self._own) and self._warming is not None:
            self._warming.join(10)  # the end of Spark ends what still warms up
