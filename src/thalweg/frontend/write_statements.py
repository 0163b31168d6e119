"""Values -> the text of the statements that make them: what SHOW CREATE shows, without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping

from thalweg.foreign import is_secret, redact
from thalweg.frontend.lex import lex
from thalweg.model.stream import Field, Schema, Stream

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNITS = (
    ("DAY", 86_400_000_000),
    ("HOUR", 3_600_000_000),
    ("MINUTE", 60_000_000),
    ("SECOND", 1_000_000),
    ("MILLISECOND", 1_000),
    ("MICROSECOND", 1),
)
Options = Mapping[str, object]


def write_stream(stream: Stream, source: Options, limits: Options) -> str:
    """`source`: options of its source, `limits`: its own."""
    time = _name(stream.time)
    behind = f"{time} - INTERVAL {write_span(stream.delay_us)}" if stream.delay_us else time
    columns = [*map(_column, stream.schema.fields), f"WATERMARK FOR {time} AS {behind}"]
    text = f"CREATE STREAM {stream.name} (\n    " + ",\n    ".join(columns) + "\n)"
    return f"{text} WITH {_options({'source': stream.source.kind, **source})}{_clause('OPTIONS', limits)};"


def write_table(name: str, schema: Schema, options: Options) -> str:
    columns = ",\n    ".join(map(_column, schema.fields))
    return f"CREATE TABLE {name} (\n    {columns}\n) WITH {_options(options)};"


def write_query(name: str, select: str, sink: str | None, options: Options, emit: str) -> str:
    """`sink`: None for one whose results the state keeps."""
    into = f" INTO {sink}" if sink is not None else ""
    last = f"\nEMIT {emit.upper()}" if emit != "final" else ""
    # On lines of their own: a SELECT may end in a comment.
    return f"CREATE QUERY {name}{into}{_clause('OPTIONS', options)} AS\n{_unended(select)}{last}\n;"


def _unended(select: str) -> str:
    """Without the `;` that a SELECT alone may end in, and the comments after it."""
    end = next((token.start for token in lex(select) if token.text == ";"), len(select))
    return select[:end]


def write_span(us: int) -> str:
    """A length of time in the largest unit that divides it."""
    name, size = next(unit for unit in _UNITS if us % unit[1] == 0)
    count = us // size
    return f"{count} {name}" if count == 1 else f"{count} {name}S"


def _column(field: Field) -> str:
    return f"{_name(field.name)} {field.type.upper()}"


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _clause(word: str, options: Options) -> str:
    return f" {word} {_options(options)}" if options else ""


def _options(options: Options) -> str:
    return "(" + ", ".join(f"{_name(name)} = {_value(name, value)}" for name, value in options.items()) + ")"


def _value(name: str, value: object) -> str:
    if is_secret(name):
        return "'***'"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    text = redact(str(value))
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
