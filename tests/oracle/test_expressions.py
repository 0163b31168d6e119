"""Differential: the DuckDB text of an expression gives Spark's value, type and errors, row by row."""

from __future__ import annotations

import datetime as dt
import math
import random
from dataclasses import replace
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from thalweg.engine.analyzer import SparkAnalyzer
from thalweg.errors import SqlError
from thalweg.frontend.bind import bind
from thalweg.model.expr import Expr
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.types import to_arrow, to_inner_arrow

UTC = dt.UTC
DECIMALS = {
    "de": ["0.00", "1.50", "-1.55", "99999999.99", "0.01"],
    "dw": ["0.0000", "1.2345", "-9999999999999999.9999", "2.5000"],
}
COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "ti": ("tinyint", [0, 1, -1, 127, -128, 7]),
    "si": ("smallint", [0, 1, -1, 32767, -32768, 300]),
    "i": ("int", [0, 1, -1, 2147483647, -2147483648, 42, -7]),
    "l": ("bigint", [0, 1, -1, 9223372036854775807, -9223372036854775808, 10**12, -7]),
    "x": ("int", [0, 1, -1, 2, 3, -3, 17, 100, -250]),
    "y": ("bigint", [0, 5, -5, 1000, -1001, 3, 10**9]),
    "f": ("float", [0.0, -0.0, 1.5, -2.25, math.nan, math.inf, -math.inf, 3.4e38, 1e-10, 0.35, 0.1, 0.7]),
    "d": (
        "double",
        [
            0.0,
            -0.0,
            1.5,
            -2.5,
            math.nan,
            math.inf,
            -math.inf,
            1e300,
            1e-300,
            2.0**63,
            -(2.0**63),
            1.005,
            2.675,
        ],
    ),
    "p": ("double", [0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.005, 99.995, -1234.5678, 1e6, 123456789.5]),
    "de": ("decimal(10,2)", [Decimal(text) for text in DECIMALS["de"]]),
    "dw": ("decimal(20,4)", [Decimal(text) for text in DECIMALS["dw"]]),
    "s": (
        "string",
        [
            "",
            "a",
            "abc",
            "ABC",
            "hello world",
            " pad ",
            "100%",
            "a_b",
            "çédille",
            "🙂x🙂",
            "Straße",
            "a\tb\n",
        ],
    ),
    "n": (
        "string",
        [
            "0",
            "12",
            "-7",
            " 42 ",
            "+3",
            "1.5",
            "1e3",
            "abc",
            "",
            "9223372036854775808",
            "NaN",
            "0x1F",
            "-0.004",
        ],
    ),
    "c": (
        "string",
        [
            *("2024-02-29", "1969-12-31", "2023-02-30", "2020-1-5", "2020-01-05 10:11:12", "x", ""),
            *(
                "2024",
                "2024-03",
                "2024-3",
                " 2024-03 ",
                "2024-13",
                "2024-",
                "2024-03-",
                "2024-03 1",
                "2024T",
                "24-03",
            ),
        ],
    ),
    "b": ("boolean", [True, False]),
    "da": (
        "date",
        [
            *(dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(1900, 3, 1)),
            *(dt.date(1500, 6, 1), dt.date(9000, 12, 31), dt.date(2021, 1, 3)),
        ],
    ),
    "ts": (
        "timestamp",
        [
            *(dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
            *(dt.datetime(2024, 2, 29, 13, 14, 15, 123456), dt.datetime(1905, 7, 7, 1, 2, 3, 500000)),
            dt.datetime(2021, 1, 3, 0, 0, 0, 1000),
        ],
    ),
    "nt": (
        "timestamp_ntz",
        [dt.datetime(1970, 1, 1), dt.datetime(2024, 3, 31, 2, 30), dt.datetime(1955, 5, 5, 5, 5)],
    ),
}
ROWS = 32

