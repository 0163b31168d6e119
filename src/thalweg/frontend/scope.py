"""FROM: which streams and tables a SELECT is over, and what its column names mean in each clause.

Of one stream, columns go by their own names. Of several, by `relation.column`: the names of joined rows.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from thalweg.errors import (
    SqlError,
    ambiguous_column,
    no_stream,
    not_supported,
    repeated_relation,
    unknown_column,
    unknown_stream,
)
from thalweg.frontend.code import Code, emit
from thalweg.frontend.compile import Compiler
from thalweg.frontend.elsewhere import function_hint
from thalweg.frontend.tree import Binary, Column, FromSource, Node, Select, Star, walk
from thalweg.model.expr import quote
from thalweg.model.join import joined_column
from thalweg.model.stream import Field, Schema, Stream


@dataclass(frozen=True, eq=False)
class FromEntry:
    """One entry of FROM, found."""

    of: str
    """The stream or table."""
    name: str
    """The relation: the same, with `#2` for a second occurrence."""
    source: FromSource
    schema: Schema
    stream: Stream | None
    """None: a static table."""
    alone: bool

    @property
    def qualifier(self) -> str:
        return self.source.qualifier

    @property
    def shown(self) -> str:
        """The name under which the text speaks of it."""
        return self.source.alias or self.source.name

    def column(self, name: str) -> str:
        return name if self.alone else joined_column(self.name, name)

    def field(self, name: str) -> Field | None:
        return next((f for f in self.schema.fields if f.name.lower() == name.lower()), None)

    def time_code(self) -> Code:
        assert self.stream is not None
        return _code(self.column(self.stream.time), self.schema.type_of(self.stream.time))

    @property
    def time(self) -> str:
        """The event time as the text would name it."""
        assert self.stream is not None
        return self.stream.time if self.alone else f"{self.shown}.{self.stream.time}"


Found = tuple[FromEntry, Field]


@dataclass(frozen=True)
class Visible:
    """A column that a bare name or `*` can mean."""

    column: Column
    """How to name it without doubt."""
    parts: tuple[Found, ...]
    """One column; the two halves of a FULL JOIN's USING."""

    @property
    def name(self) -> str:
        return self.column.name


class Scope:
    """What names mean in one clause."""

    def __init__(
        self,
        text: str,
        entries: tuple[FromEntry, ...],
        visible: tuple[Visible, ...],
        source: str = "",
        hidden: tuple[FromEntry, ...] = (),
    ) -> None:
        self.text, self.entries, self.visible = text, entries, visible
        self.source = source
        """The FROM under which Spark resolves the same names."""
        self.hidden = hidden
        """The right sides of semi and anti joins, of which nothing is left."""
        self.compiler = Compiler(text, self._joined)
        self.own = Compiler(text, self._own)
        """The same over the own columns of one stream."""
        self.own.typed = self.compiler.typed

    @property
    def names(self) -> frozenset[str]:
        """Every column's bare name, in lower case."""
        return frozenset(f.name.lower() for entry in self.entries for f in entry.schema.fields)

    @property
    def times(self) -> dict[str, FromEntry]:
        """Event times: column -> whose it is."""
        return {entry.column(entry.stream.time): entry for entry in self.entries if entry.stream is not None}

    def find(self, column: Column) -> tuple[Found, ...]:
        """The columns of streams or tables that a name stands for. Two only after FULL JOIN USING."""
        parts = [part.lower() for part in column.parts]
        if len(parts) == 1:
            candidates = [v for v in self.visible if v.name == parts[0]]
            if len(candidates) > 1:
                listed = [".".join(v.column.parts) for v in candidates]
                raise ambiguous_column(column.parts[0], listed, self.text, column.span)
            if candidates:
                return candidates[0].parts
        for entry in self.entries:
            if len(parts) == 2 and entry.qualifier == parts[0] and (found := entry.field(parts[1])) is not None:
                return ((entry, found),)
        gone = next((entry for entry in self.hidden if len(parts) == 2 and entry.qualifier == parts[0]), None)
        if gone is not None:
            what = f"'{'.'.join(column.parts)}' after {gone.source.kind.upper()} JOIN"
            raise not_supported(what, self.text, column.span, "its result has the left side's columns only")
        near = difflib.get_close_matches(parts[-1], sorted(self.names), 3, 0.6)
        name = ".".join(column.parts)
        raise unknown_column(name, near, self.text, column.span, function_hint(name))

    def meant(self, column: Column) -> tuple[Found, ...] | None:
        """The same; None where a name stands for none, or for several."""
        try:
            return self.find(column)
        except SqlError:
            return None

    def check(self, node: Node) -> None:
        """Raises for names that mean several columns, or none any more; an unknown one may be an alias."""
        known = {v.name for v in self.visible}
        gone = {entry.qualifier for entry in self.hidden}
        for part in walk(node):
            if isinstance(part, Column) and (
                part.name in known if len(part.parts) == 1 else part.parts[0].lower() in gone
            ):
                self.find(part)

    def relations(self, node: Node) -> frozenset[FromEntry]:
        """Whose columns an expression reads."""
        columns = (part for part in walk(node) if isinstance(part, Column))
        return frozenset(entry for column in columns for entry, _ in self.find(column))

    def expand(self, star: Star) -> list[Column]:
        """The columns that `*` or `a.*` stands for."""
        if star.qualifier is None:
            return [v.column for v in self.visible]
        entry = next((e for e in self.entries if e.qualifier == star.qualifier.lower()), None)
        if entry is None:
            raise unknown_column(f"{star.qualifier}.*", [], self.text, star.span)
        return [Column(star.span, (entry.qualifier, f.name)) for f in entry.schema.fields]

    def _joined(self, column: Column) -> Code:
        codes = [_code(entry.column(found.name), found.type) for entry, found in self.find(column)]
        if len(codes) == 1:
            return codes[0]
        codes = self.compiler.common(codes, column)
        return emit(f"COALESCE({', '.join(code.sql for code in codes)})", codes[0].type, *codes)

    def _own(self, column: Column) -> Code:
        ((_, found),) = self.find(column)
        return _code(found.name, found.type)


