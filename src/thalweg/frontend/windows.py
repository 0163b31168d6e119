"""window(time, range[, slide[, start]]) -> the model's window."""

from __future__ import annotations

from thalweg.errors import bad_window
from thalweg.frontend.scope import Scope
from thalweg.frontend.tree import Call
from thalweg.frontend.window_kinds import WINDOW, window_of
from thalweg.model.expr import quote
from thalweg.model.window import Window

MOST_WINDOWS = 10_000
"""Windows that one row may be in: Spark's analyser writes out an expression for each of them."""


def read_window(node: Call, scope: Scope) -> tuple[Window, str]:
    """The window a call means and the event time it is over: nothing else can have one."""
    text, args = scope.text, node.args
    if not args or node.distinct or node.filter is not None:
        raise bad_window(WINDOW.form, text, node.span)
    found = scope.compiler.compile(args[0]).sql
    time = next((column for column in scope.times if quote(column) == found), None)
    if time is None and len(args) > 1:
        hint = " or ".join(f"window({entry.time}, ...)" for entry in scope.times.values())
        raise bad_window("a window is over the stream's event time", text, args[0].span, f"write {hint}")
    window = window_of(WINDOW, list(args[1:]), text, node)
    wrong = window.what_is_wrong(MOST_WINDOWS)
    if wrong is not None or time is None:
        place, message, hint_ = wrong or (0, WINDOW.form, None)
        raise bad_window(message, text, args[min(place, len(args) - 1)].span, hint_)
    return window, time
