"""min, max, bool_and, bool_or: merging is the function itself."""

from __future__ import annotations

from typing import ClassVar

from thalweg.aggregates.contract import AggregateCall, AggregateFamily, Arity, Calling, Parts, partial
from thalweg.model.expr import quote
from thalweg.model.query import Aggregate
from thalweg.model.types import to_duck

_LOGIC = {"bool_and": "bool_and", "every": "bool_and", "bool_or": "bool_or", "some": "bool_or", "any": "bool_or"}


class Extremes(AggregateFamily):
    name = "extremes"
    names: ClassVar = {name: Arity(1, 1) for name in ("min", "max", *_LOGIC)}
    functions = ("min", "max", "bool_and", "bool_or")

    def signature(self, call: Calling) -> Aggregate:
        if call.name in _LOGIC:
            return Aggregate(_LOGIC[call.name], (call.cast(call.arg(0), "boolean").to_expr(),), "boolean")
        arg = call.arg(0)
        if arg.type == "void":
            raise call.refuse(f"{call.name} of NULL")
        return Aggregate(call.name, (arg.to_expr(),), arg.type)

    def parts(self, asked: AggregateCall) -> Parts:
        column, function = asked.column(0), asked.aggregate.function
        extreme = partial(
            f"{function}({quote(column)})",
            asked.filter_column,
            f"{function}({{}})",
            to_duck(asked.aggregate.type),
            function if function in ("min", "max") else "",
            column,
        )
        return Parts((extreme,), quote(extreme.name))


EXTREMES = Extremes()
