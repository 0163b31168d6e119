"""Aggregates that users define with `thalweg.aggregate`: rows as they are, NULLs included."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from thalweg.aggregates.contract import AggregateCall, AggregateFamily, Calling, Parts, partial
from thalweg.model.canonical import named
from thalweg.model.expr import quote
from thalweg.model.own import OWN, Own, OwnPartial
from thalweg.model.plan import FILTER
from thalweg.model.query import Aggregate


class User(AggregateFamily):
    """It has no names: those are the program's."""

    name = "user"
    names: ClassVar = {}
    functions = (OWN,)

    def signature(self, call: Calling) -> Aggregate:
        assert call.user is not None
        exprs = []
        for i in range(call.many):
            arg = call.arg(i)
            if arg.type == "void":
                raise call.refuse(f"NULL as an argument of {call.name}", i, "CAST(NULL AS a type)")
            exprs.append(arg.to_expr())
        columns = tuple(call.column_name(i) or f"a{i}" for i in range(call.many))
        own = Own(call.user.name, columns, call.user.version)
        return Aggregate(OWN, tuple(exprs), call.user.type, own=own)

    def parts(self, asked: AggregateCall) -> Parts:
        return _states(asked)


def _states(asked: AggregateCall) -> Parts:
    """One that the user has defined. The state of rows is the user's; here it is a value that can be merged."""
    call = asked.aggregate.own
    assert call is not None
    names = [asked.column_of(arg) for arg in asked.aggregate.args]
    types = tuple(arg.type for arg in asked.aggregate.args)
    id_ = named("f", call.version, call.columns, types, asked.aggregate.type)
    own = OwnPartial(id_, call.name, call.version, call.columns, types, asked.aggregate.type)
    fields = ", ".join(f"a{i} := {quote(name)}" for i, name in enumerate(names))
    combine = f"{own.update}(list(struct_pack({fields})){FILTER})"
    states = replace(partial(combine, asked.filter_column, f"{own.merge}(list({{}}))", "BLOB"), own=own)
    return Parts((states,), f"{own.finish}({quote(states.name)})")


USER = User()
