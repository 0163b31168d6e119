"""Differential: a comparison that NumPy makes is what DuckDB gives for the same text, NULLs included."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pyarrow as pa
import pytest

from thalweg.frontend.bind import bind
from thalweg.model.expr import Expr
from thalweg.model.failure import Failures, OfColumn
from thalweg.model.plan import Computed
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.operate import compute, duck
from thalweg.operate.comparison import Comparisons
from thalweg.operate.compute import add_computed

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
DUCK = {"tinyint": "TINYINT", "smallint": "SMALLINT", "int": "INTEGER", "bigint": "BIGINT"}
ARROW = {"tinyint": pa.int8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
NAN, INF = float("nan"), float("inf")
DOUBLES = (0.0, -0.0, 1.0, -1.0, 1.5, 5e-324, -5e-324, 2.0**53, 2.0**53 + 2, 1.7976931348623157e308, NAN, INF, -INF)


def same_as_duckdb(table: pa.Table, sql: str) -> list[bool | None]:
    found = Comparisons(table).compare(sql)
    assert found is not None, sql
    wanted = duck.run(f"SELECT {sql} AS c FROM batch", batch=table).column(0)
    assert found.type == wanted.type
    assert found.to_pylist() == wanted.to_pylist(), sql
    return found.to_pylist()


def _table(values: list[object], kind: pa.DataType, name: str = "x") -> pa.Table:
    """In two chunks, so that what is read from it is no one chunk by chance."""
    half = len(values) // 2
    chunks = [pa.array(part, kind) for part in (values[:half], values[half:])]
    return pa.table({name: pa.chunked_array(chunks, kind)})


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("type_", ARROW)
@pytest.mark.parametrize("nulls", [False, True])
def test_whole_numbers(type_: str, op: str, nulls: bool) -> None:
    rng, bound = random.Random(f"{type_}{op}{nulls}"), 1 << (ARROW[type_].bit_width - 1)
    extremes = [-bound, -bound + 1, -1, 0, 1, bound - 2, bound - 1]
    values = [*extremes, *(rng.randrange(-bound, bound) for _ in range(50)), *([None] * 5 if nulls else [])]
    rng.shuffle(values)
    table, outcomes = _table(values, ARROW[type_]), set()
    for constant in (*extremes, rng.choice(values) or 0, rng.randrange(-bound, bound)):
        outcomes.update(same_as_duckdb(table, f'("x" {op} CAST({constant} AS {DUCK[type_]}))'))
    assert outcomes == ({True, False, None} if nulls else {True, False})


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize(("type_", "wider"), [("tinyint", "int"), ("smallint", "int"), ("int", "bigint")])
def test_whole_numbers_that_are_cast_to_wider_ones(type_: str, wider: str, op: str) -> None:
    bound, most = 1 << (ARROW[type_].bit_width - 1), 1 << (ARROW[wider].bit_width - 1)
    values = [-bound, -1, 0, 1, None, bound - 1]
    for constant in (-most, -bound - 1, -bound, 0, bound - 1, bound, most - 1):
        same_as_duckdb(
            _table(values, ARROW[type_]), f'(CAST("x" AS {DUCK[wider]}) {op} CAST({constant} AS {DUCK[wider]}))'
        )


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("nulls", [False, True])
def test_doubles(op: str, nulls: bool) -> None:
    rng = random.Random(f"{op}{nulls}")
    values = [*DOUBLES, *(rng.uniform(-2, 2) for _ in range(50)), *([None] * 5 if nulls else [])]
    rng.shuffle(values)
    table, outcomes = _table(values, pa.float64()), set()
    finite = [v for v in values if v is not None and abs(v) < INF]
    for constant in (*finite, 0.1, 1e300, 2.5e-10, 12345.678):
        outcomes.update(same_as_duckdb(table, f"(\"x\" {op} CAST('{constant!r}' AS DOUBLE))"))
    assert outcomes == ({True, False, None} if nulls else {True, False})


@pytest.mark.parametrize("values", [[], [None, None]])
def test_columns_without_values(values: list[None]) -> None:
    assert same_as_duckdb(_table(values, pa.int32()), '("x" > CAST(5 AS INTEGER))') == values
    assert same_as_duckdb(_table(values, pa.float64()), "(\"x\" > CAST('5.0' AS DOUBLE))") == values


def test_a_column_with_quotes_in_its_name() -> None:
    same_as_duckdb(_table([1, 2], pa.int32(), 'a "b" > c'), '("a ""b"" > c" > CAST(1 AS INTEGER))')


def _random_condition(rng: random.Random, depth: int) -> str:
    if depth == 0 or rng.random() < 0.3:
        op = rng.choice(OPERATORS)
        if rng.random() < 0.5:
            return f'("i) AND (" {op} CAST({rng.randrange(5)} AS INTEGER))'
        return f"(\"d\" {op} CAST('{rng.choice([0.0, 1.5, 3.0])}' AS DOUBLE))"
    if rng.random() < 0.3:
        return f"(NOT {_random_condition(rng, depth - 1)})"
    parts = [_random_condition(rng, depth - 1) for _ in range(rng.choice((2, 2, 3)))]
    return f"({rng.choice((' AND ', ' OR ')).join(parts)})"


@pytest.mark.parametrize("seed", range(8))
def test_what_connects_comparisons(seed: int) -> None:
    """A NULL may be decided by the other side; a name may look like the text around it."""
    rng, outcomes = random.Random(seed), set()
    for _ in range(25):
        nulls = [None] * rng.randrange(2)
        values = [[rng.choice([0, 1, 2, 3, 4, *nulls]) for _ in range(30)] for _ in range(2)]
        table = pa.table({"i) AND (": pa.array(values[0], pa.int32()), "d": pa.array(values[1], pa.float64())})
        sql = _random_condition(rng, 3)
        outcomes.update(same_as_duckdb(table, sql))
        truth = Comparisons(table).truth(sql)
        assert truth is not None
        wanted = duck.run(f"SELECT coalesce({sql}, FALSE) AS c FROM batch", batch=table).column(0)
        assert truth.is_true.tolist() == wanted.to_pylist(), sql
    assert outcomes == {True, False, None}


def test_long_texts_are_left_to_duckdb() -> None:
    table = pa.table({"i": pa.array([1], pa.int32())})
    deep = "(NOT " * 400 + '("i" > CAST(0 AS INTEGER))' + ")" * 400
    assert Comparisons(table).compare(deep) is None


@pytest.mark.parametrize(
    "sql",
    [
        '("i" > CAST(5 AS BIGINT))',
        '("l" > CAST(5 AS INTEGER))',
        '("i" > CAST(2147483648 AS INTEGER))',
        '("l" > CAST(9223372036854775808 AS BIGINT))',
        '(CAST("l" AS INTEGER) > CAST(5 AS INTEGER))',
        '(CAST("i" AS DOUBLE) > CAST(5 AS BIGINT))',
        "(CAST(\"i\" AS DOUBLE) > CAST('1.5' AS DOUBLE))",
        "(\"i\" > CAST('1.5' AS DOUBLE))",
        "(\"f\" > CAST('1.5' AS DOUBLE))",
        "(\"f\" > CAST('1.5' AS FLOAT))",
        "(\"d\" > CAST('nan' AS DOUBLE))",
        "(\"d\" > CAST('inf' AS DOUBLE))",
        "(\"d\" > CAST('1e999' AS DOUBLE))",
        "(\"m\" > CAST('1.5' AS DECIMAL(10,2)))",
        '("d" > CAST(5 AS BIGINT))',
        '("i" IS NOT DISTINCT FROM CAST(5 AS INTEGER))',
        '("i" > CAST(NULL AS INTEGER))',
        '("i" > "l")',
        '("missing" > CAST(5 AS INTEGER))',
        '(("i" > CAST(5 AS INTEGER)) AND ("i" > "l"))',
        '(("i" > CAST(5 AS INTEGER)) AND ("i" < CAST(9 AS INTEGER)) OR ("i" = CAST(2 AS INTEGER)))',
        '(("i" > CAST(5 AS INTEGER)) AND TRUE)',
        '(("i" > CAST(5 AS INTEGER)))',
        "(NOT TRUE)",
        '(NOT ("i" > CAST(5 AS INTEGER)) AND ("i" < CAST(9 AS INTEGER)))',
        '(("i" > CAST(5 AS INTEGER)) = ("i" < CAST(9 AS INTEGER)))',
        '("i" > CAST(5 AS INTEGER)) OR TRUE',
        '"i" > 5',
    ],
)
def test_whatever_else_is_left_to_duckdb(sql: str) -> None:
    kinds = {"i": pa.int32(), "l": pa.int64(), "f": pa.float32(), "d": pa.float64(), "m": pa.decimal128(10, 2)}
    table = pa.table({name: pa.array([1, None, 7], pa.int8()).cast(kind) for name, kind in kinds.items()})
    assert Comparisons(table).compare(sql) is None


STREAM = Stream(
    "s",
    Schema((Field("ts", "timestamp"), *(Field(n, t) for n, t in (("i", "int"), ("l", "bigint"), ("d", "double"))))),
    "ts",
    0,
    SourceSpec("memory", {}),
)
WRITTEN = (
    "i BETWEEN 2 AND 7 AND NOT d < 2",
    "i = 1 OR l = 5 OR d > 2",
    "i > 5",
    "7 >= i",
    "i <> -3",
    "i < 5L",
    "l = 9223372036854775807",
    "d > 1.5",
    "d <= 3",
    "d < -1e300",
)


def _where(condition: str) -> Computed:
    answers = SimpleNamespace(analyze=lambda sql: [("i", "int")], learned={})
    query = bind("q", f"SELECT i FROM s WHERE {condition}", {"s": STREAM}, answers)
    assert query.where is not None
    return Computed(condition, query.where)


ROWS = pa.table(
    {
        "i": pa.array([1, 5, None, 7, -3, 8], pa.int32()),
        "l": pa.array([2**63 - 1, 5, None, -7, 0, 1], pa.int64()),
        "d": [NAN, INF, None, 3.0, -0.0, 1.5],
    }
)


def test_what_queries_write_needs_no_statement(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `comparison` reads is what `frontend/operators` writes: if one changed alone, it would only cost more."""
    predicates = [_where(condition) for condition in WRITTEN]
    wanted = compute._select(ROWS, predicates)
    monkeypatch.delattr(compute, "_select")
    found = add_computed(ROWS, "s", predicates, {})
    assert found.select(list(WRITTEN)).to_pydict() == wanted.to_pydict()


def test_columns_stand_in_the_order_that_was_asked_for() -> None:
    asked = [_where(condition) for condition in ("i > 5", "i > 5 AND l < 3", "d > 1.5", "i IS NULL", "l > 0")]
    found = add_computed(ROWS, "s", asked, {})
    assert found.column_names == ["i", "l", "d", *(c.name for c in asked)]
    assert found.select([c.name for c in asked]).to_pydict() == compute._select(ROWS, asked).to_pydict()


def test_one_that_fails_leaves_the_others_alone() -> None:
    bad = Computed("bad", Expr('CAST("d" AS TINYINT) > 1', "boolean", ("d",), True))
    failures: Failures = {}
    found = add_computed(ROWS.slice(1, 1), "s", [_where("i > 4"), bad, _where("i IS NULL")], failures)
    assert [*failures] == [OfColumn("s", "bad")]
    assert [found.column(i).to_pylist() for i in (3, 4, 5)] == [[True], [None], [False]]
