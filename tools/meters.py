"""Counts what the design wants less of, and holds it against what was committed. Run: `python tools/meters.py`.

The values in tools/meters.json may only fall. One that rises fails the lint, unless the commit changes the value
(`python tools/meters.py --bless`) and says why. One that falls is to be blessed, too, so that the gain is kept.

What is counted in all modules of the package:

string keys       `x["name"]`, and `x.get("name")`, `x.pop("name")`, `x.setdefault("name")` with or without a default:
                  a message or a record whose type nobody wrote down
untyped mappings  `dict[str, Any]` and `Mapping[str, Any]`, wherever they stand
imports           modules that import from pathlib or json, or these themselves, inside functions too
mentions          modules in whose text the name occurs
fan-out           how many other modules of the package a module imports, inside functions and for types too: the
                  largest, how many modules have more than 15, and each of these
walk              how often a row changes packages on its way through a batch, as `tools/walks.py` runs it; and how
                  often an operator, a reader or a sink calls who called it
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "thalweg"
COMMITTED = Path(__file__).resolve().parent / "meters.json"
WIDE = 15
"""Modules that import no more others than this are not listed."""
FAN_OUT = "fan-out of "
UP = "calls in these walks back up into batch"


@dataclass(frozen=True)
class Module:
    name: str
    """Below the package: `batch.run`; the package itself is ''."""
    is_package: bool
    text: str
    string_keys: int
    untyped_mappings: int
    imports: tuple[ast.Import | ast.ImportFrom, ...]


def main(arguments: Sequence[str]) -> int:
    now = measure(SOURCE) | walked()
    if arguments == ["--bless"]:
        COMMITTED.write_text(json.dumps(now, indent=2) + "\n", encoding="utf-8")
        print(f"written: {COMMITTED.relative_to(ROOT)}. Say in the commit why a value has risen.")
        return 0
    if arguments:
        print("usage: python tools/meters.py [--bless]")
        return 2
    committed = json.loads(COMMITTED.read_text(encoding="utf-8"))
    print("\n".join(table(committed, now)))
    worse, better = changes(committed, now)
    if worse:
        print(f"worse than committed: {'; '.join(worse)}")
        print(
            "Mend it, or write the new values with: python tools/meters.py --bless; then the commit has to say why."
        )
    elif better:
        print(f"better than committed: {'; '.join(better)}")
        print("Keep the gain: python tools/meters.py --bless")
    return 1 if worse else 0


def table(committed: Mapping[str, int], now: Mapping[str, int]) -> list[str]:
    names = list({**committed, **now})
    width = max(len(name) for name in ("meter", *names))
    rows = [("meter", "committed", "now")]
    rows += [(name, str(committed.get(name, "-")), str(now.get(name, "-"))) for name in names]
    return [f"{name:<{width}}  {was:>9}  {is_:>5}" for name, was, is_ in rows]


def changes(committed: Mapping[str, int], now: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """What got worse and what got better. A module that is not listed imports at most `WIDE` others."""
    worse: list[str] = []
    better: list[str] = []
    for name in {**committed, **now}:
        missing = WIDE if name.startswith(FAN_OUT) else 0
        was, is_ = committed.get(name, missing), now.get(name, missing)
        if is_ != was:
            (worse if is_ > was else better).append(f"{name} {was} -> {is_}")
    return worse, better


def measure(source: Path) -> dict[str, int]:
    """Every meter of the package in the folder `source`."""
    modules = list(_modules(source))
    found = {
        "string keys": sum(module.string_keys for module in modules),
        "modules with string keys": sum(module.string_keys > 0 for module in modules),
        "untyped mappings": sum(module.untyped_mappings for module in modules),
        "modules with untyped mappings": sum(module.untyped_mappings > 0 for module in modules),
        "modules that import Path": _importing(modules, "pathlib"),
        "modules that import json": _importing(modules, "json"),
        "modules that mention state_dir": _mentioning(modules, "state_dir"),
        "modules that mention range_us or slide_us": _mentioning(modules, "range_us", "slide_us"),
    }
    imported = fan_out(modules, source.name)
    wide = {FAN_OUT + name: count for name, count in imported.items() if count > WIDE}
    found["largest fan-out"] = max(imported.values(), default=0)
    found[f"modules with a fan-out above {WIDE}"] = len(wide)
    return found | dict(sorted(wide.items(), key=lambda item: (-item[1], item[0])))


def walked() -> dict[str, int]:
    """The walks of a row, which have to be run."""
    from thalweg.testing import LocalSession
    from walks import RECORDED, walks

    found = walks(lambda: LocalSession(recorded=RECORDED))
    below = ("source", "route", "operate", "state", "sink")
    up = sum(
        walk.calls_between(one, other) for walk in found.values() for one in below for other in ("batch", "engine")
    )
    return {name: walk.hops for name, walk in found.items()} | {UP: up}


def _modules(source: Path) -> Iterator[Module]:
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        text = path.read_text(encoding="utf-8")
        nodes = list(ast.walk(ast.parse(text, str(path))))
        yield Module(
            name=".".join(parts[:-1] if is_package else parts),
            is_package=is_package,
            text=text,
            string_keys=sum(map(_is_string_key, nodes)),
            untyped_mappings=sum(map(_is_untyped_mapping, nodes)),
            imports=tuple(node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)),
        )


def _is_string_key(node: ast.AST) -> bool:
    if isinstance(node, ast.Subscript):
        return _is_string(node.slice)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        return node.func.attr in ("get", "pop", "setdefault") and _is_string(node.args[0])
    return False


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_untyped_mapping(node: ast.AST) -> bool:
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
        return False
    of = [part.id for part in (node.value, *node.slice.elts) if isinstance(part, ast.Name)]
    return of in (["dict", "str", "Any"], ["Mapping", "str", "Any"])


def _importing(modules: Sequence[Module], wanted: str) -> int:
    return sum(any(_imports(node, wanted) for node in module.imports) for module in modules)


def _imports(node: ast.Import | ast.ImportFrom, wanted: str) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name == wanted for alias in node.names)
    return node.level == 0 and node.module == wanted


def _mentioning(modules: Sequence[Module], *names: str) -> int:
    return sum(any(name in module.text for name in names) for module in modules)


# -- fan-out


def fan_out(modules: Sequence[Module], package: str) -> dict[str, int]:
    """Module -> how many other modules of the package it imports."""
    known = {module.name for module in modules}
    return {module.name: len(_imported(module, package, known) - {module.name, ""}) for module in modules}


def _imported(module: Module, package: str, known: set[str]) -> set[str]:
    found: set[str] = set()
    for node in module.imports:
        if isinstance(node, ast.Import):
            found.update(_below(alias.name, package) for alias in node.names if _is_below(alias.name, package))
        elif _is_below(base := _absolute(node, module, package), package):
            found.update(_module_of(_below(base, package), alias.name, known) for alias in node.names)
    return found


def _absolute(node: ast.ImportFrom, module: Module, package: str) -> str:
    if not node.level:
        return node.module or ""
    here = [package, *filter(None, module.name.split("."))]
    up = node.level - module.is_package
    base = here[: len(here) - up] if up else here
    return ".".join((*base, node.module) if node.module else base)


def _is_below(target: str, package: str) -> bool:
    return target == package or target.startswith(package + ".")


def _below(target: str, package: str) -> str:
    return target[len(package) + 1 :]


def _module_of(base: str, name: str, known: set[str]) -> str:
    """What `from base import name` reads: the module of that name, or base itself."""
    inner = f"{base}.{name}" if base else name
    return inner if inner in known else base


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
