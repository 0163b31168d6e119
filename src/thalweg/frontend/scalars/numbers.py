"""Functions of numbers."""

from __future__ import annotations

from thalweg.frontend import operators
from thalweg.frontend.casts import cast, shortest
from thalweg.frontend.code import Code, emit
from thalweg.frontend.coercion import common_type, decimal
from thalweg.frontend.scalars.contract import Context, Emit, entries
from thalweg.frontend.tree import Call
from thalweg.model.types import INTEGRAL, decimal_parts, is_numeric, to_duck


def _number(c: Context, node: Call, arg: Code) -> Code:
    if is_numeric(arg.type):
        return arg
    return c.cast(arg, "double", node)


def _abs(c: Context, node: Call, args: list[Code]) -> Code:
    arg = _number(c, node, args[0])
    sql = f"abs({arg.sql})"
    if arg.type in INTEGRAL:
        return emit(sql, arg.type, arg, fails=True)
    return emit(f"CAST({sql} AS {to_duck(arg.type)})", arg.type, arg)


def _real(template: str, fails: bool = False) -> Emit:
    """A function over doubles; `{0}` and `{1}` are the arguments."""

    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        doubles = [c.cast(arg, "double", node) for arg in args]
        return emit(template.format(*(d.sql for d in doubles)), "double", *doubles, fails=fails)

    return emit_


def _whole(word: str) -> Emit:
    """ceil / floor: bigint of a double, decimal of a decimal."""

    def emit_(c: Context, node: Call, args: list[Code]) -> Code:
        arg = _number(c, node, args[0])
        if arg.type in INTEGRAL:
            return cast(arg, "bigint")
        if parts := decimal_parts(arg.type):
            type_ = decimal(min(38, parts[0] - parts[1] + 1), 0)
            return emit(f"CAST({word}({arg.sql}) AS {to_duck(type_)})", type_, arg)
        x = cast(arg, "double")
        sql = f"CASE WHEN isnan({x.sql}) THEN 0 ELSE CAST({word}({x.sql}) AS BIGINT) END"
        return emit(sql, "bigint", x, fails=True)

    return emit_


def _round(c: Context, node: Call, args: list[Code]) -> Code:
    """Half up on the decimal text of a double, which is what Spark's BigDecimal sees."""
    arg = _number(c, node, args[0])
    digits = args[1].literal if len(args) == 2 else 0
    if not isinstance(digits, int) or not 0 <= digits <= 20:
        raise c.refuse("round with digits other than a literal from 0 to 20", node)
    if arg.type in INTEGRAL:
        return arg
    if parts := decimal_parts(arg.type):
        scale = min(digits, parts[1])
        type_ = decimal(min(38, parts[0] - parts[1] + 1 + scale), scale)
        return cast(arg, type_)
    exact = f"CAST({shortest(arg)} AS DECIMAL(38,{digits}))"
    through = f"CAST(CAST({exact} AS VARCHAR) AS {to_duck(arg.type)})"
    # From 2^53 on every double is whole.
    sql = f"CASE WHEN abs({arg.sql}) < 9007199254740992e0 THEN {through} ELSE {arg.sql} END"
    return emit(sql, arg.type, arg)


def _sign(c: Context, node: Call, args: list[Code]) -> Code:
    """In a form that names its argument once. DuckDB's own sign makes 0 of NaN and of -0.0."""
    x = c.cast(args[0], "double", node)
    # The factors make any number but a zero so large that its hyperbolic tangent is 1 or -1 exactly.
    return emit(f"tanh({x.sql} * 1e308 * 1e308)", "double", x)


def _mod(_: Context, __: Call, args: list[Code]) -> Code:
    return operators.arithmetic("%", args[0], args[1])


def _pmod(c: Context, node: Call, args: list[Code]) -> Code:
    """The remainder with the divisor's sign taken out: r < 0 ? (r + n) % n : r."""
    type_ = common_type(args[0].type, args[1].type)
    if type_ not in INTEGRAL:
        raise c.refuse(f"pmod of {args[0].type} and {args[1].type}", node)
    a, n = cast(args[0], type_), cast(args[1], type_)
    if not (isinstance(n.literal, int) and n.literal > 0):
        raise c.refuse("pmod by anything but a positive literal", node)
    r = f"({a.sql} % {n.sql})"
    return emit(f"CASE WHEN {r} < 0 THEN ({r} + {n.sql}) ELSE {r} END", type_, a, n)


def _operator(op: str) -> Emit:
    return lambda _, __, args: operators.arithmetic(op, args[0], args[1])


def _negative(_: Context, __: Call, args: list[Code]) -> Code:
    return operators.negate(args[0])


NUMBERS = (
    *entries("abs", 1, 1, _abs),
    *entries("ceil ceiling", 1, 1, _whole("ceil")),
    *entries("floor", 1, 1, _whole("floor")),
    *entries("round", 1, 2, _round),
    *entries("sign signum", 1, 1, _sign),
    *entries("sqrt", 1, 1, _real("sqrt({0})")),
    *entries("exp", 1, 1, _real("exp({0})")),
    *entries("ln", 1, 1, _real("CASE WHEN {0} <= 0 THEN NULL ELSE ln({0}) END")),
    *entries("log10", 1, 1, _real("CASE WHEN {0} <= 0 THEN NULL ELSE log10({0}) END")),
    *entries("log2", 1, 1, _real("CASE WHEN {0} <= 0 THEN NULL ELSE (ln({0}) / ln(CAST(2 AS DOUBLE))) END")),
    *entries("pow power", 2, 2, _real("pow({0}, {1})")),
    *entries("mod", 2, 2, _mod),
    *entries("pmod", 2, 2, _pmod),
    *entries("div", 2, 2, _operator("div")),
    *entries("negative", 1, 1, _negative),
)
