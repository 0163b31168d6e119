"""How many examples hypothesis draws: few while one writes code, more in every full run, many at night."""

from __future__ import annotations

import os

from hypothesis import settings

FULL = 50
"""Examples of a test that says nothing, in a full run."""


def register_profiles() -> None:
    """`fast`, `full` and `nightly`: chosen by --hypothesis-profile, or by THALWEG_EXAMPLES; else `full`."""
    settings.register_profile("fast", max_examples=10, deadline=None, derandomize=True, print_blob=True)
    settings.register_profile("full", max_examples=FULL, deadline=None, print_blob=True)
    settings.register_profile("nightly", max_examples=1000, deadline=None, print_blob=True)
    settings.load_profile(os.environ.get("THALWEG_EXAMPLES", "full"))


def examples(full: int) -> int:
    """As many in a full run; in other profiles fewer or more, by the factor of tests that say nothing."""
    return max(1, full * settings().max_examples // FULL)
