"""Windows finished in a slot: partials merged per window and key, then every query's result from one statement.

All queries with the same keys and the same window are finished together. Their output columns stand side by
side in one statement; a query's own rows are then those where its count of admitted rows is not zero.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from thalweg.model.expr import quote
from thalweg.model.plan import QUANTILE, Grouping, Member, Partial, Piece
from thalweg.model.query import Window
from thalweg.model.types import to_inner_arrow
from thalweg.operate import duck
from thalweg.operate.chosen import choose
from thalweg.operate.columns import NEW, SPAN, START, WINDOW, key
from thalweg.operate.combine import group_columns, merge_text
from thalweg.operate.compute import Failures
from thalweg.operate.lots import Lot, merge_dense, merge_quantiles, whole

_TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|[A-Za-z_]\w*|\.")


@dataclass(frozen=True)
class Closing:
    """Windows of one width and slide to be finished, for the members that see the same batches."""

    window: Window
    members: tuple[Member, ...]
    cover: Mapping[str, tuple[tuple[int, int, int], ...]]
    """grouping -> (stretch start, stretch span, window start): what of it makes up which window."""
    updates: bool = False


def finish(
    closing: Closing,
    groupings: Mapping[str, Grouping],
    lots: Mapping[str, Sequence[Lot]],
    failures: Failures,
) -> dict[str, pa.Table]:
    """The rows of each member's result. Columns beginning with a dot are for ordering and are taken off later."""
    try:
        return _finish_together(closing, groupings, lots)
    except duck.Error as error:
        if len(closing.members) == 1:
            failures[closing.members[0].query] = duck.reason(error)
            return {}
    results: dict[str, pa.Table] = {}
    for member in closing.members:
        alone = Closing(closing.window, (member,), closing.cover, closing.updates)
        results.update(finish(alone, groupings, lots, failures))
    return results


def _finish_together(
    closing: Closing, groupings: Mapping[str, Grouping], lots: Mapping[str, Sequence[Lot]]
) -> dict[str, pa.Table]:
    ready = {} if closing.updates else _quantiles(closing, groupings, lots)
    statement = _Statement(closing, groupings, ready)
    main, tables = statement.main, {f"ready {id_}": table for id_, table in ready.items()}
    merged = None
    if not closing.updates:
        merged = merge_dense(main, lots[main.id], closing.cover[main.id], statement.partials)
    if merged is not None:
        tables["m"] = merged
    for id_ in (id_ for id_ in statement.groupings if id_ not in ready and (merged is None or id_ != main.id)):
        tables[id_] = whole(groupings[id_], lots[id_])
        tables[f"cover {id_}"] = _cover_table(closing.cover[id_])
    wide = None if merged is None else statement.choose(merged)
    if wide is None:
        wide = duck.run_over(statement.text(merged is None), tables)
    return {
        member.query: _rows_of(wide, member, columns)
        for member, columns in zip(closing.members, statement.columns, strict=True)
    }


def _quantiles(
    closing: Closing, groupings: Mapping[str, Grouping], lots: Mapping[str, Sequence[Lot]]
) -> dict[str, pa.Table]:
    """Groupings of which only quantiles are wanted, finished by direct address where that is possible."""
    ready = {}
    for id_, pieces in _by_grouping(closing.members).items():
        if all(piece.quantiles for piece in pieces):
            wanted = {q.sql: q for piece in pieces for q in piece.quantiles}
            table = merge_quantiles(groupings[id_], lots[id_], closing.cover[id_], wanted)
            if table is not None:
                ready[id_] = table
    return ready


def _cover_table(parts: Sequence[tuple[int, int, int]]) -> pa.Table:
    columns = [pa.array([part[i] for part in parts], pa.int64()) for i in range(3)]
    return pa.Table.from_arrays(columns, names=[START, SPAN, WINDOW])


@dataclass
class _MemberColumns:
    mask: str
    outputs: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)


