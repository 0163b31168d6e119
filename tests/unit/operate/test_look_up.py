"""Unit: rows are looked up in static tables in parts where all together are too many."""

from __future__ import annotations

import pyarrow as pa
import pytest

from thalweg.model.expr import Expr
from thalweg.model.failure import Failures
from thalweg.model.join import TableJoin
from thalweg.model.probe import Joined
from thalweg.operate import duck
from thalweg.operate.look_up import look_up_apart

ROWS = pa.table({"s.k": [1, 2, 3, 4, 5], ".f": [True] * 5})
HELD = pa.table({"k": [2, 4, 5], "name": ["b", "d", "e"]})
JOIN = TableJoin("t", "t", ((Expr('"s.k"', "bigint", ("s.k",)), Expr('"t.k"', "bigint", ("t.k",))),))
INFO = Joined("j", (("s", "s"),), ("s",), 0, 0, (("q@1", ".f"),), tables=(JOIN,))


@pytest.mark.parametrize("most", [5, 2, 1])
def test_rows_that_are_too_many_together_are_looked_up_in_parts(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    run, asked = duck.run, []

    def only_few(sql: str, **tables: pa.Table) -> pa.Table:
        asked.append(tables["batch"].num_rows)
        if tables["batch"].num_rows > most and len(asked) != 2:  # the query's own rows alone are not too many
            raise duck.OverBudgetError("too much")
        return run(sql, **tables)

    monkeypatch.setattr(duck, "run", only_few)
    failures: Failures = {}
    found = look_up_apart(ROWS, INFO, {"t": HELD}, ("s.k", "t.name"), ["q@1"], failures)
    assert not failures
    assert sorted(zip(found["s.k"].to_pylist(), found["t.name"].to_pylist(), strict=True)) == [
        (2, "b"),
        (4, "d"),
        (5, "e"),
    ]
