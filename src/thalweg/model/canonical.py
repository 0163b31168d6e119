"""Values as text that no renaming can change: what ids are made of.

State is kept under ids, so the same content must have the same id for as long as there is state. A class has a place
in ids by the form that it declares, not by its name or the names of its fields:

    @canonical("Expr(sql, type, columns, fails)")
    @dataclass(frozen=True)
    class Expr: ...

A form never changes. A class that is renamed keeps it. So does one with a renamed field, whose label stays where it
was: `type=spark_type`. A field that comes later is marked: `unit?` is not written while it has its default, so what
was named before it keeps its id.

The text is what `repr` gave when ids were made with it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, TypeVar

from thalweg import errors

T = TypeVar("T")
Writer = Callable[[Any], str]

FORMS: dict[type, str] = {}
"""What has been declared."""

_FORM = re.compile(r"(\w+)\((.*)\)")
_PART = re.compile(r"(\w+)(?:=(\w+))?(\?)?")


def named(prefix: str, *content: object) -> str:
    """A short name made from what the thing is."""
    digest = hashlib.blake2b(_write_tuple(content).encode(), digest_size=6).hexdigest()
    return f"{prefix}_{digest}"


class Written(str):
    """A value's canonical text: written as it stands, so that a long one is not written again for what follows it."""

    __slots__ = ()


def write(value: object) -> str:
    """The value's canonical text. Of what has no form, nothing is guessed: it is refused."""
    return _WRITERS[type(value)](value)


def canonical(form: str) -> Callable[[type[T]], type[T]]:
    """Declares the form of a dataclass."""

    def declare(cls: type[T]) -> type[T]:
        _WRITERS[cls] = _writer(cls, form)
        FORMS[cls] = form
        return cls

    return declare


_PLAIN: frozenset[type] = frozenset((str, int, float, bool, bytes, type(None)))
"""Their `repr` is the language's own. So is that of a tuple of nothing else, which is most of what is written."""


def _write_tuple(value: tuple[object, ...]) -> str:
    if _PLAIN.issuperset(map(type, value)):
        return repr(value)
    if len(value) == 1:
        return f"({write(value[0])},)"
    return f"({', '.join([_WRITERS[type(item)](item) for item in value])})"


def _write_list(value: list[object]) -> str:
    return f"[{', '.join([_WRITERS[type(item)](item) for item in value])}]"


def _write_dict(value: dict[object, object]) -> str:
    """In the order that it has: who makes an id from one sees to the order."""
    return f"{{{', '.join([f'{_WRITERS[type(k)](k)}: {_WRITERS[type(v)](v)}' for k, v in value.items()])}}}"


class _Writers(dict[type, Writer]):
    def __missing__(self, cls: type) -> Writer:
        # A number or a text of a subclass is what it is, whatever the class is called.
        for plain in (str, int, float, bytes):
            if issubclass(cls, plain):
                return plain.__repr__
        raise errors.no_canonical_form(f"{cls.__module__}.{cls.__qualname__}")


_WRITERS = _Writers(dict.fromkeys(_PLAIN, repr))
_WRITERS |= {tuple: _write_tuple, list: _write_list, dict: _write_dict, Written: str}


# -- forms


@dataclass(frozen=True)
class _Part:
    label: str
    field: str
    later: bool


def _writer(cls: Any, form: str) -> Writer:
    tag, parts = _parse(form)
    known = {field.name: field for field in fields(cls)}
    if sorted(part.field for part in parts) != sorted(known):
        raise TypeError(f"the form {form} does not have each field of {cls.__name__} once: {', '.join(known)}")
    if any(part.later for part in parts):
        defaults = [_default(known[part.field]) if part.later else None for part in parts]
        return _write_with_later(tag, parts, defaults)
    return _write_all(tag, parts)


def _parse(form: str) -> tuple[str, list[_Part]]:
    found = _FORM.fullmatch(form)
    parts = [_PART.fullmatch(text) for text in found[2].split(", ")] if found else []
    if found is None or None in parts:
        raise TypeError(f"not a form: {form}")
    return found[1], [_Part(part[1], part[2] or part[1], bool(part[3])) for part in parts if part]


def _write_all(tag: str, parts: list[_Part]) -> Writer:
    """Compiled, as dataclasses compile their `__repr__`: a plan is written in each batch, all of it."""
    texts = (f"{part.label}={{_WRITERS[type(value.{part.field})](value.{part.field})}}" for part in parts)
    writer: Writer = eval(f"lambda value: f'{tag}({', '.join(texts)})'", {"_WRITERS": _WRITERS})
    return writer


def _default(field: Field[Any]) -> str:
    """The text of what is not written."""
    if field.default is MISSING and field.default_factory is MISSING:
        raise TypeError(f"{field.name} came later and has no default")
    return write(field.default if field.default_factory is MISSING else field.default_factory())


def _write_with_later(tag: str, parts: list[_Part], defaults: list[str | None]) -> Writer:
    def write_parts(value: object) -> str:
        texts = [(part.label, write(getattr(value, part.field))) for part in parts]
        told = [f"{label}={text}" for (label, text), default in zip(texts, defaults, strict=True) if text != default]
        return f"{tag}({', '.join(told)})"

    return write_parts
