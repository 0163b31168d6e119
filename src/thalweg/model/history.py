"""Since when the state is whole, as values: what manifests keep of it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from thalweg.model.bucket import Layout
from thalweg.model.window import Window


class SliceHistory(Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of one grouping's state: since when it is complete, in event time."""

    since: Mapping[str, int]
    """partial -> event time from which on no row is missing in it, as long as `windows` need what is that old."""
    grids: tuple[tuple[int, int, int], ...]
    """(slice width, first edge, event time from which on slices are on this grid), oldest first."""
    windows: tuple[Window, ...]


class WantedRows(Struct, frozen=True, forbid_unknown_fields=True):
    """Which rows of a stream its store wanted for some batches, and what of them."""

    predicates: tuple[str, ...]
    keeps_all: bool
    columns: frozenset[str]
    until: int
    """The greatest event time that had been seen by their end."""

    @property
    def layout(self) -> Layout:
        return Layout(self.predicates, self.keeps_all, 0, 0, {})

    def is_like(self, other: WantedRows) -> bool:
        return (self.predicates, self.keeps_all, self.columns) == (other.predicates, other.keeps_all, other.columns)

    def common(self, later: WantedRows) -> WantedRows:
        """What can be said of the batches of both."""
        predicates = tuple(p for p in self.predicates if p in later.predicates)
        keeps_all = self.keeps_all and later.keeps_all
        return WantedRows(predicates, keeps_all, self.columns & later.columns, max(self.until, later.until))


class RowHistory(Struct, frozen=True):
    """What is known of one store: after which event time no row that it wanted is missing in it."""

    held_from: int
    wanted: tuple[WantedRows, ...] | None
    """For all rows after `held_from`; None for intermediates, which no query finds by itself."""


class History(Struct, frozen=True):
    """What the state holds of earlier batches. What is not named here nobody can count on."""

    slices: Mapping[str, SliceHistory] = {}
    """By grouping."""
    rows: Mapping[str, RowHistory] = {}
    """By store."""
