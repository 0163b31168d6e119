"""Spark, its Java and its workers."""

from __future__ import annotations

from thalweg.errors.family import UsageError


def spark_connect() -> UsageError:
    return UsageError(
        "a session of Spark Connect cannot run Thalweg",
        detail="batches need the driver's own JVM: its shuffle, its broadcasts, its jobs",
        hint="give a classic session, or none: thalweg.connect(directory) makes a local one",
    )


def settings_too_late(names: list[str]) -> UsageError:
    return UsageError(
        f"Spark is running in this process, and takes no other settings: {', '.join(names)}",
        detail="a process has one Spark, which all its sessions share",
        hint="stop() the sessions that use it first, or leave the settings out; a Spark session of your own is given "
        "as connect(..., spark=spark)",
    )


def java_missing(looked: str) -> UsageError:
    return UsageError(
        "there is no Java, which Spark needs",
        detail=looked,
        hint="install Java 17 or newer, such as Debian's openjdk-17-jre-headless, or set JAVA_HOME to where it is",
    )


def java_failed(java: str, said: str) -> UsageError:
    return UsageError(
        "Spark's Java process has ended while it started",
        detail=f"{java}: {said}",
        hint="Spark needs Java 17 or newer; what it printed may say more",
    )


def workers_differ(found: str, here: str) -> UsageError:
    return UsageError(
        "the Python of Spark's workers is another one than this program's",
        detail=f"workers run {found}, this program {here}",
        hint="set PYSPARK_PYTHON to the same minor version, with thalweg installed, before Spark starts; on one "
        "machine: os.environ['PYSPARK_PYTHON'] = sys.executable",
    )


def workers_lack(module: str) -> UsageError:
    return UsageError(
        f"Spark's workers cannot import {module}",
        detail="tasks run in Spark's Python workers, which need the package thalweg and what it depends on",
        hint="install thalweg for the Python that PYSPARK_PYTHON names (spark.pyspark.python), on every machine; if "
        "that is this program's: os.environ['PYSPARK_PYTHON'] = sys.executable before Spark starts",
    )


def workers_do_not_start(reason: str) -> UsageError:
    return UsageError(
        "Spark cannot run Python in its workers",
        detail=reason,
        hint="set PYSPARK_PYTHON (spark.pyspark.python) to a Python that every worker has, before Spark starts",
    )
