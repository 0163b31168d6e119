"""Unit: what is chosen and what DuckDB works out stand in the same rows."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from thalweg.model.columns import START, key
from thalweg.model.expr import Expr
from thalweg.model.failure import Failures, OfQuery
from thalweg.model.plan import Contribution, Grouping, Partial, WindowedQuery
from thalweg.model.window import Window
from thalweg.operate import duck
from thalweg.operate.finish import Closing, _texts, finish, partials_of
from thalweg.operate.merge_slices import SliceTable

SECOND = 1_000_000
WINDOW = Window(SECOND, SECOND)
ROWS = 3000
TOTAL = Partial("p_t", "sum(v)", None, 'sum("p_t")', "DOUBLE", op="sum")
COUNT = Partial("p_n", "count(v)", None, 'sum("p_n")::BIGINT', "BIGINT", op="count")
GROUPING = Grouping("g", "s", ("k",), (), (TOTAL, COUNT), (WINDOW,), SECOND, 0)


def _member(query: str, *outputs: Expr) -> WindowedQuery:
    aggregates = (("a0", '"p_t" / nullif("p_n", 0)'), ("a1", 'coalesce("p_n", 0)'))
    keys, types = (("k", "bigint"),), tuple(output.type for output in outputs)
    names = tuple(f"x{i}" for i in range(len(outputs)))
    main = Contribution("g", aggregates)
    return WindowedQuery(query, WINDOW, main, (), keys, "p_n", outputs, names, types, None, (), None, False)


KEY, MEAN, N = Expr("k0", "bigint", ("k0",)), Expr("a0", "double", ("a0",)), Expr("a1", "bigint", ("a1",))
TWICE = Expr("(a1 * 2)", "bigint", ("a1",))
FAILING = Expr("(a1 * 4611686018427387904)", "bigint", ("a1",), fails=True)


def _finish(*members: WindowedQuery) -> tuple[dict[str, pa.Table], dict[str, str]]:
    keys = [(i * 1117) % ROWS for i in range(ROWS)]
    table = pa.table(
        {
            START: pa.array([0] * ROWS, pa.int64()),
            key(0): pa.array(keys, pa.int64()),
            "p_t": [k / 4 for k in keys],
            "p_n": pa.array([k % 5 for k in keys], pa.int64()),
        }
    )
    failures: Failures = {}
    closing = Closing(WINDOW, members, {"g": ((0, SECOND, 0),)})
    return finish(closing, {"g": GROUPING}, {"g": [SliceTable(table, SECOND, (0,), new=False)]}, failures), failures


WANTED = [(k, k / 4 / (k % 5), k % 5, k % 5 * 2) for k in range(ROWS) if k % 5]


def _rows(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))


def test_columns_that_were_chosen_stand_beside_those_of_a_statement() -> None:
    found, failures = _finish(_member("q", KEY, MEAN, N, TWICE), _member("r", KEY, MEAN))
    assert not failures
    assert _rows(found["q"]) == WANTED
    assert _rows(found["r"]) == [row[:2] for row in WANTED]


def test_the_order_in_which_duckdb_gives_rows_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    real = duck.run

    def shuffled(sql: str, **tables: pa.Table) -> pa.Table:
        made = real(sql, **tables)
        return made.take([(i * 7 + 3) % made.num_rows for i in range(made.num_rows)]) if made.num_rows > 1 else made

    monkeypatch.setattr(duck, "run", shuffled)
    found, _ = _finish(_member("q", KEY, MEAN, N, TWICE))
    assert _rows(found["q"]) == WANTED


def test_a_member_whose_expression_fails_takes_no_other_along() -> None:
    found, failures = _finish(_member("bad", KEY, FAILING), _member("q", KEY, MEAN, N, TWICE), _member("r", N))
    assert [*failures] == [OfQuery("bad")]
    assert {*found} == {"q", "r"}
    assert _rows(found["q"]) == WANTED


def test_texts_are_made_once_for_the_same_member_and_anew_for_another() -> None:
    """Another one: with the same name, but another content. Both have the same hash."""
    first, same, other = _member("twin", KEY, MEAN), _member("twin", KEY, MEAN), _member("twin", KEY, N)
    assert hash(first) == hash(same) == hash(other)
    assert first == same != other
    _texts.cache_clear()
    for member, column, misses in ((first, 1, 1), (same, 1, 1), (other, 2, 2), (first, 1, 2)):
        found, _ = _finish(member)
        assert _rows(found["twin"]) == [(row[0], row[column]) for row in WANTED]
        assert _texts.cache_info().misses == misses


def test_only_the_partials_that_members_are_finished_from_are_merged() -> None:
    text = 'CASE WHEN "p_n" > 0 THEN concat(\'"p_t"\', "p_n") END'
    member = replace(_member("q", KEY), main=Contribution("g", (("a0", text),)))
    assert partials_of(member) == {"p_n"}
