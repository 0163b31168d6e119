"""TPC-H as streams, made by `tpchgen-cli` (PyPI): lineitem, orders and customer arrive, the other tables are static.

    tpch/q3         one query in its streaming form: q1, q3, q5, q6, q10, q12, q14, q18
    tpch/4          the first four, in the order of SASPAR's Fig. 6 as far as they are here: q3, q1, q5, q6, q10, ...
    tpch/all        all eight
    tpch/q3@0.1     at another scale factor than 1

A day of the benchmark is a second of event time: an order comes on its date, a line item on the day it is shipped (1
to 121 days after its order), and the record of each customer twice a year, so that every order finds one that is at
most 182 days old (but for the first half year). A file is 30 days. Windows stand where the queries have dates; the
`LIMIT` of Q3, Q10 and Q18 is left out, because Structured Streaming cannot say it. Holistic (Fig. 5 to 7), SASPAR
(Fig. 6, 7, 9) and CLASH (Fig. 7) measure on TPC-H.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.workloads.model import Query, Static, Stream, Workload
from benchmarks.workloads.windowed import closed, in_windows, window

NAMES = {
    "tpch/qN[@SCALE]": "TPC-H's Q1, 3, 5, 6, 10, 12, 14 or 18 over lineitem, orders and customer as streams",
    "tpch/N[@SCALE]": "the first N of them together, Q3 first; tpch/all is all eight",
}

TREE = Path(__file__).resolve().parents[2]
SOURCES = TREE / "build" / "bench"
GENERATOR = "tpchgen-cli"
MISSING = f"TPC-H: {GENERATOR} is not installed (pip install 'thalweg[bench]')"

START_US = 1_700_006_400_000_000
"""Of 1992-01-01; windows of up to six hours begin here."""
FIRST_DAY = "1992-01-01"
DAYS_PER_FILE = 30
FILES = 84
"""Of whole 30 days until the last line item is shipped."""
DELAY_SECONDS = 2
LONGEST_DAYS = 122
"""From the moment of an order to that of its last line item."""
RENEWED_DAYS = 182
"""From one record of a customer to the next."""

PRICE, SHARE = pa.decimal128(12, 2), pa.decimal128(4, 2)
"""As narrow as the values are: with TPC-H's decimal(15,2) everywhere Q1's charge would need more than 38 digits."""
TIME = pa.timestamp("us", tz="UTC")
SCHEMAS = {
    "lineitem": pa.schema(
        [
            ("l_orderkey", pa.int64()),
            ("l_partkey", pa.int64()),
            ("l_suppkey", pa.int64()),
            ("l_quantity", PRICE),
            ("l_extendedprice", PRICE),
            ("l_discount", SHARE),
            ("l_tax", SHARE),
            ("l_returnflag", pa.string()),
            ("l_linestatus", pa.string()),
            ("l_shipdate", pa.date32()),
            ("l_commitdate", pa.date32()),
            ("l_receiptdate", pa.date32()),
            ("l_shipmode", pa.string()),
            ("l_ts", TIME),
        ]
    ),
    "orders": pa.schema(
        [
            ("o_orderkey", pa.int64()),
            ("o_custkey", pa.int64()),
            ("o_totalprice", PRICE),
            ("o_orderdate", pa.date32()),
            ("o_orderpriority", pa.string()),
            ("o_shippriority", pa.int32()),
            ("o_ts", TIME),
        ]
    ),
    "customer": pa.schema(
        [
            ("c_custkey", pa.int64()),
            ("c_name", pa.string()),
            ("c_nationkey", pa.int64()),
            ("c_phone", pa.string()),
            ("c_acctbal", PRICE),
            ("c_mktsegment", pa.string()),
            ("c_ts", TIME),
        ]
    ),
    "nation": pa.schema([("n_nationkey", pa.int64()), ("n_name", pa.string()), ("n_regionkey", pa.int64())]),
    "region": pa.schema([("r_regionkey", pa.int64()), ("r_name", pa.string())]),
    "part": pa.schema([("p_partkey", pa.int64()), ("p_type", pa.string())]),
    "supplier": pa.schema([("s_suppkey", pa.int64()), ("s_nationkey", pa.int64())]),
}
STREAMS = ("customer", "orders", "lineitem")
ROWS = {"lineitem": 2_390_000 * DAYS_PER_FILE // 1000, "orders": 623_000 * DAYS_PER_FILE // 1000, "customer": 24_700}
"""About so many in a file at scale factor 1."""


def named(name: str) -> Workload | None:
    found = re.fullmatch(r"tpch/(\w+)(?:@([\d.]+))?", name)
    asked = chosen(found[1]) if found else ()
    if found is None or not asked:
        return None
    scale = float(found[2] or 1)
    forms = {number: FORMS[number] for number in asked}
    streams = [s for s in STREAMS if any(s in form.streams for form in forms.values())]
    statics = dict.fromkeys(table for form in forms.values() for table in form.statics)
    return Workload(
        name=name,
        streams=tuple(_stream(stream, scale) for stream in streams),
        queries=tuple(form.query(number) for number, form in forms.items()),
        rows_per_file=max(1, round(sum(ROWS[s] for s in streams) / len(streams) * scale)),
        files_per_batch=4,
        statics=tuple(Static(table, SCHEMAS[table], partial(static_rows, table, scale)) for table in statics),
        data=f"tpch-{scale:g}",
    )


def chosen(text: str) -> tuple[str, ...]:
    """`q3`, `4` or `all` -> the queries; none where it is nothing of that."""
    if text == "all":
        return ORDER
    if text.isdigit() and int(text) <= len(ORDER):
        return ORDER[: int(text)]
    return (text,) if text in FORMS else ()


def _stream(name: str, scale: float) -> Stream:
    return Stream(name, SCHEMAS[name], f"{name[0]}_ts", DELAY_SECONDS, partial(rows, name, scale))


# -- rows --------------------------------------------------------------------------------------------------


def missing() -> str | None:
    """Why there can be no TPC-H here."""
    return None if _generator() else MISSING


def _generator() -> str | None:
    return shutil.which(GENERATOR) or shutil.which(GENERATOR, path=str(Path(sys.executable).parent))


def source(scale: float) -> Path:
    """Where the tables are as they were generated, once."""
    directory = SOURCES / f"tpch-{scale:g}-source"
    if not directory.exists():
        generator = _generator()
        if generator is None:
            raise RuntimeError(MISSING)
        making = directory.with_name(f"{directory.name}.part")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        tables = ",".join(SCHEMAS)
        command = [generator, "parquet", "-s", f"{scale:g}", "--output-dir", str(making), "--tables", tables, "-q"]
        subprocess.run(command, check=True)
        making.rename(directory)
    return directory


SPREAD = 2_654_435_761
"""A prime with which products of neighbouring keys lie far apart (Knuth)."""
TIMES = {
    # Within its day a row's moment is drawn from its key, so that rows of a day are not all at once.
    "lineitem": (
        f"(l_shipdate - DATE '{FIRST_DAY}') * 1000000 + (l_orderkey * 7 + l_linenumber) * {SPREAD} % 1000000",
        1,
    ),
    "orders": (f"(o_orderdate - DATE '{FIRST_DAY}') * 1000000 + o_orderkey * {SPREAD} % 1000000", 1),
    "customer": (f"turn * {RENEWED_DAYS} * 1000000 + c_custkey * {SPREAD} % {RENEWED_DAYS * 1_000_000}", 15),
}
"""Stream -> microseconds since the first day, and how often each row comes."""


def rows(stream: str, scale: float, number: int) -> pa.Table:
    """Of one file."""
    import duckdb

    if number >= FILES:
        raise ValueError(f"TPC-H ends after {FILES} files: take a larger scale factor")
    moment, turns = TIMES[stream]
    span = DAYS_PER_FILE * 1_000_000
    schema = SCHEMAS[stream]
    columns = ", ".join(schema.names[:-1])
    with duckdb.connect() as connection:
        text = (
            f"SELECT {columns}, make_timestamptz({START_US} + moment) AS {schema.names[-1]} "
            f"FROM (SELECT *, ({moment})::BIGINT AS moment "
            f"FROM '{source(scale)}/{stream}.parquet', range({turns}) AS past(turn)) "
            f"WHERE moment >= {number * span} AND moment < {(number + 1) * span} ORDER BY moment, {schema.names[0]}"
        )
        connection.execute("SET TimeZone = 'UTC'")
        return connection.sql(text).to_arrow_table().cast(schema)


def static_rows(table: str, scale: float) -> pa.Table:
    schema = SCHEMAS[table]
    return pq.read_table(source(scale) / f"{table}.parquet", columns=schema.names).cast(schema)


# -- queries -----------------------------------------------------------------------------------------------

JOINED = {
    "orders": (f"o_custkey = c_custkey AND o_ts >= c_ts AND o_ts < c_ts + INTERVAL {RENEWED_DAYS} SECONDS"),
    "lineitem": (f"l_orderkey = o_orderkey AND l_ts >= o_ts AND l_ts <= o_ts + INTERVAL {LONGEST_DAYS} SECONDS"),
    "supplier": "l_suppkey = s_suppkey",
    "nation": "c_nationkey = n_nationkey",
    "region": "n_regionkey = r_regionkey",
    "part": "l_partkey = p_partkey",
}
WAITING = {"orders": RENEWED_DAYS, "lineitem": LONGEST_DAYS}
"""Seconds that what a stream is joined to may wait for it."""
REVENUE = "sum(l_extendedprice * (1 - l_discount))"


@dataclass(frozen=True)
class Form:
    """A query with a window over the line items' time in place of its dates."""

    streams: tuple[str, ...]
    aggregates: Mapping[str, str]
    days: tuple[int, int]
    """Range and slide of the window."""
    keys: tuple[str, ...] = ()
    statics: tuple[str, ...] = ()
    where: str = ""
    having: str = ""
    ons: Mapping[str, str] = field(default_factory=lambda: JOINED)

    def query(self, name: str) -> Query:
        size, _ = self.days
        return Query(
            name,
            self._select(self._chain(), "window.start AS start", window("l_ts", *self.days)),
            spark=self._select(self._nested(), "window.start AS start", window("l_ts", *self.days)),
            batch=self._select(f"({in_windows(self._chain(), 'l_ts', *self.days)})", "start", "start"),
            closed=closed(size),
            held_seconds=sum(WAITING[one] for one in self.streams[1:]),
        )

    def _select(self, source: str, start: str, group: str) -> str:
        listed = ", ".join([start, *self.keys, *(f"{text} AS {name}" for name, text in self.aggregates.items())])
        where = f" WHERE {self.where}" if self.where else ""
        having = f" HAVING {self.having}" if self.having else ""
        return f"SELECT {listed} FROM {source}{where} GROUP BY {', '.join([*self.keys, group])}{having}"

    def _chain(self) -> str:
        first, *others = (*self.streams, *self.statics)
        return first + "".join(f" JOIN {table} ON {self.ons[table]}" for table in others)

    def _nested(self) -> str:
        """A chained join of Spark's wants one event time in what the join before it gives: others are left behind."""
        text, *others = self.streams
        for before, stream in zip(self.streams, others, strict=False):
            text = f"(SELECT * EXCEPT ({before[0]}_ts) FROM {text} JOIN {stream} ON {self.ons[stream]})"
        return text + "".join(f" JOIN {table} ON {self.ons[table]}" for table in self.statics)


