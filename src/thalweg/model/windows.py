"""Which windows a stretch of slices belongs to, which close, and how few stretches make up a window.

A *stretch* is `(start, span)` in microseconds. A slice has a positive span. A *node* is a merged run of
slices: its span is written negative, so that it is never taken for a slice of the same width. A node holds
every row of the slices inside it; a window is then a few nodes and the slices at its edges, and is not
merged from all its slices again at every slide.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence

from thalweg.model.query import Window

BEGINNING = -(2**62)
"""A watermark before every event: no window has closed."""
RADIX = 4
"""Slices (or nodes) that a node one level up is made of."""
WORTH_NODES = 8
"""Windows of fewer slices than this are merged from their slices."""

Stretch = tuple[int, int]


def last_window(time_us: int, window: Window) -> int:
    """The start of the last window that contains this instant."""
    return time_us - (time_us - window.start_us) % window.slide_us


def windows_of(stretch: Stretch, window: Window, closed_us: int, closing_us: int) -> Iterator[int]:
    """The starts of the windows around the whole stretch whose ends lie in (closed, closing], latest first."""
    start, span = stretch[0], abs(stretch[1])
    w = last_window(min(start, closing_us - window.range_us), window)
    first = max(start + span, closed_us + 1) - window.range_us
    while w >= first:
        yield w
        w -= window.slide_us


def needed_until(start_us: int, windows: Sequence[Window]) -> int:
    """The watermark at which the last window that contains a stretch from here on has closed."""
    return max(last_window(start_us, window) + window.range_us for window in windows)


def cover(w: int, window: Window, stretches: Sequence[Stretch]) -> list[Stretch]:
    """The stretches to merge for one window: nodes as large as possible, slices where no node is.

    `stretches` are ordered by falling width.
    """
    end = w + window.range_us
    nodes: list[tuple[int, int]] = []
    chosen: list[Stretch] = []
    for start, span in stretches:
        until = start + abs(span)
        if start < w or until > end:
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


def covers(starts: Iterable[int], window: Window, stretches: Iterable[Stretch]) -> Iterator[tuple[int, Stretch]]:
    """(window, stretch to merge for it) of all these windows; each looks only at the stretches inside it."""
    ordered = sorted(stretches)
    places = [start for start, _ in ordered]
    for w in sorted(starts):
        inside = ordered[bisect_left(places, w) : bisect_left(places, w + window.range_us)]
        for stretch in cover(w, window, widest_first(inside)):
            yield w, stretch


def node_spans(slice_us: int, windows: Sequence[Window]) -> list[int]:
    """The widths of nodes worth keeping over slices of this width, narrowest first."""
    ranges = [w.range_us for w in windows if w.range_us > w.slide_us and w.range_us >= WORTH_NODES * slice_us]
    spans = []
    span = slice_us * RADIX
    while ranges and 2 * span <= max(ranges):
        spans.append(span)
        span *= RADIX
    return spans


def widest_first(stretches: Iterable[Stretch]) -> list[Stretch]:
    return sorted(stretches, key=lambda s: (-abs(s[1]), s))