EXPRESSIONS = """
i + 1 | i - l | x + y | x * y | l * 2 | ti + ti | si * si | ti - i | -i | -l | -ti | - x | +x
f + f | f * 2 | d + d | d * d | d - 1.5D | d + i | f + l | p / 2 | x / y | i / x | d / p | f / f | l / 3
x % 3 | i % x | l % y | d % p | f % 2 | -7 % x | p % 2.5D | x div y | l div 7 | l div y | i div -1 | pmod(x, 3)
pmod(l, 7) | mod(x, 5)
de + 1 | de + de | de - dw | de * de | de * 1.5 | de * x | dw * 2 | de / 3 | de / de | dw / 100 | de / x
de % 1.5 | dw % de | -de | abs(de) | de + i | de / 0.3 | x / 2.5 | dw / y | de + 1e0 | de * d | 1.5 + 2 | 1 / 3
i + 1.5 | l * 1.1 | 100 * de / 7
i = 1 | i < l | x <> y | de > 1 | de = x | d > 1.5 | d = d | f = d | f < 1.5 | d >= p | s = 'abc' | s < 'b' | s > ''
da > '2000-01-01' | ts >= '1970-01-01' | ts < TIMESTAMP '2020-01-01 10:00:00' | da = ts | nt > ts | b = true
x = '1' | d < '1.5' | x <=> null | i <=> l | s <=> null | 5 < x | b <=> (x > 1) | de < 1.55 | l > 1.5 | da <= da
x between -1 and 3 | x not between 0 and 2.5 | s between 'a' and 'b' | x in (1, 2, 17) | x in (1, null) | x not in (1, 2)
s in ('a', '', 'abc') | x in (1.5, 2) | l in (1, 5L, -1) | d in (1.5, 2) | de in (1.5, 0.01)
b and x > 1 | b or x > 1 | not b | b and null | b or null | x is null | s is not null | b is true | b is not false
b is unknown | x is distinct from y | x is not distinct from 1 | (x <> 0 and y / x > 1) | (x = 0 or y / x > 1)
x > 0 and i + 1 > 0 and b | y <> 0 and x % y = 1
case when x > 1 then 'big' when x < 0 then 'neg' else s end | case x when 1 then 'one' when 2 then 'two' end
case when b then x else 1.5 end | case when b then x end | if(b, x, y) | if(x > 1, 1 / x, 0) | case when b then null else d end
coalesce(x, y) | coalesce(null, x, 1) | coalesce(de, 1) | coalesce(s, 'none') | nvl(x, 0) | ifnull(y, x) | nvl2(x, 1, 2.5)
nullif(x, 1) | nullif(x, 1.5) | nullif(s, '') | greatest(x, y) | least(x, y, 3) | greatest(d, p) | least(d, f)
greatest(s, 'b') | greatest(x, 1.5) | least(da, ts) | isnull(x) | isnotnull(x) | isnan(d) | isnan(f)
abs(i) | abs(d) | abs(l) | abs(p) | ceil(p) | floor(p) | ceil(d) | floor(d) | ceil(x) | floor(de) | ceil(de) | ceil(l)
floor(dw) | round(p) | round(p, 2) | round(d, 1) | round(de) | round(de, 1) | round(dw, 2) | round(x, 1) | round(f, 1) | round(f, 2)
round(de, 5) | sqrt(p) | sqrt(de) | exp(x) | ln(p) | log10(y) | log2(x) | pow(x, 2) | power(p, 0.5) | sign(p) | sign(d)
signum(de) | x & 6 | i | l | x ^ 3 | ~x | l & i | negative(x)
upper(s) | lower(s) | trim(s) | ltrim(s) | rtrim(s) | trim(both 'a' from s) | trim(leading 'a' from s) | trim(trailing 'lc' from s)
btrim(s, 'ah') | ltrim('ab', s) | length(s) | char_length(s) | octet_length(s) | length(x) | substring(s, 2) | substring(s, 1, 2)
substring(s, 0, 2) | substring(s, -3, 2) | substring(s, -10, 9) | substring(s, x, 3) | substring(s, 2, x) | substr(s, 3)
substring(s from 2 for 3) | substring(s, 2, -1) | concat(s, 'x', x) | concat(s, null) | s || '-' || n | s || x | concat(s, da)
concat(s, ts) | concat(de, b) | replace(s, 'a', 'zz') | replace(s, 'l') | replace(s, '', 'q') | startswith(s, 'a')
endswith(s, 'c') | contains(s, 'b') | contains(s, '') | left(s, 2) | right(s, 2) | left(s, x) | right(s, x) | left(s, -1)
lpad(s, 5, 'xy') | rpad(s, 5, 'xy') | lpad(s, 3) | rpad(s, 0, 'a') | lpad(s, -2, 'b') | reverse(s) | repeat(s, 2) | repeat(s, ti % 4Y)
instr(s, 'b') | locate('l', s) | position('o' in s) | position('🙂', s) | instr(s, '') | s like 'a%' | s like '%_b%' | s like '100\\\\%'
s not like '%a%' | s like '🙂_🙂' | s like 'a!_b' escape '!' | s like ''
substring(s, -2147483648) | substring(s, -2147483648, 2) | substring(s, i) | substring(s, i, 2) | repeat(s, 12) | repeat(repeat(s, 5), 5)
replace(s, 'a', 'bbbbbbbbbbbbbbbbbbbb') | replace(s, s, 'xy') | replace(s, 'a', s) | replace(replace(s, 'a', 'aaaa'), 'a', 'aaaa')
year(da) | month(da) | day(ts) | dayofmonth(da) | hour(ts) | minute(ts) | second(ts) | dayofweek(da) | weekday(ts) | dayofyear(da)
quarter(da) | weekofyear(da) | extract(year from ts) | extract(hour from ts) | date_part('month', da) | hour(nt) | year(nt)
date_trunc('year', ts) | date_trunc('QUARTER', ts) | date_trunc('month', ts) | date_trunc('week', ts) | date_trunc('day', da)
date_trunc('hour', ts) | date_trunc('minute', ts) | date_trunc('second', ts) | date_trunc('millisecond', ts) | date_trunc('hour', nt)
trunc(da, 'month') | trunc(da, 'year') | trunc(ts, 'week') | trunc(da, 'quarter') | to_date(ts) | to_date(c) | date(ts)
date_add(da, 10) | date_add(da, x) | date_sub(ts, 3) | da + 5 | da - x | datediff(da, ts) | datediff(ts, '2020-01-01') | last_day(da)
add_months(da, 1) | add_months(da, x) | add_months(da, -13) | make_date(2024, 2, x) | unix_seconds(ts) | unix_millis(ts) | unix_micros(ts)
timestamp_seconds(x) | timestamp_millis(y) | timestamp_micros(y) | ts + interval 90 seconds | ts - interval 1 day | ts + interval '1 hour'
ts + interval 1 month | ts - interval 2 years | da + interval 3 days | da + interval 1 hour | da - interval 1 month | nt + interval 5 minutes
interval 1 day + ts | da + interval 1 week | ts + interval 1 day 2 hours | ts + interval 1.5 seconds
cast(x as bigint) | cast(l as int) | cast(i as smallint) | cast(x as tinyint) | cast(d as int) | cast(d as bigint) | cast(p as int)
cast(p as smallint) | cast(f as int) | cast(x as double) | cast(l as float) | cast(d as float) | cast(f as double) | cast(x as decimal(5,2))
cast(l as decimal(20,1)) | cast(p as decimal(10,2)) | cast(d as decimal(38,6)) | cast(f as decimal(20,3)) | cast(f as decimal(3,1)) | cast(f as decimal(20,10)) | cast(de as decimal(5,1))
cast(dw as decimal(38,10)) | cast(de as int) | cast(dw as bigint) | cast(dw as double) | cast(de as double) | cast(de as float) | cast(de as string)
cast(dw as string) | cast(x as string) | cast(b as string) | cast(b as int) | cast(x as boolean) | cast(p as boolean) | cast(de as boolean)
cast(da as string) | cast(ts as string) | cast(nt as string) | cast(ts as date) | cast(da as timestamp) | cast(nt as timestamp) | cast(ts as bigint)
cast(y as timestamp) | cast(n as int) | cast(n as bigint) | cast(n as double) | cast(n as decimal(10,2)) | cast(n as boolean) | cast(c as date)
try_cast(n as int) | try_cast(n as double) | try_cast(n as decimal(5,1)) | try_cast(d as int) | try_cast(l as tinyint) | try_cast(n as boolean)
try_cast(c as date) | da = c | da < c | datediff(c, da) | x::double | int(n) | string(x) | double(de) | n + 1 | n = 12 | p < n | x::string || 'q' | sqrt(n)
1 | -2147483648 | 2147483648 | 1L | 1S | 1Y | 1.5 | .5 | 1.50 | 1.5D | 1e3 | 1.5F | 1.5BD | 'it''s' | "dq" | 'tab\\there' | 'a' 'b'
DATE '2024-02-29' | TIMESTAMP '2024-02-29 01:02:03.5' | TIMESTAMP_NTZ '1969-12-31 23:59:59' | true | r'\\n' | '\\u00e9'
x + y * 2 - -3 | (x + 1) * (y - 2) / 4 | (x + i) + (i + l) | (i + 1) / (x - 1) | x > i + 1 | x / n | n / i | not x > 1 and b or s = 'a' | x + 1 = y - 1 | - x * - 2 | x || y = '11' | 1 + 2 * 3 | x & 3 = 1
"""  # noqa: E501
CLOSE = ("exp(", "ln(", "log10(", "log2(", "pow(", "power(")
"""Functions whose last bit is the math library's own."""


