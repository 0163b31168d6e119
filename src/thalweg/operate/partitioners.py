"""The partitioners of one task: which slot takes a row whose key need not stay whole.

A task makes them when it first needs them, from what the plan names and what all tasks learned in the batch before,
and nothing else: the same task run again deals its rows out alike. What they learned returns with the task's report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from thalweg.model.plan import Plan
from thalweg.partition import Partitioner, create
from thalweg.partition.cooperative import Learned, Policy
from thalweg.partition.dalton import Dalton
from thalweg.route.hash import Hashes, key_groups
from thalweg.route.table import RoutingTable, routing_table

Slots = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Owners:
    """The slots that finish the windows of keys: at home there is nothing to merge."""

    routing: RoutingTable

    def first(self, keys: npt.NDArray[np.int64], out: Slots) -> None:
        groups = key_groups(keys.view(np.uint64), self.routing.groups)
        np.take(self.routing.owners.astype(np.int32), groups, out=out)


@dataclass
class TaskPartitioners:
    policies: Mapping[str, Policy] = field(default_factory=dict)
    """route key -> what all tasks together have learned of it."""
    member: int = 0
    """Which of the tasks this is: each explores in its own way."""
    made: dict[str, Partitioner] = field(default_factory=dict)

    def assign(self, plan: Plan, route_key: str, hashes: Hashes) -> Slots:
        """The slot of each row, by the hashes of the rows' keys."""
        if route_key not in self.made:
            self.made[route_key] = self._make(plan, route_key)
        return self.made[route_key].assign(hashes.view(np.int64))

    def _make(self, plan: Plan, route_key: str) -> Partitioner:
        name = plan.partitioners[route_key]
        if name != Dalton.name:
            return create(name, plan.slots, choices=min(2, plan.slots))
        homes = Owners(routing_table(plan, route_key))
        dalton = create(name, plan.slots, cooperative=True, member=self.member, homes=homes)
        policy = self.policies.get(route_key)
        if isinstance(dalton, Dalton) and policy is not None and len(policy.loads) == plan.slots:
            # A batch ends with its slowest slot: that another one had less in the batch before does not help.
            dalton.adopt(replace(policy, loads=np.zeros_like(policy.loads)))
        return dalton

    def learned(self) -> dict[str, Learned]:
        """What was learned in this task."""
        return {key: made.export() for key, made in self.made.items() if isinstance(made, Dalton)}
