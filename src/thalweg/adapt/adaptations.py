"""The feedback loops, in the order in which they observe a batch and propose for the next one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thalweg.adapt.cohorts import FormCohorts
from thalweg.adapt.combining import CombineOrSend
from thalweg.adapt.contract import Adaptation
from thalweg.adapt.hot_join_keys import SpreadHotKeys
from thalweg.adapt.partitioners import DealRows
from thalweg.adapt.probe_orders.adaptation import OrderProbes
from thalweg.adapt.settings import AdaptSettings
from thalweg.adapt.slot_assignment.adaptation import AssignSlots
from thalweg.adapt.slot_count import CountSlots

ADAPTATIONS: tuple[Callable[[AdaptSettings], Adaptation[Any, Any]], ...] = (
    CountSlots,  # first: key groups are assigned to that many
    AssignSlots,
    DealRows,
    SpreadHotKeys,
    CombineOrSend,
    FormCohorts,  # before orders: what predicates let through is in their statistics
    OrderProbes,
)
