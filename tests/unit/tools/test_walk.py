"""Unit: the walk of a row, through a toy package and through ours."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from thalweg.testing import LocalSession
from walk import Walk, walk
from walks import CASES, walks

FILES = {
    "engine/batch.py": """
from toy.engine.tasks import ingest
from toy.sink.rows import commit

def run(rows):
    out = list(ingest(rows))
    commit(out)
    return out

def fail(rows):
    try:
        list(ingest([None]))
    except TypeError:
        commit([])
""",
    "engine/tasks.py": """
from toy.operate.work import add, call_back

def ingest(rows):
    for row in rows:
        yield add(row)
    call_back(lambda: done())

def done():
    return 0
""",
    "operate/work.py": """
from toy.model.names import through
from toy.places.hash import hash_row

def add(row):
    again(row)
    return through(lambda: hash_row(row + 1))

def again(row):
    return [row for _ in range(3)]

def call_back(function):
    sorted([2, 1], key=lambda _: function())
""",
    "model/names.py": "def through(function):\n    return function()\n",
    "places/hash.py": "def hash_row(row):\n    return row\n",
    "sink/rows.py": "def commit(rows):\n    return len(rows)\n",
}
WAY = "engine operate places operate engine operate engine operate engine sink engine"


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Callable[..., object]]]:
    for name, text in FILES.items():
        path = tmp_path / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    batch = importlib.import_module("toy.engine.batch")
    yield lambda name: getattr(batch, name)
    for name in [name for name in sys.modules if name.split(".")[0] == "toy"]:
        del sys.modules[name]


def walked(run: Callable[..., object], rows: list[int], **options: list[str]) -> Walk:
    return walk(lambda: run(rows), package="toy", **options)


def test_hops_and_calls(toy: Callable[[str], Callable[..., object]]) -> None:
    found = walked(toy("run"), [1])
    assert " ".join(found.way) == WAY
    assert found.hops == 10
    assert [f"{caller} > {callee}" for caller, callee in found.calls] == [
        "engine.tasks:ingest > operate.work:add",
        "operate.work:add.<locals>.<lambda> > places.hash:hash_row",
        "engine.tasks:ingest > operate.work:call_back",
        "operate.work:call_back.<locals>.<lambda> > engine.tasks:ingest.<locals>.<lambda>",
        "engine.batch:run > sink.rows:commit",
    ]
    assert found.calls_between("operate", "engine") == 1
    assert found.functions == 11


def test_more_rows_walk_the_same_way(toy: Callable[[str], Callable[..., object]]) -> None:
    assert walked(toy("run"), [1, 2, 3]) == walked(toy("run"), [1])


def test_the_vocabulary_is_a_choice(toy: Callable[[str], Callable[..., object]]) -> None:
    found = walked(toy("run"), [1], vocabulary=["places"])
    assert found.way[:5] == ("engine", "operate", "model", "operate", "model")


def test_only_what_is_below(toy: Callable[[str], Callable[..., object]]) -> None:
    found = walked(toy("run"), [1], below=["operate.work:add", "sink.rows:commit"])
    assert found.way == ("operate", "places", "operate", "sink")
    assert len(found.calls) == 1


def test_an_exception_comes_back_too(toy: Callable[[str], Callable[..., object]]) -> None:
    found = walked(toy("fail"), [])
    assert found.way == ("engine", "operate", "engine", "sink", "engine")


def test_the_profiler_is_put_back(toy: Callable[[str], Callable[..., object]]) -> None:
    before = sys.getprofile()
    with pytest.raises(TypeError):
        walked(toy("run"), [None])  # type: ignore[list-item]
    assert sys.getprofile() is before


@pytest.mark.slow
def test_the_walks_that_are_metered(local: Callable[[], LocalSession]) -> None:
    """Every stage is in them: rows are read, worked on, kept and given out."""
    found = walks(local)
    assert list(found) == list(CASES)
    for of_case in found.values():
        assert {"batch", "source", "operate", "state", "sink"} == {*of_case.way}
