"""Unit: what each chore of ./dev installs, with a Python and a Java that only write down what they are asked."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PYTHON = """#!/bin/sh
printf '%s\\n' "$*" >>"{log}"
[ "$1" != --version ] || echo Python 3.11.7
"""
JAVA = """#!/bin/sh
echo 'openjdk version "17.0.1" 2021-10-19' >&2
echo '    java.home = {home}' >&2
"""


class Tree:
    """A copy of the script with an environment that is a stand-in."""

    def __init__(self, root: Path) -> None:
        self.root, self.log = root, root / "log"
        for name in ("dev", "pyproject.toml"):
            shutil.copy(ROOT / name, root / name)
        write_program(root / ".venv" / "bin" / "python", PYTHON.format(log=self.log))
        write_program(root / "java" / "bin" / "java", JAVA.format(home=root / "java"))

    def run(self, *arguments: str) -> list[str]:
        """Does a chore; what was asked of Python, without questions about itself."""
        self.log.write_text("")
        environment = {**os.environ, "JAVA_HOME": str(self.root / "java")}
        subprocess.run(["sh", str(self.root / "dev"), *arguments], env=environment, check=True, capture_output=True)
        asked = self.log.read_text().splitlines()
        return [line for line in asked if not line.startswith(("--version", "-m pip --version", "-c import sys"))]

    def installed(self, *arguments: str) -> list[str]:
        """What a chore has had installed: the package with extras, or the kernels."""
        asked = self.run(*arguments)
        specs = [line.rpartition(" -e ")[2].removeprefix(str(self.root)) for line in asked if " -e " in line]
        return [f"package{spec}" for spec in specs] + ["kernels" for line in asked if "warm_kernels()" in line]


def write_program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


@pytest.mark.slow
def test_running_needs_the_package_alone(tree: Tree) -> None:
    assert tree.installed("demo") == ["package"]
    for chore in ("demo", "run", "explain", "python"):
        assert tree.installed(chore) == []
    assert tree.run("demo", "--seconds", "5") == ["-m thalweg.cli demo --seconds 5"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chore", "wanted"),
    [
        ("lint", ["package[dev]"]),
        ("format", ["package[dev]"]),
        ("test", ["package[dev,bench]", "kernels"]),
        ("bench", ["package[bench]", "kernels"]),
        ("setup", ["package[dev,bench]", "kernels"]),
    ],
)
def test_tools_come_with_their_chores(tree: Tree, chore: str, wanted: list[str]) -> None:
    assert tree.installed(chore) == wanted
    assert tree.installed(chore) == []


@pytest.mark.slow
def test_only_what_is_missing_is_installed(tree: Tree) -> None:
    tree.run("demo")
    assert tree.installed("lint") == ["package[dev]"]
    assert tree.installed("test") == ["package[bench]", "kernels"]
    assert tree.installed("bench") == []


@pytest.mark.slow
def test_another_list_of_packages_is_installed_anew(tree: Tree) -> None:
    tree.run("lint")
    with open(tree.root / "pyproject.toml", "a") as file:
        file.write("# changed\n")
    assert tree.installed("demo") == ["package"]
    assert tree.installed("lint") == ["package[dev]"]
