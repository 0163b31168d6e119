"""OPTIONS of a query that say how its sink is waited for: as people write them -> as they are stored."""

from __future__ import annotations

from collections.abc import Mapping

from thalweg.errors import bad_option, bad_size
from thalweg.frontend.intervals import parse_interval
from thalweg.model.patience import BYTES, COUNTS, SPANS
from thalweg.model.size import parse_size


def normal_options(query: str, options: Mapping[str, object]) -> dict[str, str]:
    """Sizes in bytes and spans in microseconds, as whole numbers; all other options as they are."""
    return {name: _normal(query, name, str(value)) for name, value in options.items()}


def _normal(query: str, name: str, text: str) -> str:
    if name in BYTES:
        size = parse_size(text)
        if not size:
            raise bad_size(query, name, text)
        return str(size)
    if name in COUNTS:
        if not text.isdecimal():
            raise bad_option(query, name, text, "how often a sink that fails is tried again", "a whole number")
        return str(int(text))
    if name in SPANS:
        span = parse_interval(text)
        if span <= 0:
            raise bad_option(query, name, text, "how long is waited for a sink", "a length of time above 0")
        return str(span)
    return text
