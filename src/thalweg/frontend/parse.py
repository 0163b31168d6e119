"""Text -> the tree of one SELECT over streams and tables."""

from __future__ import annotations

from collections.abc import Mapping

from thalweg.errors import bad_syntax
from thalweg.frontend.expressions import RESERVED, ExpressionParser
from thalweg.frontend.intervals import unit_of
from thalweg.frontend.literals import interval_literal
from thalweg.frontend.tree import Column, FromSource, Item, Node, Select, Sort, Span, Within
from thalweg.model.own import Definition

_JOINS = (
    (("inner", "join"), "inner"),
    (("join",), "inner"),
    (("left", "semi", "join"), "semi"),
    (("semi", "join"), "semi"),
    (("left", "anti", "join"), "anti"),
    (("anti", "join"), "anti"),
    *(((side, *word, "join"), side) for side in ("left", "right", "full") for word in (("outer",), ())),
)
"""The words of each kind of join, longer ones before those they begin with."""
_SETS = ("union", "except", "intersect", "minus")
_TAILS = ("qualify", "sort", "cluster", "distribute", "offset", "tablesample", "pivot", "unpivot", "window")
_GROUPINGS = ("rollup", "cube", "grouping")


def parse_select(text: str, own: Mapping[str, Definition] | None = None) -> Select:
    """`own`: the aggregates that the user has defined."""
    parser = SelectParser(text)
    parser.own = own or parser.own
    return parser.select()


