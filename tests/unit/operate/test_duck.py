"""Unit: DuckDB after it has given up, and statements held to their budgets."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest

from thalweg.model.budget import Budget
from thalweg.operate import duck

NOT_UTF8 = pa.StringArray.from_buffers(
    2, *pa.array([b"\xff\xfe", b"ok"], pa.binary()).buffers()[1:]
)  # fmt: skip
BROKEN = "SELECT upper(g) AS x FROM t"
ENDLESS = "SELECT count(*) AS n FROM range(100000000000) r(a) WHERE a % 7 = 3"


@pytest.fixture(autouse=True)
def usual_budget() -> Iterator[None]:
    yield
    duck.allow(Budget())


def test_a_database_that_was_given_up_is_replaced() -> None:
    table = pa.table({"g": NOT_UTF8})
    for _ in range(2):
        with pytest.raises(duck.Error, match=r"INTERNAL Error.*upper"):
            duck.run(BROKEN, t=table)
        assert duck.run("SELECT 1 AS x").to_pydict() == {"x": [1]}


def test_functions_are_there_in_the_new_database() -> None:
    duck.create_function(
        "plus_two", lambda x: pa.array([v + 2 for v in x.to_pylist()], pa.int64()), ["BIGINT"], "BIGINT"
    )
    with pytest.raises(duck.Error):
        duck.run(BROKEN, t=pa.table({"g": NOT_UTF8}))
    assert duck.run("SELECT plus_two(1) AS x").to_pydict() == {"x": [3]}


def test_other_threads_go_on_when_a_database_is_given_up() -> None:
    broken, done = threading.Event(), threading.Event()
    seen: list[object] = []

    def other() -> None:
        duck.run("SELECT 1 AS x")  # its connection is to the database that is about to go
        done.set()
        broken.wait(10)
        seen.append(duck.run("SELECT 2 AS x").to_pydict())

    thread = threading.Thread(target=other)
    thread.start()
    done.wait(10)
    with pytest.raises(duck.Error):
        duck.run(BROKEN, t=pa.table({"g": NOT_UTF8}))
    broken.set()
    thread.join(10)
    assert seen == [{"x": [2]}]


def test_a_statement_is_interrupted_when_its_time_is_over() -> None:
    duck.allow(Budget(seconds=0.02))
    with pytest.raises(duck.OverBudgetError, match=r"more than 0\.02 s"):
        duck.run(ENDLESS)
    assert duck.run("SELECT 1 AS x").to_pydict() == {"x": [1]}


def test_a_statement_is_held_to_its_memory() -> None:
    """Also by what DuckDB does not count: strings that functions make."""
    duck.allow(Budget(memory=100 << 20, owns_process=True))
    table = pa.table({"g": ["a"] * 100})
    with pytest.raises(duck.OverBudgetError, match="more memory than the 100 MiB"):
        duck.run("SELECT length(repeat(g, 500000000)) AS n FROM t", t=table)
    assert duck.run("SELECT sum(length(g)) AS n FROM t", t=table).to_pydict() == {"n": [100]}


def test_groups_beyond_the_memory_are_given_up() -> None:
    duck.allow(Budget(memory=20 << 20))
    with pytest.raises(duck.OverBudgetError):
        duck.run("SELECT a, list(a) AS l FROM range(3000000) r(a) GROUP BY a")
