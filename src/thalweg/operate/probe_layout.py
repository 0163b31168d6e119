"""Which buckets a slot sorts by an index before they are probed (`probe.sort_side`), and how long it keeps that."""

from __future__ import annotations

from dataclasses import dataclass, field

from thalweg.model.probe import Cohort, Index, Role
from thalweg.operate.probe import SortedSide
from thalweg.operate.store import Rows

WORTH = 4
"""Rows that may be laid out for one that probes: a row costs about 10 ns, a probe then takes 30 less, and what is
laid out mostly serves several probes."""
FEW = 64
"""Fewer rows than this probe a bucket as it lies: arrays would cost more than their probes."""
MOST = 1 << 24
"""Rows that are laid out at a time, 24 bytes each. Those of more are probed as they lie."""


@dataclass
class SortedSides:
    """What a slot has laid out for the queries of one cohort. What is done for rows that are stored stays in
    proportion to the rows that look for them."""

    cohort: Cohort
    room: int = field(default_factory=lambda: MOST)
    _known: dict[tuple[int, str, str], SortedSide] = field(default_factory=dict)

    def find(self, bucket: Rows, role: Role, index: Index, first: int, last: int, probing: int) -> SortedSide | None:
        """A bucket's rows at these places of an index, for `probing` others that look; None if it is not worth it."""
        place = (id(bucket), role.relation, index.id)
        known = self._known.get(place)
        if known is not None and known.first <= first and last <= known.last:
            return known
        room = self.room + (0 if known is None else known.last - known.first)
        most = min(probing * WORTH, room)
        if probing < FEW or last - first > most:
            return None
        if known is not None:
            whole = min(first, known.first), max(last, known.last)
            first, last = whole if whole[1] - whole[0] <= most else (first, last)
        self.room = room - (last - first)
        ordered = self._known[place] = bucket.sort(self.cohort, role, index, first, last)
        return ordered
