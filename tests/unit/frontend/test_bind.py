"""Unit: binding without Spark. A canned analyser answers, or proves that it was never asked."""

from __future__ import annotations

import math
import tracemalloc

import duckdb
import pytest

from thalweg.aggregates.contract import ComputedColumns
from thalweg.aggregates.families import arities, take_apart
from thalweg.errors import SqlError
from thalweg.frontend.bind import bind
from thalweg.frontend.expressions import ExpressionParser
from thalweg.frontend.functions import FUNCTIONS
from thalweg.frontend.lex import lex
from thalweg.frontend.literals import number_literal
from thalweg.frontend.tree import Binary, Literal, Node
from thalweg.model.analysis import Learned
from thalweg.model.query import Query, SinkSpec
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.model.window import Window

FIELDS = "id:bigint pack:int price:decimal(10,2) qty:int name:string ok:boolean ts:timestamp other:timestamp"
PURCHASES = Stream(
    "purchases",
    Schema(tuple(Field(*text.split(":")) for text in FIELDS.split())),
    "ts",
    0,
    SourceSpec("memory", {}),
)


class Canned:
    """Answers with one list of columns, then with the types it is told sub-expressions have."""

    def __init__(self, *answers: list[tuple[str, str]]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    @property
    def learned(self) -> Learned:
        return {}

    def analyze(self, sql: str) -> list[tuple[str, str]]:
        self.asked.append(sql)
        assert self.answers, f"asked once more than expected: {sql}"
        return self.answers.pop(0)


def _bind(text: str, *answers: list[tuple[str, str]]) -> Query:
    return bind("q", text, {"purchases": PURCHASES}, Canned(*answers))


def _columns(*types: str) -> list[tuple[str, str]]:
    return [(f"c{k}", type_) for k, type_ in enumerate(types)]


def test_a_windowed_aggregation() -> None:
    query = _bind(
        "SELECT pack, sum(price), window.end FROM purchases WHERE qty > 1 "
        "GROUP BY pack, window(ts, '1 minute', '10 seconds') HAVING count(*) > 2 ORDER BY sum(price) DESC LIMIT 3",
        _columns("int", "decimal(20,2)", "timestamp"),
    )
    assert query.window == Window(60_000_000, 10_000_000)
    assert [key.sql for key in query.keys] == ['"pack"']
    assert [a.function for a in query.aggregates] == ["sum", "count_all"]
    assert [o.expr.sql for o in query.outputs] == ['"k0"', '"a0"', '"window_end"']
    assert query.having is not None
    assert query.having.sql == '("a1" > CAST(2 AS BIGINT))'
    assert [(o.expr.sql, o.descending, o.nulls_first) for o in query.order] == [('"a0"', True, False)]
    assert query.limit == 3
    assert query.where is not None
    assert query.where.columns == ("qty",)


def test_equal_meaning_is_equal_text() -> None:
    texts = ["price>5", "price   >  5", "5 < PRICE", "(p.price) > 5 -- why"]
    queries = [_bind(f"SELECT id FROM purchases p WHERE {t}", [("id", "bigint")]) for t in texts]
    assert len({query.where for query in queries}) == 1


def test_the_options_of_an_in_list_have_no_order() -> None:
    first, second = (
        _bind(f"SELECT id FROM purchases WHERE qty IN ({t})", [("id", "bigint")]) for t in ("1, 2", "2, 1, 2")
    )
    assert first.where == second.where


def test_each_aggregate_is_listed_once() -> None:
    query = _bind(
        "SELECT sum(qty), sum( QTY ) + 1, count(*), count(1) FROM purchases GROUP BY window(ts, '1 hour')",
        _columns("bigint", "bigint", "bigint", "bigint"),
    )
    assert [a.function for a in query.aggregates] == ["sum", "count_all"]


@pytest.mark.parametrize("rsd", ["0.05", "0.0041", "0.39", "5e-2", "CAST(0.05 AS DOUBLE)", "0.1F"])
def test_a_count_that_may_deviate_is_planned(rsd: str) -> None:
    text = f"SELECT approx_count_distinct(id, {rsd}) FROM purchases GROUP BY window(ts, '1 hour')"
    (aggregate,) = _bind(text, _columns("bigint"), _columns("double")).aggregates
    parts = take_apart(aggregate, None, "ts", ComputedColumns({}))
    assert parts.shape == "values"


def test_filters_of_aggregates() -> None:
    query = _bind(
        "SELECT sum(qty) FILTER (WHERE ok), count_if(qty > 1) FILTER (WHERE ok) FROM purchases "
        "GROUP BY window(ts, '1 hour')",
        _columns("bigint", "bigint"),
    )
    assert [a.filter.sql for a in query.aggregates if a.filter] == [
        '"ok"',
        '("ok" AND ("qty" > CAST(1 AS INTEGER)))',
    ]


def test_a_key_goes_before_an_alias_in_having_and_after_it_in_order_by() -> None:
    query = _bind(
        "SELECT qty + 1 AS qty, count(*) FROM purchases GROUP BY qty, window(ts, '1 hour') "
        "HAVING qty > 3 ORDER BY qty",
        _columns("int", "bigint"),
        [("c0", "int")],
    )
    assert query.having is not None
    assert query.having.sql == '("k0" > CAST(3 AS INTEGER))'
    assert query.order[0].expr.sql == '("k0" + CAST(1 AS INTEGER))'


def test_a_row_may_be_in_many_windows() -> None:
    text = "SELECT count(*) FROM purchases GROUP BY window(ts, '10000 seconds', '1 second')"
    assert _bind(text, _columns("bigint")).window == Window(10_000_000_000, 1_000_000)


def test_a_name_means_the_result_before_it() -> None:
    """Spark's lateral aliases: what comes later in the list, under the same name, is another thing."""
    query = _bind(
        "SELECT sum(qty) AS s, s + 1 AS d, max(qty) AS s, d * 2 AS e FROM purchases GROUP BY window(ts, '1 hour')",
        _columns("bigint", "bigint", "int", "bigint"),
    )
    assert [a.function for a in query.aggregates] == ["sum", "max"]
    assert [o.expr.sql for o in query.outputs] == [
        '"a0"',
        '("a0" + CAST(1 AS BIGINT))',
        '"a1"',
        '(("a0" + CAST(1 AS BIGINT)) * CAST(2 AS BIGINT))',
    ]


def test_a_result_may_take_the_name_that_it_uses() -> None:
    text = "SELECT avg(qty) AS v, round(v, 2) AS v FROM purchases GROUP BY window(ts, '1 hour')"
    first, second = _bind(text, [("v", "double"), ("v", "double")]).outputs
    assert first.expr.sql == '"a0"'
    assert second.expr.columns == ("a0",)


def test_a_position_in_order_by_is_the_result_at_it() -> None:
    query = _bind(
        "SELECT 0 - qty AS qty, count(*) FROM purchases GROUP BY qty, window(ts, '1 hour') ORDER BY 1",
        _columns("int", "bigint"),
        _columns("int"),
    )
    assert query.order[0].expr == query.outputs[0].expr


def test_the_first_of_a_name_is_grouped_by() -> None:
    query = _bind(
        "SELECT qty + 1 AS g, qty + 2 AS g FROM purchases GROUP BY g, window(ts, '1 hour'), qty + 2",
        _columns("int", "int"),
        _columns("int", "int"),
    )
    assert [key.sql for key in query.keys] == ['("qty" + CAST(1 AS INTEGER))', '("qty" + CAST(2 AS INTEGER))']


def test_names_for_the_window() -> None:
    query = _bind(
        "SELECT window(ts, '1 hour') AS w, w.start, window(ts, '1 hour').end FROM purchases GROUP BY w",
        [("w", "struct<start:timestamp,end:timestamp>"), ("start", "timestamp"), ("end", "timestamp")],
    )
    assert [o.expr.columns for o in query.outputs] == [
        ("window_end", "window_start"),
        ("window_start",),
        ("window_end",),
    ]


def test_a_star_is_every_column() -> None:
    columns = [(field.name, field.type) for field in PURCHASES.schema.fields]
    query = _bind("SELECT p.* FROM purchases p", columns)
    assert all(output.expr.is_column for output in query.outputs)
    assert query.window is None


def test_what_can_raise_is_marked_and_kept_in_order() -> None:
    query = _bind(
        "SELECT id FROM purchases WHERE qty <> 0 AND pack / qty > 1", [("id", "bigint")], _columns("double")
    )
    assert query.where is not None
    assert query.where.fails
    assert query.where.sql.startswith('CASE WHEN NOT ("qty" <> CAST(0 AS INTEGER)) THEN FALSE ELSE')


def test_sink_options_and_emit_are_kept() -> None:
    query = bind(
        "q", "SELECT id FROM purchases", {"purchases": PURCHASES}, Canned([("id", "bigint")]),
        sink=SinkSpec("console"), options=[("a", "b")], emit="updates",
    )  # fmt: skip
    assert (query.sink.kind, query.options, query.emit) == ("console", (("a", "b"),), "updates")


def test_a_type_that_is_not_sparks_is_refused() -> None:
    with pytest.raises(SqlError, match="not supported") as caught:
        _bind("SELECT qty + 1 FROM purchases", _columns("int"), _columns("bigint"))
    assert caught.value.detail == "Spark types it as bigint, Thalweg as int"


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("SELECT id FROM purchase", "unknown stream 'purchase'", "purchase"),
        ("SELECT id FROM parquet.`/etc/x`", "a path", "parquet.`/etc/x`"),
        ("SELECT id FROM range(5)", "table function", "range"),
        ("SELECT rand() FROM purchases", "function 'rand'", "rand()"),
        ("SELECT uper(name) FROM purchases", "function 'uper'", "uper(name)"),
        ("SELECT id FROM purchases WHERE reflect('a', 'b') = 1", "function 'reflect'", "reflect('a', 'b')"),
        ("SELECT java_method('a', 'b') FROM purchases", "function 'java_method'", "java_method('a', 'b')"),
        ("SELECT input_file_name() FROM purchases", "function 'input_file_name'", "input_file_name()"),
        ("SELECT current_timestamp() FROM purchases", "function 'current_timestamp'", "current_timestamp()"),
        ("SELECT sum(uuid()) FROM purchases GROUP BY window(ts, '1 hour')", "function 'uuid'", "uuid()"),
        ("SELECT sum(price) FROM purchases", "needs a window", "sum(price)"),
        ("SELECT id FROM purchases GROUP BY id", "needs a window", "GROUP BY id"),
        ("SELECT id FROM purchases ORDER BY id", "needs a window", "ORDER BY id"),
        ("SELECT id FROM purchases LIMIT 3", "needs a window", "LIMIT 3"),
        ("SELECT 1 FROM purchases GROUP BY window(ts, '1 hour') LIMIT 3", "without ORDER BY", "LIMIT 3"),
        ("SELECT 1 FROM purchases GROUP BY window(other, '1 hour')", "event time", "other"),
        ("SELECT 1 FROM purchases GROUP BY window(ts, '1 hour', '2 hours')", "at most its range", "'2 hours'"),
        ("SELECT 1 FROM purchases GROUP BY window(ts, '1 month')", "no fixed length", "'1 month'"),
        ("SELECT 1 FROM purchases GROUP BY window(ts, '0 seconds')", "longer than nothing", "'0 seconds'"),
        ("SELECT 1 FROM purchases GROUP BY window(ts, '200000000 days')", "73,000 years", "'200000000 days'"),
        ("SELECT ts - INTERVAL 200000000 DAYS FROM purchases", "73,000 years", "INTERVAL 200000000 DAYS"),
        ("SELECT ts + INTERVAL 9999999999 YEARS FROM purchases", "73,000 years", "INTERVAL 9999999999 YEARS"),
        *(
            (
                f"SELECT approx_count_distinct(id, {rsd}) FROM purchases GROUP BY window(ts, '1 hour')",
                "from 0.0041",
                rsd,
            )
            for rsd in ("0.0", "0", "-0.05", "1e-9", "0.004", "0.4", "1e999", "0.05 / 10", "true", "'0.05'", "NULL")
        ),
        (
            "SELECT 1 FROM purchases GROUP BY window(ts, '1 hour', '1 millisecond')",
            "in 3,600,000 windows",
            "'1 millisecond'",
        ),
        (
            "SELECT 1 FROM purchases GROUP BY window(ts, '10001 seconds', '1 second')",
            "more than 10,000",
            "'1 second'",
        ),
        ("SELECT 1 FROM purchases GROUP BY window(ts, 5)", "as a string", "5"),
        ("SELECT 1 FROM purchases GROUP BY window(t, '1 hour')", "unknown column 't'", "t"),
        ("SELECT session_window(ts, '1 hour') FROM purchases", "session_window", "session_window(ts, '1 hour')"),
        ("SELECT window(ts, '1 hour') FROM purchases", "outside GROUP BY", "window(ts, '1 hour')"),
        ("SELECT DISTINCT id FROM purchases", "SELECT DISTINCT", "DISTINCT"),
        ("SELECT 1 FROM purchases GROUP BY rollup(id)", "ROLLUP", "rollup"),
        ("SELECT 1 FROM purchases GROUP BY id WITH CUBE", "WITH CUBE", "WITH CUBE"),
        ("SELECT 1 FROM purchases GROUP BY ALL", "GROUP BY ALL", "ALL"),
        ("SELECT 1 FROM (SELECT 1)", "a subquery", "("),
        ("SELECT (SELECT 1) FROM purchases", "a subquery", "SELECT"),
        ("SELECT id IN (SELECT 1) FROM purchases", "a subquery", "SELECT"),
        ("WITH a AS (SELECT 1) SELECT 1 FROM a", "WITH", "WITH"),
        ("SELECT 1 FROM purchases UNION SELECT 2", "UNION", "UNION"),
        ("SELECT sum(id) OVER () FROM purchases", "OVER", "OVER"),
        ("SELECT transform(id, x -> x) FROM purchases", "a lambda", "->"),
        ("SELECT id RLIKE 'x' FROM purchases", "RLIKE", "RLIKE"),
        ("SELECT id, FROM purchases", "expected an expression", "FROM"),
        ("SELECT id FROM purchases WHERE", "expected an expression", "E"),
        ("SELECT (id FROM purchases", "expected ')'", "FROM"),
        ("SELECT id purchases", "expected ',' or FROM", "s"),
        ("SELECT id FROM purchases WHERE id = 'x", "never closed", "'x"),
        ("SELECT abs(id, 2) FROM purchases", "abs takes 1 argument, not 2", "abs(id, 2)"),
        ("SELECT 1 FROM purchases WHERE count(*) > 1 GROUP BY window(ts, '1 hour')", "in WHERE", "count(*)"),
        ("SELECT DATE 'soon' FROM purchases", "not a date", "DATE 'soon'"),
        ("SELECT 300Y FROM purchases", "does not fit", "300Y"),
        ("SELECT 1e999999999BD FROM purchases", "at most 38 digits", "1e999999999BD"),
        ("SELECT 1e-999999999BD FROM purchases", "at most 38 digits", "1e-999999999BD"),
        (f"SELECT {'9' * 5000} FROM purchases", "at most 1,000 characters", "9" * 5000),
        ("SELECT ts + INTERVAL 1.5 MONTHS FROM purchases", "not a whole number of months", "INTERVAL 1.5 MONTHS"),
        ("SELECT ts + INTERVAL '1.5 years' FROM purchases", "not a whole number of years", "INTERVAL '1.5 years'"),
        (
            f"SELECT ts + INTERVAL '{'9' * 5000}' MONTHS FROM purchases",
            "73,000 years",
            f"INTERVAL '{'9' * 5000}' MONTHS",
        ),
    ],
)
def test_refused_before_spark_is_asked(text: str, message: str, place: str) -> None:
    with pytest.raises(SqlError) as caught:
        _bind(text)
    assert message in caught.value.message
    assert caught.value.span is not None
    assert text[slice(*caught.value.span)] == place


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("SELECT sum(DISTINCT qty) FROM purchases GROUP BY window(ts, '1 hour')", "DISTINCT", "sum(DISTINCT qty)"),
        ("SELECT CAST(1e0 AS STRING) FROM purchases", "a cast from double", "CAST(1e0 AS STRING)"),
        ("SELECT name LIKE name FROM purchases", "not a literal", "name"),
        ("SELECT 1 FROM purchases GROUP BY 5 + 5, window(ts, '1 hour')", "a constant", "5 + 5"),
        ("SELECT ts - ts FROM purchases", "timestamp - timestamp", "ts - ts"),
        ("SELECT price * price * price * price FROM purchases", "38 digits", "price * price * price * price"),
        ("SELECT max(qty, 1) FROM purchases GROUP BY window(ts, '1 hour')", "1 argument, not 2", "max(qty, 1)"),
    ],
)
def test_refused_after_spark_agreed(text: str, message: str, place: str) -> None:
    with pytest.raises(SqlError) as caught:
        _bind(text, _columns("string"))
    assert message in caught.value.message
    assert caught.value.span is not None
    assert text[slice(*caught.value.span)] == place


