"""What a query joins: its relations, what must be equal, how far apart in time, and what happens without a partner.

A relation is one occurrence of a stream in FROM. Its name is the stream's, with `#2`, `#3` for the second and
third occurrence, so that two queries name the same thing alike whatever their aliases. The rows that a join
yields are a stream of their own, named by what is joined, with columns `relation.column`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from thalweg.model.canonical import canonical, named
from thalweg.model.expr import Expr
from thalweg.model.stream import Field, Schema, SourceSpec, Stream

MAX_RELATIONS = 5


@canonical("Atom(column, op, value)")
@dataclass(frozen=True)
class Atom:
    """`column op constant`: a comparison that an index over the constants answers."""

    column: str
    op: str
    """= < <= > >=."""
    value: int | float
    """In the column's own domain: whole numbers for integral columns, floats for float and double."""


@canonical("KeyPart(relation, expr)")
@dataclass(frozen=True)
class KeyPart:
    """One side of an equality."""

    relation: str
    expr: Expr
    """Over the stream's own columns, of the type that both sides share."""


@dataclass(frozen=True)
class Relation:
    name: str
    stream: str
    atoms: tuple[Atom, ...] = ()
    """Conjuncts of the selection of the form `column op constant`, over the stream's own columns."""
    where: Expr | None = None
    """The other conjuncts of the selection."""


@canonical("Equality(left, right)")
@dataclass(frozen=True)
class Equality:
    left: KeyPart
    right: KeyPart
    """left.relation sorts before right.relation."""


@canonical("Bound(left, right, low_us, high_us)")
@dataclass(frozen=True)
class TimeBound:
    """low_us <= event time of `right` - event time of `left` <= high_us; left sorts before right."""

    left: str
    right: str
    low_us: int
    high_us: int


@canonical("TableJoin(name, table, keys, outer, on)")
@dataclass(frozen=True)
class TableJoin:
    """A static table that joined rows are looked up in, after all streams have been joined."""

    name: str
    """As relations are named: the table's name, `#2` for a second occurrence."""
    table: str
    keys: tuple[tuple[Expr, Expr], ...]
    """(over joined columns, over the table's own columns `name.column`) that must be equal, of one type."""
    outer: bool = False
    """LEFT JOIN: rows without a partner keep nulls."""
    on: Expr | None = None
    """Further conjuncts of ON, over joined columns and the table's."""


@dataclass(frozen=True)
class Join:
    relations: tuple[Relation, ...]
    """Sorted by name. One alone where a stream is joined with tables only."""
    equalities: tuple[Equality, ...] = ()
    """Sorted, each once; they connect all relations."""
    bounds: tuple[TimeBound, ...] = ()
    """At most one per pair, the intersection of what was written; they connect all relations."""
    kind: str = "inner"
    """inner | outer | semi | anti. All but inner have two relations."""
    preserved: tuple[str, ...] = ()
    """outer: the relations whose rows without a partner are emitted with nulls; semi, anti: the one emitted."""
    on: Expr | None = None
    """Kinds other than inner: the conjuncts of ON beyond equalities and bounds, over joined columns."""
    tables: tuple[TableJoin, ...] = ()

    @property
    def streams(self) -> tuple[str, ...]:
        """Each stream once."""
        return tuple(dict.fromkeys(r.stream for r in self.relations))

    def relation(self, name: str) -> Relation:
        return next(r for r in self.relations if r.name == name)

    def farthest(self) -> dict[tuple[str, str], int]:
        """(i, j) -> the greatest event time of j less that of i which all bounds together allow."""
        far = {(b.left, b.right): b.high_us for b in self.bounds}
        far |= {(b.right, b.left): -b.low_us for b in self.bounds}
        names = [r.name for r in self.relations]
        for k in names:
            for i in names:
                for j in names:
                    if (i, k) in far and (k, j) in far and i != j:
                        far[i, j] = min(far.get((i, j), far[i, k] + far[k, j]), far[i, k] + far[k, j])
        return far

    def reach_us(self, relation: str, far: Mapping[tuple[str, str], int]) -> int:
        """How long a row of the relation is needed: so much later may the row be that asks for it. `far`: as of
        `farthest`."""
        later = [far[relation, r.name] for r in self.relations if r.name != relation]
        if self.kind != "inner":
            # It is asked for once more when the last row that it could match is decided.
            (other,) = (r.name for r in self.relations if r.name != relation)
            later.append(far[relation, other] + far[other, relation])
        return max([0, *later])

    def lag_us(self, time: str) -> int:
        """How far behind its streams' watermarks windows over `time` close: a partner may be that much later."""
        return max([0, *(us for (i, _), us in self.farthest().items() if time.startswith(i + "."))])


def joined_column(relation: str, column: str) -> str:
    return f"{relation}.{column}"


def split_column(joined: str, names: tuple[str, ...]) -> tuple[str, str]:
    """(relation, column) of a joined column, `names` being the relations."""
    for name in names:
        if joined.startswith(name + "."):
            return name, joined[len(name) + 1 :]
    raise KeyError(joined)


def joined_name(join: Join, time: str) -> str:
    """The name of the stream of joined rows, made from what all queries over it have in common."""
    relations = tuple((relation.name, relation.stream) for relation in join.relations)
    lag = join.lag_us(time) if time else 0  # a stream has one watermark
    return named("j", relations, join.equalities, join.kind, join.preserved, join.on, join.tables, time, lag)


def joined_stream(
    name: str, join: Join, time: str, streams: Mapping[str, Stream], tables: Mapping[str, Schema]
) -> Stream:
    """The stream of joined rows. `time` is the joined column that windows are over; `tables`: name -> Schema."""
    fields = [
        Field(joined_column(r.name, f.name), f.type) for r in join.relations for f in streams[r.stream].schema.fields
    ]
    for t in join.tables:
        fields += [Field(joined_column(t.name, f.name), f.type) for f in tables[t.table].fields]
    return Stream(name, Schema(tuple(fields)), time, 0, SourceSpec("join", {}))
