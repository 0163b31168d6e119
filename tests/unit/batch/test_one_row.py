"""Unit: what is taken of a group's first, last, least or greatest row has stood in one row, however rows were split.

The oracle is a plain loop over all rows of a window.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.support.chance import Seeded

from thalweg.frontend import group as binding
from thalweg.testing import LocalSession

Local = Callable[..., LocalSession]
Row = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("k", pa.int64()), ("p", pa.int64()), ("a", pa.string()), ("b", pa.float64())]
)
TAKEN = """SELECT window.start AS w, k, max_by(a, p) AS a1, max_by(b, p) AS b1, min_by(b, p) AS b2,
    min_by(a, p) AS a2, first(a) AS a3, any_value(b) AS b3, last(b) AS b4, last(a) AS a4, first(a) IGNORE NULLS AS a5,
    max_by(a, p) FILTER (WHERE b > 0) AS a6, max_by(b, p) FILTER (WHERE b > 0) AS b6
    FROM s GROUP BY window(ts, '10 seconds'), k"""
BESIDE = "SELECT k, max_by(a, p) AS a, first(a) AS f FROM s GROUP BY window(ts, '10 seconds'), k"


def some_rows(rng: random.Random, n: int) -> list[Row]:
    """Few values of everything: almost every order value is shared."""
    return [
        {
            "ts": START + timedelta(seconds=rng.randrange(30)),
            "k": rng.randrange(2),
            "p": rng.choice([None, 1, 2, 2]),
            "a": rng.choice([None, "anna", "bob", "zoe"]),
            "b": rng.choice([None, 0.0, -0.0, 1.5, math.nan, math.inf]),
        }
        for _ in range(n)
    ]


def in_order(value: Any) -> tuple[Any, ...]:
    """NULL first, NaN last, and of two zeros the one without a sign first."""
    if isinstance(value, float):
        return (
            True,
            math.isnan(value),
            0.0 if math.isnan(value) else value,
            value == 0 and math.copysign(1, value) < 0,
        )
    return value is not None, value or ""


def taken(rows: list[Row], extreme: Callable[..., Row], order: str, *names: str, present: str | None = None) -> Row:
    kept = [r for r in rows if r[present or order] is not None]
    return extreme(
        kept, key=lambda r: (r[order], *(in_order(r[name]) for name in names)), default=dict.fromkeys("ab")
    )


def expected(rows: list[Row]) -> set[tuple[str, ...]]:
    groups: dict[tuple[datetime, int], list[Row]] = {}
    for row in rows:
        start = row["ts"] - timedelta(seconds=row["ts"].second % 10)
        groups.setdefault((start, row["k"]), []).append(row)
    found = set()
    for (start, k), group in groups.items():
        greatest, least = taken(group, max, "p", "a", "b"), taken(group, min, "p", "a", "b")
        first, last = taken(group, min, "ts", "a", "b"), taken(group, max, "ts", "a", "b")
        named = taken(group, min, "ts", "a", "b", present="a")
        positive = taken([r for r in group if r["b"] is not None and not r["b"] <= 0], max, "p", "a", "b")
        of = [(greatest, "ab"), (least, "ba"), (first, "ab"), (last, "ba"), (named, "a"), (positive, "ab")]
        found.add((str(start), str(k), *(str(row[name]) for row, names in of for name in names)))
    return found


def seen(table: pa.Table) -> set[tuple[str, ...]]:
    return {tuple(str(value) for value in row.values()) for row in table.to_pylist()}


@pytest.mark.parametrize("seed", range(4))
def test_one_row_decides_for_all_however_rows_are_split(local: Local, seed: int) -> None:
    rng = random.Random(seed)
    rows = some_rows(rng, 120)
    queries = {"taken": TAKEN, **({"beside": BESIDE} if seed % 2 else {})}
    session = local({"s": SCHEMA.empty_table()}, queries, chance=Seeded(rng), watermark="60 seconds")
    for start in range(0, 120, 120 // (seed + 1)):
        session.append("s", pa.Table.from_pylist(rows[start : start + 120 // (seed + 1)], SCHEMA))
        session.run_available()
    session.append("s", pa.Table.from_pylist([{"ts": START + timedelta(minutes=5)}], SCHEMA))
    assert seen(session.results("taken")) == expected(rows)


def test_windows_that_an_earlier_release_has_begun_are_finished_by_its_partials(
    local: Local, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that defines its query again after the upgrade goes on with what it had."""
    anna, bob = ({"ts": START, "k": 1, "p": 5, "a": a, "b": b} for a, b in (("anna", 2.0), ("bob", 1.0)))
    text = "SELECT k, max_by(a, p) AS a, max_by(b, p) AS b FROM s GROUP BY window(ts, '10 seconds'), k"

    def open_session() -> LocalSession:
        return local({"s": SCHEMA.empty_table()}, {"q": text}, state_dir=tmp_path, watermark="0 seconds")

    with monkeypatch.context() as earlier:
        earlier.setattr(binding, "of_one_row", lambda aggregates, time: aggregates)
        session = open_session()
        session.append("s", pa.Table.from_pylist([anna], SCHEMA))
        session.run_available()
        session.stop()
    session = open_session()
    session.append("s", pa.Table.from_pylist([bob, {"ts": START + timedelta(minutes=1)}], SCHEMA))
    assert session.results("q").to_pylist() == [{"k": 1, "a": "bob", "b": 2.0}], "each by its own value, as it began"
    session.create_query("new", text)
    session.append(
        "s", pa.Table.from_pylist([{**r, "ts": START + timedelta(minutes=2)} for r in (anna, bob)], SCHEMA)
    )
    session.append("s", pa.Table.from_pylist([{"ts": START + timedelta(minutes=5)}], SCHEMA))
    assert session.results("new").to_pylist()[-1] == {"k": 1, "a": "bob", "b": 1.0}
