"""What went wrong, found again in the text that Spark makes of it."""

from __future__ import annotations

import re

from thalweg.errors import SourceError
from thalweg.foreign import redact

_HEADER = "Traceback (most recent call last):"
_JAVA = re.compile(r"^(?:Caused by|): (?:[\w.$]+): (\S.*)$", re.MULTILINE)
_NESTED = re.compile(r"^.*[\w.$]+(?:Exception|Error): (?=\S)")
_CLASS = re.compile(r"\[[A-Z0-9_.]+\] ")
_ADVICE = re.compile(r"\.? Consider setting .*$")
_RAISED = re.compile(r"thalweg\.errors\.SourceError: (.*?)(?:\n\s*\n|\n\tat |\nTraceback|\Z)", re.DOTALL)
_LATE = re.compile(r"Python worker (?:failed )?to connect back")
_MOST_LINES, _MOST_CHARACTERS = 4, 600


def root_cause(error: BaseException) -> str:
    """The last exception of the Python traceback that Spark tells of, else the innermost of Java's, in one line."""
    text = str(error)
    found = _last_of_python(text) or _innermost_of_java(text)
    if not found:
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        kind = type(error).__name__
        found = first if _is_sparks(text) else f"{kind}: {first}" if first else kind
        found = "; ".join([found, *getattr(error, "__notes__", ())])
    found = redact(found[: 8 * _MOST_CHARACTERS])
    return found if len(found) <= _MOST_CHARACTERS else found[: _MOST_CHARACTERS - 3] + "..."


def _last_of_python(text: str) -> str:
    if _HEADER not in text:
        return ""
    lines = text.rpartition(_HEADER)[2].splitlines()[1:]
    while lines and (lines[0].startswith(" ") or not lines[0].strip()):
        del lines[0]  # frames
    said: list[str] = []
    for line in lines[:_MOST_LINES]:
        if not line.strip() or line.startswith(("\tat ", "JVM stacktrace", "Caused by: ")):
            break
        said.append(" ".join(line.split()))
    return "; ".join(said)


def _innermost_of_java(text: str) -> str:
    messages = _JAVA.findall(text)
    return _ADVICE.sub("", _NESTED.sub("", messages[-1])).strip() if messages else ""


def _is_sparks(text: str) -> bool:
    """Whether the text names its error itself."""
    return _CLASS.match(text) is not None or text.startswith("An error occurred while calling")


def is_late_worker(error: BaseException) -> bool:
    """Whether Spark has given up waiting for a Python worker to start: the machine is busy."""
    return _LATE.search(str(error)) is not None


def source_error_in(text: str) -> SourceError | None:
    """The error that was raised where a streaming DataFrame is landed, found again in what Spark makes of it."""
    match = _RAISED.search(text)
    if match is None:
        return None
    lines = match[1].strip().splitlines()
    marked = {"detail": None, "hint": None} | {
        key: line.strip().removeprefix(f"{key}: ")
        for line in lines[1:]
        for key in ("detail", "hint")
        if line.strip().startswith(f"{key}: ")
    }
    return SourceError(lines[0], detail=marked["detail"], hint=marked["hint"])
