"""Writes docs/functions.md, the list of functions that SQL may use, from the registries themselves.

Run from anywhere: `python tools/list_functions.py`. The tests fail if the page is not what this gives.
"""

from __future__ import annotations

from pathlib import Path

from thalweg.frontend.listing import AGGREGATE, SCALAR, functions

PAGE = Path(__file__).resolve().parent.parent / "docs" / "functions.md"

_INTRODUCTION = """# Functions

What may be called in a continuous query, as in Spark 4; the few [differences](guide.md#semantics) are in the guide. A
name that is not here is refused when the query is created. `SHOW FUNCTIONS` gives the same list. This page is written
by `tools/list_functions.py`.

Beside them there are the operators (`+ - * / % div & | ^ || = <=> <> < <= > >=`, `AND OR NOT`, `IN`, `BETWEEN`,
`LIKE`, `IS [NOT] NULL`, `CASE`), `CAST` and `TRY_CAST`, `EXTRACT`, `INTERVAL`, and, in GROUP BY,
`window(time, range[, slide[, start]])`.
"""


def page() -> str:
    scalar, aggregates = _entries(SCALAR), _entries(AGGREGATE)
    return (
        f"{_INTRODUCTION}\n## Aggregates: {len(aggregates)}\n\n"
        "Each takes `FILTER (WHERE ...)`. [Your own](guide.md#aggregates-of-your-own) come beside them.\n\n"
        f"{_table(aggregates)}\n## Functions of one row: {len(scalar)}\n\n{_table(scalar)}"
    )


def _entries(kind: str) -> list[str]:
    return [f"| `{f.name}` | {f.arguments} |" for f in functions() if f.kind == kind]


def _table(entries: list[str]) -> str:
    return "\n".join(["| name | arguments |", "|---|---|", *entries, ""])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
