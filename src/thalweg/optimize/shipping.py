"""Which groupings the slots make from whole rows. The others are made at the source, and only partials travel.

Rows that are shipped whole are shared: one copy serves all route keys that need the row in the same slot. Partials
are not. So whole rows win where combining hardly makes fewer of them: raw groupings, and groupings of many groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from thalweg.model.plan import Grouping

MANY = 0.8
"""Groups per row from which on combining at the source is not worth its pass."""
STILL_MANY = 0.4
"""Below, combining is resumed. A slot sees the rows of all tasks, so it counts fewer groups per row than a task."""


@dataclass(frozen=True)
class GroupingLoad:
    """What was measured of a grouping, an average over recent batches."""

    groups_per_row: float
    in_slots: bool = False
    """Whether it was made from rows in the slots when that was measured."""

    @property
    def is_many(self) -> bool:
        return self.groups_per_row >= (STILL_MANY if self.in_slots else MANY)


def choose_shipped(
    groupings: Sequence[Grouping],
    loads: Mapping[str, GroupingLoad],
    columns_of: Callable[[Grouping], Iterable[str]],
    width_of: Callable[[str], int],
) -> list[str]:
    """Of one stream's groupings those that are made in the slots: by what would travel either way."""
    raw = [g for g in groupings if g.kind == "rows"]
    finer = {g.finer for g in groupings}
    many = [
        g
        for g in groupings
        if g.kind == "combine"
        and g.finer is None
        and g.id not in finer
        and g.keys
        and g.id in loads
        and loads[g.id].is_many
    ]
    if many:
        whole = {column for g in (*raw, *many) for column in columns_of(g)}
        row = 8 + sum(width_of(column) for column in whole)
        others = {g.route_key for g in raw}
        # As if no two route keys agreed: sharing can only lower it.
        shipped = row * len({g.route_key for g in many} - others)
        partials = sum(_partial_width(g, width_of) * loads[g.id].groups_per_row for g in many)
        if shipped > partials:
            many = []
    return sorted(g.id for g in (*raw, *many))


def _partial_width(grouping: Grouping, width_of: Callable[[str], int]) -> int:
    """Bytes of a group on its way: slice, key group, keys and values, partials."""
    keys = sum(width_of(column) for column in (*grouping.keys, *grouping.values))
    return 10 + keys + sum(16 if "HUGE" in p.type or "DECIMAL" in p.type else 8 for p in grouping.partials)


def type_width(kind: str) -> int:
    """Bytes of a value of a Spark type, about."""
    if kind.startswith(("string", "binary", "decimal", "char", "varchar")):
        return 16
    return {"boolean": 1, "tinyint": 1, "smallint": 2, "int": 4, "date": 4, "float": 4}.get(kind, 8)
