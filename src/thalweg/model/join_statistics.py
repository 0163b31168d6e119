"""What joins were seen to do, gathered over epochs, and how sure that is.

A decision about join orders should follow what the streams do, not what one batch happened to bring. So batches are
gathered into epochs, with the spread among them, and what is believed is replaced only by what clearly differs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

SURE = 2.0
"""Standard errors by which a new estimate must differ from the one in force to replace it."""
APART = 0.25
"""The share of the one in force by which it must differ besides: a smaller change is not worth another plan."""


class FoundPerLook(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
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
        """The standard error of the ratio: what the batches' spread says, or what counting alone suggests."""
        if not self.looked:
            return math.inf
        counted = math.sqrt(max(self.found, 1.0)) / self.looked
        if self.batches < 2:
            return counted
        return max(counted, math.sqrt(self.spread / self.looked / (self.batches - 1)))

    def after(self, looked: float, found: float) -> FoundPerLook:
        """With one more batch."""
        if looked <= 0:
            return self
        ratio, total = found / looked, self.looked + looked
        apart = ratio - self.ratio
        spread = self.spread + apart * apart * looked * self.looked / total
        return FoundPerLook(self.batches + 1, total, self.found + found, spread)


class Estimate(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    value: float
    error: float
    batches: int
    """That it was seen in."""
    since: int = 0
    """How many epochs had ended when it came to be believed."""

    def is_refuted_by(self, newer: Estimate) -> bool:
        apart = abs(newer.value - self.value)
        return apart > SURE * math.hypot(self.error, newer.error) and apart > APART * self.value


class JoinStatistics(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is believed of the joins, and what the running epoch has seen so far. Keys are the caller's."""

    epoch: int = 0
    """How many have ended."""
    batches: int = 0
    """Of the running one."""
    seen: Mapping[str, FoundPerLook] = {}
    estimates: Mapping[str, Estimate] = {}
    """In force."""

    @property
    def replaced(self) -> tuple[str, ...]:
        """The estimates that the last epoch's end has brought or replaced."""
        return tuple(sorted(key for key, of in self.estimates.items() if of.since == self.epoch > 0))

    def after(self, counts: Mapping[str, tuple[float, float]], length: int) -> JoinStatistics:
        """With what one more batch counted: key -> (looked at, found). `length`: batches of an epoch."""
        seen = dict(self.seen)
        for key, (looked, found) in counts.items():
            seen[key] = seen.get(key, FoundPerLook()).after(looked, found)
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


class PredicateSample(Struct, frozen=True, forbid_unknown_fields=True):
    """Rows sampled of one relation, as sets of the predicates they satisfy."""

    predicates: tuple[str, ...]
    """In the order of their bits."""
    rows: tuple[int, ...]
    """Sets of bits over `predicates`."""
    rate: float
    """Rows per batch that the sample stands for, kept or not."""
    distinct: Mapping[str, float]
    """Key -> its distinct values; where missing, every row is taken to have its own."""


class JoinMeasurements(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """All that is remembered of joins from batch to batch. An edge is `known|found|key` here."""

    average: Mapping[str, float] = {}
    """edge -> partners per row, over recent batches."""
    matches: Mapping[str, float] = {}
    """The same, kept to powers of two."""
    samples: Mapping[str, PredicateSample] = {}
    """By stream."""
    cohorts: tuple[tuple[str, ...], ...] = field(default=(), name="groups")
    """The queries of each cohort of the plan."""
    since: Mapping[str, Mapping[str, int]] = {}
    """intermediate -> query -> the batch since which it is kept for the query, without a gap."""
    ready: Mapping[str, tuple[str, ...]] = {}
    """intermediate -> the queries for which it holds all that it should."""
    held: Mapping[str, float] = {}
    """stream -> how many batches' rows its store holds."""
    statistics: JoinStatistics = JoinStatistics()
    sent: Mapping[str, float] = {}
    """Cohort -> tuples sent per batch."""
