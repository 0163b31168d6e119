"""Unit: what a window knows of itself; few stretches make it up."""

from __future__ import annotations

import random

import numpy as np
import pytest

from thalweg.model.window import Stretch, Window, needed_until, slice_grid, widest_first


@pytest.mark.parametrize("seed", range(20))
def test_many_windows_are_covered_as_each_alone(seed: int) -> None:
    """Differential: against one window at a time that looks at everything."""
    rng = random.Random(seed)
    slices = {(s, 1) for s in rng.sample(range(200), 120)}
    nodes = {(s, -span) for span in (4, 16) for s in range(0, 200, span) if rng.random() < 0.4}
    stretches = slices | nodes
    window = Window(rng.choice((8, 30, 64)), rng.choice((1, 2, 4)))
    starts = rng.sample(range(-64, 220), 50)
    ordered = widest_first(stretches)
    alone = [(w, s) for w in sorted(starts) for s in window.cover(w, ordered)]
    assert list(window.covers(starts, stretches)) == alone


def test_a_window_looks_at_no_more_than_is_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All windows of a long past may close in one batch."""
    seen: list[int] = []

    cover = Window.cover

    def watched(window: Window, w: int, stretches: list[Stretch]) -> list[Stretch]:
        seen.append(len(stretches))
        return cover(window, w, stretches)

    monkeypatch.setattr(Window, "cover", watched)
    n = 5_000
    found = list(Window(2, 1).covers(range(n), [(s, 1) for s in range(n)]))
    assert len(found) == 2 * n - 1
    assert max(seen) == 2


@pytest.mark.parametrize("seed", range(40))
def test_what_a_window_says_of_itself_is_what_counting_gives(seed: int) -> None:
    """Differential: against all windows in sight, one by one."""
    rng = random.Random(seed)
    slide = rng.randint(1, 12)
    window = Window(slide * rng.randint(1, 4), slide, rng.randint(-slide + 1, slide - 1))
    starts = [window.start_us + i * slide for i in range(-200, 200)]
    time, closed = rng.randint(-100, 100), rng.randint(-100, 100)
    around = [s for s in starts if s <= time < window.end_of(s)]
    assert len(around) == window.windows_per_row
    assert window.last_start(time) == max(around)
    assert window.closes_at(time) == max(map(window.end_of, around)) == needed_until(time, [window])
    assert window.closes_at(np.array([time])).tolist() == [window.closes_at(time)]
    assert window.first_open(closed) == min(s for s in starts if window.end_of(s) > closed)
    closing = closed + rng.randint(0, 50)
    closes = [
        s for s in starts if s <= time and time + 1 <= window.end_of(s) and closed < window.end_of(s) <= closing
    ]
    assert sorted(window.starts_of((time, 1), closed, closing)) == closes
    width, edge = slice_grid([window])
    assert window.fits(width, edge)
    assert all(s % width == edge and window.end_of(s) % width == edge for s in starts)
