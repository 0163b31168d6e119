"""Writes the pages that are lists of what the code has: docs/functions.md and docs/reference/.

    python tools/make_reference.py [--check]

One function makes one page; `PAGES` says which. To add a page, write its function and a line there. `--check` writes
nothing and fails where a page is not what the code gives; the tests do the same.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import thalweg
from thalweg import errors as errors_of_thalweg
from thalweg.frontend.listing import AGGREGATE, SCALAR
from thalweg.frontend.listing import functions as listed_functions
from thalweg.kinds.options import options_table
from thalweg.observe import progress as progress_of_batches
from thalweg.sink import KINDS as SINK_KINDS
from thalweg.sink.kinds import SINKS
from thalweg.source import KINDS as SOURCE_KINDS
from thalweg.source.kinds import SOURCES

DOCS = Path(__file__).resolve().parent.parent / "docs"
WRITTEN = "This page is written by `tools/make_reference.py`."


def main(arguments: list[str]) -> int:
    old = [path for path, page in PAGES.items() if _read(path) != page()]
    if "--check" in arguments:
        for path in old:
            print(f"docs/{path} is old: run python tools/make_reference.py")
        return 1 if old else 0
    for path in old:
        (DOCS / path).parent.mkdir(exist_ok=True)
        (DOCS / path).write_text(PAGES[path](), encoding="utf-8")
    return 0


def _read(path: str) -> str | None:
    return (DOCS / path).read_text(encoding="utf-8") if (DOCS / path).exists() else None


# -- functions -------------------------------------------------------------------------------------------------


def functions() -> str:
    def rows(kind: str) -> list[tuple[str, str]]:
        return [(f"`{f.name}`", f.arguments) for f in listed_functions() if f.kind == kind]

    scalar, aggregates = rows(SCALAR), rows(AGGREGATE)
    return f"""# Functions