class SelectParser(ExpressionParser):
    def select(self) -> Select:
        """The clauses in the order in which SQL wants them; the text must end with the last."""
        if self.is_word("with"):
            raise self.refuse("WITH", self.token.span, "write the query as one SELECT")
        if self.is_word("create"):
            raise bad_syntax(
                "this is a statement, where a SELECT is wanted", self.text, self.token.span,
                hint="give the SELECT alone, or the whole statement to session.sql(...)",
            )  # fmt: skip
        self.expect_word("select")
        if self.is_word("distinct"):
            raise self.refuse("SELECT DISTINCT", self.token.span, "group by the columns and a window instead")
        items = self.listed(self._item)
        if not self.is_word("from"):
            raise self.expected("',' or FROM")
        self.next()
        sources, within = self._from()
        where = self.expression() if self.take_words("where") else None
        group, group_span = self._group()
        having = self.expression() if self.take_words("having") else None
        order, order_span = self._order()
        limit, limit_span = self._limit()
        self._end()
        return Select(
            items, sources, within, where, group, group_span, having, order, order_span, limit, limit_span,
        )  # fmt: skip

    def _item(self) -> Item:
        expr = self.expression()
        if self.take_words("as"):
            if self.is_op("("):
                raise self.refuse("an alias of several names", self.token.span)
            return Item(expr, self.name("an alias").value)
        if self.token.kind == "quoted" or (self.token.kind == "name" and self.token.word not in RESERVED):
            return Item(expr, self.next().value)
        return Item(expr, None)

    def _from(self) -> tuple[tuple[FromSource, ...], Within | None]:
        """The entries of FROM, and the WITHIN that stands for all of them."""
        sources = [self._source("inner", self.token.span, apart=True)]
        while (source := self._joined()) is not None:
            sources.append(source)
        within = self._within() if len(sources) > 1 else None
        if within is not None and (self.is_op(",") or self._kind() is not None):
            raise self.refuse("WITHIN here", within.span, "write it after ON, or once at the end of FROM")
        return tuple(sources), within

    def _joined(self) -> FromSource | None:
        start = self.token
        if self.take_op(","):
            if self.is_word("lateral"):
                raise self.refuse("LATERAL", self.token.span)
            return self._source("inner", start.span, apart=True)
        if self.is_word("cross", "natural", "lateral"):
            hint = "write JOIN ... ON a.key = b.key WITHIN 5 SECONDS"
            raise self.refuse(
                f"{start.text.upper()} JOIN" if start.word != "lateral" else "LATERAL", start.span, hint
            )
        found = self._kind()
        if found is None:
            return None
        words, kind = found
        self.take_words(*words)
        return self._source(kind, self.since(start.start), apart=False)

    def _kind(self) -> tuple[tuple[str, ...], str] | None:
        for words, kind in _JOINS:
            if all(self.peek(i).word == word for i, word in enumerate(words)):
                return words, kind
        return None

    def _source(self, kind: str, kind_span: Span, apart: bool) -> FromSource:
        if self.is_op("("):
            raise self.refuse("a subquery", self.token.span, "name a stream or a table")
        name = self.name("a stream")
        if self.is_op("."):
            self.next()
            self.name("a name")
            raise self.refuse("a path or a qualified table", self.since(name.start), "name a stream or a table")
        if self.is_op("("):
            raise self.refuse(
                "a table function", self.since(name.start),
                "name a stream or a table; windows are in GROUP BY: window(time, '1 minute')",
            )  # fmt: skip
        alias: str | None = None
        if self.take_words("as"):
            alias = self.name("an alias").value
        elif self.token.kind == "quoted" or (self.token.kind == "name" and self.token.word not in RESERVED):
            alias = self.next().value
        on, using = self._condition() if not apart else (None, ())
        within = self._within() if on is not None or using else None
        return FromSource(
            name.value, name.span, alias, kind, kind_span, apart, on, using, within, self.since(name.start)[1]
        )  # fmt: skip

    def _condition(self) -> tuple[Node | None, tuple[Column, ...]]:
        if self.take_words("on"):
            return self.expression(), ()
        if not self.take_words("using"):
            return None, ()
        self.expect_op("(")
        names = self.listed(lambda: self.name("a column"))
        self.expect_op(")")
        return None, tuple(Column(name.span, (name.value,)) for name in names)

    def _within(self) -> Within | None:
        start = self.token.start
        if not self.take_words("within"):
            return None
        self.take_words("interval")
        if self.token.kind != "string" and not (self.token.kind == "number" and unit_of(self.peek().word)):
            raise self.expected("a length of time, such as 5 SECONDS")
        interval = interval_literal(self, start)
        if interval.months or interval.us < 0:
            reason = "a month has no fixed length" if interval.months else "it is negative"
            raise bad_syntax(f"not a bound: {reason}", self.text, interval.span)
        return Within(interval.us, interval.span)

    def _group(self) -> tuple[tuple[Node, ...], Span | None]:
        start = self.token.start
        if not self.take_words("group", "by"):
            return (), None
        if self.is_word("all"):
            raise self.refuse("GROUP BY ALL", self.token.span, "list the grouping expressions")
        keys = self.listed(self._grouping)
        if self.is_word("with") and self.peek().word in _GROUPINGS:
            raise self.refuse("WITH " + self.peek().text.upper(), (self.token.start, self.peek().end))
        if self.is_word("grouping"):
            raise self.refuse("GROUPING SETS", self.token.span)
        return keys, self.since(start)

    def _grouping(self) -> Node:
        if self.is_word(*_GROUPINGS) and (self.peek().text == "(" or self.peek().word == "sets"):
            raise self.refuse(self.token.text.upper(), self.token.span, "create one query per grouping")
        return self.expression()

    def _order(self) -> tuple[tuple[Sort, ...], Span | None]:
        start = self.token.start
        if not self.take_words("order", "by"):
            return (), None
        sorts = self.listed(self._sort)
        return sorts, self.since(start)

    def _sort(self) -> Sort:
        expr = self.expression()
        descending = self.take_words("desc")
        if not descending:
            self.take_words("asc")
        nulls_first = not descending
        if self.take_words("nulls", "first"):
            nulls_first = True
        elif self.take_words("nulls", "last"):
            nulls_first = False
        return Sort(expr, descending, nulls_first)

    def _limit(self) -> tuple[int | None, Span | None]:
        start = self.token.start
        if not self.take_words("limit"):
            return None, None
        if self.token.kind != "number" or not self.token.text.isdigit():
            raise self.expected("a whole number")
        limit = int(self.next().text)
        return limit, self.since(start)

    def _end(self) -> None:
        while self.take_op(";"):
            pass
        token = self.token
        if token.kind == "end":
            return
        if token.word in _SETS:
            raise self.refuse(token.text.upper(), token.span, "create one query for each SELECT")
        if token.word in _TAILS:
            raise self.refuse(token.text.upper(), token.span)
        raise self.expected("the end of the query")
