"""What a feedback loop was asked, what it answered, what that saves and what it rejected."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class AdaptationReport:
    asked: str = ""
    """When and why it was asked the last time; empty where it was not."""
    answer: str = ""
    """What came of it."""
    saved: float = 0.0
    """The share of the cost that the last decision saves."""
    rejected: str = ""
    """What was found and not taken, and why."""
    report: object = None
    """What else is known, where EXPLAIN and progress have a form of their own for it."""