def _expressions() -> list[str]:
    lines = EXPRESSIONS.strip().replace("\\\\", "\\").splitlines()
    return [text.strip() for line in lines for text in line.split(" | ")]


def _rows() -> dict[str, list[Any]]:
    rng = random.Random(7)
    columns: dict[str, list[Any]] = {}
    for name, (_, values) in COLUMNS.items():
        column = [*values, None, *(rng.choice([*values, None]) for _ in range(ROWS))][:ROWS]
        rng.shuffle(column)
        columns[name] = column
    return columns


class Sides:
    """The same rows in DuckDB and in Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self.columns = _rows()
        fields = tuple(Field(name, type_) for name, (type_, _) in COLUMNS.items())
        self.stream = Stream("t", Schema(fields), "ts", 0, SourceSpec("memory", {}))
        self.analyzer = SparkAnalyzer(spark)
        self.analyzer.register(self.stream)
        types = {name: type_ for name, (type_, _) in COLUMNS.items()}
        table = pa.table({name: pa.array(self.columns[name], to_inner_arrow(types[name])) for name in types})
        self.duck = duckdb.connect()
        self.duck.execute("SET threads = 1")
        self.duck.register("source", table)
        self.duck.execute("CREATE TABLE t AS SELECT row_number() OVER () - 1 AS row_id, * FROM source")
        self.spark = spark
        rows = {"row_id": pa.array(range(ROWS), pa.int32())} | {
            name: pa.array(self.columns[name], to_arrow(type_)) for name, (type_, _) in COLUMNS.items()
        }
        # Small Arrow tables become local relations: Spark evaluates over them without starting a job.
        spark.createDataFrame(pa.table(rows)).createOrReplaceTempView("t")

    def compile(self, texts: list[str]) -> list[Expr]:
        """Bound as one SELECT: names and types have then been held against Spark's analyser too."""
        listed = ", ".join(f"{text} AS result_{k}" for k, text in enumerate(texts))
        query = bind("q", f"SELECT {listed} FROM t", {"t": self.stream}, self.analyzer)
        return [output.expr for output in query.outputs]

    def in_duck(self, sql: str, where: str = "TRUE") -> pa.Table:
        return self.duck.sql(f"SELECT {sql} AS x FROM t WHERE {where} ORDER BY row_id").to_arrow_table()

    def in_spark(self, texts: list[str], where: str = "true") -> list[list[Any]]:
        listed = ", ".join(f"{text} AS c{k}" for k, text in enumerate(texts))
        rows = self.spark.sql(f"SELECT {listed} FROM t WHERE {where}").collect()
        return [[row[k] for row in rows] for k in range(len(texts))]

    def raising_rows(self, sql: str, low: int = 0, high: int = ROWS) -> list[int]:
        """Found by halving: most expressions raise in few rows."""
        try:
            self.in_duck(sql, f"row_id BETWEEN {low} AND {high - 1}")
        except duckdb.Error:
            middle = (low + high) // 2
            if high - low == 1:
                return [low]
            return self.raising_rows(sql, low, middle) + self.raising_rows(sql, middle, high)
        return []


