"""Writes docs/functions.md, the list of functions that SQL may use, from the registries themselves.

Run from anywhere: `python tools/list_functions.py`. The tests fail if the page is not what this gives.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from thalweg.frontend.aggregates import ENTRIES
from thalweg.frontend.functions import FUNCTIONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "functions.md"
_ENDLESS = 99

_INTRODUCTION = """# Functions

What may be called in a continuous query, as in Spark 4; the few [differences](guide.md#semantics) are in the guide. A
name that is not here is refused when the query is created. This page is written by `tools/list_functions.py`.

Beside them there are the operators (`+ - * / % div & | ^ || = <=> <> < <= > >=`, `AND OR NOT`, `IN`, `BETWEEN`,
`LIKE`, `IS [NOT] NULL`, `CASE`), `CAST` and `TRY_CAST`, `EXTRACT`, `INTERVAL`, and, in GROUP BY,
`window(time, range[, slide[, start]])`.
"""


def page() -> str:
    scalar = _table((name, f.least, f.most) for name, f in FUNCTIONS.items())
    aggregates = _table((name, entry.least, entry.most) for name, entry in ENTRIES.items())
    return (
        f"{_INTRODUCTION}\n## Aggregates: {len(ENTRIES)}\n\n"
        "Each takes `FILTER (WHERE ...)`. [Your own](guide.md#aggregates-of-your-own) come beside them.\n\n"
        f"{aggregates}\n## Functions of one row: {len(FUNCTIONS)}\n\n{scalar}"
    )


def _table(entries: Iterable[tuple[str, int, int]]) -> str:
    lines = [f"| `{name}` | {_arguments(least, most)} |" for name, least, most in sorted(entries)]
    return "\n".join(["| name | arguments |", "|---|---|", *lines, ""])


def _arguments(least: int, most: int) -> str:
    if least == most:
        return str(least)
    return f"{least} or more" if most >= _ENDLESS else f"{least} to {most}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
