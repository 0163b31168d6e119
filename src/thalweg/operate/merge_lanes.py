"""Partials merged lane by lane: one pass over the rows for all partials that are merged alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thalweg.kernel import frozen_view
from thalweg.model.plan import Partial
from thalweg.operate.columns import Array
from thalweg.operate.dense import Places, neutral
from thalweg.operate.duck import arrow_type
from thalweg.operate.lane_kernels import add_lanes, number_places, take_greatest_lanes, take_least_lanes
from thalweg.operate.lanes import Lanes, by_kind, lane_columns, lane_places, packed, read_lanes, type_of
from thalweg.route.lists import EVERY_VALUE, number_type

_LOOPS = {"count": add_lanes, "sum": add_lanes, "min": take_least_lanes, "max": take_greatest_lanes}
_Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True)
class _Piece:
    """Some of the rows, and which of their lanes are wanted where."""

    first: int
    lanes: Lanes
    source: _Numbers
    into: _Numbers


def merge_lanes(
    places: Places, tables: Sequence[pa.Table], partials: Sequence[Partial]
) -> tuple[npt.NDArray[np.int64], list[Lanes]] | None:
    """(the places that rows have, the partials there); None where some partial cannot be done this way.

    `places`: of the rows of all tables, one after the other. What a table lacks merges as nothing.
    """
    kinds = by_kind(partials)
    if sum(map(len, kinds.values())) < len(partials):
        return None
    tables = [packed(table, partials) for table in tables]
    occupied, rounds = _occupied(places)
    made = []
    for kind, wanted in kinds.items():
        lanes = _merge(kind, tuple(p.name for p in wanted), tables, rounds, len(occupied))
        if lanes is None:
            return None
        made.append(lanes)
    return occupied, made


def _occupied(places: Places) -> tuple[npt.NDArray[np.int64], list[_Numbers]]:
    """The places that rows have, and the number among them of each row's. They are numbered as rows come: those of a
    bucket are ordered by key group, so what a row is added to lies beside what the last one was added to."""
    number, most = np.full(places.count, -1, np.int32), min(places.count, sum(map(len, places.rounds)))
    occupied, count, rounds = np.empty(most, np.int64), 0, []
    for cells in places.rounds:
        out = np.empty(len(cells), np.int32)
        count = number_places(frozen_view(cells), number, occupied, count, out)
        rounds.append(frozen_view(out))
    return occupied[:count], rounds


def _merge(
    kind: str, names: tuple[str, ...], tables: Sequence[pa.Table], rounds: Sequence[_Numbers], count: int
) -> Lanes | None:
    op = kind.partition(" ")[0]
    pieces = [*_pieces(kind, names, tables)]
    numbers = number_type(type_of(kind))
    if op == "sum" and numbers.kind == "i" and _may_overflow(pieces, len(rounds)):
        return None
    first = 0 if op in ("count", "sum") else np.nan if numbers.kind == "f" and op == "min" else neutral(numbers, op)
    out = np.full((count, len(names)), first, numbers)
    rows = sum(len(piece.lanes.values) for piece in pieces if len(piece.into) == len(names))
    is_whole = rows == sum(table.num_rows for table in tables)
    seen = EVERY_VALUE
    if not is_whole or any(piece.lanes.valid.size for piece in pieces):
        seen = np.zeros(out.shape, np.bool_)
    loop: Any = _LOOPS[op]
    for piece in pieces:
        last = piece.first + len(piece.lanes.values)
        values, valid = frozen_view(piece.lanes.values), frozen_view(piece.lanes.valid)
        for cells in rounds:
            loop(frozen_view(cells[piece.first : last]), values, valid, piece.source, piece.into, out, seen)
    return Lanes(kind, names, out, EVERY_VALUE if seen.all() else seen)


def _pieces(kind: str, names: tuple[str, ...], tables: Sequence[pa.Table]) -> list[_Piece]:
    found, first = [], 0
    for table in tables:
        for field in lane_columns(table, kind):
            places, at = lane_places(field), first
            there = [(place, into) for into, name in enumerate(names) if (place := places.get(name)) is not None]
            if there:
                source, into = np.array(there, np.int32).T.copy()
                for lanes in read_lanes(table, field.name):
                    found.append(_Piece(at, lanes, frozen_view(source), frozen_view(into)))
                    at += len(lanes.values)
        first += table.num_rows
    return found


def _may_overflow(pieces: Sequence[_Piece], rounds: int) -> bool:
    """Whether a sum could leave 64 bits: then DuckDB decides, which raises as Spark does."""
    largest = rows = 0
    for piece in pieces:
        values: Array = piece.lanes.values
        if values.size:
            largest = max(largest, abs(int(values.min())), abs(int(values.max())))
            rows += len(values)
    return largest * rows * rounds >= 1 << 62


def warm_lanes() -> None:
    """Runs every loop on two rows of every kind of lane."""
    sums, least = ("BIGINT", "DOUBLE"), ("INTEGER", "BIGINT", "DOUBLE")
    kinds = [
        ("count", "BIGINT"),
        *(("sum", kind) for kind in sums),
        *((op, k) for op in ("min", "max") for k in least),
    ]
    partials = [Partial(f"{op} {kind}", "", None, "", kind, op=op) for op, kind in kinds]
    columns = {p.name: pa.array([1, 2], arrow_type(p.type)) for p in partials}
    # Counts have one, two, four or eight bytes.
    counts = [{partials[0].name: pa.array([1, most], pa.int64())} for most in (1 << 8, 1 << 16, 1 << 32)]
    for table in (columns, *counts):
        merge_lanes(Places((np.zeros(2, np.int32),), 1, ()), [packed(pa.table(table), partials)], partials)
