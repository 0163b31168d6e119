"""OPTIONS of a query: as people write them -> as they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from thalweg.errors import bad_option, bad_size, unknown_option
from thalweg.frontend.intervals import parse_interval
from thalweg.model.patience import BYTES, COUNTS, OPTIONS, SPANS
from thalweg.model.size import parse_size

QUERY_OPTIONS = ("join_limit", "partitioner", *OPTIONS)
"""Those of the query itself, not of its sink."""


def normal_options(query: str, options: Mapping[str, object]) -> dict[str, str]:
    """Sizes in bytes and spans in microseconds, as whole numbers; all other options as they are."""
    for name in options:
        if name not in QUERY_OPTIONS:
            raise unknown_option(query, str(name), get_close_matches(str(name), QUERY_OPTIONS), QUERY_OPTIONS)
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
