"""The plots of the report: one series, one SVG, readable on a light page and on a dark one.

Curves over numbers are lines with their names at their ends; curves over names are dots, a row for each name. Colours
of curves are legible on both backgrounds; what is ink changes with the reader's colour scheme, by a style inside the
file. The bytes depend on the series alone (and on matplotlib's release): no dates, no random ids, text stays text.
Every file carries a digest of its series, so that one can tell without drawing whether it is out of date.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from benchmarks.quantities import compact
from benchmarks.report_page import digest
from benchmarks.result import Series

INK, FAINT, RULE = "#1f2328", "#656d76", "#d1d9e0"
DARK = {INK: "#f0f6fc", FAINT: "#9198a1", RULE: "#30363d"}
"""Ink on a light page -> on a dark one."""
OURS, ORANGE, GREEN, PINK, GREY = "#1f7ae0", "#c96a10", "#15915f", "#c94f8f", "#7d8590"
COLOURS = (ORANGE, GREEN, PINK, "#8f6bd9", "#0f8f9c", "#a68209", "#d0524a", GREY)
"""Of curves that are not known."""
KNOWN = {
    "thalweg": OURS, "optimised": OURS, "chosen": OURS, "together": OURS, "dalton": OURS,
    "plain spark": ORANGE, "spark": ORANGE, "n queries of structured": ORANGE, "structured": ORANGE,
    "flink": PINK,
    "duckdb": GREEN,
    "hashed": GREY, "hash": GREY, "by hash": GREY, "apart": GREY, "fld": GREY,
}  # fmt: skip
"""The beginning of a curve's name -> its colour in every plot: ours, the peers, and what comes with doing nothing."""
WIDTH, HEIGHT, ROW = 8.0, 3.8, 0.34
"""Inches; `ROW` of each name in a plot of dots."""
MANY_POINTS = 16
"""From there on a line has no dots."""
LINE_HEIGHT = 11.5
"""Points between two names at the right."""
TICKS = 12
_FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
_SHORTER = (
    (r" font-family: [^;\"]*;", ""),
    (r" transform=\"rotate\(-0 [^\"]*\"", ""),
    (r"(\.\d\d)\d+", r"\1"),
    (r" *\n *", "\n"),
)
"""Of what matplotlib writes: fonts are said once, hundredths of a point are enough."""
_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans", "font.size": 9, "text.parse_math": False,
    "svg.fonttype": "none", "svg.hashsalt": "thalweg",
    "text.color": INK, "axes.labelcolor": FAINT, "xtick.color": FAINT, "ytick.color": FAINT,
    "axes.edgecolor": RULE, "axes.spines.top": False, "axes.spines.right": False, "axes.spines.left": False,
    "axes.grid": True, "grid.color": RULE, "grid.linewidth": 0.6, "axes.axisbelow": True,
    "xtick.major.size": 0, "ytick.major.size": 0, "xtick.minor.size": 0, "ytick.minor.size": 0,
    "axes.titlesize": 11.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "lines.solid_capstyle": "round",
}  # fmt: skip


def drawn(series: Series) -> str:
    """As SVG."""
    with mpl.rc_context(_STYLE):
        figure = draw(series)
        written = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        form = {"format": "svg", "bbox_inches": "tight", "pad_inches": 0.08}
        figure.savefig(written, transparent=True, metadata=nothing, **form)
    return _finished(written.getvalue(), series)


def _finished(svg: str, series: Series) -> str:
    """With the reader's own fonts, colours that follow the page, and the digest."""
    svg = svg[svg.index("<svg ") :]
    for found, wanted in _SHORTER:
        svg = re.sub(found, wanted, svg)
    dark = "".join(
        f'[style*="fill: {light}"]{{fill:{ink}!important}}[style*="stroke: {light}"]{{stroke:{ink}!important}}'
        for light, ink in DARK.items()
    )
    style = f"<style>text{{font-family:{_FONT}}}@media (prefers-color-scheme: dark){{{dark}}}</style>"
    head, rest = svg.split(">", 1)
    return f"{head}>\n<!-- {digest(series)} -->\n<title>{_escaped(series.title)}</title>\n{style}{rest}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def draw(series: Series) -> Figure:
    named = any(isinstance(x, str) for curve in series.curves.values() for x, _ in curve)
    figure = _draw_dots(series) if named else _draw_lines(series)
    FigureCanvasSVG(figure)
    return figure


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """A colour for each curve: what is known has its own, the others what is left."""
    names = list(names)
    found: dict[str, str] = {}
    for name in names:
        known = [colour for start, colour in KNOWN.items() if name.lower().startswith(start)]
        if known and known[0] not in found.values():
            found[name] = known[0]
    left = [colour for colour in COLOURS if colour not in found.values()]
    others = [name for name in names if name not in found]
    found |= {name: (left or COLOURS)[i % len(left or COLOURS)] for i, name in enumerate(others)}
    return {name: found[name] for name in names}