What may be called in a continuous query, as in Spark 4; the few [differences](guide.md#semantics) are in the guide. A
name that is not here is refused when the query is created. `SHOW FUNCTIONS` gives the same list. {WRITTEN}

Beside them there are the operators (`+ - * / % div & | ^ || = <=> <> < <= > >=`, `AND OR NOT`, `IN`, `BETWEEN`,
`LIKE`, `IS [NOT] NULL`, `CASE`), `CAST` and `TRY_CAST`, `EXTRACT`, `INTERVAL`, and, in GROUP BY,
`window(time, range[, slide[, start]])`.

## Aggregates: {len(aggregates)}

Each takes `FILTER (WHERE ...)`. [Your own](guide.md#aggregates-of-your-own) come beside them.

{_table(("name", "arguments"), aggregates)}
## Functions of one row: {len(scalar)}

{_table(("name", "arguments"), scalar)}"""


# -- options ---------------------------------------------------------------------------------------------------


def options() -> str:
    """Of Thalweg's own sources and sinks, from the structs that check them."""
    return f"""# Options of sources and sinks

`CREATE STREAM ... WITH (source = 'kind', option = 'value', ...)`, or the function of the same name in Python:
`thalweg.files("in/*.parquet", missing="refuse")`. `CREATE QUERY ... INTO kind OPTIONS (option = 'value', ...)`, or
`thalweg.to_files("out", header=False)`. An option that is not here is refused by name. {WRITTEN}

## Sources

{_source_options()}
## Sinks

{_sink_options()}"""


def _source_options() -> str:
    parts = []
    for name in SOURCE_KINDS:
        kind = SOURCES.get(name)
        changeable = ", ".join(f"`{option}`" for option in sorted(kind.changeable))
        after = f"\nAfter a restart {changeable} may have other values.\n" if changeable else ""
        tables = "\n".join(_titled(title, options_table(struct), name) for title, struct in kind.structs().items())
        parts.append(f"### {name}\n\n{_said(kind)}\n\n{tables}{after}")
    return "\n".join(parts)


def _titled(title: str, table: str, name: str) -> str:
    return table if title == name else f"Of {title.removeprefix(f'{name}, ')}:\n\n{table}"


def _sink_options() -> str:
    kinds = [SINKS.get(name) for name in SINK_KINDS]
    return "\n".join(f"### {kind.name}\n\n{_said(kind)}\n\n{options_table(kind.options)}" for kind in kinds)


def _said(kind: object) -> str:
    return " ".join((type(kind).__doc__ or "").split())


# -- errors ----------------------------------------------------------------------------------------------------


def errors() -> str:
    """Every kind with its primary lines, as the constructors in `thalweg.errors` say them."""
    nodes = [node for path in _sources(errors_of_thalweg.__file__) for node in ast.parse(path.read_text()).body]
    lines: dict[str, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            for kind, said in _raised(node):
                lines.setdefault(kind, set()).add(said)
    parts = []
    for node in nodes:
        if isinstance(node, ast.ClassDef) and node.name in lines:
            said = "\n".join(f"- {line}" for line in sorted(lines[node.name]))
            parts.append(f"## {node.name}\n\n{ast.get_docstring(node) or ''}\n\n{said}\n")
    return f"""# Errors

Every error is a `thalweg.ThalwegError` with a primary line, the place in the SQL, a detail and a hint. These are the
primary lines, by kind; what stands in braces is filled in. {WRITTEN}

{chr(10).join(parts)}"""


def _sources(file: str | None) -> list[Path]:
    """A module is its file, a package all of its files."""
    path = Path(file or "")
    return sorted(path.parent.glob("*.py")) if path.name == "__init__.py" else [path]


def _raised(constructor: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    for node in ast.walk(constructor):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
            continue
        if node.func.id.endswith("Error") and (said := _text(node.args[0])):
            yield node.func.id, said


def _text(node: ast.expr) -> str:
    """A literal as it is written, with the names of what is filled in; nothing of anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"{{{_filled(part)}}}" for part in node.values
        )
    return ""


def _filled(part: ast.expr) -> str:
    names = [node.id for node in ast.walk(part) if isinstance(node, ast.Name)]
    return names[-1] if names else "..."


# -- settings --------------------------------------------------------------------------------------------------


NOT_IN_THE_DOCSTRING = {
    "state_dir": "a directory, or a URL of an object store (`s3://bucket/prefix`)",
    "landing": "a directory in which streaming DataFrames land, where the state is in an object store",
    "settings": "Spark's own settings, for the local Spark that is made where none is given",
}


def settings() -> str:
    """Of `thalweg.connect`: names and defaults from its signature, what they mean from its docstring."""
    text = " ".join((thalweg.connect.__doc__ or "").split())
    pieces = re.split(r"`(\w+)`: ", text)
    said = dict(zip(pieces[1::2], pieces[2::2], strict=True)) | NOT_IN_THE_DOCSTRING
    rows = []
    for name, parameter in inspect.signature(thalweg.connect).parameters.items():
        default = "" if parameter.default is inspect.Parameter.empty else f"`{parameter.default!r}`"
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        rows.append((f"`{stars}{name}`", default, said[name].strip()))
    return f"""# Settings

What `thalweg.connect(...)` takes. {WRITTEN}

{_table(("setting", "default", "meaning"), rows)}"""


# -- progress --------------------------------------------------------------------------------------------------


PROGRESS = {
    "batch": "the number of the last batch",
    "rows": "rows that have come in, over all streams",
    "rows_per_second": "of the last batches that brought rows",
    "batch_seconds": "what the last batch took",
    "phases": "step -> seconds of the last batch, one step after the other",
    "time": "phase -> seconds that add up to a batch: `last`, `mean`, and shares; see [operating](../operating.md)",
    "state": "what is kept: `buckets`, `rows`, `bytes`",
    "sent_bytes": "bytes that the tasks of the last batch sent each other",
    "slots": "places where state lives",
    "partitioning": "how keys are assigned to slots, who deals rows out, what that saves, and why",
    "join_orders": "the orders in which rows are joined, what they cost, and why they were or were not changed",
    "adaptations": "feedback loop -> `asked` (when and why), `answer`, `saved` (a share of the cost), `rejected`",
    "queries": "query -> its status, and `held_by`: streams that hold a join back",
    "streams": "stream -> rows, late and rejected ones, watermark, whether it is idle; `error`: why none can come",
    "last_progress": "the last batch in the words of Spark's StreamingQueryProgress; see below",
}
"""Of `session.progress()`; a test holds the keys against a session's."""


def progress() -> str:
    parts = [_table(("key", "meaning"), [(f"`{key}`", meaning) for key, meaning in PROGRESS.items()])]
    titles = {
        "Progress": '`progress()["last_progress"]`, and what listeners are given',
        "SourceProgress": "one of its `sources`",
        "SinkProgress": "one of its `sinks`",
        "EventTimeProgress": "the `eventTime` of a stream",
    }
    for name, title in titles.items():
        fields = inspect.get_annotations(getattr(progress_of_batches, name))
        rows = [(f"`{field}`", f"`{getattr(kind, '__forward_arg__', kind)}`") for field, kind in fields.items()]
        parts.append(f"## {title}\n\n{_table(('key', 'type'), rows)}")
    return f"""# Progress

What `session.progress()` gives. {WRITTEN}

{chr(10).join(parts)}"""


# --------------------------------------------------------------------------------------------------------------


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


PAGES: dict[str, Callable[[], str]] = {
    "functions.md": functions,
    "reference/errors.md": errors,
    "reference/options.md": options,
    "reference/progress.md": progress,
    "reference/settings.md": settings,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
