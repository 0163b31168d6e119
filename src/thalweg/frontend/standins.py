"""What Spark is shown in the place of aggregates that it does not know: one of its own with the same type.

`mine(x, y)` of type double becomes `max_by(CAST(NULL AS double), struct(x, y))`. So Spark still checks the arguments,
FILTER, HAVING, what is nested where, and the type of all that is made from the result.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from thalweg.errors import SqlError
from thalweg.frontend.lex import lex
from thalweg.frontend.tree import Call


@dataclass(frozen=True)
class EditedText:
    """A text with insertions and replacements, which knows where its parts were before."""

    text: str
    places: tuple[tuple[int, int], ...]
    """(place in the text, place before) where a stretch begins that was left as it was; in order."""

    def back(self, error: SqlError) -> SqlError:
        """The same error, pointing into the text as it was before."""
        if error.span is None:
            return error
        start, end = (self._before(place) for place in (error.span[0], error.span[1] - 1))
        span = (start, max(start, end) + 1)
        return type(error)(error.message, detail=error.detail, hint=error.hint, sql=error.sql, span=span)

    def _before(self, place: int) -> int:
        i = bisect_right(self.places, place, key=lambda p: p[0]) - 1
        now, before = self.places[i]
        following = self.places[i + 1][1] if i + 1 < len(self.places) else None
        found = before + place - now
        # Within what was put in, the nearest place that was there is the end of the stretch before.
        return found if following is None else min(found, following - 1)


def stand_in(text: str, calls: Iterable[tuple[Call, str]], windows: Iterable[Call] = ()) -> EditedText:
    """The text with stand-ins for calls of aggregates, each with the type that it gives, and of windows."""
    edits = {window.span: window.shown for window in windows}
    for call, type_ in calls:
        opening, closing = _brackets(text, call)
        edits[call.span[0], opening + 1] = f"max_by(CAST(NULL AS {type_}), struct("
        edits[closing, closing] = ")"
    out, places, at = "", [(0, 0)], 0
    for (start, end), put_in in sorted(edits.items()):
        out += text[at:start] + put_in
        places.append((len(out), end))
        at = end
    return EditedText(out + text[at:], tuple(places))


def _brackets(text: str, call: Call) -> tuple[int, int]:
    """Where the arguments of a call begin and end."""
    start, end = call.span
    depth, opening = 0, -1
    for token in lex(text[start:end]):
        if token.text == "(" and token.kind == "op":
            opening = token.start if opening < 0 else opening
            depth += 1
        elif token.text == ")" and token.kind == "op":
            depth -= 1
            if depth == 0:
                return start + opening, start + token.start
    raise AssertionError(f"not a call: {text[start:end]}")
