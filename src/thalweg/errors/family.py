"""What every error is: a primary line, a detail, a hint, and the place in the SQL underlined."""

from __future__ import annotations

from thalweg.foreign import plain_lines, redact, redact_in_place


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
        """What is shown and kept of it: values, names and what libraries say can be part of it."""
        lines = [redact(self.message)]
        if self.sql is not None and self.span is not None:
            lines += underline(self.sql, self.span)
        if self.detail:
            lines.append(f"  detail: {redact(self.detail)}")
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return plain_lines("\n".join(lines))

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


class NamingError(ThalwegError):
    """A stream or query name is unknown or taken."""


class StateError(ThalwegError):
    """The state directory is at fault: locked, of another version, corrupt or incomplete."""


class SourceError(ThalwegError):
    """A source cannot be read."""


class SinkError(ThalwegError):
    """A sink cannot be written."""


class SinkRefusedError(SinkError):
    """A sink cannot be written, and trying again would not help."""


class UsageError(ThalwegError):
    """The Python interface was called in a way it cannot serve."""


class MissingArgumentError(UsageError, TypeError):
    """A call lacks an argument. It is a `TypeError`, too, as Python's own."""


class InternalError(ThalwegError):
    """Thalweg itself is at fault."""


class PlanRefusedError(InternalError):
    """A plan that tasks could not run. The one before it stays in force."""


_WIDEST = 2_000
"""Characters of a line that an error shows."""


def underline(sql: str, span: tuple[int, int]) -> list[str]:
    """The line of `sql` that holds the span, with a caret under each of its characters."""
    start, end = span
    line_start = sql.rfind("\n", 0, start) + 1
    line_end = sql.find("\n", start)
    line_end = len(sql) if line_end < 0 else line_end
    number = sql.count("\n", 0, start) + 1
    prefix = f"  line {number}: "
    width = max(1, min(end, line_end) - start)
    if line_end - line_start > _WIDEST:  # around the place: nobody reads more
        line_start = max(line_start, start - _WIDEST // 4)
        line_end = min(line_end, line_start + _WIDEST)
        prefix += "... " if line_start > 0 else ""
        width = min(width, line_end - start)
    line = redact_in_place(sql[line_start:line_end].replace("\t", " "))
    return [prefix + line, " " * (len(prefix) + start - line_start) + "^" * width]
