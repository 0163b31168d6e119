"""Docs: the page on the papers names what is there: modules, partitioners, loops, solvers, benchmarks, figures."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import ROOT

from thalweg.adapt.adaptations import ADAPTATIONS
from thalweg.adapt.settings import AdaptSettings
from thalweg.cli import bench
from thalweg.partition import _REGISTRY

SOURCE = ROOT / "src" / "thalweg"
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
MEASURED = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
BODY, _, EXPERIMENTS = PAGE.partition("\n## The papers' experiments\n")
DEFINED = dict(re.findall(r"^\[([\w/]+)\]: (\S+)$", PAGE, re.M))
MODULE = re.compile(r"\[([a-z_]+(?:/[a-z_]+)*)\](?![(:])")
FIGURE = re.compile(r"(?<![\w.])[\d.]+x\b")
STATES = ("default", "seldom", "option", "library", "replaced", "left out")
PAPERS = ("SASPAR", "AJoin", "Holistic", "CLASH", "Dalton")


def modules(text: str) -> set[str]:
    return set(MODULE.findall(re.sub(r"`[^`]*`", "", text)))


def rows(text: str, head: str) -> list[list[str]]:
    """The cells of the table that begins with these cells."""
    table = text[text.index(f"\n{head}") + 1 :].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def module_of(name: str) -> str:
    return name.removeprefix("thalweg.").replace(".", "/")


def unmeasured(text: str) -> set[str]:
    """Figures of ours that the page of measurements does not have."""
    return set(FIGURE.findall(text)) - set(FIGURE.findall(MEASURED))


def test_every_module_is_there_and_linked() -> None:
    assert modules(PAGE) == DEFINED.keys()
    for name, target in DEFINED.items():
        assert target == f"../src/thalweg/{name}.py"
        assert (SOURCE / f"{name}.py").is_file(), name


def test_every_partitioner_has_a_place() -> None:
    assert {module_of(module) for module in _REGISTRY.values()} <= DEFINED.keys()
    assert [name for name in _REGISTRY if f"`{name}`" not in BODY] == []


def test_every_loop_has_a_place() -> None:
    loops = {module_of(type(made(AdaptSettings(tasks=1))).__module__) for made in ADAPTATIONS}
    assert loops <= DEFINED.keys()


def test_every_solver_has_a_place() -> None:
    solvers = [path.parent.name for path in (SOURCE / "optimize").glob("*/__init__.py")]
    assert len(solvers) > 1
    assert [name for name in solvers if f"](../src/thalweg/optimize/{name})" not in BODY] == []


@pytest.mark.parametrize("paper", PAPERS)
def test_every_mechanism_has_a_state(paper: str) -> None:
    section = BODY[BODY.index(f"\n## {paper}\n") :]
    for mechanism, state, where, _ in rows(section, "| mechanism | state | where | what differs, and why |"):
        said = [part.strip() for part in state.replace("**", "").split(",")]
        assert all(part.startswith(STATES) for part in said), mechanism
        assert where or "left out" in state, mechanism


def test_every_benchmark_that_answers_a_paper_is_named() -> None:
    listed = bench.listed()
    table = rows(EXPERIMENTS, "| figure | benchmark | what came of it |")
    named = {name for _, benchmarks, _ in table for name in re.findall(r"[\[`]([\w-]+)[\]`]", benchmarks)}
    assert named <= listed.keys()
    assert {name for name, one in listed.items() if one.answers} <= named


def test_every_figure_has_been_measured() -> None:
    assert unmeasured(PAGE) == set()
    assert unmeasured(PAGE.replace("62.4x", "72.4x")) == {"72.4x"}
