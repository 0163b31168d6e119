"""Queries as Spark's analyser let them be bound, recorded so that tests can plan them without it.

The texts are random, from fixed seeds, and some by hand for what those do not have: static tables, aggregates of
users, updates. `queries.json.gz` is recorded where it is missing and pytest is run with --bless.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql import SparkSession
from tests.support.join_randomly import random_world
from tests.support.randomly import RandomQuery, Shape, random_feed, random_queries

from thalweg.engine.analyzer import SparkAnalyzer
from thalweg.frontend.bind import bind
from thalweg.model.own import Definition
from thalweg.model.query import Query, query_from_json
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.source.memory import memory
from thalweg.testing.oracle import Feed

FILE = Path(__file__).parent / "ids" / "queries.json.gz"
AGGREGATIONS = range(1, 13)
JOINS = range(1, 22)
WORLDS = (*(f"aggregations-{i}" for i in AGGREGATIONS), *(f"joins-{i}" for i in JOINS), "by-hand")

OWN = {name: Definition(name, type_, f"version-{name}", b"") for name, type_ in (("mine", "double"), ("most", "int"))}
NAMES = Schema((Field("k", "int"), Field("label", "string"), Field("weight", "double")))
BY_HAND = {
    "joined_with_table": "SELECT a.id, n.label FROM a JOIN names n ON a.k = n.k WHERE a.x > 3",
    "outer_table": "SELECT a.id, n.label FROM a LEFT JOIN names n ON a.k = n.k AND n.weight > 0.5 AND a.flag",
    "grouped_with_table": """SELECT n.label, count(*) AS c, sum(a.x * n.weight) AS s FROM a JOIN names n ON a.k = n.k
        GROUP BY n.label, window(a.ts, '4 seconds', '2 seconds')""",
    "two_tables": """SELECT n.label, m.label AS other, b.x FROM a JOIN b ON a.k = b.k WITHIN 2 SECONDS
        JOIN names n ON a.k = n.k LEFT JOIN names m ON b.k + 1 = m.k AND m.weight < a.price""",
    "joined_and_grouped": """SELECT n.label, count(*) AS c, window.end AS w FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND
        JOIN names n ON a.k = n.k GROUP BY n.label, window(a.ts, '4 seconds')""",
    "own": """SELECT k, mine(price, x) AS m, most(x) FILTER (WHERE flag) AS o FROM a
        GROUP BY k, window(ts, '1 minute')""",
    "own_over_join": """SELECT mine(a.price + b.price) AS m FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND
        GROUP BY window(b.ts, '10 seconds')""",
    "float_atoms": """SELECT a.id, b.id AS other FROM a JOIN b ON a.k = b.k WITHIN 1 SECOND
        WHERE a.price > 1.5D AND a.price <= 20D AND b.x >= -3 AND a.x = 7""",
    "pinned": "SELECT name, count(*) AS c, median(x) AS m FROM a GROUP BY name, window(ts, '1 minute')",
    "updates": "SELECT k, sum(x) AS s FROM b GROUP BY k, window(ts, '1 minute')",
    "odd_names": "SELECT `it's`, count(*) AS c FROM `odd` GROUP BY `it's`, window(ts, '1 minute')",
}
OPTIONS = {"pinned": (("partitioner", "dalton"),), "two_tables": (("max_rows_per_key", "1000"),)}


@dataclass(frozen=True)
class Recorded:
    """Queries that run together."""

    streams: Mapping[str, Stream]
    queries: tuple[Query, ...]
    tables: Mapping[str, Schema] = field(default_factory=dict)


def load() -> dict[str, Recorded]:
    with gzip.open(FILE, "rt", encoding="utf-8") as file:
        return {name: _from_json(value) for name, value in json.load(file).items()}


def record(spark: SparkSession) -> None:
    worlds = {name: _to_json(bind_world(name, spark)) for name in WORLDS}
    FILE.parent.mkdir(exist_ok=True)
    text = json.dumps(worlds, separators=(",", ":"), sort_keys=True)
    # Without a time in it: the same queries are the same file.
    FILE.write_bytes(gzip.compress(text.encode(), mtime=0))


def bind_world(name: str, spark: SparkSession) -> Recorded:
    """The queries of a world, bound anew."""
    kind, _, seed = name.rpartition("-")
    if kind == "aggregations":
        feed = random_feed(int(seed), Shape(batches=1, rows=1))
        return _bind_all([_stream(feed)], random_queries(int(seed), feed, 20), spark)
    if kind == "joins":
        world = random_world(int(seed))
        return _bind_all([_stream(feed) for feed in world.feeds], world.queries, spark)
    return _bind_all(_streams_by_hand(), [RandomQuery(*item) for item in BY_HAND.items()], spark, {"names": NAMES})


def _bind_all(
    streams: Iterable[Stream],
    queries: Iterable[RandomQuery],
    spark: SparkSession,
    tables: Mapping[str, Schema] | None = None,
) -> Recorded:
    analyzer, known, tables = SparkAnalyzer(spark), {stream.name: stream for stream in streams}, tables or {}
    for stream in known.values():
        analyzer.register(stream)
    for name, schema in tables.items():
        analyzer.register_table(name, schema)
    bound = tuple(
        bind(
            query.name,
            query.select,
            known,
            analyzer,
            options=OPTIONS.get(query.name, ()),
            emit="updates" if query.name == "updates" else "final",
            tables=tables,
            own=OWN,
        )
        for query in queries
    )
    return Recorded(known, bound, tables)


def _stream(feed: Feed) -> Stream:
    schema = memory(feed.schema).schema()
    return Stream(feed.stream, schema, feed.time, feed.delay_us, SourceSpec("memory", {"max_files_per_batch": 1}))


def _streams_by_hand() -> list[Stream]:
    types = {"id": "bigint", "k": "int", "name": "string", "x": "int", "price": "double", "flag": "boolean"}
    fields = (*(Field(*item) for item in types.items()), Field("ts", "timestamp"))
    odd = (Field("it's", "string"), Field("ts", "timestamp"))
    options = {"path": "in/*.csv", "header": True, "columns": ["a", None], "limit": 2.5}
    source = SourceSpec("files", options)
    streams = [Stream(name, Schema(fields), "ts", 2_000_000, source) for name in ("a", "b")]
    return [*streams, Stream("odd", Schema(odd), "ts", 0, source)]


def _to_json(world: Recorded) -> dict[str, Any]:
    return {
        "streams": [asdict(stream) for stream in world.streams.values()],
        "queries": [msgspec.to_builtins(query) for query in world.queries],
        "tables": {name: asdict(schema) for name, schema in world.tables.items()},
    }


def _from_json(value: Mapping[str, Any]) -> Recorded:
    streams = [
        Stream(s["name"], _schema(s["schema"]), s["time"], s["delay_us"], SourceSpec(**s["source"]))
        for s in value["streams"]
    ]
    return Recorded(
        {stream.name: stream for stream in streams},
        tuple(query_from_json(query) for query in value["queries"]),
        {name: _schema(schema) for name, schema in value["tables"].items()},
    )


def _schema(value: Mapping[str, Any]) -> Schema:
    return Schema(tuple(Field(**column) for column in value["fields"]))
