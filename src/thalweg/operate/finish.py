"""Windows finished in a slot: partials merged per window and key, then every query's result from one statement.

All queries with the same keys and the same window are finished together. Their output columns stand side by
side in one statement; a query's own rows are then those where its count of admitted rows is not zero.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.columns import NEW, ROW, SPAN, START, WINDOW, key
from thalweg.model.expr import quote
from thalweg.model.failure import Failures, OfQuery
from thalweg.model.plan import QUANTILE, Contribution, Grouping, Partial, WindowedQuery
from thalweg.model.types import as_type, to_inner_arrow
from thalweg.model.window import Stretch, Window
from thalweg.operate import duck
from thalweg.operate.columns import as_values
from thalweg.operate.combine import group_columns, merge_text
from thalweg.operate.gather_results import Lane, Places, Wanted, gather_results
from thalweg.operate.merge_slices import SliceTable, merge_dense, merge_quantiles, whole
from thalweg.operate.plain_outputs import choice, choose

MOST_KNOWN = 1 << 13
"""Members whose texts are remembered: batch after batch asks for the same."""
_TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[A-Za-z_]\w*|\.")


@dataclass(frozen=True)
class Closing:
    """Windows of one width and slide to be finished, for the members that see the same batches."""

    window: Window
    members: tuple[WindowedQuery, ...]
    cover: Mapping[str, tuple[tuple[int, int, int], ...]]
    """grouping -> (stretch start, stretch span, window start): what of it makes up which window."""
    updates: bool = False
    cover_of_rows: tuple[tuple[int, int, int], ...] = ()
    """The same of the stream's kept rows."""
    alike: Mapping[str, tuple[WindowedQuery, ...]] = field(default_factory=dict)
    """Member's query -> further queries with the same result. It is worked out for the member and handed to all."""

    @property
    def queries(self) -> Iterator[str]:
        """All whose windows these are."""
        for member in self.members:
            yield from (member.query, *(other.query for other in self.alike.get(member.query, ())))

    @property
    def stretches_of_rows(self) -> frozenset[Stretch]:
        return frozenset((start, span) for start, span, _ in self.cover_of_rows)


@dataclass(frozen=True)
class Counting:
    """Queries whose results nobody takes, and how many rows they have."""

    uncollected: Collection[str] = ()
    rows: dict[str, int] = field(default_factory=dict)


def finish(
    closing: Closing,
    groupings: Mapping[str, Grouping],
    slices: Mapping[str, Sequence[SliceTable]],
    failures: Failures,
    counting: Counting | None = None,
) -> dict[str, pa.Table]:
    """The rows of each member's result. Columns beginning with a dot are for ordering and are taken off later. Where
    rows are only counted, and partials tell how many there are, they are not made."""
    counting = counting or Counting()
    try:
        return _finish_together(closing, groupings, slices, counting)
    except duck.Error as error:
        if len(closing.members) == 1:
            failures[OfQuery(closing.members[0].query)] = duck.reason(error)
            return {}
    results: dict[str, pa.Table] = {}
    for member in closing.members:
        alone = replace(closing, members=(member,))
        results.update(finish(alone, groupings, slices, failures, counting))
    return results


def finish_merged(closing: Closing, groupings: Mapping[str, Grouping], merged: pa.Table) -> dict[str, pa.Table]:
    """The same of partials of the main grouping that are merged already; nothing is joined to it."""
    statement = _Statement(closing, groupings, ())
    wide = statement.choose(merged)
    assert wide is not None
    return statement.results(wide)


@lru_cache(maxsize=MOST_KNOWN)
def wanted_of(member: WindowedQuery, keys: tuple[str, ...]) -> Wanted | None:
    """What the member is chosen from; None where more is to be done. `keys`: those of the main grouping."""
    if member.further or member.updates or member.having is not None or member.order or member.limit is not None:
        return None
    choices = [choice(sql) for sql in _texts(member, keys, (), False).outputs]
    columns = tuple((c, type_) for c, type_ in zip(choices, member.types, strict=True) if c is not None)
    return Wanted(member.present, columns) if len(columns) == len(choices) else None


def _finish_together(
    closing: Closing,
    groupings: Mapping[str, Grouping],
    slices: Mapping[str, Sequence[SliceTable]],
    counting: Counting,
) -> dict[str, pa.Table]:
    main, merged, gathered = groupings[closing.members[0].main.grouping], None, dict[str, pa.Table]()
    if not closing.updates:
        partials = _needed_partials(main, closing.members)
        merged = merge_dense(main, slices[main.id], closing.cover[main.id], partials)
    if merged is not None:
        gathered = _gather(closing, main, merged, counting)
        done = gathered.keys() | counting.rows.keys()
        closing = replace(closing, members=tuple(m for m in closing.members if m.query not in done))
    return {**gathered, **_state(closing, groupings, slices, merged)} if closing.members else gathered


