"""Unit: calls of users' own aggregates are bound like any other; Spark is shown a stand-in of the same type."""

from __future__ import annotations

import pytest

from thalweg.errors import SqlError
from thalweg.frontend.bind import bind
from thalweg.frontend.functions import FUNCTIONS
from thalweg.frontend.parse import parse_select
from thalweg.frontend.standins import stand_in
from thalweg.frontend.tree import Call, walk
from thalweg.model.analysis import Learned
from thalweg.model.own import OWN, Definition
from thalweg.model.query import Query
from thalweg.model.stream import Field, Schema, SourceSpec, Stream

FIELDS = (Field("k", "int"), Field("x", "double"), Field("ts", "timestamp"))
STREAM = Stream("s", Schema(FIELDS), "ts", 0, SourceSpec("memory", {}))
MINE = {"mine": Definition("mine", "double", "v1", b""), "lists": Definition("lists", "array<bigint>", "v2", b"")}
TAIL = "FROM s GROUP BY k, window(ts, '1 minute')"


class Canned:
    """Answers with one list of columns for the query, and with double for every expression within."""

    def __init__(self, *types: str) -> None:
        self.columns = [(f"c{i}", type_) for i, type_ in enumerate(types)]
        self.asked: list[str] = []

    @property
    def learned(self) -> Learned:
        return {}

    def analyze(self, sql: str) -> list[tuple[str, str]]:
        self.asked.append(sql)
        return self.columns if len(self.asked) == 1 else [("e", "double")]


def _bind(select: str, *types: str) -> tuple[Query, Canned]:
    spark = Canned(*types)
    return bind("q", select, {"s": STREAM}, spark, own=MINE), spark


def test_a_call_with_a_filter_beside_others() -> None:
    select = f"SELECT k, Mine(X, x + 1) FILTER (WHERE k > 1) AS m, sum(x) {TAIL}"
    query, spark = _bind(select, "int", "double", "double")
    call = query.aggregates[0]
    assert (call.function, call.type) == (OWN, "double")
    assert call.own is not None
    assert (call.own.name, call.own.columns, call.own.version) == ("mine", ("X", "a1"), "v1")
    assert call.filter is not None
    assert query.outputs[1].expr.fails, "a user's finish can raise"
    shown = f"SELECT k, max_by(CAST(NULL AS double), struct(X, x + 1)) FILTER (WHERE k > 1) AS m, sum(x) {TAIL}"
    assert spark.asked[0] == shown


def test_having_and_order_by_share_one_aggregate() -> None:
    query, _ = _bind(f"SELECT mine(x) + 1 AS m {TAIL} HAVING mine( x ) > 2 ORDER BY mine(x) LIMIT 3", "double")
    assert len(query.aggregates) == 1
    assert query.having is not None
    assert query.having.fails
    assert query.order[0].expr.sql == '"a0"'


def test_a_result_without_a_name_is_named_by_its_text() -> None:
    types = ("int", "double", "double", "array<bigint>")
    query, _ = _bind(f"SELECT k, mine(x ,\n k)  + 1, mine(x) AS m, lists(k) {TAIL}", *types)
    assert [o.name for o in query.outputs] == ["c0", "mine(x , k) + 1", "c2", "lists(k)"]


BAD = [
    (f"SELECT mine(DISTINCT x) {TAIL}", "mine(DISTINCT x)", "DISTINCT"),
    (f"SELECT mine() {TAIL}", "mine()", "one argument or more"),
    (f"SELECT mine(*) {TAIL}", "mine(*)", "one argument or more"),
    (f"SELECT mine(x) IGNORE NULLS {TAIL}", "mine(x) IGNORE NULLS", "IGNORE NULLS"),
    (f"SELECT mine(NULL) {TAIL}", "NULL", "NULL as an argument"),
    ("SELECT mine(x) FROM s", "mine(x)", "needs a window"),
    ("SELECT k FROM s WHERE mine(x) > 1 GROUP BY k, window(ts, '1 minute')", "mine(x)", "aggregate in WHERE"),
    (f"SELECT yours(x) {TAIL}", "yours(x)", "yours"),
    (f"SELECT lists(k) + 1 {TAIL}", "lists(k) + 1", "array"),
    (f"SELECT CAST(lists(k) AS string) {TAIL}", "CAST(lists(k) AS string)", "array"),
]


@pytest.mark.parametrize(("select", "place", "word"), BAD)
def test_what_cannot_be_said_is_refused_at_its_place(select: str, place: str, word: str) -> None:
    with pytest.raises(SqlError) as caught:
        _bind(select, "double")
    assert word in str(caught.value)
    assert caught.value.span is not None
    assert select[slice(*caught.value.span)] == place


def test_an_error_of_spark_points_into_the_users_text() -> None:
    select = f"SELECT mine(x), mine(x, mine(nope)), broken(k) {TAIL}"
    tree = parse_select(select, MINE)
    calls = [n for item in tree.items for n in walk(item.expr) if isinstance(n, Call) and n.own is not None]
    shown = stand_in(select, [(call, "double") for call in calls])
    for word in ("nope", "broken", "window(ts"):
        at = shown.text.index(word)
        error = shown.back(SqlError("no", sql=shown.text, span=(at, at + len(word))))
        assert error.span is not None
        assert select[slice(*error.span)] == word
    inside = shown.text.index("max_by")
    error = shown.back(SqlError("no", sql=shown.text, span=(inside, inside + 6)))
    assert error.span is not None
    assert 0 <= error.span[0] < error.span[1] <= len(select)


def test_without_own_aggregates_spark_is_shown_the_text_as_it_is() -> None:
    _, spark = _bind(f"SELECT avg(x) {TAIL}", "double")
    assert spark.asked[0] == f"SELECT avg(x) {TAIL}"
    assert "mine" not in FUNCTIONS
