"""Which windows a slice belongs to, which of them close, and until when a slice is needed. All in microseconds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thalweg.model.query import Window

BEGINNING = -(2**62)
"""A watermark before every event: no window has closed."""


def last_window(time_us: int, window: Window) -> int:
    """The start of the last window that contains this instant."""
    return time_us - (time_us - window.start_us) % window.slide_us


def windows_of(start_us: int, span_us: int, window: Window) -> Iterable[int]:
    """The starts of the windows that contain the whole stretch, latest first."""
    w = last_window(start_us, window)
    while w + window.range_us >= start_us + span_us:
        yield w
        w -= window.slide_us


def closing(
    slices: Iterable[tuple[int, int]], window: Window, closed_us: int, closing_us: int
) -> list[tuple[int, int]]:
    """(slice start, window start) of the windows whose end lies in (closed, closing]."""
    pairs = []
    for start, span in slices:
        for w in windows_of(start, span, window):
            end = w + window.range_us
            if closed_us < end <= closing_us:
                pairs.append((start, w))
    return pairs


def opened(slices: Iterable[tuple[int, int]], window: Window, closed_us: int) -> set[int]:
    """The windows over these slices that were still open when the batch began."""
    return {
        w
        for start, span in slices
        for w in windows_of(start, span, window)
        if w + window.range_us > closed_us
    }


def needed_until(start_us: int, windows: Sequence[Window]) -> int:
    """The watermark at which the last window that contains this slice has closed."""
    return max(last_window(start_us, window) + window.range_us for window in windows)
