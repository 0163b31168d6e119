"""Tree -> DuckDB text whose value and type are Spark's.

Every cast that Spark's analyser would insert is written out, so DuckDB has nothing left to decide. What
cannot be made exact is refused by name; nothing is approximated.
"""

from __future__ import annotations

from collections.abc import Callable

from thalweg.errors import SqlError, expression_too_large, not_supported
from thalweg.frontend import operators
from thalweg.frontend.casts import CastError, cast
from thalweg.frontend.code import Code, SizeError, bounded, emit, literal, text
from thalweg.frontend.coercion import common_type_of
from thalweg.frontend.functions import check_arity, find
from thalweg.frontend.operators import OperationError
from thalweg.frontend.tree import (
    Access,
    Between,
    Binary,
    Call,
    Case,
    Cast,
    Column,
    In,
    Interval,
    Is,
    Like,
    Literal,
    Node,
    Star,
    Unary,
    chain,
)

Resolve = Callable[[Column], Code]
Hook = Callable[[Node], Code | None]
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=", "<=>")


class Compiler:
    """One scope's compiler: `resolve` says what a column is, `hook` may answer for any node first."""

    def __init__(self, sql: str, resolve: Resolve, hook: Hook | None = None) -> None:
        self.text = sql
        self.resolve = resolve
        self.hook = hook
        self.typed: dict[str, tuple[str, Node]] = {}
        """The Spark type given to each compound expression, by its text: to be checked with Spark."""

    def compile(self, node: Node) -> Code:
        """The node as DuckDB text; what does not work is reported at the node's place."""
        if self.hook is not None and (answer := self.hook(node)) is not None:
            return answer
        try:
            code = self._compile(node)
        except (CastError, OperationError) as reason:
            raise self.refuse(str(reason), node, getattr(reason, "hint", None)) from None
        except SizeError as reason:
            raise expression_too_large(str(reason), self.text, node.span) from None
        if not isinstance(node, (Column, Literal)) and code.type != "boolean":
            self.typed[self.text[node.span[0] : node.span[1]]] = (code.type, node)
        return code

    def refuse(self, what: str, node: Node, hint: str | None = None) -> SqlError:
        return not_supported(what, self.text, node.span, hint)

    def cast(self, code: Code, to: str, node: Node) -> Code:
        try:
            return cast(code, to)
        except CastError as reason:
            raise self.refuse(str(reason), node, reason.hint) from None
        except SizeError as reason:
            raise expression_too_large(str(reason), self.text, node.span) from None

    def common(self, codes: list[Code], node: Node) -> list[Code]:
        """The values, all brought to the type that Spark brings them to."""
        type_ = common_type_of([code.type for code in codes])
        if type_ is None:
            raise self.refuse("mixing " + " and ".join(dict.fromkeys(c.type for c in codes)), node)
        return [self.cast(code, type_, node) for code in codes]

    def boolean(self, node: Node) -> Code:
        return self.cast(self.compile(node), "boolean", node)

    def _compile(self, node: Node) -> Code:
        if isinstance(node, Column):
            return self.resolve(node)
        if isinstance(node, Literal):
            return Code("NULL", "void") if node.type == "void" else literal(node.value, node.type)
        if isinstance(node, Binary):
            return self._binary(node)
        if isinstance(node, Call):
            return self._call(node)
        if isinstance(node, Unary):
            return self._unary(node)
        if isinstance(node, Cast):
            return cast(self.compile(node.arg), node.type, node.tried)
        if isinstance(node, Case):
            return self._case(node)
        return self._predicate(node)

    def _predicate(self, node: Node) -> Code:
        if isinstance(node, Between):
            return self._between(node)
        if isinstance(node, In):
            return self._in(node)
        if isinstance(node, Like):
            return self._like(node)
        if isinstance(node, Is):
            return self._is(node)
        if isinstance(node, Interval):
            raise self.refuse("an interval here", node, "add it to a timestamp or a date")
        if isinstance(node, Star):
            raise self.refuse("* here", node)
        if isinstance(node, Access):
            raise self.refuse(f"the field '{node.name}' of this", node)
        raise self.refuse("this expression", node)

    def _binary(self, node: Binary) -> Code:
        op = node.op
        if op in ("and", "or"):
            return operators.conjunction(op.upper(), bounded(self.boolean(part) for part in chain(node, op)))
        if op in ("+", "-") and isinstance(node.right, Interval):
            return operators.add_interval(self.compile(node.left), node.right, 1 if op == "+" else -1)
        if op == "+" and isinstance(node.left, Interval):
            return operators.add_interval(self.compile(node.right), node.left, 1)
        left, right = self.compile(node.left), self.compile(node.right)
        if op in _COMPARISONS:
            return operators.comparison(op, left, right)
        if op == "||":
            return self.concat([left, right], node)
        if op in ("&", "|", "^"):
            return operators.bits(op, left, right)
        if op in ("<<", ">>"):
            raise self.refuse(f"the operator {op}", node)
        if op in ("+", "-") and left.type == "date":
            return operators.date_plus(left, right, op)
        if op == "+" and right.type == "date":
            return operators.date_plus(right, left, op)
        return operators.arithmetic(op, left, right)

    def concat(self, parts: list[Code], node: Node) -> Code:
        strings = [self.cast(part, "string", node) for part in parts]
        return emit("(" + " || ".join(part.sql for part in strings) + ")", "string", *strings)

    def _unary(self, node: Unary) -> Code:
        if node.op == "not":
            return operators.negation(self.boolean(node.arg))
        arg = self.compile(node.arg)
        if node.op == "+":
            return arg
        if node.op == "-":
            return operators.negate(arg)
        if arg.type not in ("tinyint", "smallint", "int", "bigint"):
            raise self.refuse(f"~ of {arg.type}", node)
        return emit(f"(~ {arg.sql})", arg.type, arg)

    def _case(self, node: Case) -> Code:
        subject = None if node.operand is None else self.compile(node.operand)
        conditions = bounded(
            self.boolean(when) if subject is None else operators.comparison("=", subject, self.compile(when))
            for when, _ in node.whens
        )
        values = bounded(self.compile(then) for _, then in node.whens)
        values.append(Code("NULL", "void") if node.default is None else self.compile(node.default))
        values = self.common(values, node)
        return self.choose(conditions, values)

    def choose(self, conditions: list[Code], values: list[Code]) -> Code:
        """CASE; the value after the last condition is the ELSE."""
        pairs = zip(conditions, values, strict=False)
        whens = " ".join(f"WHEN {condition.sql} THEN {value.sql}" for condition, value in pairs)
        sql = f"CASE {whens} ELSE {values[-1].sql} END"
        return emit(sql, values[0].type, *conditions, *values)

    def _between(self, node: Between) -> Code:
        arg = self.compile(node.arg)
        low = operators.comparison(">=", arg, self.compile(node.low))
        high = operators.comparison("<=", arg, self.compile(node.high))
        both = operators.conjunction("AND", [low, high])
        return operators.negation(both) if node.negated else both

    def _in(self, node: In) -> Code:
        codes = bounded(self.compile(part) for part in (node.arg, *node.options))
        arg, *options = self.common(codes, node)
        # The order of the options means nothing, so equal sets are given equal texts.
        listed = ", ".join(sorted({option.sql for option in options}))
        code = emit(f"({arg.sql} IN ({listed}))", "boolean", arg, *options)
        return operators.negation(code) if node.negated else code

    def _like(self, node: Like) -> Code:
        arg = self.cast(self.compile(node.arg), "string", node.arg)
        pattern = self.compile(node.pattern)
        if not isinstance(pattern.literal, str) or pattern.type != "string":
            raise self.refuse("LIKE with a pattern that is not a literal", node.pattern)
        self._check_pattern(pattern.literal, node)
        code = emit(f"({arg.sql} LIKE {pattern.sql} ESCAPE {text(node.escape)})", "boolean", arg)
        return operators.negation(code) if node.negated else code

    def _check_pattern(self, pattern: str, node: Like) -> None:
        at = 0
        while (at := pattern.find(node.escape, at)) >= 0:
            if at + 1 == len(pattern) or pattern[at + 1] not in ("%", "_", node.escape):
                raise self.refuse(
                    f"'{node.escape}' before anything but %, _ and itself", node.pattern,
                    "choose another character with ESCAPE",
                )  # fmt: skip
            at += 2

    def _is(self, node: Is) -> Code:
        word = "NOT " if node.negated else ""
        if node.what == "null":
            arg = self.compile(node.arg)
            return emit(f"({arg.sql} IS {word}NULL)", "boolean", arg)
        arg = self.compile(node.arg)
        if arg.type not in ("boolean", "void"):
            raise self.refuse(f"IS {node.what.upper()} of {arg.type}", node)
        relation = "IS DISTINCT FROM" if node.negated else "IS NOT DISTINCT FROM"
        return emit(f"({cast(arg, 'boolean').sql} {relation} {node.what.upper()})", "boolean", arg)

    def _call(self, node: Call) -> Code:
        function = find(node, self.text)
        if node.distinct or node.filter is not None or node.ignore_nulls:
            raise self.refuse("DISTINCT, FILTER or IGNORE NULLS outside an aggregate", node)
        check_arity(function, node, self.text)
        return function.emit(self, node, bounded(self.compile(arg) for arg in node.args))
