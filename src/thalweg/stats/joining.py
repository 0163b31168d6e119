"""What joins were seen to do, gathered over epochs, and how sure that is.

A decision about join orders should follow what the streams do, not what one batch happened to bring. So batches are
gathered into epochs, with the spread among them, and what is believed is replaced only by what clearly differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

SURE = 2.0
"""Standard errors by which a new estimate must differ from the one in force to replace it."""
APART = 0.25
"""The share of the one in force by which it must differ besides: a smaller change is not worth another plan."""


@dataclass(frozen=True)
class Seen:
    """Things found per thing looked at, over the batches of an epoch."""

    batches: int = 0
    looked: float = 0.0
    found: float = 0.0
    spread: float = 0.0
    """Squared deviations of the batches' ratios from their mean, each times what was looked at (West's form of
    Welford's sum)."""

    @property
    def ratio(self) -> float:
        return self.found / self.looked if self.looked else 0.0

    @property
    def error(self) -> float:
        """The standard error of the ratio: what the batches' spread says, or what counting alone lets expect."""
        if not self.looked:
            return math.inf
        counted = math.sqrt(max(self.found, 1.0)) / self.looked
        if self.batches < 2:
            return counted
        return max(counted, math.sqrt(self.spread / self.looked / (self.batches - 1)))

    def after(self, looked: float, found: float) -> Seen:
        """With one more batch."""
        if looked <= 0:
            return self
        ratio, total = found / looked, self.looked + looked
        apart = ratio - self.ratio
        spread = self.spread + apart * apart * looked * self.looked / total
        return Seen(self.batches + 1, total, self.found + found, spread)


@dataclass(frozen=True)
class Estimate:
    value: float
    error: float
    batches: int
    """That it was seen in."""
    since: int = 0
    """How many epochs had ended when it came to be believed."""

    def is_refuted_by(self, newer: Estimate) -> bool:
        apart = abs(newer.value - self.value)
        return apart > SURE * math.hypot(self.error, newer.error) and apart > APART * self.value


@dataclass(frozen=True)
class JoinStatistics:
    """What is believed of the joins, and what the running epoch has seen so far. Keys are the caller's."""

    epoch: int = 0
    """How many have ended."""
    batches: int = 0
    """Of the running one."""
    seen: Mapping[str, Seen] = field(default_factory=dict)
    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    """In force."""

    @property
    def replaced(self) -> tuple[str, ...]:
        """The estimates that the last epoch's end has brought or replaced."""
        return tuple(sorted(key for key, of in self.estimates.items() if of.since == self.epoch > 0))

    def after(self, counts: Mapping[str, tuple[float, float]], length: int) -> JoinStatistics:
        """With what one more batch counted: key -> (looked at, found). `length`: batches of an epoch."""
        seen = dict(self.seen)
        for key, (looked, found) in counts.items():
            seen[key] = seen.get(key, Seen()).after(looked, found)
        if self.batches + 1 < length:
            return JoinStatistics(self.epoch, self.batches + 1, seen, self.estimates)
        estimates = dict(self.estimates)
        for key, of in seen.items():
            newer = Estimate(of.ratio, of.error, of.batches, self.epoch + 1)
            if of.looked and (key not in estimates or estimates[key].is_refuted_by(newer)):
                estimates[key] = newer
        return JoinStatistics(self.epoch + 1, 0, {}, estimates)

    def believing(self, estimates: Mapping[str, Estimate]) -> JoinStatistics:
        """With these where there are none yet: what is measured then is news only if it differs."""
        return replace(self, estimates={**estimates, **self.estimates})

    def only(self, wanted: Callable[[str], bool]) -> JoinStatistics:
        """Without what concerns joins that are no more."""
        return JoinStatistics(
            self.epoch,
            self.batches,
            {key: of for key, of in self.seen.items() if wanted(key)},
            {key: of for key, of in self.estimates.items() if wanted(key)},
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "epoch": self.epoch,
            "batches": self.batches,
            "seen": {key: [s.batches, s.looked, s.found, s.spread] for key, s in self.seen.items()},
            "estimates": {key: [e.value, e.error, e.batches, e.since] for key, e in self.estimates.items()},
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> JoinStatistics:
        return cls(
            value.get("epoch", 0),
            value.get("batches", 0),
            {key: Seen(*s) for key, s in value.get("seen", {}).items()},
            {key: Estimate(*e) for key, e in value.get("estimates", {}).items()},
        )
