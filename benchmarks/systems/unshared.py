"""Sharing taken out of the planner, in this process: every aggregation has a grouping and a state of its own.

What is left in common is one reading of each row and one evaluation of each expression, which is more than N
pipelines of their own would have.
"""

from __future__ import annotations

from thalweg.model.canonical import named
from thalweg.model.window import Window
from thalweg.optimize import check_plan, roll_up, split_aggregates


def keep_apart() -> None:
    """Tasks are not concerned: they run the plan that they are given."""

    def grouping(
        splitter: split_aggregates._AggregateSplitter, window: Window, keys: tuple[str, ...], values: tuple[str, ...]
    ) -> split_aggregates._Grouping:
        stream = splitter.query.stream
        id_ = named("g", stream, "combine", keys, values, splitter.id)
        made = split_aggregates._Grouping(id_, stream, keys, values, window)
        return splitter.groupings.setdefault(id_, made)

    split_aggregates._AggregateSplitter._grouping = grouping  # type: ignore[method-assign]
    roll_up._choose = lambda candidates: {}
    # It would refuse groupings that are equal but for their names.
    check_plan.what_is_broken = lambda plan, before=None, touched=None: iter(())
