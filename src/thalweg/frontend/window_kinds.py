"""What SQL calls windows: `window(time, range[, slide[, start]])`, and names from outside for others of fixed length.

A new kind is one file with a `WindowKind`, and one line below. From outside it is `thalweg.register_window`, or an
entry point of the group "thalweg.windows". All windows are of fixed length and aligned: a kind says how they are
spelled. So state, planning and finishing know one `Window`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

from thalweg.errors import SqlError, ThalwegError, bad_window
from thalweg.frontend.intervals import parse_interval
from thalweg.frontend.tree import Call, Literal, Node
from thalweg.kinds.registry import Registry
from thalweg.model.window import Window

KINDS = {
    "window": "thalweg.frontend.window_kinds:WINDOW",
}


class WindowKind(ABC):
    """How a window is spelled: a name, a time, and lengths such as '1 minute'."""

    name: ClassVar[str]
    lengths: ClassVar[tuple[int, int]]
    """How many lengths come after the time: the least and the most."""
    form: ClassVar[str]
    """What they are, for those who get it wrong: "window takes a time, a range, a slide and a start"."""

    @abstractmethod
    def window(self, *lengths_us: int) -> Window:
        """The window that lengths of microseconds mean. Raises ValueError where they mean none."""


class Sliding(WindowKind):
    name = "window"
    lengths = (1, 3)
    form = "window takes a time, a range, a slide and a start"

    def window(self, *lengths_us: int) -> Window:
        length, *rest = lengths_us
        return Window(length, rest[0] if rest else length, *rest[1:])


WINDOW = Sliding()


def _unknown(name: str, known: tuple[str, ...], near: list[str]) -> ThalwegError:
    return bad_window(f"there is no window {name!r}", name, (0, len(name)))


WINDOWS: Registry[WindowKind] = Registry("window", WindowKind, KINDS, _unknown)


def spell_out(call: Call, text: str) -> Call:
    """A call of a kind from outside as the window() that it means: everybody else, Spark too, sees that one."""
    kind = WINDOWS.find(call.name) if call.name not in KINDS and not call.distinct else None
    if kind is None:
        return call
    time, *given = call.args or (call,)
    window = window_of(kind, given, text, call)
    arguments = window.arguments()
    spelled = (time, *(Literal(call.span, argument, "string") for argument in arguments))
    lengths = ", ".join(f"'{argument}'" for argument in arguments)
    shown = f"{WINDOW.name}({text[slice(*time.span)]}, {lengths})"
    return replace(call, name=WINDOW.name, args=spelled, shown=shown)


def window_of(kind: WindowKind, given: list[Node], text: str, call: Call) -> Window:
    least, most = kind.lengths
    if not least <= len(given) <= most:
        raise bad_window(kind.form, text, call.span)
    lengths = [_length(node, text) for node in given]
    try:
        return kind.window(*lengths)
    except ValueError as error:
        raise bad_window(str(error), text, call.span) from None


def _length(node: Node, text: str) -> int:
    if not isinstance(node, Literal) or node.type != "string":
        raise bad_window("write the length as a string, such as '1 minute'", text, node.span)
    try:
        return parse_interval(str(node.value))
    except SqlError as reason:
        raise bad_window(f"{reason.message}: {reason.detail}", text, node.span, reason.hint) from None
