"""Chaos: what there is to do. Streams, tables and queries, when they come and go; rows that show what was kept."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from tests.support.join_randomly import Crowd, random_world
from tests.support.randomly import Shape, random_feed, random_queries

import thalweg
from thalweg.testing.oracle import Feed

WORLDS = 48
"""Streams and queries that seeds share: what Spark's analyser says to their texts is recorded."""
Texts = dict[str, tuple[str, tuple[str, ...]]]
Step = tuple[str, Any]
Poison = dict[tuple[str, int], tuple[str, ...]]
FRAIL_KEY = 77
"""The query `frail` fails at a row with this key."""
_SECOND = 1_000_000
_FRAIL = f"SELECT k, 1 / (k - {FRAIL_KEY}) AS x, {{time}} AS at FROM {{one}}"
_POISONS = {
    "memory": ("untimed", "ahead"),
    "parquet": ("untimed", "ahead", "damaged"),
    "csv": ("untimed", "ahead", "utf8", "header", "grown"),
    "json": ("untimed", "ahead", "utf8", "array", "grown"),
}
"""Of each kind of source: rows without a time, or far ahead; lines that are not UTF-8; files that are damaged, have
other columns, are no lines; and files that grow after they were seen."""
_PAIR = "ON e.k = o.k AND e.gemPackID = o.gemPackID WITHIN 2 SECONDS"
_OVER_EVENTS = {
    "middle": "SELECT gemPackID, percentile(k, 0.5) AS m, count(*) AS n, window.end AS until FROM events "
    "GROUP BY gemPackID, window(ts, '10 seconds', '5 seconds')",
    "totals": "SELECT gemPackID, chaos_total(k) AS s, window.end AS until FROM events "
    "GROUP BY gemPackID, window(ts, '8 seconds', '4 seconds')",
    "plain": "SELECT k, ts FROM events WHERE k > 1",
    "joined": f"SELECT e.k, e.ts AS left_ts, o.ts AS right_ts, o.gemPackID FROM events e JOIN others o {_PAIR}",
    "joined_windows": "SELECT e.k, count(*) AS n, max(o.ts) AS last, window.end AS until FROM events e "
    f"JOIN others o {_PAIR} GROUP BY e.k, window(e.ts, '5 seconds')",
    "chain": "SELECT a.k, a.ts AS first_ts, o.ts AS middle_ts, b.ts AS last_ts FROM events a "
    "JOIN others o ON a.k = o.k WITHIN 1 SECOND JOIN events b ON o.gemPackID = b.gemPackID WITHIN 1 SECOND",
    "unpaired": f"SELECT e.k, e.ts AS left_ts, o.ts AS right_ts FROM events e LEFT JOIN others o {_PAIR}",
}
_WITH_TABLE = {
    "named": "SELECT e.k, n.label, e.{time} AS at FROM {one} e LEFT JOIN names n ON e.k = n.k",
    "named_windows": "SELECT n.label, count(*) AS c, window.end AS until FROM {one} e JOIN names n ON e.k = n.k "
    "GROUP BY n.label, window(e.{time}, '6 seconds', '3 seconds')",
    "named_pairs": "SELECT e.k, n.label, e.{time} AS at FROM {one} e "
    "JOIN {other} o ON e.k = o.k WITHIN 500 MILLISECONDS JOIN names n ON o.k = n.k",
}
NAMES = (
    pa.table({"k": pa.array([0, 1, 2, 2, None], pa.int32()), "label": ["zero", "one", "two", "deux", "none"]}),
    pa.table({"k": pa.array([0, 1, 3, 4], pa.int32()), "label": ["ZERO", "ONE", "THREE", None]}),
)
"""The versions of the static table."""


@dataclass(frozen=True)
class Query:
    name: str
    select: str
    sink: str
    """memory | files | callable."""
    approximate: tuple[str, ...] = ()