# --- curves over numbers --------------------------------------------------------------------------------


def _draw_lines(series: Series) -> Figure:
    figure, axes = _sheet(HEIGHT)
    colours = colours_of(series.curves)
    for name, curve in series.curves.items():
        xs, ys = zip(*sorted(curve), strict=True)
        ours = colours[name] == OURS
        marker = "" if len(xs) > MANY_POINTS else "o"
        width, order = (2.4, 3) if ours else (1.6, 2)
        axes.plot(xs, ys, color=colours[name], marker=marker, markersize=4.5, linewidth=width, zorder=order)
    _scale_x(axes, sorted({float(x) for curve in series.curves.values() for x, _ in curve}))
    _scale_y(axes, series)
    axes.grid(axis="x", visible=False)
    axes.set_xlabel(series.x)
    _head(axes, series, f"{series.y}{', logarithmic' if series.log else ''}")
    _name_lines(axes, series, colours)
    return figure


def _sheet(height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, height))
    return figure, figure.add_axes((0.07, 0.6 / height, 0.71, 1 - 1.35 / height))


def _head(axes: Axes, series: Series, below: str) -> None:
    axes.set_title(series.title, pad=26)
    axes.annotate(below, (0, 1), (0, 10), xycoords="axes fraction", textcoords="offset points", color=FAINT)


def _scale_x(axes: Axes, xs: Sequence[float]) -> None:
    """Ticks where something was measured; logarithmic where the values are so."""
    if xs[0] > 0 and xs[-1] / xs[0] >= 16 and len(xs) <= TICKS:
        axes.set_xscale("log")
    if len(xs) <= TICKS:
        axes.xaxis.set_major_locator(ticker.FixedLocator(_apart(axes, xs)))
    else:
        axes.xaxis.set_major_locator(ticker.MaxNLocator(8, integer=all(x == int(x) for x in xs), steps=[1, 2, 5, 10]))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(_tick)
    axes.margins(x=0.02)


def _tick(value: float, _: float) -> str:
    return re.sub(r"\.?0+(?=[kMG]?$)", "", compact(value)) if "." in compact(value) else compact(value)


def _apart(axes: Axes, xs: Sequence[float]) -> list[float]:
    """Those whose labels do not touch the one before."""
    place = math.log if axes.get_xscale() == "log" else float
    span = place(xs[-1]) - place(xs[0]) or 1.0
    found = [xs[0]]
    for x in xs[1:]:
        if (place(x) - place(found[-1])) / span > 0.05:
            found.append(x)
    return found


