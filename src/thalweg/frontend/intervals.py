"""Intervals of fixed length, in microseconds: windows and watermark delays."""

from __future__ import annotations

import re
from decimal import Decimal

from thalweg.errors import bad_interval

_SECOND = 1_000_000
UNITS: dict[str, int] = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": _SECOND,
    "minute": 60 * _SECOND,
    "hour": 3_600 * _SECOND,
    "day": 86_400 * _SECOND,
    "week": 7 * 86_400 * _SECOND,
}
CALENDAR_UNITS: dict[str, int] = {"month": 1, "year": 12}
LONGEST_US = 2**61 - 1
"""Some 73,000 years: an event time plus or minus two of these, which a join may ask for, stays within 64 bits."""
_PART = re.compile(r"\s*([+-]?\s*\d+(?:\.\d*)?|[+-]?\s*\.\d+)\s*([A-Za-z]+)")


def unit_of(word: str) -> str | None:
    """The singular name of a unit of time, None for any other word."""
    unit = word.lower().removesuffix("s")
    return unit if unit in UNITS or unit in CALENDAR_UNITS else None


def parse_interval(text: str) -> int:
    """`'1 minute 30 seconds'` -> 90,000,000 microseconds."""
    body = text.strip()
    if body[:8].lower() == "interval":
        body = body[8:].strip()
    body = _PART_QUOTES.sub(r"\1", body)
    if not body:
        raise bad_interval(text, "it is empty")
    total, at = Decimal(0), 0
    while at < len(body):
        match = _PART.match(body, at)
        if match is None:
            raise bad_interval(text, f"cannot read {body[at:].strip()!r}")
        total += _part_us(text, match[1].replace(" ", ""), match[2])
        if abs(total) > LONGEST_US:
            raise bad_interval(text, "it is longer than 73,000 years")
        at = match.end() + len(body[match.end() :]) - len(body[match.end() :].lstrip())
    return int(total)


_PART_QUOTES = re.compile(r"'([^']*)'")


def _part_us(text: str, amount: str, word: str) -> Decimal:
    unit = unit_of(word)
    if unit is None:
        raise bad_interval(text, f"{word!r} is no unit of time")
    if unit in CALENDAR_UNITS:
        raise bad_interval(
            text, f"a {unit} has no fixed length", hint="use days: '30 days' is always the same length"
        )
    us = Decimal(amount) * UNITS[unit]
    if us != us.to_integral_value():
        raise bad_interval(text, f"{amount} {word} is finer than a microsecond")
    return us
