"""What happens, one line an event, through Python's `logging`: `event key=value ...`, below the logger `thalweg`.

Nothing is printed unless a program asks for it (docs/operating.md says how), or somebody by `thalweg run -v`.
A value that could be taken for something else than one word is quoted, so a line stays one line.

    thalweg.session    a session comes and goes, queries are created and dropped
    thalweg.pipeline   batches begin to run, end, fail; what is repeated after a death
    thalweg.batch      every batch (DEBUG), a query that fails, another plan
    thalweg.adapt      an adaptation that failed, in what
    thalweg.source     input that cannot be seen, or is set aside
    thalweg.delivery   sinks that fail, queries that are paused or resumed
"""

from __future__ import annotations

import logging
import re

from thalweg.foreign import said_by

_WORD = re.compile(r"[^\s\"=\\\x00-\x1f\x7f-\x9f]+")
_MOST_CHARACTERS = 1000


def debug(part: str, event: str, **facts: object) -> None:
    _tell(part, logging.DEBUG, event, facts)


def info(part: str, event: str, **facts: object) -> None:
    _tell(part, logging.INFO, event, facts)


def warning(part: str, event: str, **facts: object) -> None:
    """Something was lost, or goes on worse than it could."""
    _tell(part, logging.WARNING, event, facts)


def error(part: str, event: str, **facts: object) -> None:
    """Something has stopped, and somebody has to see to it."""
    _tell(part, logging.ERROR, event, facts)


def _tell(part: str, level: int, event: str, facts: dict[str, object]) -> None:
    logger = logging.getLogger(f"thalweg.{part}")
    if logger.isEnabledFor(level):
        logger.log(level, "%s", line(event, facts))


def line(event: str, facts: dict[str, object]) -> str:
    """Facts that are None are left out."""
    return " ".join([event, *(f"{name}={_value(fact)}" for name, fact in facts.items() if fact is not None)])


def _value(fact: object) -> str:
    if isinstance(fact, float):
        return f"{fact:.3f}"
    if isinstance(fact, BaseException):
        fact = said_by(fact)
    elif isinstance(fact, (list, tuple, set, frozenset)):
        fact = ",".join(sorted(map(str, fact)))
    text = str(fact)
    if len(text) > _MOST_CHARACTERS:
        text = text[: _MOST_CHARACTERS - 3] + "..."
    return text if _WORD.fullmatch(text) else _quoted(text)


def _quoted(text: str) -> str:
    escaped = text.encode("unicode_escape").decode().replace('"', '\\"')
    return f'"{escaped}"'