def _scale_y(axes: Axes, series: Series) -> None:
    ys = [y for curve in series.curves.values() for _, y in curve]
    if series.log and min(ys) > 0:
        axes.set_yscale("log")
        low, high = math.log10(min(ys)), math.log10(max(ys))
        axes.set_ylim(10 ** (low - 0.06 * (high - low) - 0.05), 10 ** (high + 0.06 * (high - low) + 0.05))
        subs = (1,) if high - low > 2 else (1, 2, 5) if high - low > 0.5 else (1, 1.5, 2, 3, 4, 5, 7)
        axes.yaxis.set_major_locator(ticker.LogLocator(subs=subs))
    else:
        axes.set_ylim(min(0.0, min(ys) * 1.08), max(0.0, max(ys)) * 1.08 or 1.0)
        axes.yaxis.set_major_locator(ticker.MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.yaxis.set_major_formatter(_tick)


def _name_lines(axes: Axes, series: Series, colours: dict[str, str]) -> None:
    """At the right end of each line its name and last value, moved apart where they would lie on each other."""
    ends = {name: max(curve) for name, curve in series.curves.items()}
    right = max(x for x, _ in ends.values())
    scale = 72 / axes.figure.dpi
    points = {name: axes.transData.transform(end) * scale for name, end in ends.items()}
    places = spread({name: float(point[1]) for name, point in points.items()}, LINE_HEIGHT)
    edge = max(float(point[0]) for point in points.values())
    for name, (x, y) in ends.items():
        by = places[name] - float(points[name][1])
        over = edge - float(points[name][0]) + 9
        # A name far from its line, or beyond others, is tied to it.
        tied = abs(by) > 1.6 * LINE_HEIGHT or x != right
        tie = {"arrowstyle": "-", "color": colours[name], "linestyle": ":", "linewidth": 0.8, "shrinkB": 4}
        axes.annotate(
            f"{name}  {compact(y)}",
            (x, y),
            (over, by),
            textcoords="offset points",
            color=colours[name],
            va="center",
            fontweight="bold" if colours[name] == OURS else "normal",
            arrowprops=tie if tied else None,
            annotation_clip=False,
        )


def spread(places: dict[str, float], least: float) -> dict[str, float]:
    """The nearest places that are `least` apart: neighbours that touch are moved as one block around their middle."""
    blocks: list[tuple[list[str], float]] = []
    for name in sorted(places, key=places.__getitem__):
        blocks.append(([name], places[name]))
        while len(blocks) > 1 and _top(blocks[-2], least) + least > _bottom(blocks[-1], least):
            (lower, _), (upper, _) = blocks[-2:]
            names = lower + upper
            # The middle that moves the names least, in squares: each wants the block where it would lie itself.
            wanted = [places[one] - (i - (len(names) - 1) / 2) * least for i, one in enumerate(names)]
            blocks[-2:] = [(names, sum(wanted) / len(wanted))]
    return {name: _bottom((names, y), least) + i * least for names, y in blocks for i, name in enumerate(names)}


def _bottom(block: tuple[list[str], float], least: float) -> float:
    return block[1] - (len(block[0]) - 1) * least / 2


def _top(block: tuple[list[str], float], least: float) -> float:
    return block[1] + (len(block[0]) - 1) * least / 2


# --- curves over names ----------------------------------------------------------------------------------


def _draw_dots(series: Series) -> Figure:
    """A row for each name, from the top; a thin line from its least value to its greatest."""
    rows = list(dict.fromkeys(str(x) for curve in series.curves.values() for x, _ in curve))
    figure, axes = _sheet(1.45 + ROW * len(rows))
    colours = colours_of(series.curves)
    values: dict[str, dict[str, float]] = {row: {} for row in rows}
    for name, curve in series.curves.items():
        for x, y in curve:
            values[str(x)][name] = y
    for at, row in enumerate(rows):
        lies = values[row].values()
        axes.plot([min(lies), max(lies)], [at, at], color=RULE, linewidth=3, zorder=2, solid_capstyle="round")
        for name, y in values[row].items():
            axes.plot([y], [at], "o", color=colours[name], markersize=7 if len(colours) < 4 else 6, zorder=3)
        _write_ends(axes, at, values[row], colours)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_yticks(range(len(rows)), rows, color=INK)
    axes.grid(axis="y", visible=False)
    _scale_dots(axes, series)
    axes.set_xlabel(f"{series.y}{', logarithmic' if series.log else ''}")
    _head(axes, series, "")
    for name, colour in colours.items():
        axes.plot([], [], "o", color=colour, label=name, markersize=6)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=len(colours), frameon=False, labelcolor="linecolor",
        handletextpad=0.1, columnspacing=1.2, borderaxespad=0.2, borderpad=0.2, handlelength=1.4,
    )  # fmt: skip
    return figure


def _write_ends(axes: Axes, at: int, values: dict[str, float], colours: dict[str, str]) -> None:
    """The least value to the left of its dot, the greatest to the right; one where they are the same."""
    least, most = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    ends = [(most, 8, "left")] + ([(least, -8, "right")] if compact(values[least]) != compact(values[most]) else [])
    for name, by, side in ends:
        axes.annotate(
            compact(values[name]), (values[name], at), (by, 0), textcoords="offset points",
            color=colours[name], ha=side, va="center", fontsize=8,
        )  # fmt: skip


def _scale_dots(axes: Axes, series: Series) -> None:
    ys = [y for curve in series.curves.values() for _, y in curve]
    if series.log and min(ys) > 0:
        axes.set_xscale("log")
        by = (max(ys) / min(ys)) ** 0.1 * 1.1
        axes.set_xlim(min(ys) / by, max(ys) * by)
    else:
        most = max(0.0, max(ys)) or 1.0
        # Room for what is written to the left of a dot near zero.
        axes.set_xlim(min(-0.06 * most if min(ys) < 0.08 * most else 0.0, min(ys) * 1.15), most * 1.1)
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.xaxis.set_major_formatter(_tick)
