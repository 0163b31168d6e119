"""Unit: what fails in a shared statement concerns those alone whose it is, whatever has become of the database."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from thalweg.aggregates.contract import partial
from thalweg.model.budget import Budget
from thalweg.model.columns import START
from thalweg.model.expr import Expr
from thalweg.model.failure import Failures, OfColumn, OfPartial
from thalweg.model.plan import Computed, Grouping, Partial
from thalweg.model.window import Window
from thalweg.operate import combine as module
from thalweg.operate import duck
from thalweg.operate.combine import combine
from thalweg.operate.compute import add_computed

NOT_UTF8 = pa.StringArray.from_buffers(2, *pa.array([b"\xff\xfe", b"ok"], pa.binary()).buffers()[1:])
ROWS = pa.table({"k": [1, 1], "v": [3, 4], "g": NOT_UTF8, START: [0, 0]})
LONG = "(SELECT count(*) FROM range(100000000000) r(a) WHERE a % 7 = v)"
HUGE = "length(repeat('a', v * 500000000))"


@pytest.fixture(autouse=True)
def usual_budget() -> Iterator[None]:
    yield
    duck.allow(Budget())


def column(name: str, sql: str, type_: str) -> Computed:
    return Computed(name, Expr(sql, type_, ("g", "v"), True))


def test_an_internal_error_is_blamed_on_its_expression_with_the_first_words() -> None:
    failures: Failures = {}
    computed = [
        column("up", "upper(g)", "string"),
        column("more", "v + 1", "bigint"),
        column("low", "lower(g)", "string"),
        column("size", "octet_length(CAST('abc' AS BLOB))", "bigint"),
    ]
    made = add_computed(ROWS, "s", computed, failures)
    assert {*failures} == {OfColumn("s", "up"), OfColumn("s", "low")}
    assert "INTERNAL Error" in failures[OfColumn("s", "up")]
    assert "upper" in failures[OfColumn("s", "up")]
    assert "lower" in failures[OfColumn("s", "low")]
    assert (made["more"].to_pylist(), made["up"].to_pylist()) == ([4, 5], [None, None])


def test_a_reason_of_our_own_is_shown_without_duckdbs_words() -> None:
    failures: Failures = {}
    computed = [
        column("one", "CASE WHEN v > 3 THEN error('[DIVIDE_BY_ZERO] Division by zero.') ELSE v END", "bigint")
    ]
    add_computed(ROWS, "s", computed, failures)
    assert failures == {OfColumn("s", "one"): "[DIVIDE_BY_ZERO] Division by zero."}


@pytest.mark.parametrize(
    ("culprit", "budget", "said"),
    [
        (LONG, Budget(seconds=0.05), "more than 0.05 s"),
        (HUGE, Budget(memory=80 << 20, owns_process=True), "more memory than the 80 MiB"),
    ],
)
def test_what_goes_beyond_its_budget_is_named_and_not_tried_again(
    culprit: str, budget: Budget, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    duck.allow(budget)
    failures: Failures = {}
    computed = [column("much", culprit, "bigint"), column("more", "v + 1", "bigint")]
    made = add_computed(ROWS, "s", computed, failures)
    assert {*failures} == {OfColumn("s", "much")}
    assert said in failures[OfColumn("s", "much")]
    assert made["more"].to_pylist() == [4, 5]
    texts: list[str] = []
    run = duck.run
    monkeypatch.setattr(duck, "run", lambda sql, **tables: texts.append(sql) or run(sql, **tables))
    assert add_computed(ROWS, "s", computed, failures)["much"].null_count == 2
    assert not any(culprit in text for text in texts)


def grouping(*partials: Partial) -> Grouping:
    return Grouping("g1", "s", ("k",), (), partials, (Window(10, 10),), 10, 0)


TOTAL = partial('CAST(sum("v") AS BIGINT)', None, "sum({})", "BIGINT")
LOWEST = partial('min("v")', None, "min({})", "BIGINT")
BROKEN = partial('max(upper("g"))', None, "max({})", "VARCHAR")
MEAN_OF = partial('avg("v"::DOUBLE)', None, "avg({})", "DOUBLE")
SQUARES = Partial("sq", 'var_pop("v"::DOUBLE) * 2', None, 'sum("sq")', "DOUBLE", (TOTAL.name, MEAN_OF.name))


def test_a_partial_that_gives_up_the_database_is_named_and_the_others_are_made() -> None:
    failures: Failures = {}
    for _ in range(2):
        table = combine(ROWS, grouping(TOTAL, BROKEN, LOWEST), failures)
        assert {*failures} == {OfPartial("g1", BROKEN.name)}
        assert table.column_names == [START, ".k0", TOTAL.name, BROKEN.name, LOWEST.name]
        assert [c.to_pylist() for c in table.columns] == [[0], [1], [7], [None], [3]]


def test_partials_that_cannot_be_made_together_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The statement without those that fail may fail, too: by its memory, say."""
    run, most = duck.run, 3

    def only_small(sql: str, **tables: pa.Table) -> pa.Table:
        if sum(name in sql for name in names) > most:
            raise duck.OverBudgetError("too much")
        return run(sql, **tables)

    partials = (TOTAL, BROKEN, LOWEST, MEAN_OF, SQUARES)
    names = [p.name for p in partials]
    monkeypatch.setattr(duck, "run", only_small)
    failures: Failures = {}
    table = combine(ROWS, grouping(*partials), failures)
    assert {*failures} == {OfPartial("g1", BROKEN.name)}
    found = table.to_pylist()
    assert sorted((r[LOWEST.name] or 0, r[TOTAL.name] or 0, r[MEAN_OF.name] or 0, r["sq"] or 0) for r in found) == [
        (0, 7, 3.5, 0.5),  # what the merge of squares reads stands in one row
        (3, 0, 0, 0),
    ]
    assert table.column_names == [START, ".k0", *names]


def test_where_nothing_can_be_made_there_are_no_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(sql: str, **tables: pa.Table) -> pa.Table:
        raise duck.OverBudgetError("too much")

    failures: Failures = {}
    expected = combine(ROWS, grouping(TOTAL, LOWEST), {}).schema
    monkeypatch.setattr(module.duck, "run", refuse)
    assert combine(ROWS, grouping(TOTAL, LOWEST), failures).schema.equals(expected)
    assert len(failures) == 2