def test_sign_names_its_argument_once() -> None:
    text = "SELECT " + "sign(" * 12 + "CAST(qty AS DOUBLE)" + ")" * 12 + " FROM purchases"
    (output,) = _bind(text, _columns("double"), _columns(*["double"] * 13)).outputs
    assert output.expr.sql.count('"qty"') == 1


def test_sign_is_sparks() -> None:
    (output,) = _bind("SELECT sign(qty) FROM purchases", _columns("double"), _columns("double")).outputs
    sql = output.expr.sql.replace('CAST("qty" AS DOUBLE)', "x")
    values = [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, -5e-324, 1.5, -1e300, None]
    rows = ", ".join(f"({k}, {'NULL' if v is None else repr(str(v))}::DOUBLE)" for k, v in enumerate(values))
    found = duckdb.sql(f"SELECT {sql} FROM (VALUES {rows}) t(k, x) ORDER BY k").fetchall()
    assert repr([x for (x,) in found]) == repr([math.nan, 1.0, -1.0, 0.0, -0.0, 1.0, -1.0, 1.0, -1.0, None])


@pytest.mark.parametrize(
    "expression",
    [
        "round(" * 20 + "CAST(qty AS DOUBLE)" + ", 1)" * 20,
        "qty" + " / pack" * 30,
        pytest.param(
            "coalesce(" + ", ".join(["round(" * 9 + "CAST(qty AS DOUBLE)" + ", 1)" * 9] * 900) + ")",
            marks=pytest.mark.slow,
        ),
        "CAST(" * 15 + "name" + " AS INT) || ''" * 15,
    ],
)
def test_text_that_explodes_is_refused_before_it_does(expression: str) -> None:
    text = f"SELECT {expression} FROM purchases"
    tracemalloc.start()
    try:
        with pytest.raises(SqlError, match="too large") as caught:
            _bind(text, _columns("double"))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "1,000,000 characters" in (caught.value.detail or "")
    assert caught.value.span is not None
    assert caught.value.span[0] >= 7
    assert most < 100_000_000