@dataclass(frozen=True)
class World:
    feeds: tuple[Feed, ...]
    """The last two batches of each are the epilogue."""
    formats: Mapping[str, str]
    """stream -> parquet, csv or json: files. The other streams are appended to."""
    spoiled: frozenset[tuple[str, int]] = frozenset()
    """(stream, batch) of text files that have a line which cannot be read."""
    poison: Mapping[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    """(stream, batch) -> what is wrong with it."""
    silent: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Stream -> from which batch on it brings nothing, and with which it brings all of that."""
    idle: frozenset[str] = frozenset()
    """Streams that hold nobody back while they are silent."""
    steps: tuple[Step, ...] = ()
    """("create", Query), ("drop", name), ("pause", name), ("resume", name), ("table", version), ("feed", number of
    the batch) and ("run", None), in this order."""
    epilogue: tuple[Step, ...] = field(default=())
    """Steps after all is done, the same for everyone: partners for rows that were kept, then rows so late that every
    window closes. What comes out is what the state meant."""
    texts: dict[tuple[str, int], bytes] = field(default_factory=dict, compare=False)
    """(stream, batch) -> the content of its file, once it was made."""

    @property
    def queries(self) -> dict[str, Query]:
        return {step.name: step for kind, step in self.steps if kind == "create"}

    @property
    def dropped(self) -> set[str]:
        return {step for kind, step in self.steps if kind == "drop"}

    def poison_of(self, stream: str, number: int) -> tuple[str, ...]:
        return self.poison.get((stream, number), ())

    def due(self, stream: str, number: int) -> range:
        """The batches of a stream that the step feeds to it."""
        since, until = self.silent.get(stream, (0, 0))
        if since <= number < until:
            return range(0)
        return range(since if number == until and until else number, number + 1)


@lru_cache(maxsize=WORLDS)
def make_world(number: int) -> World:
    rng, more = random.Random(f"chaos world {number}"), random.Random(f"chaos world {number}, formats and tables")
    feeds, texts = _joins(number) if number % 3 == 2 else _aggregations(rng, number)
    chosen = rng.sample(sorted(texts), min(len(texts), rng.randint(2, 5)))
    queries = [Query(name, texts[name][0], _draw_sink(rng), texts[name][1]) for name in chosen]
    has_table = more.random() < 0.35
    if has_table:
        queries.insert(more.randint(0, len(queries)), _with_table(more, feeds))
    inputs = random.Random(f"chaos world {number}, input")
    feeds = _race(inputs, feeds)
    from_files = [feed.stream for feed in feeds if rng.random() < 0.5]
    formats = {stream: more.choice(("parquet", "csv", "json")) for stream in from_files}
    batches = range(len(feeds[0].batches))
    steps = list(_steps(rng, len(batches), queries))
    steps = _add_pauses(random.Random(f"chaos world {number}, pauses"), steps, queries)
    poison, silent = _draw_poison(inputs, feeds, formats), _draw_silence(inputs, feeds)
    if inputs.random() < 0.4:
        steps, poison = _add_frail(inputs, feeds[0], silent, steps, poison)
    spoiled = {(stream, n) for stream, kind in formats.items() if kind != "parquet" for n in batches if n % 3 == 1}
    return World(
        tuple(replace(feed, batches=(*feed.batches, *_last_rows(feed))) for feed in feeds),
        formats,
        frozenset(spoiled),
        poison,
        silent,
        frozenset(stream for stream in silent if inputs.random() < 0.7),
        tuple(_add_tables(steps) if has_table else steps),
        (("feed", len(batches)), ("run", None), ("feed", len(batches) + 1), ("run", None)),
    )


def _draw_sink(rng: random.Random) -> str:
    return rng.choice(("memory", "memory", "files", "callable"))


def _aggregations(rng: random.Random, number: int) -> tuple[list[Feed], Texts]:
    shape = Shape(batches=rng.randint(4, 7), rows=30)
    feeds = [random_feed(number, shape), random_feed(number + 1000, shape, stream="others")]
    texts: Texts = {q.name: (q.select, tuple(q.approximate)) for q in random_queries(number, feeds[0], 4)}
    return feeds, texts | {name: (select, ()) for name, select in _OVER_EVENTS.items()}


def _joins(number: int) -> tuple[list[Feed], Texts]:
    world = random_world(number, Crowd(batches=5, rows=20), queries=6)
    return list(world.feeds), {q.name: (q.select, tuple(q.approximate)) for q in world.queries}


def _with_table(rng: random.Random, feeds: Sequence[Feed]) -> Query:
    name = rng.choice(sorted(_WITH_TABLE))
    one, other = feeds[0], feeds[1]
    return Query(name, _WITH_TABLE[name].format(one=one.stream, other=other.stream, time=one.time), _draw_sink(rng))


def _steps(rng: random.Random, batches: int, queries: Sequence[Query]) -> Iterator[Step]:
    """All input in order; queries come between, and one may go."""
    later = [query for query in queries[1:] if rng.random() < 0.3]
    for query in queries:
        if query not in later:
            yield "create", query
    running = [query.name for query in queries if query not in later]
    for number in range(batches):
        yield "feed", number
        if rng.random() < 0.3 or number == batches - 1:
            yield "run", None
            if later:
                yield "create", later[0]
                running.append(later.pop(0).name)
            elif len(running) > 1 and rng.random() < 0.15:
                yield "drop", running.pop(rng.randrange(len(running)))
    yield "run", None


def _add_pauses(rng: random.Random, steps: list[Step], queries: Sequence[Query]) -> list[Step]:
    """Some queries are paused after a run, and resumed before the last one, unless they are dropped before."""
    steps = [*steps, ("run", None)]
    for query in queries:
        if query.sink == "memory" or ("create", query) not in steps or rng.random() < 0.3:
            continue
        since = steps.index(("create", query))
        gone = steps.index(("drop", query.name)) if ("drop", query.name) in steps else len(steps)
        runs = [i for i, step in enumerate(steps) if step[0] == "run" and since < i < gone]
        busy = [i for i, j in pairwise(runs) if any(kind == "feed" for kind, _ in steps[i:j])]
        if not runs or runs[0] == len(steps) - 1:
            continue
        at = rng.choice(busy or runs[:1])
        later = [i for i in runs if i > at]
        if gone == len(steps) or rng.random() < 0.5:
            low = 1 + (later[0] if len(later) > 1 and rng.random() < 0.7 else at)
            steps.insert(rng.randint(low, max(low, runs[-1])), ("resume", query.name))
        steps.insert(at + 1, ("pause", query.name))
    return steps


def _add_tables(steps: Sequence[Step]) -> Iterator[Step]:
    """There before the first query; another version once all rows so far have seen this one."""
    yield "table", 0
    is_replaced = False
    for step in steps:
        yield step
        if step[0] == "run" and not is_replaced:
            yield "table", 1
            is_replaced = True


# -- poison, silence -------------------------------------------------------------------------------------------


def _race(rng: random.Random, feeds: Sequence[Feed]) -> list[Feed]:
    """One stream may run far ahead of the others, from some batch on."""
    if rng.random() < 0.7:
        return list(feeds)
    fast, since, ahead = rng.randrange(len(feeds)), rng.randint(1, len(feeds[0].batches) - 1), rng.choice((20, 300))
    batches = [
        _later(feeds[fast], rows, ahead * _SECOND) if number >= since else rows
        for number, rows in enumerate(feeds[fast].batches)
    ]
    return [replace(feed, batches=tuple(batches)) if n == fast else feed for n, feed in enumerate(feeds)]


def _later(feed: Feed, rows: pa.Table, by: int) -> pa.Table:
    times = pc.add(rows.column(feed.time).cast(pa.int64()), by)
    return _at(feed, rows, times.to_pylist())


def _draw_poison(rng: random.Random, feeds: Sequence[Feed], formats: Mapping[str, str]) -> Poison:
    found: Poison = {}
    for feed in feeds:
        for number, rows in enumerate(feed.batches):
            kinds = _POISONS[formats.get(feed.stream, "memory")]
            drawn = tuple(kind for kind in kinds if rng.random() < 0.12)
            if number % 2:  # the last line has no end, and what grows does not count as its end
                drawn = tuple(kind for kind in drawn if kind != "grown")
            if drawn and rows.num_rows:
                found[feed.stream, number] = drawn
    return found


def _draw_silence(rng: random.Random, feeds: Sequence[Feed]) -> dict[str, tuple[int, int]]:
    """It begins after a first batch, and is over before the last ones."""
    last = len(feeds[0].batches) - 1
    if rng.random() < 0.5 or last < 2:
        return {}
    since = rng.randint(1, last - 1)
    return {rng.choice(feeds).stream: (since, rng.choice((last, rng.randint(since + 1, last))))}


def _add_frail(
    rng: random.Random, feed: Feed, silent: Mapping[str, tuple[int, int]], steps: Sequence[Step], poison: Poison
) -> tuple[list[Step], Poison]:
    """A query that fails at a row, and goes on when it is resumed after the run."""
    at = rng.choice([number for number, rows in enumerate(feed.batches) if rows.num_rows])
    since, until = silent.get(feed.stream, (0, 0))
    fed = steps.index(("feed", until if since <= at < until else at))
    ran = fed + [kind for kind, _ in steps[fed:]].index("run") + 1
    frail = Query("frail", _FRAIL.format(time=feed.time, one=feed.stream), _draw_sink(rng))
    after = [("create", frail), *steps[:ran], ("resume", "frail"), *steps[ran:], ("run", None)]
    return after, {**poison, (feed.stream, at): (*poison.get((feed.stream, at), ()), "frail")}


# -- the epilogue ----------------------------------------------------------------------------------------------


def _last_rows(feed: Feed) -> tuple[pa.Table, pa.Table]:
    """Keys as those of the last rows at times that are just not late, and one row long after."""
    rows = pa.concat_tables(feed.batches)
    newest = pc.max(rows.column(feed.time).cast(pa.int64())).as_py()
    if newest is None:
        return feed.schema.empty_table(), feed.schema.empty_table()
    near = rows.slice(max(0, rows.num_rows - 24))
    reach = feed.delay_us + _SECOND
    times = [newest - feed.delay_us + reach * (i + 1) // near.num_rows for i in range(near.num_rows)]
    # Between the grid points of the other rows: who is first and who is last has one answer.
    near = _at(feed, near, [us // 50_000 * 50_000 + 25_000 + i for i, us in enumerate(times)])
    return near, _at(feed, rows.slice(0, 1), [newest + 3600 * _SECOND])


def _at(feed: Feed, rows: pa.Table, times: Sequence[int | None]) -> pa.Table:
    place, kind = rows.schema.get_field_index(feed.time), rows.schema.field(feed.time)
    return rows.set_column(place, kind, pa.array(times, pa.int64()).cast(kind.type))


def define_total() -> None:
    """The aggregate that `totals` calls."""

    def added(one: int | None, other: int | None) -> int | None:
        return other if one is None else one if other is None else one + other

    def update(state: int | None, batch: pa.RecordBatch) -> int | None:
        return added(state, pc.sum(batch.column(0)).as_py())

    thalweg.aggregate("chaos_total", lambda: None, update, added, lambda state: state, returns="bigint")
