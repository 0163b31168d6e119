"""Unit: functions that make more of a string than it was are bounded: at once where lengths are written down, else by
the compiled text, which stops their query alone."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from thalweg.errors import SqlError
from thalweg.testing import LocalSession

Local = Callable[..., LocalSession]
ROWS = pa.table(
    {"ts": pa.array([0], pa.timestamp("us", "UTC")), "g": ["a"], "n": pa.array([2_000_000], pa.int32())}
)  # fmt: skip


@pytest.mark.parametrize("call", ["repeat(g, 1000001)", "lpad(g, 1000000000, 'x')", "rpad(g, 1000001)"])
def test_lengths_that_are_written_down_are_refused_at_once(local: Local, call: str) -> None:
    session = local({"s": ROWS})
    with pytest.raises(SqlError, match="1,000,000 are the most"):
        session.create_query("q", f"SELECT length({call}) AS n FROM s")


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("repeat(repeat(g, 40000), 100000)", "repeat"),
        ("repeat(g, n)", "repeat"),
        ("replace(repeat(g, 40000), 'a', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')", "replace"),
        ("replace(repeat(g, 900000), g, concat(g, g, g, g, g, g, g, g, g))", "replace"),
    ],
)
def test_what_would_grow_too_long_stops_its_query_by_name(local: Local, call: str, name: str) -> None:
    session = local({"s": ROWS}, {"bad": f"SELECT length({call}) AS n FROM s", "good": "SELECT g FROM s"})
    assert session.results("good").to_pydict() == {"g": ["a"]}
    assert session.query("bad").status["state"] == "failed"
    assert f"[RESULT_TOO_LONG] {name} would make" in session.query("bad").status["error"]


def test_growth_by_a_little_costs_nothing(local: Local) -> None:
    session = local({"s": ROWS})
    for at, call in enumerate(["replace(g, 'a', 'bcdefghi')", "repeat(g, 8)", "lpad(g, 1000000, 'x')"]):
        query = session.create_query(f"q{at}", f"SELECT length({call}) AS n FROM s")
        assert "RESULT_TOO_LONG" not in query.definition.outputs[0].expr.sql
    query = session.create_query("nested", "SELECT length(replace(replace(g, 'a', 'aaaa'), 'a', 'aaaa')) AS n FROM s")
    assert "RESULT_TOO_LONG" in query.definition.outputs[0].expr.sql
    assert session.results("nested").to_pydict() == {"n": [16]}
