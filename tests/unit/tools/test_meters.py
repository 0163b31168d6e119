"""Unit: the meters count what they say, and tell worse from better."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import meters
from meters import changes, main, measure
from walks import CASES


def measured(tmp_path: Path, **texts: str) -> dict[str, int]:
    """The meters of a package `toy` with these modules; `a__b` is the module a.b."""
    source = tmp_path / "toy"
    for name, text in {"__init__": "", **texts}.items():
        path = source / f"{name.replace('__', '/') if name != '__init__' else name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return measure(source)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('x["a"]', 1),
        ('x["a"]["b"] = 1', 2),
        ('x.get("a")', 1),
        ('x.get("a", 0) + x.pop("b") + x.setdefault("c", [])["d"]', 4),
        ("x[0], x[a], x.get(a), x.get(), get('a')", 0),
        ('x.find("a"), "a" in x, f"{x}"', 0),
        ('def f():\n    match x["a"]:\n        case 1: return [y["b"] for y in z if y["c"]]', 3),
    ],
)
def test_string_keys(tmp_path: Path, text: str, count: int) -> None:
    found = measured(tmp_path, a=text, b="x = 1")
    assert found["string keys"] == count
    assert found["modules with string keys"] == (count > 0)


def test_untyped_mappings(tmp_path: Path) -> None:
    text = """
def f(a: dict[str, Any], b: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    c: dict[str, int]; d: dict[Any, str]; e: Mapping[str, Anything]; g: tuple[str, Any]
"""
    found = measured(tmp_path, a=text, b=text, c="x = 1")
    assert found["untyped mappings"] == 6
    assert found["modules with untyped mappings"] == 2


def test_imports_and_mentions(tmp_path: Path) -> None:
    found = measured(
        tmp_path,
        a="from pathlib import Path\nimport json",
        b="def f():\n    import pathlib, json",
        c="from .json import x\nimport jsonschema\nself.state_dir = 1",
        d="window.range_us + window.slide_us",
        e="slide_us = 1",
    )
    assert found["modules that import Path"] == 2
    assert found["modules that import json"] == 2
    assert found["modules that mention state_dir"] == 1
    assert found["modules that mention range_us or slide_us"] == 2


def test_fan_out_is_of_modules(tmp_path: Path) -> None:
    others = {f"p__m{i}": "" for i in range(20)}
    near = "".join(f"from .m{i} import x, y\n" for i in range(4, 8)) + "from . import m8, m9, z\nfrom .. import q\n"
    text = f"""
import os, toy.p.m0
from toy.p import m1, m2, not_a_module
from toy.p.m3 import x
{near}
if TYPE_CHECKING:
    from toy.p.m10 import T
def f():
    from toy.p.m11 import x
    from toy.p import m12, m13, m14, m15, m0
import toyish.p.m16
"""
    found = measured(tmp_path, **others, p____init__="", p__wide=text, q="", r="from toy.p import m0")
    wide = {name: count for name, count in found.items() if name.startswith("fan-out")}
    assert wide == {"fan-out of p.wide": 18}, "16 modules, p itself for what is no module, q"


def test_worse_and_better() -> None:
    committed = {"string keys": 5, "fan-out of a": 20, "fan-out of b": 17}
    now = {"string keys": 6, "fan-out of a": 19, "fan-out of c": 16}
    worse, better = changes(committed, now)
    assert worse == ["string keys 5 -> 6", "fan-out of c 15 -> 16"]
    assert better == ["fan-out of a 20 -> 19", "fan-out of b 17 -> 15"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "code", "said"),
    [(0, 0, ""), (-1, 1, "worse than committed: string keys"), (1, 0, "better than committed: string keys")],
)
def test_the_lint_fails_only_for_worse(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    change: int,
    code: int,
    said: str,
) -> None:
    measured(tmp_path, a='x["a"] + x["b"]')
    monkeypatch.setattr(meters, "ROOT", tmp_path)
    monkeypatch.setattr(meters, "SOURCE", tmp_path / "toy")
    monkeypatch.setattr(meters, "COMMITTED", tmp_path / "meters.json")
    assert main(["--bless"]) == 0
    blessed = json.loads((tmp_path / "meters.json").read_text())
    (tmp_path / "meters.json").write_text(json.dumps(blessed | {"string keys": 2 + change}))
    capsys.readouterr()
    assert main([]) == code
    shown = capsys.readouterr().out
    assert shown.splitlines()[1].split() == ["string", "keys", str(2 + change), "2"]
    assert said in shown
    assert ("--bless" in shown) == (change != 0)


@pytest.mark.slow
def test_every_committed_meter_is_one_that_is_measured() -> None:
    committed = json.loads(meters.COMMITTED.read_text())
    plain = {name for name in meters.measure(meters.SOURCE) if not name.startswith(meters.FAN_OUT)} | {
        *CASES,
        meters.UP,
    }
    assert {name for name in committed if not name.startswith(meters.FAN_OUT)} == plain
