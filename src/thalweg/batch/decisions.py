"""What a batch runs with: decided anew before every batch, from the manifest before and what the loops propose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thalweg.adapt.combining import loads_of
from thalweg.adapt.probe_orders.measure import join_load
from thalweg.model.measurements import Combining
from thalweg.model.offsets import Offsets
from thalweg.model.ordering import Ordering
from thalweg.optimize.joining import JoinLoad
from thalweg.optimize.shipping import GroupingLoad
from thalweg.state.catalog import Table, Tables
from thalweg.state.migrate import old_schema, old_section


@dataclass(frozen=True)
class Decisions:
    through: int
    """The last request that takes part."""
    reached: Offsets
    """How far the batch goes."""
    slots: int
    combining: Combining = field(default_factory=Combining)
    joins: Mapping[str, Any] = field(default_factory=dict)
    ordering: Ordering = field(default_factory=Ordering)
    assignment: Mapping[str, list[int]] = field(default_factory=dict)
    follows: Mapping[str, str] = field(default_factory=dict)
    partitioners: Mapping[str, str] = field(default_factory=dict)
    spread: Mapping[str, list[int]] = field(default_factory=dict)
    tables: Tables = field(default_factory=dict)
    """The versions of the static tables."""

    def loads(self) -> dict[str, GroupingLoad]:
        return loads_of(self.combining)

    def join_load(self) -> JoinLoad:
        return join_load(self.joins, self.ordering)


def from_intent(value: Mapping[str, Any]) -> Decisions:
    """As a batch of format 4 or before had written them down before its sinks saw anything."""
    return Decisions(
        through=value["through"],
        reached=value["reached"],
        slots=value["slots"],
        combining=Combining(loads=value.get("loads", {}), shipped=tuple(value.get("shipped", ()))),
        joins=value.get("joins", {}),
        ordering=Ordering.from_json(value.get("ordering", {})),
        assignment=value.get("assignment", {}),
        follows=value.get("follows", {}),
        partitioners=value.get("partitioners", {}),
        spread=value.get("spread", {}),
        tables={
            name: Table(name, old_schema(t["schema"]), old_section(t["version"]))
            for name, t in value.get("tables", {}).items()
        },
    )
