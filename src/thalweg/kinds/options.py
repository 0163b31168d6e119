"""Options of a kind, from one place: a msgspec Struct whose fields say name, type, default, range and meaning.

    class ConsoleOptions(Struct, frozen=True):
        rows: Annotated[int, Meta(ge=1, description="How many rows of a batch are printed.")] = 20

From it come what SQL may write in OPTIONS, what Python may give as keywords, the checks, and the tables of the docs.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from thalweg.errors import ThalwegError

S = TypeVar("S", bound=msgspec.Struct)
Refusal = Callable[[str, str, str | None], ThalwegError]
"""(option, what is wrong with it, what to do) -> the error that names the kind as well."""


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of a kind that has none."""


@dataclass(frozen=True)
class Option:
    """One of them, as the docs show it."""

    name: str
    type: str
    default: str
    """Empty: it has to be given."""
    meaning: str


def read_options(
    struct: type[S], given: Mapping[str, object], refuse: Refusal, aliases: Mapping[str, str] | None = None
) -> S:
    """The struct with what was given: Python's values, or the texts of SQL. None means that it is not given."""
    fields = _fields(struct)
    found: dict[str, Any] = {}
    for written, value in given.items():
        name = (aliases or {}).get(written, written)
        if name not in fields:
            raise refuse(written, "is not known", _near(written, (*fields, *(aliases or ()))))
        if value is None:
            continue
        try:
            found[name] = _value(fields[name].type, value)
        except ValueError as error:
            raise refuse(written, str(error), None) from None
    for name, field in fields.items():
        if field.required and name not in found:
            raise refuse(name, "is missing", None)
    return struct(**found)


def describe_options(struct: type[msgspec.Struct]) -> list[Option]:
    return [
        Option(name, _type_text(field.type), "" if field.required else _default_text(field), _meaning(field.type))
        for name, field in _fields(struct).items()
    ]


def options_table(struct: type[msgspec.Struct]) -> str:
    """A table in Markdown; a sentence where there is nothing to put into it."""
    options = describe_options(struct)
    if not options:
        return "It has no options.\n"
    rows = [f"| `{o.name}` | {o.type} | {o.default or 'to be given'} | {o.meaning} |" for o in options]
    return "\n".join(["| option | type | default | meaning |", "|---|---|---|---|", *rows, ""])


@lru_cache(maxsize=256)
def _fields(struct: type[msgspec.Struct]) -> dict[str, inspect.Field]:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    return {field.name: field for field in info.fields}


def _near(name: str, known: tuple[str, ...]) -> str:
    if not known:
        return "It has no options."
    near = difflib.get_close_matches(name, known, n=3)
    return (f"Did you mean {' or '.join(near)}? " if near else "") + f"Known: {', '.join(dict.fromkeys(known))}."


# -- one value


def _value(kind: inspect.Type, value: object) -> Any:
    """Raises ValueError, whose text goes on after the name of the option."""
    kinds = _choices(kind)
    for one in kinds:
        reader = _READERS.get(type(one))
        if reader is not None:
            return reader(one, value)
    return value


def _choices(kind: inspect.Type) -> list[inspect.Type]:
    """What it may be, without None; the widest first, as a text of digits can be several."""
    kind = kind.type if isinstance(kind, inspect.Metadata) else kind
    parts = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    plain = [part.type if isinstance(part, inspect.Metadata) else part for part in parts]
    plain = [part for part in plain if not isinstance(part, inspect.NoneType)]
    return sorted(plain, key=lambda part: not isinstance(part, inspect.FloatType))


def _number(kind: inspect.IntType | inspect.FloatType, value: object) -> int | float:
    whole = isinstance(kind, inspect.IntType)
    wanted = f"must be a {'whole ' if whole else ''}number{_range_text(kind)}, not {value!r}"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(wanted)
    try:
        number = int(value) if whole else float(value)
    except (ValueError, OverflowError):
        raise ValueError(wanted) from None
    if (whole and isinstance(value, float) and number != value) or not _is_within(kind, number):
        raise ValueError(wanted)
    return number


def _is_within(kind: inspect.IntType | inspect.FloatType, number: int | float) -> bool:
    return (
        (kind.ge is None or number >= kind.ge)
        and (kind.gt is None or number > kind.gt)
        and (kind.le is None or number <= kind.le)
        and (kind.lt is None or number < kind.lt)
        and number == number  # NaN is in no range
    )


def _range_text(kind: inspect.IntType | inspect.FloatType) -> str:
    parts = []
    if kind.gt is not None:
        parts.append(f" above {kind.gt}")
    elif kind.ge is not None:
        parts.append(" above 0" if kind.ge == 1 and isinstance(kind, inspect.IntType) else f" of at least {kind.ge}")
    if kind.le is not None or kind.lt is not None:
        parts.append(f" up to {kind.le}" if kind.le is not None else f" below {kind.lt}")
    return ",".join(parts)


def _truth(kind: inspect.BoolType, value: object) -> bool:
    text = str(value).lower()
    if text not in ("true", "false"):
        raise ValueError(f"must be true or false, not {value!r}")
    return text == "true"


def _word(kind: inspect.LiteralType, value: object) -> Any:
    text = str(value).lower()
    for known in kind.values:
        if str(known).lower() == text:
            return known
    raise ValueError(f"must be one of {', '.join(map(str, kind.values))}, not {value!r}")


def _text(kind: inspect.StrType, value: object) -> str:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise ValueError(f"must be a text, not {value!r}")
    if kind.min_length is not None and kind.min_length == kind.max_length and len(value) != kind.min_length:
        raise ValueError(f"must be {'one character' if kind.min_length == 1 else f'{kind.min_length} characters'}")
    if len(value) < (kind.min_length or 0):
        raise ValueError("must not be empty")
    return value


_READERS: dict[type[inspect.Type], Callable[[Any, object], Any]] = {
    inspect.IntType: _number,
    inspect.FloatType: _number,
    inspect.BoolType: _truth,
    inspect.LiteralType: _word,
    inspect.StrType: _text,
}


# -- in words


def _type_text(kind: inspect.Type) -> str:
    one = _choices(kind)[0]
    match one:
        case inspect.IntType() | inspect.FloatType():
            return f"{'whole ' if isinstance(one, inspect.IntType) else ''}number{_range_text(one)}"
        case inspect.BoolType():
            return "true or false"
        case inspect.LiteralType():
            return ", ".join(f"`{value}`" for value in one.values)
        case inspect.StrType() if one.max_length == 1:
            return "one character"
        case inspect.StrType():
            return "text"
    return "value"


def _default_text(field: inspect.Field) -> str:
    value = field.default
    if value is None or value == "":
        return "none" if value is None else "empty"
    if isinstance(value, bool):
        return str(value).lower()
    return f"`{value}`" if isinstance(value, str) else f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _meaning(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.Metadata):
        described = (kind.extra_json_schema or {}).get("description")
        return str(described or _meaning(kind.type))
    if isinstance(kind, inspect.UnionType):
        return next((meaning for part in kind.types if (meaning := _meaning(part))), "")
    return ""
