"""Figures as a reader wants them: three digits that count, and a unit."""

from __future__ import annotations

_STEPS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))
_SIGN = "−"


def compact(value: float) -> str:
    """Three digits that count: 1.78M, 17.8k, 178, 1.78, 0.0178."""
    if value < 0:
        return _SIGN + compact(-value)
    for size, letter in _STEPS:
        # 999,600 is 1.00M: what rounds up to the next step is written in it.
        if value >= 0.9995 * size and (size > 1e3 or value >= 9_999.5):
            return _digits(value / size) + letter
    return f"{value:,.0f}" if value >= 999.5 else _digits(value)


def _digits(value: float) -> str:
    if value == 0:
        return "0"
    if value >= 99.95:
        return f"{value:.0f}"
    if value >= 9.995:
        return f"{value:.1f}".removesuffix(".0")
    if value >= 0.0995:
        return f"{value:.2f}".removesuffix(".00")
    return f"{value:.2g}"


def quantity(value: float, unit: str = "") -> str:
    """With its unit; short times in milliseconds, much memory in GiB, less than a hundredth of a percent as none."""
    if unit == "s" and 0 < value < 0.0995:
        value, unit = value * 1e3, "ms"
    if unit == "MiB" and value >= 999.5:
        value, unit = value / 1024, "GiB"
    if unit == "%" and abs(value) < 0.005:
        value = 0
    return f"{compact(value)}x" if unit == "x" else f"{compact(value)} {unit}".rstrip()


def span(low: float, high: float, unit: str = "") -> str:
    """From one to another; a unit that both have is said once."""
    first, last = quantity(low, unit), quantity(high, unit)
    value, _, said = first.partition(" ")
    return f"{value} to {last}" if said == last.partition(" ")[2] else f"{first} to {last}"


def times(ratio: float) -> str:
    """One figure as a multiple of another."""
    return f"{ratio:.0f}x" if ratio >= 99.5 else f"{ratio:.1f}x" if ratio >= 9.95 else f"{ratio:.2f}x"


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"
