"""Text -> the tree of one SELECT over one stream."""

from __future__ import annotations

from thalweg.sql.expressions import RESERVED, ExpressionParser
from thalweg.sql.lex import Token
from thalweg.sql.tree import Item, Node, Select, Sort, Span

_JOINS = ("join", "inner", "left", "right", "full", "cross", "natural", "anti", "semi", "lateral")
_SETS = ("union", "except", "intersect", "minus")
_TAILS = ("qualify", "sort", "cluster", "distribute", "offset", "tablesample", "pivot", "unpivot", "window")
_GROUPINGS = ("rollup", "cube", "grouping")


def parse_select(text: str) -> Select:
    return SelectParser(text).select()


class SelectParser(ExpressionParser):
    def select(self) -> Select:
        """The clauses in the order in which SQL wants them; the text must end with the last."""
        if self.is_word("with"):
            raise self.refuse("WITH", self.token.span, "write the query as one SELECT over one stream")
        self.expect_word("select")
        if self.is_word("distinct"):
            raise self.refuse("SELECT DISTINCT", self.token.span, "group by the columns and a window instead")
        items = self.listed(self._item)
        if not self.is_word("from"):
            raise self.expected("',' or FROM")
        self.next()
        stream, alias = self._from()
        where = self.expression() if self.take_words("where") else None
        group, group_span = self._group()
        having = self.expression() if self.take_words("having") else None
        order, order_span = self._order()
        limit, limit_span = self._limit()
        self._end()
        return Select(
            items, stream.value, stream.span, alias, where, group, group_span, having,
            order, order_span, limit, limit_span,
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

    def _from(self) -> tuple[Token, str | None]:
        if self.is_op("("):
            raise self.refuse("a subquery", self.token.span, "name one stream after FROM")
        stream = self.name("a stream")
        if self.is_op("."):
            self.next()
            self.name("a name")
            raise self.refuse("a path or a qualified table", self.since(stream.start), "name one stream after FROM")
        if self.is_op("("):
            raise self.refuse("a table function", self.since(stream.start), "name a stream")
        alias: str | None = None
        if self.take_words("as"):
            alias = self.name("an alias").value
        elif self.token.kind == "quoted" or (self.token.kind == "name" and self.token.word not in RESERVED):
            alias = self.next().value
        if self.is_op(",") or self.token.word in _JOINS:
            raise self.refuse("a join", self.token.span, "one stream per query for now")
        return stream, alias

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
