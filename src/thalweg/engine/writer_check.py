"""Whether one of Spark's writers can take the results of a query: asked when it is created, without effects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from thalweg.engine.failure import root_cause
from thalweg.engine.hadoop import HadoopFiles
from thalweg.errors import (
    missing_connector,
    missing_writer_option,
    unfit_for_writer,
    unwritable_for_spark,
)
from thalweg.model.query import Query
from thalweg.model.types import is_string
from thalweg.sink.spark import FILE_FORMATS

_PACKAGES = {
    "delta": "io.delta:delta-spark_{scala}:<version>",
    "kafka": "org.apache.spark:spark-sql-kafka-0-10_{scala}:{spark}",
    "avro": "org.apache.spark:spark-avro_{scala}:{spark}",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-<spark>_{scala}:<version>",
}
"""Writer -> the package that brings it."""
_ELSEWHERE = "thalweg.connect(dir, **{{'spark.jars.packages': '{package}'}}), or a session of your own that has it."

_SOURCES = "org.apache.spark.sql.execution.datasources"


def check_writer(spark: SparkSession, query: Query) -> None:
    format_ = query.sink.option("format")
    writer = _look_up(spark, query, format_)
    kind = format_.lower()
    if kind in FILE_FORMATS:
        _check_columns(spark, query, kind, _file_format(spark, writer))
        _check_place(spark, query, kind)
    elif kind in _CHECKS:
        _CHECKS[kind](spark, query)


def _look_up(spark: SparkSession, query: Query, format_: str) -> Any:
    """The class of the writer."""
    jvm: Any = spark._jvm
    state: Any = spark._jsparkSession.sessionState()
    try:
        return jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(format_, state.conf())
    except (PySparkException, Py4JError) as error:
        raise missing_connector(query.name, format_, root_cause(error), _way_to(spark, format_.lower())) from None


def _way_to(spark: SparkSession, format_: str) -> str:
    package = _PACKAGES.get(format_)
    if package is None:
        known = ", ".join((*FILE_FORMATS, "jdbc"))
        return (
            f"Without packages there are {known}. Start Spark with the package that brings it: "
            + _ELSEWHERE.format(package="group:name:version")
        )
    jvm: Any = spark._jvm
    scala = ".".join(str(jvm.scala.util.Properties.versionNumberString()).split(".")[:2])
    return "Start Spark with its package: " + _ELSEWHERE.format(
        package=package.format(scala=scala, spark=spark.version)
    )


def _file_format(spark: SparkSession, writer: Any) -> Any:
    """What says which types it can write. Of the newer interface, what Spark falls back to."""
    made = _make(spark, writer)
    is_newer = is_instance_of(spark.sparkContext._gateway, made, f"{_SOURCES}.v2.FileDataSourceV2")
    return _make(spark, made.fallbackFileFormat()) if is_newer else made


def _make(spark: SparkSession, kind: Any) -> Any:
    gateway: Any = spark.sparkContext._gateway
    jvm: Any = spark._jvm
    nothing = gateway.new_array(jvm.java.lang.Class, 0)
    return kind.getDeclaredConstructor(nothing).newInstance(gateway.new_array(jvm.java.lang.Object, 0))


def _check_columns(spark: SparkSession, query: Query, format_: str, writer: Any) -> None:
    if format_ == "text" and [is_string(o.expr.type) for o in query.outputs] != [True]:
        hint = "Select one string, such as concat_ws(',', a, b) AS line; or take csv or json."
        raise unfit_for_writer(query.name, format_, "a line of text is one column, of type string", hint)
    types: Any = spark._jvm
    for output in query.outputs:
        kind = types.org.apache.spark.sql.types.DataType.fromDDL(output.expr.type)
        if not writer.supportDataType(kind):
            reason = f"column {output.name!r} is of type {output.expr.type}"
            hint = "Select its parts as columns of their own, or write parquet."
            raise unfit_for_writer(query.name, format_, reason, hint)


def _check_place(spark: SparkSession, query: Query, format_: str) -> None:
    path = query.sink.option("path")
    if not path:
        raise missing_writer_option(query.name, format_, "path", "Give the directory that files are written to.")
    try:
        reason = HadoopFiles(spark, path).objection()
    except (PySparkException, Py4JError) as error:
        reason = root_cause(error)
    if reason is not None:
        raise unwritable_for_spark(query.name, path, reason)


def _check_delta(spark: SparkSession, query: Query) -> None:
    if not query.sink.option("path"):
        raise missing_writer_option(query.name, "delta", "path", "Give the directory of the table.")


def check_kafka(query: Query) -> None:
    """Without Spark: which options and columns Kafka's writer needs."""
    types = {output.name.lower(): output.expr.type for output in query.outputs}
    if not query.sink.option("kafka.bootstrap.servers"):
        hint = "Give the brokers: 'host:9092,host:9092'."
        raise missing_writer_option(query.name, "kafka", "kafka.bootstrap.servers", hint)
    if not query.sink.option("topic") and "topic" not in types:
        hint = "Name the topic, or select a column topic that does, for each row."
        raise missing_writer_option(query.name, "kafka", "topic", hint)
    if "value" not in types:
        hint = "Select what a message holds AS value: a string or binary, such as concat_ws(',', a, b) AS value."
        raise unfit_for_writer(query.name, "kafka", "there is no column 'value'", hint)
    for name in ("key", "value", "topic"):
        kind = types.get(name, "string")
        if not is_string(kind) and (kind != "binary" or name == "topic"):
            raise unfit_for_writer(
                query.name, "kafka", f"column {name!r} is of type {kind}", f"Write CAST(... AS STRING) AS {name}."
            )


def check_jdbc(query: Query) -> None:
    """Without Spark: which options JDBC needs."""
    if not query.sink.option("url"):
        raise missing_writer_option(query.name, "jdbc", "url", "Give it as in 'jdbc:postgresql://host/database'.")
    if not query.sink.option("dbtable"):
        raise missing_writer_option(query.name, "jdbc", "dbtable", "Name the table that rows are added to.")


def _check_jdbc(spark: SparkSession, query: Query) -> None:
    check_jdbc(query)
    jvm: Any = spark._jvm
    driver = query.sink.option("driver")
    try:
        if driver:
            jvm.org.apache.spark.util.Utils.classForName(driver, False, False)
        else:
            jvm.java.sql.DriverManager.getDriver(query.sink.option("url"))
    except (PySparkException, Py4JError) as error:
        hint = "Start Spark with the driver of the database: " + _ELSEWHERE.format(
            package="org.postgresql:postgresql:<version>"
        )
        raise missing_connector(query.name, "jdbc", f"no driver: {root_cause(error)}", hint) from None


_CHECKS: dict[str, Callable[[SparkSession, Query], None]] = {
    "delta": _check_delta,
    "jdbc": _check_jdbc,
    "kafka": lambda spark, query: check_kafka(query),
}
