"""Unit: joins are bound without Spark. A canned analyser answers, or proves that it was never asked."""

from __future__ import annotations

import json

import duckdb
import msgspec
import pytest

from thalweg.errors import SqlError
from thalweg.frontend.bind import bind
from thalweg.model.analysis import Learned
from thalweg.model.expr import Expr
from thalweg.model.join import Atom, Join, TimeBound
from thalweg.model.query import Query, query_from_json
from thalweg.model.stream import Field, Schema, SourceSpec, Stream

SECOND = 1_000_000


def _schema(text: str) -> Schema:
    return Schema(tuple(Field(*field.split(":")) for field in text.split()))


def _stream(name: str, fields: str, time: str = "ts") -> Stream:
    return Stream(name, _schema(fields), time, 0, SourceSpec("memory", {}))


STREAMS = {
    stream.name: stream
    for stream in (
        _stream("a", "k:bigint x:int d:double f:float s:string small:tinyint ts:timestamp"),
        _stream("b", "k:bigint y:int d:double s:string ts:timestamp"),
        _stream("c", "k:int m:int z:string time:timestamp_ntz", "time"),
        _stream("clicks", "user:bigint page:string at:timestamp", "at"),
        *(_stream(name, "k:bigint ts:timestamp") for name in ("d4", "d5", "d6")),
    )
}
TABLES = {"t": _schema("k:bigint label:string w:double"), "t2": _schema("label:string v:int")}


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


def _columns(*types: str) -> list[tuple[str, str]]:
    return [(f"c{k}", type_) for k, type_ in enumerate(types)]


def _bind(text: str, *answers: list[tuple[str, str]]) -> Query:
    query = bind("q", text, STREAMS, Canned(*answers), tables=TABLES)
    assert query_from_json(json.loads(msgspec.json.encode(query))) == query
    return query


def _join(from_: str, *answers: list[tuple[str, str]]) -> Join:
    join = _bind(f"SELECT 1 FROM {from_}", _columns("int"), *answers).join
    assert join is not None
    return join


def _sql(expr: Expr | None) -> str | None:
    return None if expr is None else expr.sql


def _equalities(join: Join) -> list[tuple[str, str, str, str]]:
    return [(e.left.relation, e.left.expr.sql, e.right.relation, e.right.expr.sql) for e in join.equalities]


# -- shape


def test_two_streams_within() -> None:
    query = _bind(
        "SELECT x, y FROM a JOIN b ON a.k = b.k WITHIN 5 SECONDS WHERE a.x > 5 AND b.s = 'u' AND x < y",
        _columns("int", "int"),
    )
    join = query.join
    assert join is not None
    assert query.streams == ("a", "b")
    assert [(r.name, r.stream, r.atoms, _sql(r.where)) for r in join.relations] == [
        ("a", "a", (Atom("x", ">", 5),), None),
        ("b", "b", (), "(\"s\" = 'u')"),
    ]
    assert _equalities(join) == [("a", '"k"', "b", '"k"')]
    assert join.bounds == (TimeBound("a", "b", -5 * SECOND, 5 * SECOND),)
    assert (join.kind, join.preserved, join.on, join.tables) == ("inner", (), None, ())
    assert _sql(query.where) == '("a.x" < "b.y")'
    assert [o.expr.sql for o in query.outputs] == ['"a.x"', '"b.y"']
    assert (query.window, query.time) == (None, "")


def test_relations_are_named_by_stream_not_by_alias() -> None:
    first = _bind("SELECT p.x FROM a p JOIN b q ON q.k = p.k WITHIN 5 SECONDS", _columns("int"))
    second = _bind("SELECT B.X FROM a b INNER JOIN b AS a ON a.k = b.k WITHIN 9 SECONDS", _columns("int"))
    assert first.stream == second.stream
    assert first.outputs == second.outputs


def test_the_joined_stream_is_what_queries_can_share() -> None:
    def stream(rest: str) -> str:
        return _bind(f"SELECT 1 FROM {rest}", _columns("int")).stream

    plain = stream("a JOIN b ON a.k = b.k WITHIN 5 SECONDS")
    assert plain == stream("b, a WITHIN 1 HOUR WHERE b.k = a.k AND x > 3 AND x < y AND a.s LIKE 'u%'")
    assert plain != stream("a JOIN b ON a.k = b.y WITHIN 5 SECONDS")
    assert plain != stream("a LEFT JOIN b ON a.k = b.k WITHIN 5 SECONDS")
    assert plain != stream("a JOIN b ON a.k = b.k WITHIN 5 SECONDS JOIN t ON t.k = a.k")
    assert plain != stream("a JOIN b ON a.k = b.k WITHIN 5 SECONDS GROUP BY window(a.ts, '1 hour')")


def test_a_self_join() -> None:
    query = _bind(
        "SELECT x.page, y.page FROM clicks x JOIN clicks y ON x.user = y.user AND x.page <> y.page WITHIN 1 MINUTE",
        _columns("string", "string"),
    )
    assert query.join is not None
    assert query.streams == ("clicks",)
    assert [(r.name, r.stream) for r in query.join.relations] == [("clicks", "clicks"), ("clicks#2", "clicks")]
    assert _equalities(query.join) == [("clicks", '"user"', "clicks#2", '"user"')]
    assert [o.expr.sql for o in query.outputs] == ['"clicks.page"', '"clicks#2.page"']
    assert _sql(query.where) == '("clicks.page" <> "clicks#2.page")'