def _gather(closing: Closing, main: Grouping, merged: pa.Table, counting: Counting) -> dict[str, pa.Table]:
    """Of the members that are only chosen from merged partials."""
    wanted = {m.query: w for m in closing.members if (w := wanted_of(m, main.keys)) is not None}
    there = _MergedTable(merged, {p.name: p.type for p in main.partials})
    for query in wanted.keys() & set(counting.uncollected):
        counting.rows[query] = len(there.admitted(wanted.pop(query).present))
    tables = gather_results([*wanted.values()], there)
    return {query: table for query, table in zip(wanted, tables, strict=True) if table is not None}


@dataclass(frozen=True)
class _MergedTable:
    """A place is a row of the table."""

    table: pa.Table
    types: Mapping[str, str]
    """Partial -> DuckDB's type."""
    known: dict[str, Lane | None] = field(default_factory=dict)

    def admitted(self, name: str) -> Places:
        lane = self.lane(name)
        assert lane is not None  # a count
        return np.flatnonzero(lane.values > 0)

    def lane(self, name: str) -> Lane | None:
        if name not in self.known:
            found = as_values(self.table.column(name)) if name in self.types else None
            seen = found[1] if found is not None and found[1].size else None
            self.known[name] = None if found is None else Lane(found[0], seen, self.types[name])
        return self.known[name]

    def column(self, name: str, places: Places) -> pa.Array | None:
        if name in self.types:
            return None
        return self.table.column(name).take(pa.array(places)).combine_chunks()


def _state(
    closing: Closing,
    groupings: Mapping[str, Grouping],
    slices: Mapping[str, Sequence[SliceTable]],
    merged: pa.Table | None,
) -> dict[str, pa.Table]:
    """In one statement. `merged`: the partials of the main grouping, if they are merged already."""
    ready = {} if closing.updates else _quantiles(closing, groupings, slices)
    statement = _Statement(closing, groupings, ready)
    main, tables = statement.main, {f"ready {id_}": table for id_, table in ready.items()}
    if merged is not None:
        tables["m"] = merged
    for id_ in (id_ for id_ in statement.groupings if id_ not in ready and (merged is None or id_ != main.id)):
        tables[id_] = whole(groupings[id_], slices[id_])
        tables[f"cover {id_}"] = _cover_table(closing.cover[id_])
    wide = None if merged is None else statement.choose(merged)
    if wide is None:
        wide = duck.run_over(statement.text(merged is None), tables)
    return statement.results(wide)


def _quantiles(
    closing: Closing, groupings: Mapping[str, Grouping], slices: Mapping[str, Sequence[SliceTable]]
) -> dict[str, pa.Table]:
    """Groupings of which only quantiles are wanted, finished by direct address where that is possible."""
    ready = {}
    for id_, contributions in _by_grouping(closing.members).items():
        if all(contribution.quantiles for contribution in contributions):
            wanted = {q.sql: q for contribution in contributions for q in contribution.quantiles}
            table = merge_quantiles(groupings[id_], slices[id_], closing.cover[id_], wanted)
            if table is not None:
                ready[id_] = table
    return ready


def _cover_table(parts: Sequence[tuple[int, int, int]]) -> pa.Table:
    columns = [pa.array([part[i] for part in parts], pa.int64()) for i in range(3)]
    return pa.Table.from_arrays(columns, names=[START, SPAN, WINDOW])


@dataclass(frozen=True)
class _Texts:
    """What a member asks of a statement, as expressions over the table m and what is joined to it."""

    mask: str
    """Which rows are its own."""
    outputs: tuple[str, ...]
    order: tuple[str, ...]


@lru_cache(maxsize=MOST_KNOWN)
def _texts(member: WindowedQuery, keys: tuple[str, ...], further: tuple[str, ...], updates: bool) -> _Texts:
    """`keys`: those of the main grouping. `further`: the groupings that the statement joins to it, as f0, f1, ..."""
    names = _substitute(member, keys, further)
    mask = f"coalesce(m.{quote(member.present)} > 0, FALSE)"
    if updates:
        mask = f"coalesce(m.{quote('.new ' + member.present)} > 0, FALSE)"
    if member.having is not None:
        having = f"coalesce({rename(member.having.sql, names)}, FALSE)"
        mask = f"CASE WHEN {mask} THEN {having} ELSE FALSE END"
    outputs = tuple(_guarded(rename(expr.sql, names), mask, expr.fails) for expr in member.outputs)
    order = tuple(_guarded(rename(expr.sql, names), mask, expr.fails) for expr, _, _ in member.order)
    return _Texts(mask, outputs, (f"m.{quote(WINDOW)}", *order) if order else ())