def _code(name: str, type_: str) -> Code:
    return Code(quote(name), type_, frozenset((name,)))


@dataclass
class Frame:
    """FROM as a whole."""

    entries: tuple[FromEntry, ...]
    final: Scope
    """SELECT, WHERE and all that follows."""
    conditions: dict[str, tuple[Scope, Node]] = field(default_factory=dict)
    """relation -> its ON, or what its USING means, and what names mean there."""

    @property
    def joins(self) -> bool:
        return len(self.entries) > 1

    @property
    def scopes(self) -> list[Scope]:
        return [*(scope for scope, _ in self.conditions.values()), self.final]


def read_from(
    tree: Select, text: str, spark: str, streams: Mapping[str, Stream], tables: Mapping[str, Schema]
) -> Frame:
    """Every entry of FROM found, with a scope for each condition and one for the rest.

    `spark` is the text as Spark gets it, of the same length.
    """
    entries = _entries(tree, text, streams, tables)
    conditions: dict[str, tuple[Scope, Node]] = {}
    apart: list[tuple[list[FromEntry], list[Visible]]] = []
    for entry in entries:
        source = entry.source
        own = _visible(entry, source)
        if source.apart:
            apart.append(([entry], own))
            continue
        members, before = apart[-1]
        start = members[0].source.span[0]
        if source.using:
            merged, equal = _merge(entry, members, before, own, text)
            both = Scope(text, (*members, entry), (*before, *own))
            conditions[entry.name] = (both, equal)
            after = merged
        else:
            after = before + own
            if source.on is not None:
                seen = spark[start : source.end] if source.kind not in ("semi", "anti") else _listed(members, entry)
                scope = Scope(text, (*members, entry), tuple(after), seen)
                conditions[entry.name] = (scope, source.on)
        if source.kind in ("semi", "anti"):
            continue
        apart[-1] = ([*members, entry], after)
    visible = tuple(v for _, group in apart for v in group)
    seen = spark[tree.sources[0].span[0] : tree.sources[-1].end]
    kept = tuple(entry for members, _ in apart for entry in members)
    hidden = tuple(entry for entry in entries if entry not in kept)
    final = Scope(text, kept, visible, seen, hidden)
    return Frame(entries, final, conditions)


def _entries(
    tree: Select, text: str, streams: Mapping[str, Stream], tables: Mapping[str, Schema]
) -> tuple[FromEntry, ...]:
    known_streams = {stream.name.lower(): stream for stream in streams.values()}
    known_tables = {name.lower(): name for name in tables}
    seen: Counter[str] = Counter()
    entries: list[FromEntry] = []
    for source in tree.sources:
        key = source.name.lower()
        stream = known_streams.get(key)
        if stream is None and key not in known_tables:
            near = difflib.get_close_matches(source.name, [*streams, *tables], 3, 0.6)
            raise unknown_stream(source.name, near, text, source.span)
        if any(entry.qualifier == source.qualifier for entry in entries):
            raise repeated_relation(source.alias or source.name, text, source.span)
        seen[key] += 1
        name = stream.name if stream is not None else known_tables[key]
        relation = name if seen[key] == 1 else f"{name}#{seen[key]}"
        schema = stream.schema if stream is not None else tables[name]
        entries.append(FromEntry(name, relation, source, schema, stream, len(tree.sources) == 1))
    if all(entry.stream is None for entry in entries):
        raise no_stream(text, tree.sources[0].span)
    return tuple(entries)


def _visible(entry: FromEntry, source: FromSource) -> list[Visible]:
    return [
        Visible(Column(source.span, (f.name,) if entry.alone else (entry.shown, f.name)), ((entry, f),))
        for f in entry.schema.fields
    ]


def _merge(
    entry: FromEntry, members: list[FromEntry], before: list[Visible], own: list[Visible], text: str
) -> tuple[list[Visible], Node]:
    """USING: the columns after it, and the equalities it means."""
    left_scope = Scope(text, tuple(members), tuple(before))
    right_scope = Scope(text, (entry,), tuple(own))
    keys: list[Visible] = []
    equal: Node | None = None
    for column in entry.source.using:
        left, right = left_scope.find(column), right_scope.find(column)
        if len(left) > 1:
            raise not_supported("USING a column that FULL JOIN has merged", text, column.span, "write ON")
        one, other = left[0], right[0]
        sides = [Column(column.span, (e.qualifier, f.name)) for e, f in (one, other)]
        same = Binary(column.span, "=", sides[0], sides[1])
        equal = same if equal is None else Binary(column.span, "and", equal, same)
        kind = entry.source.kind
        parts = right if kind == "right" else (*left, *right) if kind == "full" else left
        keys.append(Visible(Column(column.span, (one[1].name,)), parts))
    names = {key.name for key in keys}
    assert equal is not None
    return [*keys, *(v for v in (*before, *own) if v.name not in names)], equal


def _listed(members: list[FromEntry], entry: FromEntry) -> str:
    """A comma list: for conditions over a side that is not in the result."""
    return ", ".join(
        quote_spark(e.source.name) + (f" AS {quote_spark(e.source.alias)}" if e.source.alias else "")
        for e in (*members, entry)
    )


def quote_spark(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
