"""Unit: few stretches make up a window."""

from __future__ import annotations

import random

import pytest

from thalweg.model import windows
from thalweg.model.query import Window
from thalweg.model.windows import Stretch, cover, covers, widest_first


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
    alone = [(w, s) for w in sorted(starts) for s in cover(w, window, ordered)]
    assert list(covers(starts, window, stretches)) == alone


def test_a_window_looks_at_no_more_than_is_inside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """All windows of a long past may close in one batch."""
    seen: list[int] = []

    def watched(w: int, window: Window, stretches: list[Stretch]) -> list[Stretch]:
        seen.append(len(stretches))
        return cover(w, window, stretches)

    monkeypatch.setattr(windows, "cover", watched)
    n = 5_000
    found = list(covers(range(n), Window(2, 1), [(s, 1) for s in range(n)]))
    assert len(found) == 2 * n - 1
    assert max(seen) == 2