def _substitute(member: WindowedQuery, keys: Sequence[str], further: Sequence[str]) -> dict[str, str]:
    """What a member's free names (k0, a0, window_start, window_end) stand for in a statement."""
    w = f"m.{quote(WINDOW)}"
    names = {
        "window_start": f"make_timestamp({w})",
        "window_end": f"make_timestamp({member.window.end_sql(w)})",
    }
    for i, (column, _) in enumerate(member.keys):
        names[f"k{i}"] = f"m.{quote(key(keys.index(column)))}"
    for name, sql in member.main.aggregates:
        names[name] = f"({sql})"
    for contribution in member.further:
        i = further.index(contribution.grouping)
        for name, sql in contribution.aggregates:
            missing = dict(contribution.missing)[name]
            names[name] = f"coalesce(f{i}.{quote(sql)}, {missing})"
    return names


@lru_cache(maxsize=MOST_KNOWN)
def partials_of(member: WindowedQuery) -> frozenset[str]:
    """The partials of the main grouping that the member is finished from, by name; other names may be among them."""
    tokens = (token for _, sql in member.main.aggregates for token in _TOKEN.findall(sql))
    quoted = (token[1:-1].replace('""', '"') for token in tokens if token.startswith('"'))
    return frozenset([member.present, *quoted])


class _Statement:
    """The text that finishes a closing, and which of its columns are whose."""

    def __init__(self, closing: Closing, groupings: Mapping[str, Grouping], ready: Collection[str]) -> None:
        """`ready`: the groupings whose aggregates are there as tables."""
        self.ready = ready
        self.closing = closing
        self.main = groupings[closing.members[0].main.grouping]
        further = _by_grouping(closing.members)
        self.groupings = [self.main.id, *further]
        keys = [quote(key(i)) for i in range(len(self.main.keys))]
        joins = [
            self._further(i, groupings[id_], contributions, keys)
            for i, (id_, contributions) in enumerate(further.items())
        ]
        self.joins = " ".join(joins)
        self.texts = [_texts(m, self.main.keys, tuple(further), closing.updates) for m in closing.members]
        asked = dict.fromkeys(sql for t in self.texts for sql in (t.mask, *t.outputs, *t.order))
        self.names = {sql: f"c{i}" for i, sql in enumerate(asked)}
        """Expression -> the column of the result that has its value."""
        self.partials = _needed_partials(self.main, closing.members)

    def text(self, merging: bool) -> str:
        """`merging`: partials are merged in this statement; otherwise they are there as the table m."""
        columns = ", ".join(f"{sql} AS {quote(name)}" for sql, name in self.names.items())
        merged = f"WITH m AS ({self._merged()}) " if merging else ""
        return f"{merged}SELECT {columns} FROM m {self.joins}"

    def choose(self, merged: pa.Table) -> pa.Table | None:
        """What the statement gives of merged partials alone: most of it is chosen among them, the rest is left to
        DuckDB. None where other groupings are joined to them."""
        if self.joins:
            return None
        found = choose(self.names, merged)
        rest = [sql for sql, column in zip(self.names, found, strict=True) if column is None]
        made = iter(_select(rest, merged) if rest else ())
        columns = [next(made) if column is None else column for column in found]
        return pa.Table.from_arrays(columns, names=list(self.names.values()))

    def results(self, wide: pa.Table) -> dict[str, pa.Table]:
        """By query, of the statement's result."""
        members = zip(self.closing.members, self.texts, strict=True)
        return {member.query: self.rows_of(wide, member, texts) for member, texts in members}

    def rows_of(self, wide: pa.Table, member: WindowedQuery, texts: _Texts) -> pa.Table:
        """The member's own rows and columns of the statement's result."""
        arrays = [
            as_type(wide.column(self.names[sql]), to_inner_arrow(type_))
            for sql, type_ in zip(texts.outputs, member.types, strict=True)
        ]
        arrays += [wide.column(self.names[sql]) for sql in texts.order]
        names = [*(f"{i}" for i in range(len(texts.outputs))), *(f".o{i}" for i in range(len(texts.order)))]
        table = pa.Table.from_arrays(arrays, names=names)
        mask = wide.column(self.names[texts.mask])
        if not pc.all(mask).as_py():
            table = table.filter(mask)
        return table

    def _merged(self) -> str:
        by = [quote(WINDOW), *(quote(key(i)) for i in range(len(self.main.keys)))]
        merged = merge_text(self._covered(self.main.id), by, by, self.partials)
        if self.closing.updates:
            fresh = ", ".join(
                f"sum({quote(p)}) FILTER (WHERE {quote(NEW)}) AS {quote('.new ' + p)}"
                for p in sorted({m.present for m in self.closing.members})
            )
            merged = merged.replace(" FROM ", f", {fresh} FROM ", 1)
        return merged

    def _covered(self, source: str) -> str:
        c, s = quote(f"cover {source}"), quote(source)
        return f"(SELECT {c}.{quote(WINDOW)}, {s}.* FROM {s} JOIN {c} USING ({quote(START)}, {quote(SPAN)}))"

    def _further(self, i: int, grouping: Grouping, contributions: Sequence[Contribution], keys: Sequence[str]) -> str:
        on = " AND ".join(
            [f"m.{quote(WINDOW)} = f{i}.{quote(WINDOW)}"] + [f"m.{k} IS NOT DISTINCT FROM f{i}.{k}" for k in keys]
        )
        if grouping.id in self.ready:
            return f"LEFT JOIN {quote(f'ready {grouping.id}')} f{i} ON {on}"
        by = ", ".join([quote(WINDOW), *keys])
        aggregates = list(dict.fromkeys(sql for contribution in contributions for _, sql in contribution.aggregates))
        inner = self._covered(grouping.id)
        if not all(sql.startswith(QUANTILE) for sql in aggregates):
            groups = [quote(WINDOW), *(quote(c) for c in group_columns(grouping))]
            inner = f"({merge_text(inner, groups, groups, grouping.partials)})"
        inner = _with_names(inner, grouping)
        made = ", ".join(f"{sql} AS {quote(sql)}" for sql in aggregates)
        return f"LEFT JOIN (SELECT {by}, {made} FROM {inner} GROUP BY {by}) f{i} ON {on}"


