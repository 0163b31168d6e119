"""A window knows itself: which slices it is cut along, which windows a time or a stretch is in, when they close.

A *stretch* is `(start, span)` in microseconds. A slice has a positive span. A *node* is a merged run of
slices: its span is written negative, so that it is never taken for a slice of the same width. A node holds
every row of the slices inside it; a window is then a few nodes and the slices at its edges, and is not
merged from all its slices again at every slide.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from thalweg.model.canonical import canonical
from thalweg.model.spans import describe_span

BEGINNING = -(2**62)
"""A watermark before every event: no window has closed."""
RADIX = 4
"""Slices (or nodes) that a node one level up is made of."""
WORTH_NODES = 8
"""Windows of fewer slices than this are merged from their slices."""

Stretch = tuple[int, int]
Times = TypeVar("Times", int, npt.NDArray[np.int64])
"""An instant, or many of them."""


@canonical("Window(range_us, slide_us, start_us)")
@dataclass(frozen=True)
class Window:
    """`window(time, range, slide, start)` in microseconds, aligned to the Unix epoch. Half-open: it ends before its
    end. Nobody else reads its fields."""

    range_us: int
    slide_us: int
    start_us: int = 0

    # -- in time

    def last_start(self, time_us: Times) -> Times:
        """The start of the last window that contains this instant."""
        return time_us - (time_us - self.start_us) % self.slide_us

    def end_of(self, start_us: int) -> int:
        """The end of the window that starts there."""
        return start_us + self.range_us

    def closes_at(self, time_us: Times) -> Times:
        """The watermark at which the last window that contains this instant has closed."""
        return self.last_start(time_us) + self.range_us

    def first_open(self, closed_us: int) -> int:
        """The start of the earliest window that a watermark has not closed."""
        return self.last_start(closed_us - self.range_us) + self.slide_us

    def starts_of(self, stretch: Stretch, closed_us: int, closing_us: int) -> Iterator[int]:
        """The starts of the windows around the whole stretch whose ends lie in (closed, closing], latest first."""
        start, span = stretch[0], abs(stretch[1])
        w = self.last_start(min(start, closing_us - self.range_us))
        first = max(start + span, closed_us + 1) - self.range_us
        while w >= first:
            yield w
            w -= self.slide_us

    @property
    def reach_us(self) -> int:
        """How far two rows of one window can be apart."""
        return self.range_us - 1

    @property
    def is_tumbling(self) -> bool:
        return self.range_us == self.slide_us

    @property
    def windows_per_row(self) -> int:
        return -(-self.range_us // self.slide_us)

    # -- along slices

    def cuts(self, width_us: int, edge_us: int) -> int:
        """The widest slices along which both this window and the grid of this width through this edge can be cut."""
        return math.gcd(width_us, self.slide_us, self.range_us, abs(self.start_us - edge_us))

    def fits(self, width_us: int, edge_us: int) -> bool:
        """Whether it begins and ends on edges of the grid."""
        return self.cuts(width_us, edge_us) == width_us

    def is_worth_nodes(self, slice_us: int) -> bool:
        return not self.is_tumbling and self.range_us >= WORTH_NODES * slice_us

    def has_room_for_two(self, span_us: int) -> bool:
        return 2 * span_us <= self.range_us

    def cover(self, start_us: int, stretches: Sequence[Stretch]) -> list[Stretch]:
        """The stretches to merge for the window that starts there: nodes as large as possible, slices where no node
        is. `stretches` are ordered by falling width."""
        end_us = self.end_of(start_us)
        nodes: list[tuple[int, int]] = []
        chosen: list[Stretch] = []
        for start, span in stretches:
            until = start + abs(span)
            if start < start_us or until > end_us:
                continue
            if span > 0:
                taken = any(first <= start and until <= last for first, last in nodes)
            else:
                taken = any(start < last and first < until for first, last in nodes)
            if not taken:
                chosen.append((start, span))
                if span < 0:
                    nodes.append((start, until))
        return chosen

    def covers(self, starts: Iterable[int], stretches: Iterable[Stretch]) -> Iterator[tuple[int, Stretch]]:
        """(window, stretch to merge for it) of all these windows; each looks only at the stretches inside it."""
        ordered = sorted(stretches)
        places = [start for start, _ in ordered]
        for w in sorted(starts):
            inside = ordered[bisect_left(places, w) : bisect_left(places, self.end_of(w))]
            for stretch in self.cover(w, widest_first(inside)):
                yield w, stretch

    # -- in words

    def what_is_wrong(self, most_windows: int) -> tuple[int, str, str | None] | None:
        """(which of range 1, slide 2 and start 3, what, what to do) of a window that cannot be."""
        if self.range_us <= 0:
            return 1, "the range of a window is longer than nothing", None
        if self.slide_us <= 0:
            return 2, "the slide of a window is longer than nothing", None
        if self.slide_us > self.range_us:
            return 2, "the slide of a window is at most its range", None
        if (many := self.windows_per_row) > most_windows:
            message = f"every row would be in {many:,} windows, which is more than {most_windows:,}"
            return 2, message, "make the slide longer"
        if abs(self.start_us) >= self.slide_us:
            return 3, "the start of a window is less than its slide", None
        return None

    def arguments(self) -> tuple[str, str, str]:
        """Range, slide and start as SQL has them."""
        return tuple(f"{us} microseconds" for us in (self.range_us, self.slide_us, self.start_us))  # type: ignore[return-value]

    def start_sql(self, time_sql: str) -> str:
        """DuckDB's text of the last window's start, in microseconds. `%` takes the sign of its left side, so it is
        taken twice."""
        since = f"(epoch_us({time_sql}) - {self.start_us})"
        within_window = f"((({since} % {self.slide_us}) + {self.slide_us}) % {self.slide_us})"
        return f"(epoch_us({time_sql}) - {within_window})"

    def end_sql(self, start_sql: str) -> str:
        return f"{start_sql} + {self.range_us}"

    def describe(self) -> str:
        text = f"windows of {describe_span(self.range_us)}"
        if not self.is_tumbling:
            text += f" sliding by {describe_span(self.slide_us)}"
        return text if self.start_us == 0 else f"{text}, shifted by {describe_span(self.start_us)}"


def tumbling(span_us: int) -> Window:
    return Window(span_us, span_us)


def needed_until(start_us: int, windows: Sequence[Window]) -> int:
    """The watermark at which the last window that contains a stretch from here on has closed."""
    return max(window.closes_at(start_us) for window in windows)


def slice_grid(windows: Sequence[Window]) -> tuple[int, int]:
    """The coarsest regular grid on which every edge of every window lies: (width, first edge)."""
    origin = windows[0].start_us
    width = 0
    for window in windows:
        width = window.cuts(width, origin)
    return width, origin % width


def node_spans(slice_us: int, windows: Sequence[Window]) -> list[int]:
    """The widths of nodes worth keeping over slices of this width, narrowest first."""
    worthy = [window for window in windows if window.is_worth_nodes(slice_us)]
    spans = []
    span = slice_us * RADIX
    while any(window.has_room_for_two(span) for window in worthy):
        spans.append(span)
        span *= RADIX
    return spans


def widest_first(stretches: Iterable[Stretch]) -> list[Stretch]:
    return sorted(stretches, key=lambda s: (-abs(s[1]), s))
