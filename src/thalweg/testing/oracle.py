"""What is right: the result Thalweg must give, computed by batch Spark SQL over the rows that count.

A stream is fed in batches, and a window is emitted in the first batch whose watermark passes its end. Which
rows a window may see follows from that alone: those of the batches up to and including the one that emits
it. So the rows emitted in batch b are the user's own SELECT over the batches 0..b, restricted to the windows
that close in b. Late rows, rows that are late for one sliding window and not for the next, HAVING, top-k:
nothing of it needs a rule of its own here, and the SELECT stays the user's text.

One thing Spark cannot be asked: `first` and `last` beside a `count(DISTINCT ...)`, which it plans in two steps that
lose the order of rows. Compare with `min_by` and `max_by` over the event time there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from thalweg.errors import oracle_select_unsupported
from thalweg.model.types import from_arrow
from thalweg.model.window import Window
from thalweg.testing.compare import rows_equal as rows_equal

_END = "__window_end"
_MILLISECOND = 1_000
_CLAUSE = re.compile(r"\b(FROM|GROUP\s+BY|HAVING|ORDER\s+BY|LIMIT|EMIT\s+(?:FINAL|UPDATES))\b", re.IGNORECASE)
_OPAQUE = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True)
class Feed:
    """What one stream was fed: a table for each batch, empty where the batch brought it nothing."""

    stream: str
    time: str
    delay_us: int
    batches: tuple[pa.Table, ...]

    @property
    def schema(self) -> pa.Schema:
        return self.batches[0].schema

    @property
    def rows(self) -> int:
        return sum(table.num_rows for table in self.batches)

    def closed(self) -> Feed:
        """With an empty batch after every batch, as a test feeds it that calls `run_available()` for each."""
        empty = self.schema.empty_table()
        return replace(self, batches=tuple(table for batch in self.batches for table in (batch, empty)))


@dataclass(frozen=True)
class CutSelect:
    """A SELECT cut at its clauses, so that the window's end can be added and LIMIT applied per window."""

    head: str
    """`SELECT` and its list."""
    body: str
    """From FROM up to what orders and limits."""
    grouped: bool
    order: str | None
    limit: int | None

    def text(self) -> str:
        """What Spark runs: every window's rows with the window's end, each window in the user's order."""
        # Parts on lines of their own: one may end in a comment.
        if not self.grouped:
            return f"{self.head}\n{self.body}"
        order = f"\nORDER BY {_END}, {self.order}" if self.order else ""
        return f"{self.head}\n, window.end AS {_END}\n{self.body}{order}"


def expected(spark: SparkSession, feed: Feed, select: str, *, since: int = 0) -> pa.Table:
    """All that the query emits over the feed, the closing batch after it included, in no order that counts.

    `since` is the first batch whose rows the query sees: that of its creation.
    """
    return pa.concat_tables([table for _, table in expected_emissions(spark, feed, select, since=since)])


def expected_emissions(spark: SparkSession, feed: Feed, select: str, *, since: int = 0) -> list[tuple[int, pa.Table]]:
    """(last batch, rows) for the batches that emit together without a late row between them.

    Batch `len(feed.batches)` is the empty one that closes what the final watermark allows.
    """
    parsed = parse_select(select)
    if not parsed.grouped:
        last = len(feed.batches)
        return [(last, _run(spark, feed, parsed, since, last).toArrow())]
    marks = watermarks(feed)
    emissions = []
    opened = marks[since - 1] if since else None
    for last in _runs_without_late_rows(feed, marks, since):
        frame = _closing(_run(spark, feed, parsed, since, last), opened, marks[last], feed)
        emissions.append((last, _per_window(frame.toArrow(), parsed.limit)))
        opened = marks[last]
    return emissions


def watermarks(feed: Feed) -> list[int | None]:
    """The watermark (microseconds) that closes windows at the end of each batch, the closing batch included.

    It is the greatest event time of the batches before, cut to milliseconds as Spark does, less the delay.
    """
    marks: list[int | None] = [None]
    for table in feed.batches:
        newest = pc.max(event_times(table, feed.time)).as_py()
        before = marks[-1]
        mark = before if newest is None else newest // _MILLISECOND * _MILLISECOND - feed.delay_us
        marks.append(mark if before is None or mark is None else max(before, mark))
    return marks


def late_rows(feed: Feed, window: Window) -> int:
    """How many rows are late for every window they belong to."""
    count = 0
    for batch, mark in zip(feed.batches[1:], watermarks(feed), strict=False):
        if mark is None:
            continue
        times = [time for time in event_times(batch, feed.time).to_pylist() if time is not None]
        ends = (window.closes_at(time) for time in times)
        # The last window a row belongs to ends last; with a gap between windows it may belong to none.
        count += sum(time < end <= mark for time, end in zip(times, ends, strict=True))
    return count


def event_times(table: pa.Table, time: str) -> pa.ChunkedArray:
    """Event times as microseconds since the epoch."""
    column = table.column(time)
    return column.cast(pa.timestamp("us", tz=column.type.tz)).cast(pa.int64())


