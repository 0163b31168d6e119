"""Sizes as people write them."""

from __future__ import annotations

import re

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_UNITS = {"": 1, "b": 1, "byte": 1, "bytes": 1}
_UNITS |= {f"{letter}{tail}": 1000**n for n, letter in enumerate("kmgt", 1) for tail in ("", "b")}
_UNITS |= {f"{letter}i{tail}": 1024**n for n, letter in enumerate("kmgt", 1) for tail in ("", "b")}


def parse_size(given: object) -> int | None:
    """`'1 GB'` -> 1,000,000,000; `'1 GiB'` -> 1,073,741,824; a number alone is of bytes. None: it is no size."""
    match = None if isinstance(given, bool) else _SIZE.fullmatch(str(given))
    unit = None if match is None else _UNITS.get(match[2].lower())
    return None if match is None or unit is None else int(float(match[1]) * unit)
