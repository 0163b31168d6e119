"""The scalar functions a continuous query may use: one registry; `scalars` has them by what they are of.

The second half of the allow-list. A function is here when its DuckDB text has been held against Spark's value
for random rows (tests/oracle/test_expressions.py); nothing that touches files, the JVM, the clock or a random
number ever is.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from thalweg.aggregates.families import arities, family_named
from thalweg.errors import bad_arguments, unknown_function
from thalweg.frontend.elsewhere import function_hint
from thalweg.frontend.expressions import RESERVED
from thalweg.frontend.scalars.conditions import CONDITIONS
from thalweg.frontend.scalars.contract import Function
from thalweg.frontend.scalars.numbers import NUMBERS
from thalweg.frontend.scalars.strings import STRINGS
from thalweg.frontend.scalars.times import TIMES
from thalweg.frontend.scalars.types import TYPES
from thalweg.frontend.tree import Call

FUNCTIONS: Mapping[str, Function] = {
    function.name: function for function in (*CONDITIONS, *NUMBERS, *STRINGS, *TIMES, *TYPES)
}
WINDOW = "window"

_FORMS = frozenset(
    (  # noqa: SIM905 - a list would be formatted to one word a line
        "cast try_cast extract interval date timestamp timestamp_ntz timestamp_ltz case exists session_window struct "
        "true false null distinct filter over x"
    ).split()
)
"""Words that the grammar knows in the place of a function's name."""


def is_reserved(name: str) -> bool:
    """Whether a name in lower case means something already where a function can be called."""
    return name in FUNCTIONS or family_named(name) is not None or name == WINDOW or name in _FORMS or name in RESERVED


def find(node: Call, sql: str) -> Function:
    """The entry of a scalar function; anything else is refused by name, with near ones as a hint."""
    if node.name in FUNCTIONS:
        return FUNCTIONS[node.name]
    known = [*FUNCTIONS, *arities(), WINDOW]
    near = difflib.get_close_matches(node.name, known, 3, 0.7)
    raise unknown_function(node.name, near, sql, node.span, function_hint(node.name))


def check_arity(function: Function, node: Call, sql: str) -> None:
    least, most, given = function.least, function.most, len(node.args)
    if least <= given <= most:
        return
    many = f"{least}" if least == most else f"{least} or more" if most > 99 else f"{least} to {most}"
    expected = f"{many} argument{'' if many == '1' else 's'}, not {given}"
    raise bad_arguments(node.name, expected, sql, node.span)
