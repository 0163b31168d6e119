"""What a table in a cell is, so that whoever gets it knows what to do with it."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct


class Partials(Struct, frozen=True, array_like=True, tag="p"):
    """Partials of a grouping, with the key group of each."""

    grouping: str


class WholeRows(Struct, frozen=True, array_like=True, tag="w"):
    """Rows of a stream, from which slots make groupings."""

    stream: str


class NodeTuples(Struct, frozen=True, array_like=True, tag="n"):
    """Tuples on their way to a node of a probe tree."""

    cohort: str
    order: int
    """Which tree of the cohort."""
    path: tuple[int, ...]
    """From its root: which child, of that one which child, and so on."""

    def child(self, number: int) -> NodeTuples:
        return NodeTuples(self.cohort, self.order, (*self.path, number))


class QueryRows(Struct, frozen=True, array_like=True, tag="q"):
    """Results of a query."""

    query: str


Address: TypeAlias = Partials | WholeRows | NodeTuples | QueryRows
