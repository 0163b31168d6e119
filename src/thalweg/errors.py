"""The one family of errors: a primary line, a detail, a hint, and the place in the SQL underlined.

Every error a user can cause is raised through a named constructor below, so that the wording of the whole
system can be read in one place.
"""

from __future__ import annotations


class ThalwegError(Exception):
    """What happened, where in the SQL, and what to do about it."""

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        sql: str | None = None,
        span: tuple[int, int] | None = None,
    ) -> None:
        """`span` is the half-open range of characters of `sql` that the message is about."""
        self.message = message
        self.detail = detail
        self.hint = hint
        self.sql = sql
        self.span = span
        super().__init__(self._render())

    def _render(self) -> str:
        lines = [self.message]
        if self.sql is not None and self.span is not None:
            lines += underline(self.sql, self.span)
        if self.detail:
            lines.append(f"  detail: {self.detail}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.detail, self.hint, self.sql, self.span))


def _rebuild(
    kind: type[ThalwegError],
    message: str,
    detail: str | None,
    hint: str | None,
    sql: str | None,
    span: tuple[int, int] | None,
) -> ThalwegError:
    return kind(message, detail=detail, hint=hint, sql=sql, span=span)


class SqlError(ThalwegError):
    """The text of a statement is at fault."""


class NameError_(ThalwegError):
    """A stream or query name is unknown or taken."""


class StateError(ThalwegError):
    """The state directory is at fault: locked, of another version, corrupt or incomplete."""


class SourceError(ThalwegError):
    """A source cannot be read."""


class SinkError(ThalwegError):
    """A sink cannot be written."""


class UsageError(ThalwegError):
    """The Python interface was called in a way it cannot serve."""


def underline(sql: str, span: tuple[int, int]) -> list[str]:
    """The line of `sql` that holds the span, with a caret under each of its characters."""
    start, end = span
    line_start = sql.rfind("\n", 0, start) + 1
    line_end = sql.find("\n", start)
    line_end = len(sql) if line_end < 0 else line_end
    number = sql.count("\n", 0, start) + 1
    prefix = f"  line {number}: "
    line = sql[line_start:line_end].replace("\t", " ")
    width = max(1, min(end, line_end) - start)
    return [prefix + line, " " * (len(prefix) + start - line_start) + "^" * width]