def test_three_streams_with_commas() -> None:
    query = _bind(
        "SELECT x FROM a, b, c WITHIN '5 seconds' WHERE a.k = b.k AND b.k = c.k AND x BETWEEN 1 AND 10 "
        "AND 3 > m AND b.s IN ('v', 'u') AND y <> 4",
        _columns("int"),
    )
    assert query.join is not None
    assert [(r.name, r.atoms, _sql(r.where)) for r in query.join.relations] == [
        ("a", (Atom("x", "<=", 10), Atom("x", ">=", 1)), None),
        ("b", (), "((\"s\" IN ('u', 'v')) AND (\"y\" <> CAST(4 AS INTEGER)))"),
        ("c", (Atom("m", "<", 3),), None),
    ]
    assert _equalities(query.join) == [("a", '"k"', "b", '"k"'), ("b", '"k"', "c", 'CAST("k" AS BIGINT)')]
    assert query.join.bounds == (
        TimeBound("a", "b", -5 * SECOND, 5 * SECOND),
        TimeBound("b", "c", -5 * SECOND, 5 * SECOND),
    )
    assert query.where is None


def test_five_streams() -> None:
    join = _join(
        "a JOIN b ON a.k = b.k WITHIN 1 SECOND JOIN c ON c.k = b.k AND c.m = a.x WITHIN 2 SECONDS "
        "JOIN d4 ON d4.k = a.k WITHIN 3 SECONDS JOIN d5 ON d5.k = d4.k WITHIN 4 SECONDS"
    )
    assert [(b.left, b.right, b.high_us // SECOND) for b in join.bounds] == [
        ("a", "b", 1),
        ("a", "c", 2),
        ("a", "d4", 3),
        ("b", "c", 2),
        ("d4", "d5", 4),
    ]


def test_a_windowed_aggregation_over_a_join() -> None:
    query = _bind(
        "SELECT label, sum(b.y), window.end FROM a JOIN b ON a.k = b.k WITHIN 5 SECONDS JOIN t ON t.k = a.k "
        "GROUP BY label, window(b.ts, '1 minute') HAVING count(*) > 1 ORDER BY sum(b.y) DESC LIMIT 3",
        _columns("string", "bigint", "timestamp"),
    )
    assert query.window is not None
    assert query.time == "b.ts"
    assert [key.sql for key in query.keys] == ['"t.label"']
    assert [(a.function, [arg.sql for arg in a.args]) for a in query.aggregates] == [
        ("sum", ['"b.y"']),
        ("count_all", []),
    ]
    assert [o.expr.sql for o in query.outputs] == ['"k0"', '"a0"', '"window_end"']
    assert (_sql(query.having), query.limit) == ('("a1" > CAST(1 AS BIGINT))', 3)


def test_stars() -> None:
    def names(stream: str) -> list[tuple[str, str]]:
        return [(field.name, field.type) for field in STREAMS[stream].schema.fields]

    both = _bind("SELECT * FROM b JOIN c ON b.k = c.k WITHIN 5 SECONDS", names("b") + names("c"))
    assert [o.expr.sql for o in both.outputs[3:6]] == ['"b.s"', '"b.ts"', '"c.k"']
    one = _bind("SELECT q.*, b.y FROM b JOIN c q ON b.k = q.k WITHIN 5 SECONDS", [*names("c"), ("y", "int")])
    assert [o.expr.sql for o in one.outputs] == ['"c.k"', '"c.m"', '"c.z"', '"c.time"', '"b.y"']


# -- time bounds


@pytest.mark.parametrize(
    "within",
    [
        "5 SECONDS",
        "INTERVAL 5 SECONDS",
        "'5 seconds'",
        "INTERVAL '5' SECOND",
        "interval '5 seconds'",
        "4 seconds 1 second",
    ],
)
def test_ways_to_write_within(within: str) -> None:
    assert _join(f"a JOIN b ON a.k = b.k WITHIN {within}").bounds == (TimeBound("a", "b", -5 * SECOND, 5 * SECOND),)


@pytest.mark.parametrize(
    ("condition", "low", "high"),
    [
        ("b.ts BETWEEN a.ts - INTERVAL 2 SECONDS AND a.ts + INTERVAL 3 SECONDS", -2 * SECOND, 3 * SECOND),
        ("a.ts BETWEEN b.ts - INTERVAL 2 SECONDS AND b.ts + INTERVAL 3 SECONDS", -3 * SECOND, 2 * SECOND),
        ("b.ts >= a.ts AND b.ts <= a.ts + INTERVAL 1 MINUTE", 0, 60 * SECOND),
        ("b.ts > a.ts AND a.ts + INTERVAL 1 MINUTE > b.ts", 1, 60 * SECOND - 1),
        ("b.ts - INTERVAL 1 SECOND <= a.ts AND INTERVAL 1 SECOND + b.ts >= a.ts", -SECOND, SECOND),
        ("b.ts - a.ts BETWEEN INTERVAL -1 SECOND AND INTERVAL 2 SECONDS", -SECOND, 2 * SECOND),
        ("a.ts - b.ts < INTERVAL 1 DAY AND - INTERVAL 1 HOUR < a.ts - b.ts", -86400 * SECOND + 1, 3600 * SECOND - 1),
        (
            "(b.ts >= a.ts - INTERVAL 9 SECONDS) AND (b.ts <= a.ts) AND b.ts >= a.ts - INTERVAL 2 SECONDS",
            -2 * SECOND,
            0,
        ),
        ("a.ts = b.ts - INTERVAL 4 SECONDS", 4 * SECOND, 4 * SECOND),
    ],
)
def test_bounds_over_event_times(condition: str, low: int, high: int) -> None:
    in_on = _bind(f"SELECT 1 FROM a JOIN b ON a.k = b.k AND {condition}", _columns("int"), _columns("timestamp"))
    in_where = _bind(f"SELECT 1 FROM a, b WHERE {condition} AND a.k = b.k", _columns("int"), _columns("timestamp"))
    for query in (in_on, in_where):
        assert query.join is not None
        assert query.join.bounds == (TimeBound("a", "b", low, high),)
        assert query.where is None


def test_within_and_conditions_intersect() -> None:
    join = _join("a JOIN b ON a.k = b.k AND b.ts >= a.ts WITHIN 5 SECONDS")
    assert join.bounds == (TimeBound("a", "b", 0, 5 * SECOND),)


def test_what_is_not_written_follows_from_the_others() -> None:
    join = _join(
        "a JOIN b ON a.k = b.k WITHIN 5 SECONDS JOIN c ON b.k = c.k "
        "AND c.time >= a.ts AND c.time <= b.ts + INTERVAL 1 SECOND"
    )
    assert join.bounds == (
        TimeBound("a", "b", -5 * SECOND, 5 * SECOND),
        TimeBound("a", "c", 0, 6 * SECOND),
        TimeBound("b", "c", -5 * SECOND, SECOND),
    )


def test_equal_event_times_are_a_key_and_a_bound() -> None:
    join = _join("a JOIN b ON a.ts = b.ts")
    assert _equalities(join) == [("a", '"ts"', "b", '"ts"')]
    assert join.bounds == (TimeBound("a", "b", 0, 0),)


@pytest.mark.parametrize("start", [0, 3])
def test_rows_of_the_same_window(start: int) -> None:
    window = f"'10 seconds', '10 seconds', '{start} seconds'"
    query = _bind(
        f"SELECT 1 FROM a JOIN b ON a.k = b.k AND window(a.ts, {window}) = window(b.ts, {window})", _columns("int")
    )
    assert query.join is not None
    assert query.join.bounds == (TimeBound("a", "b", -10 * SECOND + 1, 10 * SECOND - 1),)
    assert query.where is not None
    assert query.where.columns == ("a.ts", "b.ts")
    times = range(-25 * SECOND, 25 * SECOND, 1_700_001)
    rows = duckdb.execute(
        f'SELECT epoch_us("a.ts"), epoch_us("b.ts"), {query.where.sql} '
        'FROM (SELECT make_timestamp(unnest(?)) AS "a.ts"), (SELECT make_timestamp(unnest(?)) AS "b.ts")',
        [list(times), list(times)],
    ).fetchall()
    assert len(rows) == len(times) ** 2
    for one, other, same in rows:
        first, second = ((us - start * SECOND) // (10 * SECOND) for us in (one, other))
        assert same == (first == second)


# -- what Spark is shown


def test_spark_sees_its_own_language_with_every_place_kept() -> None:
    text = (
        "SELECT a.x\nFROM a JOIN b ON a.k = b.k AND window(a.ts, '1 second')\n= window(b.ts, '1 second') "
        "WITHIN\n5 SECONDS JOIN c ON c.k = a.k WITHIN 1 SECOND WHERE a.x > 1"
    )
    analyzer = Canned(_columns("int"))
    bind("q", text, STREAMS, analyzer)
    (asked,) = analyzer.asked
    assert len(asked) == len(text)
    assert [at for at, char in enumerate(asked) if char == "\n"] == [
        at for at, char in enumerate(text) if char == "\n"
    ]
    shown = " ".join(asked.split())
    assert shown == "SELECT a.x FROM a JOIN b ON a.k = b.k AND TRUE JOIN c ON c.k = a.k WHERE a.x > 1"
    assert asked.index("WHERE") == text.index("WHERE")


def test_types_are_held_against_spark_under_the_same_from() -> None:
    text = "SELECT a.x + 1 FROM a JOIN b p ON a.k = p.k + 2 WITHIN 1 SECOND JOIN t USING (k)"
    analyzer = Canned(_columns("int"), _columns("bigint"), _columns("int"))
    with pytest.raises(SqlError, match="ambiguous"):
        bind("q", text, STREAMS, analyzer, tables=TABLES)
    text = text.replace("USING (k)", "ON t.k = a.k")
    bind("q", text, STREAMS, analyzer, tables=TABLES)
    assert [" ".join(asked.split()) for asked in analyzer.asked[1:]] == [
        "SELECT p.k + 2 AS c0 FROM a JOIN b p ON a.k = p.k + 2",
        "SELECT a.x + 1 AS c0 FROM a JOIN b p ON a.k = p.k + 2 JOIN t ON t.k = a.k",
    ]


def test_a_semi_joins_condition_is_checked_where_both_sides_are_seen() -> None:
    analyzer = Canned(_columns("int"), _columns("int"))
    bind("q", "SELECT 1 FROM a SEMI JOIN b q ON a.k = q.k AND x + y > 3 WITHIN 1 SECOND", STREAMS, analyzer)
    assert analyzer.asked[1] == "SELECT x + y AS c0 FROM `a`, `b` AS `q`"


def test_a_type_that_is_not_sparks_is_refused() -> None:
    with pytest.raises(SqlError, match="not supported") as caught:
        _bind("SELECT 1 FROM a JOIN b ON a.x + 1 = b.y WITHIN 1 SECOND", _columns("int"), _columns("bigint"))
    assert caught.value.detail == "Spark types it as bigint, Thalweg as int"


def test_sparks_complaint_is_shown_in_the_users_text() -> None:
    class Complains:
        @property
        def learned(self) -> Learned:
            return {}

        def analyze(self, sql: str) -> list[tuple[str, str]]:
            raise SqlError("no", sql=sql, span=(7, 10))

    text = "SELECT a.q FROM a JOIN b ON a.k = b.k WITHIN 5 SECONDS"
    with pytest.raises(SqlError) as caught:
        bind("q", text, STREAMS, Complains())
    assert caught.value.sql == text


# -- equalities and selections


@pytest.mark.parametrize(
    ("condition", "left", "right", "type_"),
    [
        ("a.d = b.d", '("d" + 0::DOUBLE)', '("d" + 0::DOUBLE)', "double"),
        ("b.y = a.d", '("d" + 0::DOUBLE)', '(CAST("y" AS DOUBLE) + 0::DOUBLE)', "double"),
        ("a.x = b.k", 'CAST("x" AS BIGINT)', '"k"', "bigint"),
        ("a.s = b.s", '"s"', '"s"', "string"),
        ("b.y = a.small", 'CAST("small" AS INTEGER)', '"y"', "int"),
    ],
)
def test_keys_have_the_type_that_spark_compares_in(condition: str, left: str, right: str, type_: str) -> None:
    join = _join(f"a JOIN b ON {condition} WITHIN 1 SECOND")
    assert _equalities(join) == [("a", left, "b", right)]
    assert {part.expr.type for e in join.equalities for part in (e.left, e.right)} == {type_}


def test_an_equality_is_listed_once() -> None:
    assert len(_join("a JOIN b ON a.k = b.k AND b.k = a.k WITHIN 1 SECOND WHERE a.k = b.k").equalities) == 1


@pytest.mark.parametrize(
    ("condition", "atoms"),
    [
        ("x = 5", [Atom("x", "=", 5)]),
        ("5 <= x", [Atom("x", ">=", 5)]),
        ("x > -3L", [Atom("x", ">", -3)]),
        ("a.d < 0.1", [Atom("d", "<", 0.1)]),
        ("7 <= a.d", [Atom("d", ">=", 7.0)]),
        ("a.d = -0.0", [Atom("d", "=", 0.0)]),
        ("f = 0.1", [Atom("f", "=", 0.1)]),
        ("f = 0.1F", [Atom("f", "=", 0.10000000149011612)]),
        ("a.d = 0.1F", [Atom("d", "=", 0.10000000149011612)]),
        ("x BETWEEN 1 AND 2 AND x >= 1", [Atom("x", "<=", 2), Atom("x", ">=", 1)]),
    ],
)
def test_comparisons_that_an_index_can_answer(condition: str, atoms: list[Atom]) -> None:
    relation = _join(f"a JOIN b ON a.k = b.k WITHIN 1 SECOND WHERE {condition}").relation("a")
    assert (list(relation.atoms), relation.where) == (atoms, None)
    assert all(str(atom.value) == str(wanted.value) for atom, wanted in zip(relation.atoms, atoms, strict=True))


@pytest.mark.parametrize(
    "condition",
    [
        "x <> 5", "x = 1.5", "small < 1000", "small = 128", "a.s = 'u'", "x IN (1, 2)", "x = 1 OR x = 5", "x <=> 5",
        "x NOT BETWEEN 1 AND 2", "x IS NULL", "x = NULL", "a.ts > TIMESTAMP '2024-01-01'", "x > f", "f = 1e39F",
        "NOT x > 5",
    ],
)  # fmt: skip
def test_comparisons_that_it_cannot(condition: str) -> None:
    relation = _join(f"a JOIN b ON a.k = b.k WITHIN 1 SECOND WHERE {condition}").relation("a")
    assert relation.atoms == ()
    assert relation.where is not None
    assert relation.where.type == "boolean"
    assert set(relation.where.columns) <= set(STREAMS["a"].schema.names)


def test_what_can_raise_looks_at_the_comparisons_first() -> None:
    join = _join("a JOIN b ON a.k = b.k WITHIN 1 SECOND WHERE x > 0 AND 10 / x > 2", _columns("double"))
    relation = join.relation("a")
    assert relation.atoms == (Atom("x", ">", 0),)
    assert relation.where is not None
    assert relation.where.sql.startswith('CASE WHEN NOT ("x" > CAST(0 AS INTEGER)) THEN FALSE ELSE')


def test_conditions_that_say_nothing_are_left_out() -> None:
    query = _bind("SELECT 1 FROM a JOIN b ON TRUE AND a.k = b.k WITHIN 1 SECOND WHERE TRUE", _columns("int"))
    assert query.where is None


# -- outer, semi and anti


@pytest.mark.parametrize(
    ("words", "kind", "preserved", "on", "of_a", "of_b"),
    [
        ("LEFT JOIN", "outer", ("a",), '"a.x" > 1', 0, 1),
        ("LEFT OUTER JOIN", "outer", ("a",), '"a.x" > 1', 0, 1),
        ("RIGHT JOIN", "outer", ("b",), '"b.y" > 2', 1, 0),
        ("FULL JOIN", "outer", ("a", "b"), '"a.x" > 1 "b.y" > 2', 0, 0),
        ("LEFT SEMI JOIN", "semi", ("a",), '"a.x" > 1', 0, 1),
        ("ANTI JOIN", "anti", ("a",), '"a.x" > 1', 0, 1),
    ],
)
def test_conditions_of_on(words: str, kind: str, preserved: tuple[str, ...], on: str, of_a: int, of_b: int) -> None:
    join = _join(f"a {words} b ON a.k = b.k AND a.x > 1 AND b.y > 2 AND a.d < b.d WITHIN 5 SECONDS")
    assert (join.kind, join.preserved) == (kind, preserved)
    assert (len(join.relation("a").atoms), len(join.relation("b").atoms)) == (of_a, of_b)
    assert join.on is not None
    listed = join.on.sql.replace("CAST(1 AS INTEGER)", "1").replace("CAST(2 AS INTEGER)", "2")
    for token in ("(", ")", "AND "):
        listed = listed.replace(token, "")
    assert listed == f'{on} "a.d" < "b.d"'


@pytest.mark.parametrize(
    ("words", "of_a", "of_b", "where"),
    [
        ("LEFT JOIN", 1, 0, '("b.y" > CAST(2 AS INTEGER))'),
        ("RIGHT JOIN", 0, 1, '("a.x" > CAST(1 AS INTEGER))'),
        ("FULL JOIN", 0, 0, '(("a.x" > CAST(1 AS INTEGER)) AND ("b.y" > CAST(2 AS INTEGER)))'),
    ],
)
def test_conditions_of_where_after_an_outer_join(words: str, of_a: int, of_b: int, where: str) -> None:
    query = _bind(
        f"SELECT 1 FROM a {words} b ON a.k = b.k WITHIN 5 SECONDS WHERE a.x > 1 AND b.y > 2", _columns("int")
    )
    assert query.join is not None
    assert (len(query.join.relation("a").atoms), len(query.join.relation("b").atoms)) == (of_a, of_b)
    assert _sql(query.where) == where


def test_a_semi_join_selects_from_its_left_side() -> None:
    query = _bind(
        "SELECT x, k FROM a SEMI JOIN b ON a.k = b.k WITHIN 5 SECONDS WHERE x > 3", _columns("int", "bigint")
    )
    assert query.join is not None
    assert query.join.relation("a").atoms == (Atom("x", ">", 3),)
    assert [o.expr.sql for o in query.outputs] == ['"a.x"', '"a.k"']


def test_rows_of_the_same_window_in_an_outer_join() -> None:
    query = _bind(
        "SELECT 1 FROM a LEFT JOIN b ON a.k = b.k AND window(a.ts, '1 hour') = window(b.ts, '1 hour')",
        _columns("int"),
    )
    assert query.where is None
    assert query.join is not None
    assert query.join.on is not None
    assert query.join.on.columns == ("a.ts", "b.ts")


def test_a_window_after_an_outer_join_is_over_the_preserved_side() -> None:
    text = "SELECT count(b.y) FROM a LEFT JOIN b ON a.k = b.k WITHIN 5 SECONDS GROUP BY window(a.ts, '1 hour')"
    assert _bind(text, _columns("bigint")).time == "a.ts"


# -- USING


def test_using_is_an_equality_and_one_column() -> None:
    columns = [("k", "bigint"), *((f.name, f.type) for n in "bc" for f in STREAMS[n].schema.fields if f.name != "k")]
    query = _bind("SELECT * FROM b JOIN c USING (k) WITHIN 5 SECONDS WHERE k > 3", columns)
    assert query.join is not None
    assert _equalities(query.join) == [("b", '"k"', "c", 'CAST("k" AS BIGINT)')]
    assert query.join.relation("b").atoms == (Atom("k", ">", 3),)
    assert [o.expr.sql for o in query.outputs][:2] == ['"b.k"', '"b.y"']


@pytest.mark.parametrize(
    ("words", "sql"), [("LEFT", '"a.k"'), ("RIGHT", '"b.k"'), ("FULL", 'COALESCE("a.k", "b.k")')]
)
def test_the_merged_column_of_an_outer_join(words: str, sql: str) -> None:
    query = _bind(f"SELECT k, a.k, b.k FROM a {words} JOIN b USING (k) WITHIN 5 SECONDS", _columns(*["bigint"] * 3))
    assert [o.expr.sql for o in query.outputs] == [sql, '"a.k"', '"b.k"']


def test_a_star_in_an_order_that_is_not_sparks_is_refused() -> None:
    with pytest.raises(SqlError, match="name the columns"):
        _bind(
            "SELECT * FROM d4 JOIN d5 USING (k) WITHIN 5 SECONDS",
            [("ts", "timestamp"), ("k", "bigint"), ("ts", "timestamp")],
        )


# -- tables


def test_a_stream_and_a_table() -> None:
    query = _bind("SELECT x, label FROM a JOIN t ON a.k = t.k AND t.w > x WHERE x > 3", _columns("int", "string"))
    join = query.join
    assert join is not None
    assert [(r.name, r.atoms) for r in join.relations] == [("a", (Atom("x", ">", 3),))]
    assert (join.equalities, join.bounds) == ((), ())
    (table,) = join.tables
    assert (table.name, table.table, table.outer, table.on) == ("t", "t", False, None)
    assert [(known.sql, own.sql) for known, own in table.keys] == [('"a.k"', '"t.k"')]
    assert _sql(query.where) == '("t.w" > CAST("a.x" AS DOUBLE))'


def test_a_left_join_keeps_its_conditions() -> None:
    query = _bind(
        "SELECT 1 FROM a JOIN b ON a.k = b.k WITHIN 5 SECONDS "
        "LEFT JOIN t p ON p.k = a.x + b.y AND p.w > 1 AND a.x > 2 WHERE p.w < 9",
        _columns("int"),
        _columns("int"),
    )
    assert query.join is not None
    (table,) = query.join.tables
    assert table.outer
    assert [(known.sql, own.sql) for known, own in table.keys] == [('CAST(("a.x" + "b.y") AS BIGINT)', '"t.k"')]
    assert table.on is not None
    assert table.on.columns == ("a.x", "t.w")
    assert query.join.relation("a").atoms == ()
    assert _sql(query.where) == "(\"t.w\" < CAST('9.0' AS DOUBLE))"


def test_tables_are_looked_up_in_the_order_in_which_their_keys_are_known() -> None:
    join = _join("t2, t JOIN a ON t.k = a.k WHERE t2.label = t.label")
    assert [(t.name, [(k.sql, o.sql) for k, o in t.keys]) for t in join.tables] == [
        ("t", [('"a.k"', '"t.k"')]),
        ("t2", [('"t.label"', '"t2.label"')]),
    ]


def test_the_same_table_twice() -> None:
    join = _join("a JOIN t ON t.k = a.k LEFT JOIN t q ON q.k = a.x")
    assert [(t.name, t.table) for t in join.tables] == [("t", "t"), ("t#2", "t")]
    assert join.tables[1].keys[0][1].sql == '"t#2.k"'


# -- refused

IN = "SELECT 1 FROM "


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        (IN + "a, b", "no equality connects 'b' with a", "b"),
        (IN + "a JOIN b ON a.x < b.y WITHIN 5 SECONDS", "cross product", "b"),
        (IN + "a JOIN b ON a.k <=> b.k WITHIN 5 SECONDS", "cross product", "b"),
        (IN + "a JOIN b ON a.k = b.k OR x = y", "cross product", "b"),
        (IN + "a, b, d4 q WITHIN 5 SECONDS WHERE a.k = b.k", "no equality connects 'q' with a, b", "d4"),
        (IN + "a JOIN t ON a.k > t.k", "no equality connects 't' with a", "t"),
        (IN + "a JOIN t ON t.k = 5", "no equality connects 't' with a", "t"),
        (IN + "a JOIN b ON a.k = b.k", "without a time bound", "b"),
        (IN + "a JOIN b ON a.k = b.k AND b.ts >= a.ts", "without a time bound", "b"),
        (IN + "a LEFT JOIN b ON a.k = b.k WHERE a.ts = b.ts", "without a time bound", "b"),
        (IN + "a JOIN b ON a.k = b.k AND b.ts < a.ts + INTERVAL 1 MONTH AND b.ts > a.ts", "time bound", "b"),
        (IN + "a JOIN b ON a.k = b.k WITHIN 1 DAY JOIN c ON c.k = b.k AND c.time > b.ts", "time bound", "c"),
        (IN + "a, b WHERE a.k = b.k AND a.ts > b.ts AND a.ts < b.ts", "contradict", "a.ts < b.ts"),
        (
            IN + "a, b, c WITHIN 1 SECOND WHERE a.k = b.k AND b.k = c.k AND c.time > a.ts + INTERVAL 5 SECONDS",
            "contradict", "c.time > a.ts + INTERVAL 5 SECONDS",
        ),
        (IN + "a, b, d4 JOIN d5 ON d4.ts > d5.ts WITHIN 1 DAY WHERE a.k = b.k AND b.k = d4.k AND d5.k = a.k",
         "bounds nothing", "WITHIN 1 DAY"),
        (IN + "a, t WITHIN 1 DAY WHERE a.k = t.k", "bounds nothing", "WITHIN 1 DAY"),
        (IN + "a JOIN t ON a.k = t.k WITHIN 1 DAY", "WITHIN of a table", "WITHIN 1 DAY"),
        (IN + "a JOIN b ON a.k = b.k WITHIN 1 MONTH", "no fixed length", "WITHIN 1 MONTH"),
        (IN + "a JOIN b ON a.k = b.k WITHIN 200000000 DAYS", "73,000 years", "WITHIN 200000000 DAYS"),
        (IN + "a JOIN b ON a.k = b.k AND window(a.ts, '200000000 days') = window(b.ts, '200000000 days')",
         "73,000 years", "'200000000 days'"),
        (IN + "a JOIN b ON a.k = b.k AND a.ts BETWEEN b.ts - INTERVAL 99999999 DAYS AND b.ts",
         "73,000 years", "INTERVAL 99999999 DAYS"),
        (IN + "a JOIN b ON a.k = b.k AND a.ts > b.ts - INTERVAL 15000000 DAYS - INTERVAL 15000000 DAYS",
         "73,000 years", "a.ts > b.ts - INTERVAL 15000000 DAYS - INTERVAL 15000000 DAYS"),
        (IN + "a, b, d4 WITHIN 20000000 DAYS WHERE a.k = b.k AND b.k = d4.k",
         "73,000 years", "WITHIN 20000000 DAYS"),
        (IN + "a JOIN b ON a.k = b.k WITHIN soon", "a length of time", "soon"),
        (IN + "a JOIN b ON a.k = b.k WITHIN 5", "a length of time", "5"),
        (IN + "a, b WITHIN 5 SECONDS, c", "WITHIN here", "WITHIN 5 SECONDS"),
        (IN + "a WITHIN 5 SECONDS", "the end of the query", "WITHIN"),
        ("SELECT k FROM a JOIN b ON a.k = b.k WITHIN 1 DAY", "'k' is ambiguous", "k"),
        ("SELECT x + k AS k FROM a JOIN b ON a.k = b.k WITHIN 1 DAY", "'k' is ambiguous", "k"),
        (IN + "a JOIN b ON k = b.k WITHIN 1 DAY", "'k' is ambiguous", "k"),
        (IN + "a JOIN b ON a.k = b.k WITHIN 1 DAY WHERE s = 'u'", "'s' is ambiguous", "s"),
        (IN + "a JOIN b ON a.k = b.k WITHIN 1 DAY GROUP BY s, window(a.ts, '1 day')", "'s' is ambiguous", "s"),
        (IN + "a JOIN b ON a.kk = b.k WITHIN 1 DAY", "unknown column 'a.kk'", "a.kk"),
        (IN + "a p JOIN b ON a.k = b.k WITHIN 1 DAY", "unknown column 'a.k'", "a.k"),
        (IN + "a, b JOIN c ON a.k = c.k WITHIN 1 DAY", "unknown column 'a.k'", "a.k"),
        (IN + "a JOIN b ON a.k = c.k JOIN c ON c.k = b.k", "unknown column 'c.k'", "c.k"),
        (IN + "a JOIN b USING (x) WITHIN 1 DAY", "unknown column 'x'", "x"),
        (IN + "a JOIN a ON a.k = a.k WITHIN 1 DAY", "two entries named 'a'", "a"),
        (IN + "a JOIN bb ON a.k = bb.k WITHIN 1 DAY", "unknown stream 'bb'", "bb"),
        (IN + "a, b, c, d4, d5, clicks", "at most 5 streams", "clicks"),
        (IN + "a LEFT JOIN b ON a.k = b.k WITHIN 1 DAY JOIN d4 ON d4.k = a.k", "more than two streams", "LEFT JOIN"),
        (IN + "a JOIN b ON a.k = b.k WITHIN 1 DAY LEFT ANTI JOIN c ON a.k = c.k", "more than two", "LEFT ANTI JOIN"),
        (IN + "t LEFT SEMI JOIN a ON t.k = a.k", "LEFT SEMI JOIN after a table", "LEFT SEMI JOIN"),
        (IN + "t ANTI JOIN a ON t.k = a.k", "ANTI JOIN after a table", "ANTI JOIN"),
        ("SELECT count(*) FROM t SEMI JOIN a ON t.k = a.k", "SEMI JOIN after a table", "SEMI JOIN"),
        (IN + "a NATURAL JOIN b", "NATURAL JOIN", "NATURAL"),
        (IN + "a CROSS JOIN b", "CROSS JOIN", "CROSS"),
        (IN + "a JOIN (SELECT 1 AS k) b ON a.k = b.k", "a subquery", "("),
        (IN + "a JOIN b ON a.k IN (SELECT 1)", "a subquery", "SELECT"),
        (IN + "a, LATERAL b", "LATERAL", "LATERAL"),
        (IN + "a JOIN parquet.`/etc/x` ON TRUE", "a path", "parquet.`/etc/x`"),
        (IN + "a JOIN range(5) ON TRUE", "table function", "range"),
        (IN + "a JOIN b ON a.k = b.k AND reflect('a', 'b') = 1", "function 'reflect'", "reflect('a', 'b')"),
        (IN + "a JOIN b ON a.k = b.k AND sum(x) > 1 WITHIN 1 DAY", "an aggregate in ON", "sum(x)"),
        (
            IN + "a JOIN b ON a.k = b.k AND window(a.ts, '2 days', '1 day') = window(b.ts, '2 days', '1 day')",
            "cannot slide", "window(a.ts, '2 days', '1 day')",
        ),
        (
            IN + "a JOIN b ON a.k = b.k AND window(a.ts, '2 days') = window(b.ts, '1 day')",
            "written alike", "window(a.ts, '2 days') = window(b.ts, '1 day')",
        ),
        (
            IN + "a JOIN b ON a.k = b.k AND window(a.ts, '1 day') = window(a.ts, '1 day')",
            "the same stream", "window(a.ts, '1 day') = window(a.ts, '1 day')",
        ),
        (IN + "a JOIN b ON window(a.ts, '1 day').start = b.ts", "window() here", "window(a.ts, '1 day')"),
        (
            IN + "a LEFT JOIN b ON a.k = b.k WITHIN 1 DAY WHERE window(a.ts, '1 day') = window(b.ts, '1 day')",
            "window() here", "window(a.ts, '1 day')",
        ),
        (
            IN + "a JOIN b ON a.k = b.k WITHIN 1 DAY GROUP BY window(a.ts, '1 day'), window(b.ts, '1 day')",
            "one window", "window(b.ts, '1 day')",
        ),
        ("SELECT sum(x) FROM a JOIN b ON a.k = b.k WITHIN 1 DAY", "needs a window", "sum(x)"),
        ("SELECT b.y FROM a SEMI JOIN b ON a.k = b.k WITHIN 1 DAY", "after SEMI JOIN", "b.y"),
        (IN + "a ANTI JOIN b ON a.k = b.k WITHIN 1 DAY WHERE b.y > 1", "after ANTI JOIN", "b.y"),
        (IN + "t", "at least one stream", "t"),
        (IN + "t JOIN t2 ON t.label = t2.label", "at least one stream", "t"),
        (IN + "a RIGHT JOIN t ON a.k = t.k", "RIGHT JOIN with a table", "RIGHT JOIN"),
        (IN + "a SEMI JOIN t ON a.k = t.k", "SEMI JOIN with a table", "SEMI JOIN"),
        (IN + "t LEFT JOIN a ON a.k = t.k", "LEFT JOIN after a table", "LEFT JOIN"),
        (IN + "a JOIN t ON a.k = t.k FULL JOIN b ON a.k = b.k WITHIN 1 DAY", "FULL JOIN after a table", "FULL JOIN"),
        (IN + "a JOIN t ON a.k = t.k LEFT JOIN b ON b.k = t.k WITHIN 1 DAY", "a table's column", "b.k = t.k"),
    ],
)  # fmt: skip
def test_refused_before_spark_is_asked(text: str, message: str, place: str) -> None:
    with pytest.raises(SqlError) as caught:
        _bind(text)
    assert message in caught.value.message
    assert caught.value.span is not None
    assert text[slice(*caught.value.span)] == place
    assert "^" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        (IN + "a JOIN b ON a.ts = b.y WITHIN 1 DAY", "types timestamp and int", "a.ts = b.y"),
        (IN + "a JOIN b ON a.s = b.ts AND a.k = b.k WITHIN 1 DAY", "a cast from string to timestamp", "a.s"),
        (IN + "a JOIN t ON a.ts = t.w", "types timestamp and double", "a.ts = t.w"),
        (
            IN + "a LEFT JOIN b ON a.k = b.k WITHIN 1 DAY GROUP BY window(b.ts, '1 day')",
            "the side that keeps all its rows", "GROUP BY window(b.ts, '1 day')",
        ),
        (
            IN + "a FULL JOIN b ON a.k = b.k WITHIN 1 DAY GROUP BY window(a.ts, '1 day')",
            "the side that keeps all its rows", "GROUP BY window(a.ts, '1 day')",
        ),
    ],
)  # fmt: skip
def test_refused_after_spark_agreed(text: str, message: str, place: str) -> None:
    with pytest.raises(SqlError) as caught:
        _bind(text, _columns("int"))
    assert message in caught.value.message
    assert caught.value.span is not None
    assert text[slice(*caught.value.span)] == place


def test_the_candidates_of_an_ambiguous_name_are_offered() -> None:
    with pytest.raises(SqlError) as caught:
        _bind("SELECT s FROM a p JOIN b ON p.k = b.k WITHIN 1 DAY")
    assert caught.value.hint == "write p.s or b.s"