class _Statement:
    """The text that finishes a closing, and which of its columns are whose."""

    def __init__(self, closing: Closing, groupings: Mapping[str, Grouping], ready: Collection[str]) -> None:
        """`ready`: the groupings whose aggregates are there as tables."""
        self.ready = ready
        self.closing = closing
        self.main = groupings[closing.members[0].main.grouping]
        self.names: dict[str, str] = {}
        self.columns: list[_MemberColumns] = []
        further = _by_grouping(closing.members)
        self.groupings = [self.main.id, *further]
        keys = [quote(key(i)) for i in range(len(self.main.keys))]
        joins = [self._further(i, groupings[id_], pieces, keys) for i, (id_, pieces) in enumerate(further.items())]
        for member in closing.members:
            self._add(member, self._substitute(member, list(further)))
        self.joins = " ".join(joins)
        self.partials = _needed_partials(self.main, closing.members)

    def text(self, merging: bool) -> str:
        """`merging`: partials are merged in this statement; otherwise they are there as the table m."""
        columns = ", ".join(f"{sql} AS {quote(name)}" for sql, name in self.names.items())
        merged = f"WITH m AS ({self._merged()}) " if merging else ""
        return f"{merged}SELECT {columns} FROM m {self.joins}"

    def choose(self, merged: pa.Table) -> pa.Table | None:
        """What the statement gives of merged partials, where it only chooses among them; else None."""
        found = None if self.joins else choose(self.names, merged)
        return None if found is None else pa.Table.from_arrays(found, names=list(self.names.values()))

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

    def _further(self, i: int, grouping: Grouping, pieces: Sequence[Piece], keys: Sequence[str]) -> str:
        on = " AND ".join(
            [f"m.{quote(WINDOW)} = f{i}.{quote(WINDOW)}"] + [f"m.{k} IS NOT DISTINCT FROM f{i}.{k}" for k in keys]
        )
        if grouping.id in self.ready:
            return f"LEFT JOIN {quote(f'ready {grouping.id}')} f{i} ON {on}"
        by = ", ".join([quote(WINDOW), *keys])
        aggregates = list(dict.fromkeys(sql for piece in pieces for _, sql in piece.aggregates))
        inner = self._covered(grouping.id)
        if not all(sql.startswith(QUANTILE) for sql in aggregates):
            groups = [quote(WINDOW), *(quote(c) for c in group_columns(grouping))]
            inner = f"({merge_text(inner, groups, groups, grouping.partials)})"
        inner = _with_names(inner, grouping)
        made = ", ".join(f"{sql} AS {quote(sql)}" for sql in aggregates)
        return f"LEFT JOIN (SELECT {by}, {made} FROM {inner} GROUP BY {by}) f{i} ON {on}"

    def _substitute(self, member: Member, further: Sequence[str]) -> dict[str, str]:
        """What a member's free names (k0, a0, window_start, window_end) stand for in this statement."""
        w = f"m.{quote(WINDOW)}"
        names = {
            "window_start": f"make_timestamp({w})",
            "window_end": f"make_timestamp({w} + {member.window.range_us})",
        }
        for i, (column, _) in enumerate(member.keys):
            names[f"k{i}"] = f"m.{quote(key(self.main.keys.index(column)))}"
        for name, sql in member.main.aggregates:
            names[name] = f"({sql})"
        for piece in member.further:
            i = further.index(piece.grouping)
            for name, sql in piece.aggregates:
                missing = dict(piece.missing)[name]
                names[name] = f"coalesce(f{i}.{quote(sql)}, {missing})"
        return names

    def _add(self, member: Member, names: Mapping[str, str]) -> None:
        mask = f"coalesce(m.{quote(member.present)} > 0, FALSE)"
        if self.closing.updates:
            mask = f"coalesce(m.{quote('.new ' + member.present)} > 0, FALSE)"
        if member.having is not None:
            having = f"coalesce({rename(member.having.sql, names)}, FALSE)"
            mask = f"CASE WHEN {mask} THEN {having} ELSE FALSE END"
        columns = _MemberColumns(self._name(mask))
        for expr in member.outputs:
            columns.outputs.append(self._name(_guarded(rename(expr.sql, names), mask, expr.fails)))
        if member.order:
            columns.order.append(self._name(f"m.{quote(WINDOW)}"))
        for expr, _, _ in member.order:
            columns.order.append(self._name(_guarded(rename(expr.sql, names), mask, expr.fails)))
        self.columns.append(columns)

    def _name(self, sql: str) -> str:
        return self.names.setdefault(sql, f"c{len(self.names)}")


def _guarded(sql: str, mask: str, fails: bool) -> str:
    return f"CASE WHEN {mask} THEN {sql} END" if fails else sql


def _with_names(inner: str, grouping: Grouping) -> str:
    """Values under the names by which aggregates over them call them."""
    renamed = [f"{quote(f'.v{i}')} AS {quote(v)}" for i, v in enumerate(grouping.values)]
    return f"(SELECT *, {', '.join(renamed)} FROM {inner})" if renamed else inner


def _by_grouping(members: Sequence[Member]) -> dict[str, list[Piece]]:
    further: dict[str, list[Piece]] = {}
    for member in members:
        for piece in member.further:
            further.setdefault(piece.grouping, []).append(piece)
    return further


def _needed_partials(grouping: Grouping, members: Sequence[Member]) -> list[Partial]:
    """Of the shared grouping only what these members finish from."""
    texts = " ".join(sql for m in members for _, sql in m.main.aggregates)
    present = {m.present for m in members}
    needed = {p.name for p in grouping.partials if p.name in present or quote(p.name) in texts}
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


def _rows_of(wide: pa.Table, member: Member, columns: _MemberColumns) -> pa.Table:
    arrays = [wide.column(name) for name in columns.outputs]
    arrays = [a.cast(to_inner_arrow(t)) for a, t in zip(arrays, member.types, strict=True)]
    arrays += [wide.column(name) for name in columns.order]
    names = [*(f"{i}" for i in range(len(columns.outputs))), *(f".o{i}" for i in range(len(columns.order)))]
    table = pa.Table.from_arrays(arrays, names=names)
    mask = wide.column(columns.mask)
    if not pc.all(mask).as_py():
        table = table.filter(mask)
    return table


def order_rows(table: pa.Table, member: Member) -> pa.Table:
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