def test_aliases_of_aliases_are_bounded() -> None:
    doubled = ", ".join(f"c{k} + c{k} AS c{k + 1}" for k in range(40))
    with pytest.raises(SqlError, match="too large"):
        _bind(f"SELECT CAST(qty AS DOUBLE) AS c0, {doubled} FROM purchases", _columns(*["double"] * 41))
    deep = ", ".join(f"c{k} + 1D AS c{k + 1}" for k in range(400))
    with pytest.raises(SqlError, match="too large") as caught:
        _bind(f"SELECT CAST(qty AS DOUBLE) AS c0, {deep} FROM purchases", _columns(*["double"] * 401))
    assert "200 deep" in (caught.value.detail or "")


def test_long_chains_and_many_brackets_are_no_trouble() -> None:
    """1,000 conditions in a row, 60 calls and 60 brackets within one another."""
    chain = " OR ".join(f"qty = {k}" for k in range(1000))
    both = " AND ".join(f"qty <> {k}" for k in range(1000))
    text = f"SELECT id FROM purchases WHERE ({chain}) AND {both} AND {'(' * 60}ok{')' * 60}"
    query = _bind(text, [("id", "bigint")])
    assert query.where is not None
    assert query.where.sql.count("qty") == 2000
    calls = "trim(" * 60 + "name" + ")" * 60
    (output,) = _bind(f"SELECT {calls} FROM purchases", _columns("string"), _columns(*["string"] * 60)).outputs
    assert output.expr.sql.count("trim") == 60


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 500 + "id" + ")" * 500,
        "abs(" * 500 + "id" + ")" * 500,
        "id" + " + 1" * 500,
        "- " * 500 + "id",
        "NOT " * 500 + "ok",
        "id" + "::bigint" * 500,
        "CASE WHEN ok THEN " * 200 + "id" + " END" * 200,
    ],
)
def test_what_is_nested_too_deeply_never_reaches_spark(expression: str) -> None:
    for text in (f"SELECT {expression} FROM purchases", f"SELECT id FROM purchases WHERE {expression} = 1"):
        with pytest.raises(SqlError, match="nested too deeply") as caught:
            _bind(text)
        assert caught.value.span is not None