SOLD = ("customer", "orders", "lineitem")
ORDER = ("q3", "q1", "q5", "q6", "q10", "q12", "q14", "q18")
"""SASPAR's Fig. 6 begins with Q3; then by number, without those that are not here (Q4, Q7, Q8, Q9, Q17, Q19)."""
FORMS = {
    "q1": Form(
        ("lineitem",),
        {
            "sum_qty": "sum(l_quantity)",
            "sum_base_price": "sum(l_extendedprice)",
            "sum_disc_price": REVENUE,
            "sum_charge": "sum(l_extendedprice * (1 - l_discount) * (1 + l_tax))",
            # Of sums, which are exact decimals: a mean of decimals has another type in every system.
            "avg_qty": "CAST(sum(l_quantity) AS DOUBLE) / count(*)",
            "avg_price": "CAST(sum(l_extendedprice) AS DOUBLE) / count(*)",
            "avg_disc": "CAST(sum(l_discount) AS DOUBLE) / count(*)",
            "count_order": "count(*)",
        },
        (90, 30),
        ("l_returnflag", "l_linestatus"),
    ),
    "q3": Form(
        SOLD,
        {"revenue": REVENUE},
        (120, 60),
        ("l_orderkey", "o_orderdate", "o_shippriority"),
        where="c_mktsegment = 'BUILDING'",
    ),
    "q5": Form(
        SOLD,
        {"revenue": REVENUE},
        (360, 90),
        ("n_name",),
        ("supplier", "nation", "region"),
        where="c_nationkey = s_nationkey AND r_name = 'ASIA'",
    ),
    "q6": Form(
        ("lineitem",),
        {"revenue": "sum(l_extendedprice * l_discount)"},
        (360, 90),
        where="l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    ),
    "q10": Form(
        SOLD,
        {"revenue": REVENUE},
        (90, 30),
        ("c_custkey", "c_name", "c_acctbal", "c_phone", "n_name"),
        ("nation",),
        where="l_returnflag = 'R'",
    ),
    "q12": Form(
        ("orders", "lineitem"),
        {
            "high_line_count": "count(*) FILTER (WHERE o_orderpriority IN ('1-URGENT', '2-HIGH'))",
            "low_line_count": "count(*) FILTER (WHERE o_orderpriority NOT IN ('1-URGENT', '2-HIGH'))",
        },
        (360, 90),
        ("l_shipmode",),
        where=("l_shipmode IN ('MAIL', 'SHIP') AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate"),
    ),
    "q14": Form(
        ("lineitem",),
        {
            "promo_revenue": f"100.0E0 * CAST({REVENUE} FILTER (WHERE p_type LIKE 'PROMO%') AS DOUBLE)"
            f" / CAST({REVENUE} AS DOUBLE)"
        },
        (30, 15),
        statics=("part",),
    ),
    "q18": Form(
        SOLD,
        {"quantity": "sum(l_quantity)"},
        (120, 60),
        ("c_name", "c_custkey", "o_orderkey", "o_orderdate", "o_totalprice"),
        # TPC-H asks for more than 300, but a window can cut an order in two.
        having="sum(l_quantity) > 200",
    ),
}
