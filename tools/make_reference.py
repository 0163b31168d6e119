"""Writes docs/reference/options.md, the options of sources and sinks, from the structs that read and check them.

Run from anywhere: `python tools/make_reference.py`. The tests fail if the page is not what this gives.
"""

from __future__ import annotations

from pathlib import Path

from thalweg.kinds.options import options_table
from thalweg.sink import KINDS as OWN_SINKS
from thalweg.sink.kinds import SINKS
from thalweg.source import KINDS as OWN_SOURCES
from thalweg.source.kinds import SOURCES

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "options.md"

_INTRODUCTION = """# Options of sources and sinks

`CREATE STREAM ... WITH (source = 'kind', option = 'value', ...)`, or the function of the same name in Python:
`thalweg.files("in/*.parquet", missing="refuse")`. `CREATE QUERY ... INTO kind OPTIONS (option = 'value', ...)`, or
`thalweg.to_files("out", header=False)`. An option that is not here is refused by name. This page is written by
`tools/make_reference.py`.
"""


def page() -> str:
    return f"{_INTRODUCTION}\n## Sources\n\n{_sources()}\n## Sinks\n\n{_sinks()}"


def _sources() -> str:
    parts = []
    for name in OWN_SOURCES:
        kind = SOURCES.get(name)
        changeable = ", ".join(f"`{option}`" for option in sorted(kind.changeable))
        after = f"\nAfter a restart {changeable} may have other values.\n" if changeable else ""
        tables = "\n".join(_titled(title, options_table(struct), name) for title, struct in kind.structs().items())
        parts.append(f"### {name}\n\n{_said(kind)}\n\n{tables}{after}")
    return "\n".join(parts)


def _titled(title: str, table: str, name: str) -> str:
    return table if title == name else f"Of {title.removeprefix(f'{name}, ')}:\n\n{table}"


def _sinks() -> str:
    kinds = [SINKS.get(name) for name in OWN_SINKS]
    return "\n".join(f"### {kind.name}\n\n{_said(kind)}\n\n{options_table(kind.options)}" for kind in kinds)


def _said(kind: object) -> str:
    return " ".join((type(kind).__doc__ or "").split())


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
