"""window(time, range[, slide[, start]]) -> the model's window."""

from __future__ import annotations

from thalweg.errors import SqlError, bad_window
from thalweg.frontend.intervals import parse_interval
from thalweg.frontend.scope import Scope
from thalweg.frontend.tree import Call, Literal, Node
from thalweg.model.expr import quote
from thalweg.model.window import Window

MOST_WINDOWS = 10_000
"""Windows that one row may be in: Spark's analyser writes out an expression for each of them."""


def read_window(node: Call, scope: Scope) -> tuple[Window, str]:
    """The window a call means and the event time it is over: nothing else can have one."""
    text, args = scope.text, node.args
    if not 2 <= len(args) <= 4 or node.distinct or node.filter is not None:
        raise bad_window("window takes a time, a range, a slide and a start", text, node.span)
    found = scope.compiler.compile(args[0]).sql
    time = next((column for column in scope.times if quote(column) == found), None)
    if time is None:
        hint = " or ".join(f"window({entry.time}, ...)" for entry in scope.times.values())
        raise bad_window("a window is over the stream's event time", text, args[0].span, f"write {hint}")
    length = _length(args[1], text)
    slide = _length(args[2], text) if len(args) > 2 else length
    start = _length(args[3], text) if len(args) > 3 else 0
    if length <= 0:
        raise bad_window("the range of a window is longer than nothing", text, args[1].span)
    if slide <= 0:
        raise bad_window("the slide of a window is longer than nothing", text, args[2].span)
    if slide > length:
        raise bad_window("the slide of a window is at most its range", text, args[2].span)
    window = Window(length, slide, start)
    if (windows := window.windows_per_row) > MOST_WINDOWS:
        message = f"every row would be in {windows:,} windows, which is more than {MOST_WINDOWS:,}"
        raise bad_window(message, text, args[2].span, "make the slide longer")
    if abs(start) >= slide:
        raise bad_window("the start of a window is less than its slide", text, args[3].span)
    return window, time


def _length(node: Node, text: str) -> int:
    if not isinstance(node, Literal) or node.type != "string":
        raise bad_window("write the length as a string, such as '1 minute'", text, node.span)
    try:
        return parse_interval(str(node.value))
    except SqlError as reason:
        raise bad_window(f"{reason.message}: {reason.detail}", text, node.span, reason.hint) from None