@pytest.fixture(scope="module")
def sides(spark: SparkSession) -> Sides:
    """In a session of its own, so that the settings and the view disturb no other test."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.ansi.enabled", "true")
    return Sides(own)


def _same(ours: Any, sparks: Any, close: bool) -> bool:
    if isinstance(sparks, dt.datetime) and isinstance(ours, dt.datetime):
        return ours.replace(tzinfo=None) == sparks.replace(tzinfo=None)
    if isinstance(sparks, float) and isinstance(ours, float):
        if math.isnan(sparks) or math.isnan(ours):
            return math.isnan(sparks) and math.isnan(ours)
        return ours == sparks or (close and math.isclose(ours, sparks, rel_tol=1e-14))
    return type(ours) is type(sparks) and bool(ours == sparks)


def _local(value: Any, type_: str) -> Any:
    """PySpark gives timestamps in the local zone of the process; floats of 32 bits as Python floats."""
    if type_ == "timestamp" and value is not None:
        return value.astimezone(UTC)
    return value


def _difference(sides: Sides, text: str, expr: Expr, sparks: list[Any], where: str) -> str | None:
    table = sides.in_duck(expr.sql, where)
    want = to_inner_arrow(expr.type)
    if table.schema.field("x").type != want:
        return f"{text}: Arrow type {table.schema.field('x').type}, not {want}"
    ours = table.column("x").to_pylist()
    for k, (a, b) in enumerate(zip(ours, sparks, strict=True)):
        b = _local(b, expr.type)
        if not _same(a, b, text.startswith(CLOSE)):
            return f"{text} [row {k} of {where}]: {a!r}, Spark {b!r}\n    {expr.sql}"
    return None


def _holes(sides: Sides, expr: Expr) -> list[int]:
    """The rows where the DuckDB text raises."""
    return sides.raising_rows(expr.sql) if expr.fails else []


def _listed(rows: list[int]) -> str:
    return ", ".join(str(k) for k in rows) or "-1"


@pytest.fixture(scope="module")
def compiled(sides: Sides) -> list[tuple[str, Expr, list[int]]]:
    texts = _expressions()
    exprs = [expr for at in range(0, len(texts), 20) for expr in sides.compile(texts[at : at + 20])]
    return [(text, expr, _holes(sides, expr)) for text, expr in zip(texts, exprs, strict=True)]


def test_values_and_types_are_sparks(sides: Sides, compiled: list[tuple[str, Expr, list[int]]]) -> None:
    """On every row where the text does not raise; Spark must not raise there either."""
    assert len(compiled) > 150
    wrapped = [
        f"CASE WHEN row_id NOT IN ({_listed(bad)}) THEN {text} END" if bad else text for text, _, bad in compiled
    ]
    found: list[str | None] = []
    for at in range(0, len(compiled), 40):
        results = sides.in_spark(wrapped[at : at + 40])
        for (text, expr, bad), sparks in zip(compiled[at : at + 40], results, strict=True):
            kept = [value for k, value in enumerate(sparks) if k not in bad]
            found.append(_difference(sides, text, expr, kept, f"row_id NOT IN ({_listed(bad)})"))
    assert [line for line in found if line] == []


def test_errors_are_sparks(sides: Sides, compiled: list[tuple[str, Expr, list[int]]]) -> None:
    """Where the text raises, Spark raises: the first two such rows of each expression."""
    raised = [(text, k) for text, _, bad in compiled for k in bad[:2]]
    assert len(raised) > 40
    silent = []
    for text, k in raised:
        try:
            sides.in_spark([text], f"row_id = {k}")
        except PySparkException:
            continue
        silent.append(f"{text} in row {k}")
    assert silent == []


GROUPED = """
SELECT x, sum(y), window.end AS until FROM t GROUP BY x, window(ts, '1 minute', '10 seconds')
SELECT window, count(*), count(1), sum(x * 2) + 1, avg(de), avg(x) FROM t WHERE de > 5 GROUP BY window(ts, '1 hour')
SELECT x AS g, upper(s) AS u, count(DISTINCT l, s) FROM t GROUP BY g, u, window(ts, '1 day') HAVING sum(de) > 1
SELECT window(ts, '1 minute') AS w, max(d) AS m FROM t GROUP BY w ORDER BY m DESC, w.start LIMIT 3
SELECT x % 3, count(*) AS c FROM t GROUP BY 1, window(ts, '1 hour') ORDER BY 2 DESC, 1
SELECT x % 3 + 1, sum(de) / count(*) AS r, avg(de) * 2 FROM t GROUP BY x % 3, window(ts, '1 hour') HAVING r > 2
SELECT first(s), last(s) IGNORE NULLS, any_value(b), every(b), some(b), count_if(x > 1) FROM t GROUP BY window(ts, '1 day')
SELECT sum(x) FILTER (WHERE b), median(de), percentile(x, 0.9), min_by(s, ts) FROM t GROUP BY window(ts, '1 day')
SELECT stddev(x), stddev_pop(de), variance(f), var_pop(d), sum(f), sum(de), sum(ti), sum(n) FROM t GROUP BY window(ts, '1 day')
SELECT min(da), max(ts), min(b), max(s), approx_count_distinct(s), avg(n), mean(f) FROM t GROUP BY window(ts, '1 week')
SELECT sum(x) AS total, total + 1 AS more, max(x) AS total, more * 2 AS e FROM t GROUP BY window(ts, '1 day')
SELECT avg(x) AS v, round(v, 2) AS v FROM t GROUP BY window(ts, '1 day')
SELECT x % 3 AS g, x % 2 AS g FROM t GROUP BY g, x % 2, window(ts, '1 day')
SELECT 0 - x AS x, count(*) AS c FROM t GROUP BY x, window(ts, '1 day') ORDER BY 1
SELECT window.start - INTERVAL 1 HOUR, date_trunc('hour', window.end), 1 AS one FROM t GROUP BY window(ts, '5 minutes')
"""  # noqa: E501


@pytest.mark.parametrize("text", GROUPED.strip().splitlines())
def test_grouped_results_are_named_and_typed_as_sparks(sides: Sides, text: str) -> None:
    query = bind("q", text, {"t": sides.stream}, sides.analyzer)
    assert [(o.name, o.expr.type) for o in query.outputs] == sides.analyzer.analyze(text)
    known = {f"k{k}" for k in range(len(query.keys))} | {f"a{k}" for k in range(len(query.aggregates))}
    read = {name for output in query.outputs for name in output.expr.columns}
    assert read <= known | {"window_start", "window_end"}


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("SELECT prise FROM t", "unknown column 'prise'", "prise"),
        ("SELECT s\nFROM t\nWHERE s + 1 > true", "data type mismatch", "s + 1 > true"),
        ("SELECT x FROM t GROUP BY window(ts, '1 minute')", "GROUP BY", "x"),
        ("SELECT round(x, 1, 2) FROM t", "round takes 1 to 2 arguments", "round(x, 1, 2)"),
        ("SELECT x FROM t WHERE sum(x) > 1", "aggregate", "sum(x)"),
    ],
)
def test_sparks_complaints_are_underlined(sides: Sides, text: str, message: str, place: str) -> None:
    with pytest.raises(SqlError) as caught:
        bind("q", text, {"t": sides.stream}, sides.analyzer)
    assert message in caught.value.message
    assert "JVM" not in str(caught.value)
    assert caught.value.span is not None
    assert text[slice(*caught.value.span)] == place


def test_a_dropped_stream_is_unknown(sides: Sides) -> None:
    other = replace(sides.stream, name="other")
    sides.analyzer.register(other)
    assert len(sides.analyzer.analyze("SELECT * FROM other")) == len(COLUMNS)
    sides.analyzer.unregister("other")
    with pytest.raises(SqlError, match="unknown stream 'other'"):
        sides.analyzer.analyze("SELECT * FROM other")