def test_operators_bind_as_in_spark() -> None:
    text = "1 + 2 * 3 - 4 || 5 & 6 ^ 7 | 8 = 9 div 3 % 2"
    tree = ExpressionParser(text).expression()

    def shown(node: Node) -> str:
        if isinstance(node, Binary):
            return f"({shown(node.left)} {node.op} {shown(node.right)})"
        assert isinstance(node, Literal)
        return str(node.value)

    assert shown(tree) == "(((((((1 + (2 * 3)) - 4) || 5) & 6) ^ 7) | 8) = ((9 div 3) % 2))"


def test_a_near_name_is_offered() -> None:
    with pytest.raises(SqlError) as caught:
        _bind("SELECT uper(name) FROM purchases")
    assert caught.value.hint == "did you mean upper?"


def test_nothing_harmful_is_on_the_list() -> None:
    harmful = {"reflect", "java_method", "try_reflect", "rand", "randn", "uuid", "now", "current_timestamp",
               "current_date", "input_file_name", "monotonically_increasing_id", "spark_partition_id"}  # fmt: skip
    assert not harmful & (FUNCTIONS.keys() | arities().keys())


HIDDEN = (
    "--\rINSERT OVERWRITE DIRECTORY '/data' USING csv\nSELECT id FROM purchases",
    "/* /* */ SELECT id FROM purchases -- */ INSERT OVERWRITE DIRECTORY '/data' USING csv SELECT id FROM purchases",
    "SELECT /*+ REPARTITION(3) */ id FROM purchases",
    "SELECT -- goes on for Spark \\\n id FROM purchases",
)


