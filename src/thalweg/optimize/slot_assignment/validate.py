"""Checks what a partitioning problem is made of, and brings it into one form."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sparse  # type: ignore[import-untyped]
from numpy.typing import ArrayLike, NDArray

from thalweg import errors
from thalweg.optimize.slot_assignment.correlation import Pair, RouteKey

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]

RELATIVE, ABSOLUTE = 1e-6, 1e-9
"""Margins of joint counts may differ so much from the counts, as a share of all rows and in rows."""


MOST = 1e100
"""Greater numbers of rows, or prices of a row, are refused: sums and products of them are to be numbers too."""


def check_settings(slots: object, lat_net: object, lat_mem: object, lat_proc: object, most_load: object) -> None:
    if not isinstance(slots, numbers.Integral) or isinstance(slots, bool) or slots < 1:
        raise errors.bad_partitioning("slots", slots, "a whole number above 0")
    for name, value in (("lat_net", lat_net), ("lat_mem", lat_mem), ("lat_proc", lat_proc)):
        if name != "lat_proc" or value is not None:
            check_number(name, value)
    if not isinstance(most_load, numbers.Real) or not float(most_load) >= 1.0:
        raise errors.bad_partitioning("most_load", most_load, "a number of 1 or more")


def check_number(name: str, value: object) -> None:
    if not isinstance(value, numbers.Real) or not 0.0 <= float(value) <= MOST:
        raise errors.bad_partitioning(name, value, "a number of 0 or more")


def check_seed(seed: object) -> int:
    """Any whole number, as one that random generators take."""
    if not isinstance(seed, numbers.Integral):
        raise errors.bad_partitioning("seed", seed, "a whole number")
    return int(seed) % (1 << 31)


def check_objective(objective: object) -> None:
    if objective not in ("copies", "saspar"):
        raise errors.bad_partitioning("objective", objective, "'copies' or 'saspar'")


def check_counts(counts: Mapping[RouteKey, ArrayLike]) -> dict[RouteKey, Floats]:
    checked: dict[RouteKey, Floats] = {}
    groups: int | None = None
    for key, given in counts.items():
        if not (isinstance(key, tuple) and len(key) == 2 and all(isinstance(part, str) for part in key)):
            raise errors.bad_counts(key, "a route key is a pair: the name of a stream, the names of attributes")
        rows = _numbers(given)
        if rows is None or rows.ndim != 1:
            raise errors.bad_counts(key, "they are not one row of numbers")
        groups = len(rows) if groups is None else groups
        if len(rows) != groups:
            raise errors.bad_counts(key, f"it has {len(rows)} key groups, the route keys before it {groups}")
        if reason := _unusable(rows):
            raise errors.bad_counts(key, reason)
        rows.flags.writeable = False
        checked[key] = rows
    return checked


def check_joint(joint: Mapping[Pair, Any], counts: Mapping[RouteKey, Floats]) -> dict[Pair, Any]:
    """Joint counts as sparse rows, once for each pair, whose route keys are in the order of the counts."""
    place = {key: i for i, key in enumerate(counts)}
    checked: dict[Pair, Any] = {}
    for (first, second), given in joint.items():
        for key in (first, second):
            if key not in place:
                raise errors.bad_joint(first, second, f"there are no counts of {key}")
        if first == second:
            raise errors.bad_joint(first, second, "they are the same route key")
        if first[0] != second[0]:
            raise errors.bad_joint(first, second, "they belong to different streams, which have no row in common")
        cells = _joint_cells(given, first, second, counts)
        if place[first] > place[second]:
            first, second, cells = second, first, cells.T.tocsr()
        known = checked.setdefault((first, second), cells)
        if known is not cells and not _close(known, cells):
            raise errors.bad_joint(first, second, "they are given in both orders, and are not transposes")
    return checked


def _joint_cells(given: Any, first: RouteKey, second: RouteKey, counts: Mapping[RouteKey, Floats]) -> Any:
    cells = given if sparse.issparse(given) else _numbers(given)
    groups = len(counts[first])
    if cells is None or cells.shape != (groups, groups):
        shape = "not numbers" if cells is None else f"of shape {cells.shape}"
        raise errors.bad_joint(first, second, f"they are {shape}, not {groups} by {groups}")
    cells = sparse.csr_array(cells, dtype=np.float64, copy=sparse.issparse(given))
    cells.sum_duplicates()
    cells.eliminate_zeros()
    if reason := _unusable(cells.data):
        raise errors.bad_joint(first, second, reason)
    for key, axis in ((first, 1), (second, 0)):
        margin = np.asarray(cells.sum(axis=axis)).ravel()
        most = ABSOLUTE + RELATIVE * counts[key].sum()
        if np.abs(margin - counts[key]).max(initial=0.0) > most:
            raise errors.bad_joint(first, second, f"their margins are not the counts of {key[0]}({key[1]})")
    return cells


def check_equal(equal: Sequence[Pair], counts: Mapping[RouteKey, Floats]) -> tuple[Pair, ...]:
    for pair in equal:
        for key in pair:
            if key not in counts:
                raise errors.bad_equal(key)
    return tuple((first, second) for first, second in equal)


def check_near(near: ArrayLike | None, slots: int) -> Floats | None:
    if near is None:
        return None
    shares = _numbers(near)
    if shares is None or shares.shape != (slots,) or not ((shares >= 0.0) & (shares <= 1.0)).all():
        raise errors.bad_partitioning("near", near, f"a share from 0 to 1 for each of the {slots} slots")
    shares.flags.writeable = False
    return shares


def check_slots(
    given: Mapping[RouteKey, ArrayLike], counts: Mapping[RouteKey, Floats], slots: int
) -> dict[RouteKey, Ids]:
    checked: dict[RouteKey, Ids] = {}
    for key, rows in counts.items():
        if key not in given:
            raise errors.bad_assignment(key, "there are none")
        chosen = np.asarray(given[key])
        if chosen.shape != rows.shape or (chosen.size and chosen.dtype.kind not in "iu"):
            raise errors.bad_assignment(key, f"they are not {len(rows)} whole numbers")
        if chosen.size and not (chosen.min() >= 0 and chosen.max() < slots):
            raise errors.bad_assignment(key, f"they are not all from 0 to {slots - 1}")
        checked[key] = chosen.astype(np.int64)
    return checked


def cells_of(joint: Any) -> tuple[Ids, Ids, Floats]:
    """Row, column and value of each positive cell."""
    cells = joint.tocoo()
    return cells.row.astype(np.int64), cells.col.astype(np.int64), cells.data


def _numbers(given: Any) -> Floats | None:
    """A float array of its own, None if that cannot be made of what was given."""
    try:
        return np.array(given, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        return None


def _unusable(rows: Floats) -> str | None:
    if not np.isfinite(rows).all():
        return "some are not finite"
    if rows.max(initial=0.0) > MOST:
        return f"some are above {MOST:g}"
    return "some are below 0" if (rows < 0.0).any() else None


def _close(one: Any, other: Any) -> bool:
    return bool(abs(one - other).max() <= ABSOLUTE + RELATIVE * one.sum()) if one.nnz or other.nnz else True