def _select(sqls: Sequence[str], merged: pa.Table) -> list[pa.ChunkedArray]:
    """The expressions over the table m, row by row as it stands. DuckDB may give rows in another order."""
    rows = np.arange(merged.num_rows)
    numbered = merged.append_column(ROW, pa.array(rows))
    columns = ", ".join(f"{sql} AS c{i}" for i, sql in enumerate(sqls))
    made = duck.run(f"SELECT {columns}, {quote(ROW)} FROM m", m=numbered)
    order = made.column(ROW).to_numpy()
    if not np.array_equal(order, rows):
        made = made.take(pa.array(np.argsort(order)))
    return [made.column(i) for i in range(len(sqls))]


def _guarded(sql: str, mask: str, fails: bool) -> str:
    return f"CASE WHEN {mask} THEN {sql} END" if fails else sql


def _with_names(inner: str, grouping: Grouping) -> str:
    """Values under the names by which aggregates over them call them."""
    renamed = [f"{quote(f'.v{i}')} AS {quote(v)}" for i, v in enumerate(grouping.values)]
    return f"(SELECT *, {', '.join(renamed)} FROM {inner})" if renamed else inner


def _by_grouping(members: Sequence[WindowedQuery]) -> dict[str, list[Contribution]]:
    further: dict[str, list[Contribution]] = {}
    for member in members:
        for contribution in member.further:
            further.setdefault(contribution.grouping, []).append(contribution)
    return further


def _needed_partials(grouping: Grouping, members: Iterable[WindowedQuery]) -> list[Partial]:
    """Of the shared grouping only what these members finish from."""
    needed = set[str]().union(*(partials_of(member) for member in members))
    for p in grouping.partials:
        if p.name in needed and p.mean_of is not None:
            needed.update(p.mean_of)
    return [p for p in grouping.partials if p.name in needed]


def rename(sql: str, names: Mapping[str, str]) -> str:
    """`sql` with its free names replaced; names after a dot (struct fields) and strings stay as they are."""
    out: list[str] = []
    position = 0
    after_dot = False
    for token in _TOKEN.finditer(sql):
        out.append(sql[position : token.start()])
        text = token[0]
        bare = text[1:-1] if text.startswith('"') else text
        out.append(names[bare] if not after_dot and not text.startswith("'") and bare in names else text)
        after_dot = text == "."
        position = token.end()
    out.append(sql[position:])
    return "".join(out)


def first_rows(table: pa.Table, member: WindowedQuery, failures: Failures) -> pa.Table | None:
    """In order, as many as a LIMIT lets through; None where that fails."""
    try:
        return order_rows(table, member)
    except duck.Error as error:
        failures[OfQuery(member.query)] = duck.reason(error)
        return None


def order_rows(table: pa.Table, member: WindowedQuery) -> pa.Table:
    """ORDER BY and LIMIT of a member, per window; ties are broken by the result's own columns."""
    directions = [
        f"{quote(f'.o{i + 1}')} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"
        for i, (_, descending, nulls_first) in enumerate(member.order)
    ]
    ties = [quote(str(i)) for i in range(len(member.outputs))]
    by = ", ".join([*directions, *ties])
    limit = ""
    if member.limit is not None:
        limit = f"QUALIFY row_number() OVER (PARTITION BY {quote('.o0')} ORDER BY {by}) <= {member.limit}"
    return duck.run(f"SELECT * FROM rows {limit} ORDER BY {quote('.o0')}, {by}", rows=table)
