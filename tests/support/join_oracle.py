"""What is right for joins: batch Spark SQL over the rows that are not late, and the batch that must emit each row.

Two things are left out of a join: rows without an event time, and late rows, whose time is at or before the
query's watermark of the batch before. Whatever is closed or decided under a watermark can then not be changed
by a row that counts, so the rows ever emitted are the user's own SELECT over the rows that count. When they are
emitted follows from what they are made of: a joined row with the last of its rows; a row without a partner, a
semi or an anti row when the watermark has passed every time a partner could have; a window when the watermark
has passed every time a row of it could be joined with.

The SELECT is read here with a few patterns, not with the engine's parser: two readers that agree are worth more.
Times are compared as `alias.column`, bounds are written as WITHIN, BETWEEN, a comparison or equal windows, ORDER BY
and LIMIT are refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pyarrow as pa
from pyspark.sql import SparkSession

from thalweg.errors import oracle_select_unsupported
from thalweg.model.types import from_arrow
from thalweg.testing.oracle import CutSelect, Feed, event_times, parse_select, watermarks

Versions = Mapping[str, Sequence[tuple[int, pa.Table]]]
"""Static tables by name: (first batch that sees it, the table), in order."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = {"microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000}
_OPAQUE = re.compile(r"'(?:[^'\\]|\\.|'')*'|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
_TAIL = re.compile(r"\b(?:WHERE|GROUP\s+BY|HAVING)\b", re.IGNORECASE)
_SEPARATOR = re.compile(
    r",|\b(?:(INNER|CROSS|(?:LEFT|RIGHT|FULL)(?:\s+OUTER)?|(?:LEFT\s+)?(?:SEMI|ANTI))\s+)?JOIN\b", re.IGNORECASE
)
_ITEM = re.compile(
    r"\s*(\w+)(?:\s+(?:AS\s+)?(?!ON\b|WITHIN\b)(\w+))?\s*(?:\bON\b(.*?))?(?:\bWITHIN\s+(\d+)\s+(\w+)\s*)?\Z",
    re.IGNORECASE | re.DOTALL,
)
_TIME = r"(\w+)\.(\w+)"
_OFFSET = r"(?:\s*([+-])\s*INTERVAL\s+'?(\d+)'?\s+(\w+))?"
_BETWEEN = re.compile(rf"{_TIME}\s+BETWEEN\s+{_TIME}{_OFFSET}\s+AND\s+{_TIME}{_OFFSET}", re.IGNORECASE)
_COMPARED = re.compile(rf"{_TIME}\s*(<=|>=|<|>)\s*{_TIME}{_OFFSET}", re.IGNORECASE)
_WINDOW = rf"window\s*\(\s*{_TIME}\s*,\s*'(\d+)\s+(\w+)'\s*\)"
_SAME_WINDOW = re.compile(rf"{_WINDOW}\s*=\s*{_WINDOW}", re.IGNORECASE)
_GROUP_WINDOW = re.compile(rf"\bGROUP\s+BY\b.*?window\s*\(\s*{_TIME}\s*,", re.IGNORECASE | re.DOTALL)
_EQUALS = re.compile(r"(?<![<>!=])=(?![=>])")

Clock = tuple[str, ...]
"""(alias, time column)."""
Limits = dict[tuple[str, str], int]
"""(x, y) -> the greatest time of x less time of y that the join admits, in microseconds."""


@dataclass(frozen=True)
class Item:
    """One entry of FROM."""

    alias: str
    source: str
    kind: str
    """first | inner | left | right | full | semi | anti."""
    on: str = ""
    within_us: int | None = None


@dataclass(frozen=True)
class JoinSelect:
    """A SELECT over joined streams, as far as the oracle must understand it."""

    select: CutSelect
    """With Spark's syntax only; `body` is everything from FROM on."""
    relations: tuple[tuple[str, str], ...]
    """(alias, stream); static tables are not among them."""
    kind: str
    """Of the join of streams: inner | left | right | full | semi | anti."""
    limits: Limits
    """Closed: what follows from several bounds together is in it."""
    window: str | None
    """The relation over whose times windows are."""

    @property
    def streams(self) -> set[str]:
        return {stream for _, stream in self.relations}

    @property
    def shown(self) -> tuple[str, ...]:
        """The relations whose columns the result may have."""
        aliases = tuple(alias for alias, _ in self.relations)
        return aliases[:1] if self.kind in ("semi", "anti") else aliases

    def reach(self, alias: str) -> int:
        """How far after a row of the relation a row can be that is joined with it; negative if all are before."""
        return max(self.limits[other, alias] for other, _ in self.relations if other != alias)


@dataclass(frozen=True)
class Emissions:
    """All rows that a query emits over its feeds, each with the batch that emits it."""

    rows: pa.Table
    batches: tuple[int | None, ...]
    """None: the feeds end before the row can be emitted."""
    arrived: tuple[int, ...]
    """The last batch that brought a row of it; of a window's row: the first."""
    oldest: tuple[int, ...]
    """The least event time in it, in microseconds."""
    windowed: bool = False

    def through(self, batch: int | None = None) -> pa.Table:
        """What has been emitted when `batch` has ended; without it, in the end."""
        return self._where([b is not None and (batch is None or b <= batch) for b in self.batches])

    def before(self, until: int | None) -> Emissions:
        """What is emitted in the batches before `until`: by a query that was dropped then."""
        return self if until is None else _between(self, 0, until)

    def of_later(self, since: int, complete_from: datetime | None) -> tuple[pa.Table, pa.Table]:
        """(what must, what may come) of a query created before batch `since`.

        Of windows, both are only those of which nothing arrived before. A row without a partner that arrived before
        may come, as the watermark decides it later.
        """
        fence = None if complete_from is None else (complete_from - _EPOCH) // timedelta(microseconds=1)
        due = [b is not None and b >= since for b in self.batches]
        new = [ok and a >= since for ok, a in zip(due, self.arrived, strict=True)]
        must = [ok and (fence is None or t > fence) for ok, t in zip(new, self.oldest, strict=True)]
        return self._where(must), self._where(new if self.windowed else due)

    def _where(self, keep: list[bool]) -> pa.Table:
        return self.rows.filter(pa.array(keep, pa.bool_()))


def expected(spark: SparkSession, feeds: Sequence[Feed], select: str, *, tables: Versions | None = None) -> pa.Table:
    """All that the query emits over the feeds, the closing batch after them included, in no order that counts."""
    return emissions(spark, feeds, select, tables=tables).through()


def emissions(
    spark: SparkSession, feeds: Sequence[Feed], select: str, *, tables: Versions | None = None
) -> Emissions:
    """What the query emits and when. Feeds have as many batches each; batch b of all of them is one batch."""
    parsed = parse_join(select, feeds)
    marks = join_watermarks(feeds, parsed.streams)
    for feed in feeds:
        if feed.stream in parsed.streams:
            kept = counting_rows(feed, marks) if len(parsed.relations) > 1 else _numbered(feed)
            _view(spark, feed.stream, kept)
    tables = tables or {}
    starts = sorted({0, *(first for versions in tables.values() for first, _ in versions)})
    if parsed.window is not None and len(starts) > 1:
        raise oracle_select_unsupported("it groups rows joined with a table that is replaced", select)
    parts = []
    for start, until in zip(starts, [*starts[1:], None], strict=True):
        for name, versions in tables.items():
            _view(spark, name, next(table for first, table in reversed(versions) if first <= start))
        found = _emissions(_run(spark, _with_origins(parsed)), parsed, marks)
        # A row is joined with the table as it is in the batch that emits it.
        parts.append(_between(found, start, until) if len(starts) > 1 else found)
    return _concat(parts)


def counting_rows(feed: Feed, marks: Sequence[int | None]) -> pa.Table:
    """The rows of a stream that exist for a join whose watermarks these are."""
    rows = _numbered(feed)
    keep = []
    for time, batch in zip(rows["__time"].to_pylist(), rows["__batch"].to_pylist(), strict=True):
        mark = marks[batch - 1] if batch else None
        keep.append(time is not None and (mark is None or time > mark))
    return rows.filter(pa.array(keep, pa.bool_()))


def join_watermarks(feeds: Sequence[Feed], streams: set[str]) -> list[int | None]:
    """The least of the streams' watermarks, batch by batch; none as long as one of them has none."""
    if len({len(feed.batches) for feed in feeds}) != 1:
        raise ValueError("feeds of one run have as many batches each")
    columns = [watermarks(feed) for feed in feeds if feed.stream in streams]
    return [None if None in marks else min(m for m in marks if m is not None) for marks in zip(*columns, strict=True)]


def bag_difference(actual: pa.Table, must: pa.Table, may: pa.Table) -> str | None:
    """What of `must` is missing in `actual`, and what in it is not in `may`, each counted; None if nothing is."""
    given, least, most = (_bag(table) for table in (actual, must, may))
    missing, surplus = least - given, given - most
    lines = [f"{actual.num_rows} rows, {must.num_rows} to {may.num_rows} expected"]
    for label, rows in (("missing", missing), ("not expected", surplus)):
        lines += [f"  {label}: {count} x {row!r}" for row, count in list(rows.items())[:8]]
    return "\n".join(lines) if missing or surplus else None


def _bag(table: pa.Table) -> Counter[tuple[object, ...]]:
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
    return Counter(zip(*(map(str, column.to_pylist()) for column in columns), strict=True))


# reading the SELECT


def parse_join(select: str, feeds: Sequence[Feed]) -> JoinSelect:
    """Cuts a SELECT over joined streams into what the oracle needs."""
    parsed = parse_select(select)
    if parsed.order or parsed.limit is not None:
        raise oracle_select_unsupported("it orders or limits joined rows", select)
    times = {feed.stream: feed.time for feed in feeds}
    tail = _TAIL.search(_masked(parsed.body))
    cut = tail.start() if tail else len(parsed.body)
    items = list(_items(parsed.body[:cut], select))
    relations = tuple((item.alias, item.source) for item in items if item.source in times)
    kinds = {item.kind for item in items if item.source in times} - {"first", "inner"}
    kind = kinds.pop() if kinds else "inner"
    body = "FROM " + "".join(_spark_item(item, items[:place], times) for place, item in enumerate(items))
    # What WHERE says of times bounds an inner join only: of others it drops rows that are decided.
    whole = body + " " + parsed.body[cut:]
    bounding = whole if kind == "inner" else body
    group = _GROUP_WINDOW.search(whole)
    if parsed.grouped and (group is None or len(relations) == 1):
        raise oracle_select_unsupported("its windows are not over alias.column of joined streams", select)
    return JoinSelect(
        select=replace(parsed, body=_SAME_WINDOW.sub(_same_slice, whole)),
        relations=relations,
        kind=kind,
        limits=_closed_limits(relations, times, bounding, select),
        window=group[1] if group else None,
    )


def _masked(text: str) -> str:
    """The same length, with strings, comments and whatever is in brackets blanked."""
    masked = []
    depth = 0
    for character in _OPAQUE.sub(lambda match: " " * len(match[0]), text):
        depth -= character == ")"
        masked.append(" " if depth else character)
        depth += character == "("
    return "".join(masked)


def _items(text: str, select: str) -> Iterator[Item]:
    """The entries of FROM."""
    masked = _masked(text)
    start, kind = re.match(r"\s*FROM\b", text, re.IGNORECASE).end(), "first"  # type: ignore[union-attr]
    for separator in [*_SEPARATOR.finditer(masked), None]:
        end = separator.start() if separator else len(text)
        found = _ITEM.match(masked[start:end])
        if found is None:
            raise oracle_select_unsupported(f"it joins {text[start:end].strip()!r}", select)
        on = text[start + found.start(3) : start + found.end(3)].strip() if found[3] else ""
        within = _micros(found[4], found[5]) if found[4] else None
        yield Item(found[2] or found[1], found[1], kind, on, within)
        if separator:
            start, kind = separator.end(), _kind(separator[1])


def _kind(words: str | None) -> str:
    word = (words or "inner").lower().removesuffix("outer").split()[-1]
    return "inner" if word == "cross" else word


def _micros(count: str, unit: str) -> int:
    return int(count) * _UNITS[unit.lower().removesuffix("s")]


def _spark_item(item: Item, before: Sequence[Item], times: Mapping[str, str]) -> str:
    """An entry of FROM in Spark's words: WITHIN bounds the times of every pair that ON equates."""
    if item.kind == "first":
        return f"{item.source} {item.alias}"
    conditions = [f"({item.on})"] if item.on else []
    if item.within_us is not None:
        mine, span = f"{item.alias}.{times[item.source]}", f"INTERVAL {item.within_us} MICROSECONDS"
        for other in _partners(item, [i for i in before if i.source in times]):
            theirs = f"{other.alias}.{times[other.source]}"
            conditions.append(f"{mine} BETWEEN {theirs} - {span} AND {theirs} + {span}")
    kind = f"LEFT {item.kind}" if item.kind in ("semi", "anti") else item.kind
    if not conditions:
        return f"\nCROSS JOIN {item.source} {item.alias}"
    return f"\n{kind.upper()} JOIN {item.source} {item.alias} ON {' AND '.join(conditions)}"


def _partners(item: Item, before: Sequence[Item]) -> list[Item]:
    if len(before) == 1:
        return list(before)
    partners = []
    for conjunct in _conjuncts(item.on):
        equals = _EQUALS.search(_masked(conjunct))
        if equals is None:
            continue
        sides = (conjunct[: equals.start()], conjunct[equals.end() :])
        for mine, theirs in (sides, sides[::-1]):
            if _mentions(mine, item):
                partners += [other for other in before if _mentions(theirs, other)]
    return list(dict.fromkeys(partners))


def _conjuncts(text: str) -> Iterator[str]:
    start = 0
    for found in re.finditer(r"\bAND\b", _masked(text), re.IGNORECASE):
        yield text[start : found.start()]
        start = found.end()
    yield text[start:]


def _mentions(text: str, item: Item) -> bool:
    return re.search(rf"\b{item.alias}\.", text) is not None


def _same_slice(found: re.Match[str]) -> str:
    """Spark's window() is not allowed in a join condition: two times are in one window if they are in one slice."""
    sides = (found.group(1, 2, 3, 4), found.group(5, 6, 7, 8))
    parts = [
        f"floor(unix_micros(CAST({alias}.{column} AS TIMESTAMP)) / {_micros(count, unit)})"
        for alias, column, count, unit in sides
    ]
    return " = ".join(parts)


def _closed_limits(relations: Sequence[tuple[str, str]], times: Mapping[str, str], text: str, select: str) -> Limits:
    limits: Limits = {}
    clocks: set[Clock] = {(alias, times[stream]) for alias, stream in relations}
    for one, other, most in _written_limits(text):
        x, y = one[0], other[0]
        if one in clocks and other in clocks and x != y:
            limits[x, y] = min(most, limits.get((x, y), most))
    names = [alias for alias, _ in relations]
    # Floyd and Warshall: the middle one varies slowest.
    for middle, x, y in product(names, names, names):
        if x != y and (x, middle) in limits and (middle, y) in limits:
            most = limits[x, middle] + limits[middle, y]
            limits[x, y] = min(most, limits.get((x, y), most))
    missing = [(x, y) for x, y in product(names, names) if x != y and (x, y) not in limits]
    if missing:
        raise oracle_select_unsupported(f"it does not bound the times of {missing[0]}", select)
    return limits


def _written_limits(text: str) -> Iterator[tuple[Clock, Clock, int]]:
    """(x, y, the greatest time of x less time of y) for every bound; x and y are clocks."""
    for found in _BETWEEN.finditer(text):
        x, low, high = found.group(1, 2), found.group(3, 4), found.group(8, 9)
        yield low, x, -_offset(*found.group(5, 6, 7))
        yield x, high, _offset(*found.group(10, 11, 12))
    for found in _COMPARED.finditer(text):
        x, operator, y, offset = found.group(1, 2), found[3], found.group(4, 5), _offset(*found.group(6, 7, 8))
        strict = "=" not in operator
        yield (x, y, offset - strict) if operator[0] == "<" else (y, x, -offset - strict)
    for found in _SAME_WINDOW.finditer(text):
        x, y, span = found.group(1, 2), found.group(5, 6), _micros(found[3], found[4])
        yield x, y, span - 1
        yield y, x, span - 1


def _offset(sign: str | None, count: str | None, unit: str | None) -> int:
    if count is None or unit is None:
        return 0
    return _micros(count, unit) * (-1 if sign == "-" else 1)


# evaluating it


def _numbered(feed: Feed) -> pa.Table:
    """All rows with their batch and their time as a number."""
    tables = [
        table.append_column("__batch", pa.array([batch] * table.num_rows, pa.int32()))
        for batch, table in enumerate(feed.batches)
    ]
    rows = pa.concat_tables(tables)
    return rows.append_column("__time", event_times(rows, feed.time))


def _view(spark: SparkSession, name: str, rows: pa.Table) -> None:
    # With types spelled out: by itself Spark takes a naive Arrow timestamp for an instant.
    types = ", ".join(f"`{field.name}` {from_arrow(field.type)}" for field in rows.schema)
    # In one chunk: Spark stops reading at an empty one.
    spark.createDataFrame(rows.combine_chunks(), types).coalesce(1).createOrReplaceTempView(name)


# For a few hundred rows: one task, nothing compiled, nothing sent.
_SMALL = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def _run(spark: SparkSession, text: str) -> pa.Table:
    before = {name: spark.conf.get(name) for name in _SMALL}
    try:
        for name, value in _SMALL.items():
            spark.conf.set(name, value)
        return spark.sql(text).toArrow()
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def _with_origins(parsed: JoinSelect) -> str:
    """The SELECT with columns for what its rows are made of."""
    batches = ", ".join(f"{alias}.__batch" for alias in parsed.shown)
    times = ", ".join(f"{alias}.__time" for alias in parsed.shown)
    if parsed.window is not None:
        origins = f"min(array_min(array({batches}))) AS __arrived, min(array_min(array({times}))) AS __oldest"
        origins += ", unix_micros(CAST(window.end AS TIMESTAMP)) AS __end"
    else:
        origins = f"array_max(array({batches})) AS __arrived, array_min(array({times})) AS __oldest"
        origins += "".join(f", {alias}.__time AS __time_{alias}" for alias in parsed.shown)
    return f"{parsed.select.head}\n, {origins}\n{parsed.select.body}"


def _emissions(table: pa.Table, parsed: JoinSelect, marks: Sequence[int | None]) -> Emissions:
    arrived, oldest = table["__arrived"].to_pylist(), table["__oldest"].to_pylist()
    if parsed.window is not None:
        wait = max(0, parsed.reach(parsed.window))
        batches = [_first_past(marks, end + wait) for end in table["__end"].to_pylist()]
    elif parsed.kind == "inner":
        batches = arrived
    else:
        batches = [
            _decided(dict(zip(parsed.shown, times, strict=True)), batch, parsed, marks)
            for batch, *times in zip(
                arrived, *(table[f"__time_{alias}"].to_pylist() for alias in parsed.shown), strict=True
            )
        ]
    user = [i for i, name in enumerate(table.column_names) if not name.startswith("__")]
    windowed = parsed.window is not None
    return Emissions(table.select(user), tuple(batches), tuple(arrived), tuple(oldest), windowed)


def _decided(
    times: Mapping[str, int | None], arrived: int, parsed: JoinSelect, marks: Sequence[int | None]
) -> int | None:
    """The batch that emits a row of an outer, semi or anti join, given the times of the rows it is made of."""
    present = [alias for alias, time in times.items() if time is not None]
    if len(present) > 1:
        return arrived
    [alias] = present
    decided = _first_past(marks, times[alias] + parsed.reach(alias))  # type: ignore[operator]
    return None if decided is None else max(decided, arrived)


def _first_past(marks: Sequence[int | None], time: int) -> int | None:
    return next((batch for batch, mark in enumerate(marks) if mark is not None and mark >= time), None)


def _between(found: Emissions, start: int, until: int | None) -> Emissions:
    chosen = [i for i, b in enumerate(found.batches) if b is not None and b >= start and (until is None or b < until)]
    return Emissions(
        found.rows.take(pa.array(chosen, pa.int64())),
        tuple(found.batches[i] for i in chosen),
        tuple(found.arrived[i] for i in chosen),
        tuple(found.oldest[i] for i in chosen),
        found.windowed,
    )


def _concat(parts: Sequence[Emissions]) -> Emissions:
    return Emissions(
        pa.concat_tables([part.rows for part in parts]),
        tuple(b for part in parts for b in part.batches),
        tuple(a for part in parts for a in part.arrived),
        tuple(t for part in parts for t in part.oldest),
        parts[0].windowed,
    )
