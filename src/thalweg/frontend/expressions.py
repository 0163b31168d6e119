"""Tokens -> tree for expressions, with the precedence of Spark's own grammar.

The grammar is written out, not borrowed, because it is the first half of the allow-list: what has no rule
here cannot reach Spark's analyser. Each node keeps its place in the text, a function the name it was given.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from thalweg.frontend.cursor import Cursor
from thalweg.frontend.lex import Token
from thalweg.frontend.literals import interval_literal, number_literal, read_type, typed_literal
from thalweg.frontend.tree import (
    Access,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Column,
    In,
    Is,
    Like,
    Literal,
    Node,
    Star,
    Unary,
)
from thalweg.frontend.window_kinds import spell_out
from thalweg.model.own import Definition

RESERVED = frozenset(
    (  # noqa: SIM905 - a list would be formatted to one word a line
        "from where group having order limit union except intersect minus join inner left right full cross "
        "natural anti semi on using lateral window qualify sort cluster distribute offset tablesample pivot "
        "unpivot emit and or not between in like ilike rlike regexp is as then when else end asc desc nulls "
        "div case within with by escape select"
    ).split()
)
"""Words that end an expression: never an alias without AS."""

_LEVELS: tuple[tuple[str, ...], ...] = (
    ("=", "==", "<=>", "<>", "!=", "<", "<=", ">", ">="),
    ("|",),
    ("^",),
    ("&",),
    ("<<", ">>"),
    ("+", "-", "||"),
    ("*", "/", "%", "div"),
)
_STRENGTH = {op: level for level, ops in enumerate(_LEVELS) for op in ops}
_SAME = {"==": "=", "!=": "<>"}
_TYPED = ("date", "timestamp", "timestamp_ntz", "timestamp_ltz")


class ExpressionParser(Cursor):
    own: Mapping[str, Definition] = MappingProxyType({})
    """The aggregates that the user has defined."""

    def expression(self) -> Node:
        """OR binds weakest, then AND, NOT, predicates, comparisons, and so on down to unary signs."""
        left = self._conjunction()
        while self.take_words("or"):
            right = self._conjunction()
            left = Binary(self.since(left.span[0]), "or", left, right)
        return left

    def _conjunction(self) -> Node:
        left = self._negation()
        while self.take_words("and"):
            right = self._negation()
            left = Binary(self.since(left.span[0]), "and", left, right)
        return left

    def _negation(self) -> Node:
        token = self.token
        if self.is_word("not") or self.is_op("!"):
            self.next()
            arg = self._negation()
            return Unary(self.since(token.start), "not", arg)
        if self.is_word("exists") and self.peek().text == "(":
            raise self.refuse("EXISTS", token.span)
        return self._predicate()

    def _predicate(self) -> Node:
        arg = self.value(0)
        start = arg.span[0]
        negated = False
        if self.is_word("not") and self.peek().word in ("between", "in", "like", "ilike", "rlike", "regexp"):
            self.next()
            negated = True
        if self.take_words("between"):
            low = self.value(0)
            self.expect_word("and")
            high = self.value(0)
            return Between(self.since(start), arg, low, high, negated)
        if self.take_words("in"):
            return self._in(arg, negated)
        if self.take_words("like"):
            return self._like(arg, negated)
        if self.is_word("ilike", "rlike", "regexp"):
            raise self.refuse(self.token.text.upper(), self.token.span, "use LIKE, startswith or contains")
        if self.take_words("is"):
            return self._is(arg)
        return arg

    def _in(self, arg: Node, negated: bool) -> Node:
        self.expect_op("(")
        if self.is_word("select", "with"):
            raise self.refuse("a subquery", self.token.span)
        options = self.listed(self.expression)
        self.expect_op(")")
        return In(self.since(arg.span[0]), arg, options, negated)

    def _like(self, arg: Node, negated: bool) -> Node:
        if self.is_word("any", "some", "all") and self.peek().text == "(":
            what = "LIKE " + self.token.text.upper()
            raise self.refuse(what, self.token.span, "write several LIKE with OR")
        pattern = self.value(0)
        escape = "\\"
        if self.take_words("escape"):
            token = self.next()
            if token.kind != "string" or len(token.value) != 1:
                self.at -= 1
                raise self.expected("a string of one character")
            escape = token.value
        return Like(self.since(arg.span[0]), arg, pattern, escape, negated)

    def _is(self, arg: Node) -> Node:
        negated = self.take_words("not")
        start = arg.span[0]
        if self.take_words("distinct", "from"):
            right = self.value(0)
            same = Binary(self.since(start), "<=>", arg, right)
            return same if negated else Unary(same.span, "not", same)
        for word, what in (("null", "null"), ("true", "true"), ("false", "false"), ("unknown", "null")):
            if self.take_words(word):
                return Is(self.since(start), arg, what, negated)
        raise self.expected("NULL, TRUE, FALSE or DISTINCT FROM")

    def value(self, level: int) -> Node:
        """Binary operators that bind as strongly as the level or stronger, all left-associative."""
        left = self._signed()
        while (found := self._level()) >= level:
            op = self.next().text.lower()
            right = self.value(found + 1)
            left = Binary(self.since(left.span[0]), _SAME.get(op, op), left, right)
        return left

    def _level(self) -> int:
        """How strongly the operator at the cursor binds; -1 where there is none."""
        if self.token.kind == "op" or self.is_word("div"):
            return _STRENGTH.get(self.token.text.lower(), -1)
        return -1

    def _signed(self) -> Node:
        if not self.is_op("-", "+", "~"):
            return self._postfix()
        token = self.next()
        if token.text == "-" and self.token.kind == "number":
            # Spark's grammar takes the sign into the number: -2147483648 is an int, not a negated bigint.
            number = number_literal(self.next(), self.text, negative=True)
            return self._postfix(Literal(self.since(token.start), number.value, number.type))
        arg = self._signed()
        return Unary(self.since(token.start), token.text, arg)

    def _postfix(self, primary: Node | None = None) -> Node:
        node = self._primary() if primary is None else primary
        while True:
            start = node.span[0]
            if self.take_op("::"):
                kind = read_type(self)
                node = Cast(self.since(start), node, kind, False)
            elif self.is_op(".") and isinstance(node, Call):
                self.next()
                field = self.name("a field name")
                node = Access(self.since(start), node, field.value)
            elif self.is_op("["):
                raise self.refuse("an element access", self.token.span)
            else:
                return node

    def _primary(self) -> Node:
        token = self.token
        if token.kind == "number":
            return number_literal(self.next(), self.text)
        if token.kind == "string":
            return self._strings()
        if self.is_op("("):
            return self._parenthesis()
        if self.is_op("*"):
            return Star(self.next().span)
        if token.kind in ("name", "quoted"):
            return self._named(token)
        raise self.expected("an expression")

    def _strings(self) -> Node:
        start, value = self.token.start, ""
        while self.token.kind == "string":
            value += self.next().value
        return Literal(self.since(start), value, "string")

    def _parenthesis(self) -> Node:
        start = self.next().start
        if self.is_word("select", "with"):
            raise self.refuse("a subquery", self.token.span)
        inner = self.expression()
        if self.is_op(","):
            raise self.refuse("a row of several values", (start, self.token.end))
        self.expect_op(")")
        if self.is_op("->"):
            raise self.refuse("a lambda", self.token.span)
        return _respan(inner, self.since(start))

    def _named(self, token: Token) -> Node:
        word, following = token.word, self.peek()
        if word in ("true", "false"):
            return Literal(self.next().span, word == "true", "boolean")
        if word == "null":
            return Literal(self.next().span, None, "void")
        if word in _TYPED and following.kind == "string":
            self.next()
            value = self.next().value
            return typed_literal(word, value, self.text, self.since(token.start))
        if word == "interval" and (following.kind in ("number", "string") or following.text == "-"):
            self.next()
            return interval_literal(self, token.start)
        if word == "x" and following.kind == "string" and following.start == token.end:
            raise self.refuse("a binary literal", (token.start, following.end))
        if word == "case":
            return self._case()
        if following.kind == "op" and following.text == "(":
            return self._call()
        if word in RESERVED and word not in ("window", "left", "right"):
            raise self.expected("an expression")
        return self._column()

    def _column(self) -> Node:
        first = self.name("a column")
        parts = [first.value]
        while self.is_op("."):
            self.next()
            if self.is_op("*"):
                self.next()
                return Star(self.since(first.start), ".".join(parts))
            parts.append(self.name("a column name").value)
        if self.is_op("->"):
            raise self.refuse("a lambda", self.token.span)
        return Column(self.since(first.start), tuple(parts))

    def _case(self) -> Node:
        start = self.next().start
        operand = None if self.is_word("when") else self.expression()
        whens: list[tuple[Node, Node]] = []
        while self.take_words("when"):
            condition = self.expression()
            self.expect_word("then")
            whens.append((condition, self.expression()))
        if not whens:
            raise self.expected("WHEN")
        default = self.expression() if self.take_words("else") else None
        self.expect_word("end")
        return Case(self.since(start), operand, tuple(whens), default)

    def _call(self) -> Node:
        token = self.next()
        name = token.value.lower()
        self.expect_op("(")
        if name in ("cast", "try_cast"):
            arg = self.expression()
            self.expect_word("as")
            kind = read_type(self)
            self.expect_op(")")
            return Cast(self.since(token.start), arg, kind, name == "try_cast")
        if name == "extract":
            unit = self.name("a unit of time")
            self.expect_word("from")
            field = Literal(unit.span, unit.value.lower(), "string")
            return self._close(token, "extract", (field, self.expression()))
        if name == "trim" and (self.is_word("both", "leading", "trailing")):
            return self._trim(token)
        distinct = self.take_words("distinct")
        args: tuple[Node, ...] = ()
        if self.is_word("select", "with"):
            raise self.refuse("a subquery", self.token.span)
        if not self.is_op(")"):
            args = self._arguments(name)
        return self._close(token, name, args, distinct)

    def _arguments(self, name: str) -> tuple[Node, ...]:
        """Plain arguments, and the forms that put a word where a comma would be."""
        if name == "position":
            first = self.value(0)
            if self.take_words("in"):
                return (first, self.value(0))
            return (first, *(self.listed(self.expression) if self.take_op(",") else ()))
        first = self.expression()
        if name in ("substring", "substr") and self.take_words("from"):
            args = (first, self.expression())
            return (*args, self.expression()) if self.take_words("for") else args
        if name == "trim" and self.take_words("from"):
            raise self.refuse("this form of trim", first.span, "write trim(BOTH x FROM s)")
        return (first, *(self.listed(self.expression) if self.take_op(",") else ()))

    def _trim(self, token: Token) -> Node:
        name = {"both": "btrim", "leading": "ltrim", "trailing": "rtrim"}[self.next().word]
        chars = None if self.is_word("from") else self.expression()
        self.expect_word("from")
        arg = self.expression()
        if chars is None:
            return self._close(token, name, (arg,))
        # Spark's ltrim and rtrim take the characters first, btrim takes them last.
        return self._close(token, name, (arg, chars) if name == "btrim" else (chars, arg))

    def _close(self, token: Token, name: str, args: tuple[Node, ...], distinct: bool = False) -> Node:
        """The closing parenthesis of a call and what may follow it."""
        ignore = self._nulls_choice()
        self.expect_op(")")
        ignore = self._nulls_choice() or ignore
        condition: Node | None = None
        if self.is_word("filter") and self.peek().text == "(":
            self.next()
            self.expect_op("(")
            self.expect_word("where")
            condition = self.expression()
            self.expect_op(")")
        if self.is_word("over"):
            raise self.refuse("OVER", self.token.span, "group by window(time, ...) instead")
        if self.is_word("within") and self.peek().word == "group":
            raise self.refuse("WITHIN GROUP", self.token.span, "use percentile(x, p)")
        call = Call(self.since(token.start), name, args, distinct, condition, ignore, self.own.get(name))
        return spell_out(call, self.text)

    def _nulls_choice(self) -> bool:
        if self.take_words("ignore", "nulls"):
            return True
        self.take_words("respect", "nulls")
        return False


def _respan(node: Node, span: tuple[int, int]) -> Node:
    """The same node with the parentheses around it counted in, so that its text can be cut out whole."""
    values = {name: getattr(node, name) for name in node.__dataclass_fields__ if name != "span"}
    return type(node)(span, **values)
