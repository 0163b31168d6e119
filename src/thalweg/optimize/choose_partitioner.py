"""Which partitioner deals out the rows of a route key that travel whole.

Whether they travel whole at all is the question of `shipping`: where a task makes few groups of many rows, it
combines them. For the others, a key that stays whole needs no merging, so hashing is left only where it is uneven.
Then it depends: can whole keys be balanced (Holistic Section 7: affinity, where groups are many), or is one key too
much for a slot, so that it has to be split (Dalton)?
"""

from __future__ import annotations

from thalweg.model.partitioning import HASH, LOCAL, Skew
from thalweg.partition.cost import Choice
from thalweg.partition.cost import choose as choose_by_groups

UNEVEN = 1.1
"""The rows of the busiest slot, in parts of an even share, from which on hashing is given up."""
EVEN = 1.05
"""Below, hashing is resumed."""


def choose(skew: Skew, slots: int, now: str, *, rows_are_partials: bool) -> Choice:
    """For rows of this skew, which are dealt out by `now` at present.

    `rows_are_partials`: slots make nothing of the rows until their windows close. Then rows need not travel before,
    and no slot is busier than another.
    """
    choice = choose_partitioner(skew, slots, now)
    if not rows_are_partials:
        return choice
    why = "values hardly come again, so slots could do nothing with rows until their windows close"
    return Choice(LOCAL, f"{why}. Were they to travel, it would be by {choice.partitioner}: {choice.reason}")


def choose_partitioner(skew: Skew, slots: int, now: str = HASH) -> Choice:
    """The same for rows that have to travel."""
    busiest, top = skew.busiest * slots, skew.top * slots
    found = f"hashed, the busiest of {slots} slots has {skew.busiest:.0%} of the rows"
    if slots == 1:
        return Choice(HASH, "there is one slot")
    if busiest < (UNEVEN if now == HASH else EVEN):
        return Choice(HASH, f"{found}: even enough, and keys stay whole")
    if top >= (UNEVEN if now != "dalton" else EVEN):
        return Choice("dalton", f"{found}, and one key alone has {skew.top:.0%}: hot keys are split, the others not")
    by_groups = choose_by_groups(skew.rows, skew.groups, slots)
    if by_groups.partitioner == "shuffle":
        return Choice("dalton", f"{found}; {by_groups.reason}")
    return Choice(by_groups.partitioner, f"{found}; {by_groups.reason}")
