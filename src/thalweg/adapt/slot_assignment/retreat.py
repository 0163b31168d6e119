"""Back to hashing at once, where an assignment sends more copies than hashing would.

An assignment is made for rows as they were. After a shift it may be worse than none, and the optimiser needs seconds
to find another one; hashing needs nothing. State is read by ranges of key groups, so nothing moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from thalweg.adapt.routing_totals import Shipped
from thalweg.adapt.slot_assignment.judge import Proposal
from thalweg.adapt.slot_assignment.sharing import KeyGroupSample, Sharing, gather
from thalweg.model.plan import Plan
from thalweg.route.table import RoutingTable, routing_table

EXCESS = 0.02
"""Copies above hashing's by this share are more than what samples differ by."""
BATCHES = 2
"""In a row, before it is believed."""
SURE = 4.0
"""Standard errors above hashing by which one batch is enough."""
LOOKED_AT = 8192
"""Rows of a stream in a batch."""


@dataclass(frozen=True, eq=False)
class Above:
    """Of a stream of which more was sent than hashing would send."""

    batches: int
    """In a row."""
    excess: float
    """The share in the last of them."""
    sharing: Sharing
    """Of these batches alone: what was before is no guide any more."""
    keys: tuple[str, ...]
    is_sure: bool = False
    """Whether the last of them shows it by itself."""

    @property
    def is_believed(self) -> bool:
        return self.is_sure or self.batches >= BATCHES


def next_above(
    known: Mapping[str, Above], plan: Plan, shipped: Mapping[str, Shipped], proposal: Proposal | None
) -> dict[str, Above]:
    """stream -> how much too much was sent, of streams with an assignment that was to send less than hashing."""
    after = {name: above for name, above in known.items() if name not in shipped}
    for stream, sent in shipped.items():
        if not sent.samples or _is_meant(stream, proposal):
            continue
        sample = gather(sent.samples)
        if not any(key in plan.assignment or key in plan.co_located_with for key in sample.keys):
            continue
        copies, hashed, error = copies_of(plan, sample)
        if copies > (1 + EXCESS) * hashed:
            before = known.get(stream)
            sharing = Sharing(plan.groups) if before is None or before.keys != sample.keys else before.sharing
            batches = 1 if before is None else before.batches + 1
            sure = copies - hashed > SURE * error
            after[stream] = Above(batches, copies / hashed - 1, sharing.after(sample), sample.keys, sure)
    return after


def _is_meant(stream: str, proposal: Proposal | None) -> bool:
    """Whether the optimiser found more copies worth an even load."""
    judged = None if proposal is None else proposal.streams.get(stream)
    if proposal is None or judged is None:
        return False
    expected = judged.now if proposal.partitioning is None else judged.proposed
    return expected > (1 + EXCESS) * judged.hashed


def copies_of(plan: Plan, sample: KeyGroupSample) -> tuple[float, float, float]:
    """Slots that a sampled row goes to, on average: as the plan says, and if all route keys were hashed; and the
    standard error of their difference."""
    groups = sample.groups[:: max(1, len(sample.groups) // LOOKED_AT)].astype(np.intp)
    if not len(groups):
        return 1.0, 1.0, 0.0
    place = {key: k for k, key in enumerate(sample.keys)}
    hashed = _distinct(RoutingTable.hashed(plan.groups, plan.slots).owners[groups])
    leaders = [
        key if plan.co_located_with.get(key) not in place else plan.co_located_with[key] for key in sample.keys
    ]
    now = _distinct(np.stack([routing_table(plan, key).owners[groups[:, place[key]]] for key in leaders], axis=1))
    return float(now.mean()), float(hashed.mean()), float((now - hashed).std() / np.sqrt(len(groups)))


def _distinct(slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """How many different ones each row has."""
    distinct: npt.NDArray[np.int64] = 1 + np.count_nonzero(np.diff(np.sort(slots, axis=1)), axis=1)
    return distinct


def words(above: Mapping[str, Above], streams: Sequence[str]) -> str:
    return ", ".join(
        f"{above[s].excess:.0%} more of {s} was sent than hashing sends"
        + (f", in {above[s].batches} batches" if above[s].batches > 1 else "")
        for s in streams
    )
