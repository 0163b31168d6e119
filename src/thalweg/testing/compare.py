"""Two results are equal: the same columns and types, the same rows as often, in whatever order."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

Row = tuple[Any, ...]
_SHOWN = 8


@dataclass(frozen=True)
class Tolerance:
    """How far two values of a column may differ: relative to the greater one, or absolutely."""

    relative: float
    absolute: float

    def allows(self, left: Any, right: Any) -> bool:
        if left is None or right is None:
            return left is right
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return math.isclose(left, right, rel_tol=self.relative, abs_tol=self.absolute)


# Sums of floats depend on their order; a variance of equal values is zero only up to rounding.
FLOATS = Tolerance(relative=1e-9, absolute=1e-9)
# Two sketches of the same values agree only as well as each agrees with the truth.
SKETCHES = Tolerance(relative=0.3, absolute=2.0)


def rows_equal(actual: pa.Table, expected: pa.Table, *, approximate: Collection[str] = ()) -> bool:
    """True, or an AssertionError that shows which rows are missing and which are too many.

    `approximate` names columns of estimates, such as those of approx_count_distinct.
    """
    problem = difference(actual, expected, approximate=approximate)
    if problem:
        raise AssertionError(problem)
    return True


def difference(actual: pa.Table, expected: pa.Table, *, approximate: Collection[str] = ()) -> str | None:
    """What tells the two apart, as text; None if nothing does."""
    schemas = _schema_difference(actual.schema, expected.schema)
    if schemas:
        return schemas
    surplus, missing = unmatched(actual, expected, approximate=approximate)
    if not surplus and not missing:
        return None
    names = ", ".join(actual.column_names)
    lines = [f"{actual.num_rows} rows, expected {expected.num_rows}; columns {names}"]
    lines += _listed("missing", missing)
    lines += _listed("not expected", surplus)
    return "\n".join(lines)


def unmatched(
    actual: pa.Table, expected: pa.Table, *, approximate: Collection[str] = ()
) -> tuple[list[Row], list[Row]]:
    """(rows that are too many, rows that are missing), of two tables with the same columns."""
    tolerances = {
        index: SKETCHES if field.name in approximate else FLOATS
        for index, field in enumerate(expected.schema)
        if field.name in approximate or pa.types.is_floating(field.type)
    }
    return _unmatched(_rows(actual), _rows(expected), tolerances)


def _schema_difference(actual: pa.Schema, expected: pa.Schema) -> str | None:
    left = [(field.name, str(field.type)) for field in actual]
    right = [(field.name, str(field.type)) for field in expected]
    if left == right:
        return None
    lines = ["the schemas differ (actual | expected)"]
    for index in range(max(len(left), len(right))):
        mine = " ".join(left[index]) if index < len(left) else "-"
        other = " ".join(right[index]) if index < len(right) else "-"
        lines.append(f"  {'  ' if mine == other else '! '}{mine} | {other}")
    return "\n".join(lines)


def _rows(table: pa.Table) -> list[Row]:
    return list(zip(*(_values(column) for column in table.columns), strict=True))


def _values(column: pa.ChunkedArray) -> list[Any]:
    # Instants as numbers: a datetime has no place for the years 0 and 10000, a number has.
    kind = column.type
    if pa.types.is_struct(kind):
        parts = [_values(part) for part in column.combine_chunks().flatten()]
        return list(zip(*parts, strict=True))
    if pa.types.is_timestamp(kind):
        return list(column.cast(pa.int64()).to_pylist())
    return list(column.to_pylist())


def _unmatched(
    actual: Sequence[Row], expected: Sequence[Row], tolerances: Mapping[int, Tolerance]
) -> tuple[list[Row], list[Row]]:
    """The rows of each side that have no partner on the other.

    Rows are first brought together by the columns that must be equal; only within such a group are
    partners sought by tolerance.
    """
    left, right = _by_exact_columns(actual, tolerances), _by_exact_columns(expected, tolerances)
    surplus: list[Row] = []
    missing: list[Row] = []
    for key in dict.fromkeys([*left, *right]):
        extra, lacking = _pair(left.get(key, []), right.get(key, []), tolerances)
        surplus += extra
        missing += lacking
    return surplus, missing


def _by_exact_columns(rows: Sequence[Row], tolerances: Mapping[int, Tolerance]) -> dict[Row, list[Row]]:
    groups: dict[Row, list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(value for index, value in enumerate(row) if index not in tolerances)].append(row)
    return groups


def _pair(
    left: Sequence[Row], right: Sequence[Row], tolerances: Mapping[int, Tolerance]
) -> tuple[list[Row], list[Row]]:
    def close(one: Row, other: Row) -> bool:
        return all(allowed.allows(one[index], other[index]) for index, allowed in tolerances.items())

    def order(row: Row) -> tuple[tuple[bool, bool, float], ...]:
        return tuple(_rank(row[index]) for index in tolerances)

    left, right = sorted(left, key=order), sorted(right, key=order)
    if len(left) == len(right) and all(map(close, left, right)):
        return [], []
    missing = []
    unpaired = list(left)
    for row in right:
        partner = next((i for i, candidate in enumerate(unpaired) if close(candidate, row)), None)
        if partner is None:
            missing.append(row)
        else:
            del unpaired[partner]
    return unpaired, missing


def _rank(value: Any) -> tuple[bool, bool, float]:
    """An order over numbers in which null and NaN have a place."""
    if value is None:
        return (True, False, 0.0)
    return (False, True, 0.0) if math.isnan(value) else (False, False, float(value))


def _listed(label: str, rows: Sequence[Row]) -> list[str]:
    lines = [f"  {label}: {row!r}" for row in rows[:_SHOWN]]
    if len(rows) > _SHOWN:
        lines.append(f"  {label}: and {len(rows) - _SHOWN} more")
    return lines