def parse_select(select: str) -> CutSelect:
    """Cuts a SELECT at its outermost clauses. Strings, quoted names, comments and brackets hide theirs."""
    text = select.strip().rstrip(";").rstrip()
    clauses = list(_outer_clauses(text))
    places = {name: (start, end) for name, start, end in clauses}
    if "FROM" not in places:
        raise oracle_select_unsupported("it has no FROM", select)
    if "EMIT UPDATES" in places:
        raise oracle_select_unsupported("it emits updates; compare the last row of each group", select)
    tail = min(start for name, start, _ in [*clauses, ("", len(text), 0)] if name not in _BODY)
    limit = _clause_text(text, clauses, "LIMIT")
    grouped = "GROUP BY" in places
    if not grouped and tail < len(text) and (limit or "ORDER BY" in places):
        raise oracle_select_unsupported("it orders or limits an endless result", select)
    return CutSelect(
        head=text[: places["FROM"][0]].rstrip(),
        body=text[places["FROM"][0] : tail].rstrip(),
        grouped=grouped,
        order=_clause_text(text, clauses, "ORDER BY"),
        limit=int(limit) if limit else None,
    )


_BODY = ("FROM", "GROUP BY", "HAVING")


def _clause_text(text: str, clauses: Sequence[tuple[str, int, int]], wanted: str) -> str | None:
    starts = [start for _, start, _ in clauses] + [len(text)]
    for (name, _, end), following in zip(clauses, starts[1:], strict=True):
        if name == wanted:
            return text[end:following].strip()
    return None


def _outer_clauses(text: str) -> Iterator[tuple[str, int, int]]:
    """(keyword, start, end) of every clause that stands outside brackets."""
    masked = _OPAQUE.sub(lambda match: " " * len(match[0]), text)
    depth = 0
    depths = []
    for character in masked:
        depth += (character == "(") - (character == ")")
        depths.append(depth)
    for match in _CLAUSE.finditer(masked):
        if depths[match.start()] == 0:
            yield " ".join(match[0].upper().split()), match.start(), match.end()


def _runs_without_late_rows(feed: Feed, marks: Sequence[int | None], since: int) -> Iterator[int]:
    """The last batch of each run of batches that can be evaluated together.

    A later batch may join a run as long as none of its rows is older than the watermark it arrives under:
    such a row cannot belong to a window that has closed.
    """
    closing = len(feed.batches)
    for batch in range(since, closing):
        following = feed.batches[batch + 1] if batch + 1 < closing else None
        mark = marks[batch]
        if following is None or mark is None:
            continue
        oldest = pc.min(event_times(following, feed.time)).as_py()
        if oldest is not None and oldest < mark:
            yield batch
    yield closing


def _run(spark: SparkSession, feed: Feed, select: CutSelect, since: int, last: int) -> DataFrame:
    rows = pa.concat_tables([feed.schema.empty_table(), *feed.batches[since : last + 1]])
    # first() and last() mean by event time: one partition, sorted, makes Spark's agree.
    rows = rows.take(pc.sort_indices(rows, sort_keys=[(feed.time, "ascending")]))
    # ... as long as it does not fall back to sorting groups, which changes the order of their rows.
    spark.conf.set("spark.sql.objectHashAggregate.sortBased.fallbackThreshold", "1000000")
    # With types spelled out: by itself Spark takes a naive Arrow timestamp for an instant.
    types = ", ".join(f"`{field.name}` {from_arrow(field.type)}" for field in rows.schema)
    spark.createDataFrame(rows, types).coalesce(1).createOrReplaceTempView(feed.stream)
    return spark.sql(select.text())


def _closing(frame: DataFrame, opened: int | None, closed: int | None, feed: Feed) -> DataFrame:
    """Only the windows whose end lies in (opened, closed]."""
    if closed is None:
        return frame.where("false")
    kind = "TIMESTAMP" if feed.schema.field(feed.time).type.tz else "TIMESTAMP_NTZ"
    bounds = [f"{_END} <= {_literal(closed, kind)}"]
    if opened is not None:
        bounds.append(f"{_END} > {_literal(opened, kind)}")
    return frame.where(" AND ".join(bounds))


def _literal(micros: int, kind: str) -> str:
    text = pa.scalar(micros, pa.timestamp("us")).as_py().isoformat(sep=" ", timespec="microseconds")
    return f"{kind} '{text}'"


def _per_window(table: pa.Table, limit: int | None) -> pa.Table:
    """The first `limit` rows of each window, in the order Spark gave them; the added column goes."""
    if limit is not None:
        seen: dict[int, int] = {}
        keep = []
        for index, end in enumerate(table.column(_END).cast(pa.int64()).to_pylist()):
            seen[end] = seen.get(end, 0) + 1
            if seen[end] <= limit:
                keep.append(index)
        table = table.take(pa.array(keep, pa.int64()))
    return table.select(range(table.num_columns - 1))
