"""Unit: the Spark session under a pipeline, brought by the user or made by Thalweg."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import thalweg
from thalweg.engine.spark import check_settings
from thalweg.errors import UsageError

ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def ordinary(spark: SparkSession) -> Iterator[SparkSession]:
    """A session of a user who has set no time zone; the zone of the tests' Spark comes back afterwards."""
    zone = spark.conf.get(ZONE)
    spark.conf.unset(ZONE)
    yield spark
    spark.conf.set(ZONE, zone)


def set_default_zone(spark: SparkSession, zone: str) -> str:
    """Gives the JVM another zone, as if the machine had it; the one it had."""
    zones = spark.sparkContext._jvm.java.util.TimeZone
    before = str(zones.getDefault().getID())
    zones.setDefault(zones.getTimeZone(zone))
    return before


@pytest.mark.parametrize("machine", ["Etc/UTC", "GMT"])
def test_an_ordinary_session_connects_on_a_machine_in_utc(
    ordinary: SparkSession, state_dir: Path, machine: str
) -> None:
    before = set_default_zone(ordinary, machine)
    try:
        with thalweg.connect(state_dir, spark=ordinary) as session:
            assert session.streams == {}
    finally:
        set_default_zone(ordinary, before)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "+01:00", "America/New_York"])
def test_another_zone_is_refused_by_name(ordinary: SparkSession, zone: str) -> None:
    ordinary.conf.set(ZONE, zone)
    with pytest.raises(UsageError, match=zone.replace("+", r"\+")):
        check_settings(ordinary)
