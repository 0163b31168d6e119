"""Property: what is learned from Spark's answers never changes what becomes of a text, right or wrong."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator, Sequence

import pytest
from pyspark.sql import SparkSession
from tests.support.join_randomly import random_world
from tests.support.randomly import random_feed, random_queries

from thalweg.engine.analyzer import SparkAnalyzer
from thalweg.errors import SqlError
from thalweg.frontend.bind import bind
from thalweg.frontend.lex import Token, lex
from thalweg.model.analysis import Columns, Learned
from thalweg.model.query import Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.types import from_arrow
from thalweg.testing.oracle import Feed

pytestmark = pytest.mark.slow

SEEDS = [int(s) for s in os.environ.get("THALWEG_SEEDS", "1").split(",")]
NUMBERS = (
    "0", "1", "2", "3", "7", "10", "42", "99", "100", "1000", "2147483647", "2147483648", "99999999999", "5L", "3S",
    "200Y", "0.5", "2.50", "10.000", "123456789.123", "1e3", "2.5D", "1.5BD", "99999999999999999999.5", "0.05",
)  # fmt: skip
STRINGS = (
    "''", "'a'", "'amber'", "'O''Neill'", "'2024-02-28'", "'2024-02-31'", "'12:00'", "'1'", "'1.5'", "'x\\ty'",
    "'10 seconds'", "'1 minute'", "'0 seconds'", "'-5 seconds'", "'1 month'", "'MONTH'", "'%a_'", "\"b\"", "'true'",
)  # fmt: skip
ASIDE = (
    "SELECT {k} + 1 AS a, count(*) AS n FROM {s} GROUP BY {k} + 1, window(ts, '10 seconds')",
    "SELECT {k} AS v, sum({v} * 2) AS t, sum({v}) > 5 AS big FROM {s} GROUP BY {k}, window(ts, '10 seconds')",
    "SELECT {k}, count(*) AS n FROM {s} GROUP BY {k}, window(ts, '10 seconds') HAVING count(*) > 5 AND {k} + 1 > 2",
    "SELECT {k}, round(avg({v}), 2) AS m, window.end AS e FROM {s} GROUP BY 1, window(ts, '10 seconds', '5 seconds')",
    "SELECT {k}, count(*) AS n FROM {s} GROUP BY {k}, window(ts, '10 seconds') ORDER BY 2 DESC, 1 LIMIT 3",
    "SELECT percentile({v}, 0.5) AS p, approx_count_distinct({k}, 0.05) FROM {s} GROUP BY window(ts, '9 seconds')",
    "SELECT {v} * 2.5 AS a, {v} / 3 AS b, a + 1 AS c, {v} + 1 FROM {s} WHERE {k} IN (1, 2, 3) OR {v} BETWEEN 1 AND 2",
    "SELECT CASE WHEN {v} > 5 THEN 1 ELSE 2.5 END AS c, round({v} * 1.5, 1) AS r FROM {s} WHERE {v} % 7 = 3",
    "SELECT sum({v}) FILTER (WHERE {k} > 3) AS f, max({v} + 1) AS window FROM {s} GROUP BY window(ts, '10 seconds')",
    "SELECT count(*) AS n, n + 1 AS m, sum(n) AS o FROM {s} WHERE {k} = 3 GROUP BY {k}, window(ts, '10 seconds')",
    "SELECT {k} FROM {s} WHERE n > 3",
    "SELECT {k} FROM {s} WHERE {v} > 1 AND {k}",
    "SELECT {k} FROM {s} WHERE {v} > 1 AND 'true' AND NOT ({k} = 2)",
    "SELECT * FROM {s} WHERE ({v} > 1 OR {k}) AND {k} IN (1, 2) AND {v} IS NOT NULL",
)


class Forgetful:
    """The same analyser, which learns nothing."""

    def __init__(self, analyzer: SparkAnalyzer) -> None:
        self._analyzer = analyzer

    @property
    def learned(self) -> Learned:
        return {}

    def analyze(self, sql: str) -> Columns:
        return self._analyzer.analyze(sql)


def stream_of(feed: Feed) -> Stream:
    fields = tuple(Field(field.name, from_arrow(field.type)) for field in feed.schema)
    return Stream(feed.stream, Schema(fields), feed.time, feed.delay_us, SourceSpec("memory", {}))


def become(analyzer: SparkAnalyzer | Forgetful, text: str, streams: dict[str, Stream]) -> Query | tuple[str, ...]:
    """What becomes of a text: the query, or what is said of it, with the place."""
    try:
        return bind("q", text, streams, analyzer)
    except SqlError as error:
        return type(error).__name__, str(error)


def turned(rng: random.Random, text: str, names: Sequence[str]) -> str:
    """The same text with another constant or name in some places, or without a word."""
    tokens = [token for token in lex(text) if token.kind != "end"]
    constants = [token for token in tokens if token.kind in ("number", "string")]
    changes: dict[Token, str] = {}
    for token in rng.sample(constants, min(len(constants), rng.choice((1, 1, 2, 4)))):
        alike = NUMBERS if token.kind == "number" else STRINGS
        drawn = rng.choice(alike if rng.random() < 0.93 else (*NUMBERS, *STRINGS))
        changes[token] = (
            drawn if rng.random() < 0.5 else re.sub("[1-9]", lambda _: rng.choice("123456789"), token.text)
        )
    if rng.random() < 0.12:
        changes[rng.choice(tokens)] = rng.choice((*names, "nowhere", ""))
    for token in sorted(changes, key=lambda token: -token.start):
        text = text[: token.start] + changes[token] + text[token.end :]
    return text


def texts_of(rng: random.Random, bases: Sequence[str], names: Sequence[str], each: int) -> Iterator[str]:
    for base in bases:
        yield base
        yield from (turned(rng, base, names) for _ in range(each))


def check(spark: SparkSession, streams: dict[str, Stream], texts: Sequence[str]) -> int:
    """How many texts Spark need not be asked for."""
    analyzer = SparkAnalyzer(spark)
    for stream in streams.values():
        analyzer.register(stream)
    forgetful, saved = Forgetful(analyzer), 0
    for text in texts:
        before = len(analyzer.learned)
        found = become(analyzer, text, streams)
        assert found == become(forgetful, text, streams), text
        saved += isinstance(found, Query) and len(analyzer.learned) == before
    return saved


@pytest.mark.parametrize("seed", SEEDS)
def test_of_one_stream(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    feed = random_feed(seed)
    names = [field.name for field in feed.schema]
    bases = [query.select for query in random_queries(seed, feed, 10)]
    for _ in range(2):
        k, v = rng.choice(names), rng.choice(names)
        bases += [aside.format(k=k, v=v, s=feed.stream) for aside in ASIDE]
    texts = list(texts_of(rng, bases, names, 8))
    assert check(spark, {feed.stream: stream_of(feed)}, texts) > len(bases) // 5


@pytest.mark.parametrize("seed", SEEDS)
def test_of_joins(spark: SparkSession, seed: int) -> None:
    rng = random.Random(seed)
    world = random_world(seed, queries=10)
    names = [field.name for feed in world.feeds for field in feed.schema]
    texts = list(texts_of(rng, [query.select for query in world.queries], names, 5))
    check(spark, {feed.stream: stream_of(feed) for feed in world.feeds}, texts)