@pytest.mark.parametrize("text", HIDDEN)
def test_spark_reads_no_more_than_was_read_here(text: str) -> None:
    """Spark's rules for comments are others: what is one here could be a statement there."""
    analyzer = Canned([("id", "bigint")])
    query = bind("q", text, {"purchases": PURCHASES}, analyzer)
    assert [" ".join(asked.split()) for asked in analyzer.asked] == ["SELECT id FROM purchases"]
    assert query.text == text


def test_an_error_shows_the_text_with_its_comments() -> None:
    text = "SELECT id, -- the\n rand() FROM purchases"
    with pytest.raises(SqlError) as caught:
        _bind(text)
    assert caught.value.sql == text
    assert caught.value.span is not None
    assert text[slice(*caught.value.span)].startswith("rand")


def test_null_without_a_type_is_refused() -> None:
    with pytest.raises(SqlError, match="without a type") as caught:
        _bind("SELECT id, NULL AS n FROM purchases", [("id", "bigint"), ("n", "void")])
    assert caught.value.span == (11, 15)
    (output,) = _bind("SELECT CAST(NULL AS STRING) AS n FROM purchases", *[_columns("string")] * 2).outputs
    assert output.expr.type == "string"


def test_a_column_without_a_type_is_no_key() -> None:
    fields = (Field("x", "void"), Field("ts", "timestamp"))
    empty = Stream("s", Schema(fields), "ts", 0, SourceSpec("memory", {}))
    text = "SELECT count(*) AS n FROM s GROUP BY x, window(ts, '1 minute')"
    with pytest.raises(SqlError, match="group by NULL"):
        bind("q", text, {"s": empty}, Canned([("n", "bigint")], _columns("void")))


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("0.10", "decimal(2,2)"),
        ("007.5", "decimal(2,1)"),
        ("0.00", "decimal(2,2)"),
        ("1e3BD", "decimal(4,0)"),
        ("9.99999999999999999999999999999", "decimal(30,29)"),
        ("9" * 38, "decimal(38,0)"),
    ],
)
def test_decimals_are_as_wide_as_they_are_written(text: str, type_: str) -> None:
    assert number_literal(lex(text)[0], text).type == type_


def test_two_escapes_may_be_one_character() -> None:
    assert lex(r"'\ud83d\ude00 \U0001f600'")[0].value == "\U0001f600 \U0001f600"
    for half in (r"'\ud83d'", r"'\ude00\ud83d'", r"'\Uffffffff'"):
        with pytest.raises(SqlError, match="not a character"):
            lex(f"SELECT {half}")
