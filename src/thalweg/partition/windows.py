"""The windows of the partitioners that find heavy hitters: what may be set, and what it means for one call."""

from __future__ import annotations

from dataclasses import dataclass

from thalweg.errors import partitioner_option
from thalweg.partition.bandit import Spans
from thalweg.partition.options import whole_number, window_span

STRUCTURES = ("auto", "map", "sketch")


@dataclass(frozen=True)
class WindowSettings:
    window_us: int | None = None
    """The application's window, for rows with times. None: windows are counted in rows."""
    slide_us: int | None = None
    """By how much it slides; None: by its length."""
    window_rows: int = 1 << 20
    slide_rows: int = 1 << 17
    stats_rows: int = 1 << 16
    """STATS_WIN: over how many rows heavy hitters are found."""
    frequencies: str = "auto"
    """How keys are counted: "map", "sketch", or whichever suits their number."""


def check_windows(name: str, given: WindowSettings) -> None:
    window_span(name, given.window_us)
    if given.slide_us is not None:
        most = given.window_us or 0
        whole_number(name, "slide_us", given.slide_us, 1, most, "microseconds above 0, at most window_us")
    for option in ("window_rows", "slide_rows", "stats_rows"):
        whole_number(name, option, getattr(given, option), 1, 2**40, "a whole number above 0")
    if given.frequencies not in STRUCTURES:
        raise partitioner_option(name, "frequencies", given.frequencies, ", ".join(STRUCTURES))


def spans_of(given: WindowSettings, timed: bool, *, by_batch: bool = False, reports: bool = False) -> Spans:
    """`timed`: whether the rows have times. The number of slides in a window is the same with and without."""
    slide_us = given.slide_us or given.window_us or 0
    slides = -(-given.window_us // slide_us) if given.window_us else -(-given.window_rows // given.slide_rows)
    stats_rows = 0 if by_batch or reports else given.stats_rows
    return Spans(timed, int(slide_us if timed else given.slide_rows), int(slides), int(stats_rows), by_batch, reports)
