"""Curves for the page: a figure over the number of queries, both axes logarithmic, as SVG without a library."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from benchmarks.quantities import quantity
from benchmarks.result import Result

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 80, 270, 24, 48
COLOURS = ("#0b6e99", "#c4500c", "#5b8c2a", "#7a4fa3", "#b03060")
STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#57606a}.grid{stroke:#8b949e;stroke-opacity:.25}"
    ".curve{fill:none;stroke-width:2}"
)

Points = Sequence[tuple[float, float]]
SYSTEMS = {"thalweg": "Thalweg", "thalweg-unshared": "Thalweg, sharing off", "spark": "plain Spark"}
WORKS = (
    (re.compile(r"many/(\d+)/large"), "aggregations"),
    (re.compile(r"many/(\d+)"), "aggregations, small batches"),
    (re.compile(r"ajoin-(\d+)@.*"), "joins"),
)
"""What the name of a workload says: how many queries, of which kind."""


def rates(result: Result) -> dict[str, list[tuple[float, float]]]:
    """Of whom -> (number of queries, rows per second), for all that a result measured in rows per second."""
    found: dict[str, dict[float, float]] = {}
    for line in (line for line in result.lines if line.unit == "rows/s"):
        for one in (side for side in (line.ours, line.theirs) if side is not None):
            for pattern, kind in WORKS:
                if match := pattern.fullmatch(one.work):
                    found.setdefault(f"{SYSTEMS[one.system]}: {kind}", {})[float(match[1])] = one.median
                    break
    return {name: sorted(points.items()) for name, points in found.items()}


@dataclass(frozen=True)
class Axis:
    """Values between two ends, as pixels."""

    low: float
    high: float
    first: float
    last: float

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.first + share * (self.last - self.first)


def draw(title: str, curves: Mapping[str, Points], unit: str) -> str:
    """Name -> (number of queries, figure)."""
    xs = sorted({x for points in curves.values() for x, _ in points})
    ys = [y for points in curves.values() for _, y in points]
    low, high = 10 ** math.floor(math.log10(min(ys))), 10 ** math.ceil(math.log10(max(ys)))
    across = Axis(xs[0], max(xs[-1], xs[0] * 2), LEFT, WIDTH - RIGHT)
    up = Axis(low, high if high > low else low * 10, HEIGHT - BOTTOM, TOP)
    parts = [*_grid(xs, across, up, unit), *_curves(curves, across, up)]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">'
    return "\n".join([head, f"<title>{escape(title)}</title><style>{STYLE}</style>", *parts, "</svg>"]) + "\n"


def _grid(xs: Sequence[float], across: Axis, up: Axis, unit: str) -> Iterator[str]:
    for x in xs:
        at = across.at(x)
        yield f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        yield f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:,.0f}</text>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield f'<text x="{middle}" y="{HEIGHT - 8}" text-anchor="middle">queries</text>'
    for power in range(round(math.log10(up.low)), round(math.log10(up.high)) + 1):
        at = up.at(10.0**power)
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
        yield f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{escape(quantity(10.0**power, unit))}</text>'


def _curves(curves: Mapping[str, Points], across: Axis, up: Axis) -> Iterator[str]:
    for (name, points), colour in zip(curves.items(), COLOURS, strict=False):
        places = [(across.at(x), up.at(y)) for x, y in sorted(points)]
        if len(places) > 1:
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            yield f'<polyline class="curve" stroke="{colour}" points="{line}"/>'
        for x, y in places:
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
        x, y = places[-1]
        yield f'<text x="{x + 10:.1f}" y="{y + 4:.1f}" style="fill:{colour}">{escape(name)}</text>'
