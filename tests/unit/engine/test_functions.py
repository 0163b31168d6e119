"""Unit: a user's functions reach workers that do not know the program's folder."""

from __future__ import annotations

import pickle
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from thalweg.engine.functions import pickled


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """A module that lies beside the program, and one that it uses."""
    (tmp_path / "beside_program.py").write_text("FACTOR = 3\ndef helper(x):\n    return FACTOR * x\n"
        "def triple(x):\n    return helper(x)\n")  # fmt: skip
    monkeypatch.syspath_prepend(tmp_path)
    return __import__("beside_program")


def test_code_beside_the_program_travels(beside: object, tmp_path: Path) -> None:
    function = beside.triple  # type: ignore[attr-defined]
    (tmp_path / "code").write_bytes(pickled((function, 14), (function,)))
    (tmp_path / "elsewhere").mkdir()
    program = "import pickle, sys; f, x = pickle.load(open(sys.argv[1], 'rb')); print(f(x))"
    told = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "code")],
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "42\n"
    assert "beside_program" not in cloudpickle.list_registry_pickle_by_value(), "only while it is pickled"


def test_installed_code_is_named() -> None:
    code = pickled(statistics.median, (statistics.median,))
    assert len(code) < 200
    assert pickle.loads(code) is statistics.median


def test_what_is_no_plain_function_is_pickled_as_usual() -> None:
    assert pickle.loads(pickled((list, max, str.upper), (list, max, str.upper))) == (list, max, str.upper)
