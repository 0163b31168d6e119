"""Keeps all writing to files behind one door: `state/durable`, and the file layer below it.

What another module writes by itself is written without the syncs that a crash asks for, and no test with a faulty
disk sees it. The tables below are the rules; everything after them only reads them. Run from anywhere:
`python tools/check_writes.py`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from check_imports import SOURCE, Violation

# Who may write by themselves, and why: files, and folders with all that they hold.
EXCEPTIONS: dict[str, str] = {
    "state/durable.py": "the door",
    "state/disk.py": "the file layer itself",
    "state/lock.py": "a lock says nothing after a crash: it is not data",
    "state/object_cache.py": "copies of objects that a worker may lose: never the truth, so nothing is synced",
    "engine/launch.py": "what the JVM prints, passed on",
    "cli/main.py": "a state directory that ends with the command",
    "testing/recorded.py": "recorded answers in a test's own directory, written once by hand",
}

# Functions of a module that change files.
MODULES: dict[str, frozenset[str]] = {
    "os": frozenset(
        {
            *("fsync", "fdatasync", "sync", "open", "write", "pwrite", "writev", "truncate", "ftruncate"),
            *("replace", "rename", "renames", "link", "symlink", "unlink", "remove", "rmdir", "removedirs"),
            *("mkdir", "makedirs", "mkfifo"),
        }
    ),
    "shutil": frozenset({"rmtree", "move", "copy", "copy2", "copyfile", "copytree", "copyfileobj"}),
    "tempfile": frozenset({"TemporaryDirectory", "TemporaryFile", "NamedTemporaryFile", "mkdtemp", "mkstemp"}),
}
# Methods that only paths have, and those that strings have too, with more than one argument.
METHODS = frozenset(["unlink", "rmdir", "mkdir", "touch", "write_bytes", "write_text", "hardlink_to", "symlink_to"])
SHARED_METHODS = frozenset({"rename", "replace"})
OPENERS = frozenset({"open", "OSFile", "FileIO", "fdopen"})
WRITING_MODE = re.compile(r"[rbt]*[wax+][rwaxbt+]*")
LAYER = "thalweg.state.disk"
LAYER_USERS = ("state/durable.py", "state/disk.py")


def main() -> int:
    violations = check(SOURCE)
    for violation in violations:
        print(violation)
    if violations:
        print(f"{len(violations)} writes beside state/durable; the rules are at the top of tools/check_writes.py")
    return 1 if violations else 0


def check(source: Path) -> list[Violation]:
    """Every write below `source`, the folder of the package `thalweg`, that goes past `state/durable`."""
    found: list[Violation] = []
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
        if not name.startswith(tuple(EXCEPTIONS)):
            found += [Violation(path, line, f"{call} writes past state/durable") for line, call in writes_of(tree)]
        if not name.startswith(LAYER_USERS):
            found += [Violation(path, line, f"only state/durable may use {LAYER}") for line in uses_of_layer(tree)]
    return found


def writes_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The calls that change files, and where functions that do are imported by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                if alias.name in MODULES[node.module]:
                    yield node.lineno, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Call) and is_write(node):
            yield node.lineno, ast.unparse(node.func)


def is_write(call: ast.Call) -> bool:
    function = call.func
    if isinstance(function, ast.Name):
        return function.id in OPENERS and opens_to_write(call)
    if not isinstance(function, ast.Attribute):
        return False
    if isinstance(function.value, ast.Name) and function.value.id in MODULES:
        return function.attr in MODULES[function.value.id]
    if function.attr in SHARED_METHODS:
        return len(call.args) == 1 and not call.keywords
    return function.attr in METHODS or (function.attr in OPENERS and opens_to_write(call))


def opens_to_write(call: ast.Call) -> bool:
    """A mode is a text among the arguments; a path that reads like one is not likely."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    texts = [value.value for value in given if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    return any(WRITING_MODE.fullmatch(text) for text in texts)


def uses_of_layer(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            full = {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            if LAYER in full:
                yield node.lineno
        elif isinstance(node, ast.Import) and any(alias.name == LAYER for alias in node.names):
            yield node.lineno


if __name__ == "__main__":
    sys.exit(main())
