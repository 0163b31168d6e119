"""What a scalar function is: a name, how many arguments, and how its DuckDB text comes of theirs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from thalweg.errors import SqlError
from thalweg.frontend.code import Code
from thalweg.frontend.tree import Call, Node


class Context(Protocol):
    """What a function may ask of the compiler."""

    def refuse(self, what: str, node: Node, hint: str | None = None) -> SqlError: ...
    def cast(self, code: Code, to: str, node: Node) -> Code: ...
    def common(self, codes: list[Code], node: Node) -> list[Code]: ...
    def concat(self, parts: list[Code], node: Node) -> Code: ...
    def choose(self, conditions: list[Code], values: list[Code]) -> Code: ...


Emit = Callable[[Context, Call, list[Code]], Code]


@dataclass(frozen=True)
class Function:
    name: str
    least: int
    most: int
    emit: Emit


def entries(names: str, least: int, most: int, emit: Emit) -> list[Function]:
    """One for each of its names."""
    return [Function(name, least, most, emit) for name in names.split()]
