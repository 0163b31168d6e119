"""Keeps imports pointing one way: cli, web -> session -> engine -> batch -> data path -> model.

Measurements rise with reports and decisions descend as plans, so no package of the data path may know `frontend`,
`optimize` or `adapt`. Libraries that must stay behind one door are listed too. The two tables below are the
rules; everything after them only reads them. Run from anywhere: `python tools/check_imports.py`.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "thalweg"

# Every unit (a package or a top-level module) may import itself, `errors`, `faults`, `foreign`, `kernel` and what its
# row names.
VALUES = {"model", "kinds"}
DATA_PATH = {"source", "route", "operate", "state", "sink"}
ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "faults": set(),
    "foreign": set(),
    "kernel": set(),
    "model": set(),
    "kinds": set(),
    # The control path: pure functions over values.
    "aggregates": VALUES,
    "frontend": VALUES | {"aggregates"},
    "optimize": VALUES | {"aggregates", "partition"},
    # What was measured -> what is decided.
    "adapt": VALUES | {"optimize", "partition", "route", "observe"},
    # The data path, in the order data meets it.
    "partition": VALUES | {"route"},
    "observe": VALUES,
    "source": VALUES | {"state", "observe"},
    "route": VALUES | {"observe"},
    "operate": VALUES | {"aggregates", "route", "partition", "observe"},
    "state": VALUES | {"route"},
    "sink": VALUES | {"route", "state", "observe"},
    # The only one that calls source, operate, state and sink; and what binds it to Spark.
    "batch": VALUES | DATA_PATH | {"adapt", "optimize", "partition", "observe"},
    "engine": VALUES | DATA_PATH | {"batch", "observe"},
    # Aggregates of users: their names are the SQL's, their code goes where Spark sends it.
    "user_aggregates": VALUES | {"frontend", "engine"},
    "clustering": {"user_aggregates", "route"},
    # The composition root, what users hold of it, and the statements that it carries out.
    "handle": VALUES | {"observe"},
    "rehearsal": VALUES | {"engine", "state"},
    "catalog": VALUES | {"handle", "state"},
    "statements": VALUES | {"frontend", "rehearsal", "verbs"},
    "verbs": VALUES
    | DATA_PATH
    | {"adapt", "batch", "catalog", "engine", "frontend", "handle", "observe", "optimize", "partition"}
    | {"rehearsal", "user_aggregates"},
    "session": VALUES | {"batch", "handle", "state", "statements", "verbs"},
    # Kinds from outside.
    "registration": VALUES | {"aggregates", "frontend", "sink", "source"},
    "thalweg": VALUES
    | {"aggregates", "clustering", "frontend", "handle", "partition", "registration", "session", "sink", "source"}
    | {"testing", "user_aggregates"},
    # Thin faces: they talk to the public interface only.
    "cli": VALUES | {"session", "thalweg", "observe"},
    "web": VALUES | {"session", "thalweg"},
    # For tests, of users too: a session without Spark, what is right, what to try. Nobody else uses it.
    "testing": VALUES | {"session", "verbs", "batch", "engine", "source", "state"},
}

# Libraries that only these units may import; a library that is not listed may be imported anywhere.
DOORS: dict[str, set[str]] = {
    "pyspark": {"engine", "testing"},
    "py4j": {"engine"},
    "sqlglot": {"frontend"},
    "typer": {"cli"},
    "rich": {"cli", "sink"},
    "scipy": {"optimize"},
    "highspy": {"optimize"},
    "sklearn": {"adapt"},
    "obstore": {"state"},
    # Neither needed nor fast enough where rows flow; Spark brings it along.
    "pandas": set(),
}


@dataclass(frozen=True)
class Import:
    """One import statement's target, absolute."""

    line: int
    target: str


@dataclass(frozen=True)
class Violation:
    path: Path
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def main() -> int:
    violations = check(SOURCE)
    for violation in violations:
        print(violation)
    if violations:
        print(f"{len(violations)} forbidden imports; the rules are at the top of tools/check_imports.py")
    return 1 if violations else 0


def check(source: Path) -> list[Violation]:
    """Every import below `source`, the folder of the package `thalweg`, that the tables forbid."""
    found: list[Violation] = []
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        unit = unit_of(parts)
        for imported in imports_of(path, parts):
            message = forbidden(unit, imported.target)
            if message:
                found.append(Violation(path, imported.line, message))
    return found


def unit_of(parts: tuple[str, ...]) -> str:
    return "thalweg" if parts == ("__init__",) else parts[0]


def forbidden(unit: str, target: str) -> str | None:
    """Why `unit` may not import the module `target`, None if it may."""
    head, *rest = target.split(".")
    if head != "thalweg":
        users = DOORS.get(head)
        if users is None or unit in users:
            return None
        return f"{unit} imports {head}, which only {', '.join(sorted(users)) or 'nobody'} may import"
    wanted = rest[0] if rest else "thalweg"
    if unit not in ALLOWED:
        return f"{unit} has no row in the table of allowed imports"
    if wanted in ALLOWED[unit] | {unit, "errors", "faults", "foreign", "kernel"}:
        return None
    allowed = ", ".join(sorted(ALLOWED[unit])) or "errors"
    return f"{unit} imports thalweg.{wanted}, but may import only {allowed}"


def imports_of(path: Path, parts: tuple[str, ...]) -> Iterator[Import]:
    """Absolute targets of the file's imports, those inside functions and TYPE_CHECKING blocks included."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = absolute(node, parts)
            # `from thalweg import x` names either a unit or something of the public face.
            units = [alias.name for alias in node.names if base == "thalweg" and alias.name in ALLOWED]
            yield from (Import(node.lineno, f"thalweg.{unit}") for unit in units)
            if len(units) < len(node.names):
                yield Import(node.lineno, base)


def absolute(node: ast.ImportFrom, parts: tuple[str, ...]) -> str:
    if not node.level:
        return node.module or ""
    package = ("thalweg", *parts[:-1])
    base = package[: len(package) - node.level + 1]
    return ".".join((*base, node.module) if node.module else base)


if __name__ == "__main__":
    sys.exit(main())
