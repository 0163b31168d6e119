"""Golden plans: what EXPLAIN says of some forty sessions, as files that a person can read.

A case is a function of `tests/golden/cases`; its file is `plans/<family>/<case>.txt`. `pytest --bless` rewrites the
files, and `--record` asks Spark for what it has not been asked yet. No case starts Spark otherwise.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.golden.cases import (
    aggregates,
    cohorts,
    joins,
    lives,
    orders,
    partitioners,
    partitioning,
    pictures,
    rollups,
    selections,
    whole_rows,
    windows,
)
from tests.golden.transcript import Transcript

from thalweg.testing import LocalSession

PLANS = Path(__file__).with_name("plans")
FAMILIES = (
    selections,
    aggregates,
    windows,
    rollups,
    whole_rows,
    partitioners,
    partitioning,
    joins,
    cohorts,
    orders,
    lives,
    pictures,
)
CASES: dict[str, Callable[[Transcript], None]] = {
    f"{family.__name__.rpartition('.')[2]}/{name}.txt": case
    for family in FAMILIES
    for name, case in inspect.getmembers(family, inspect.isfunction)
    if case.__module__ == family.__name__ and not name.startswith("_")
}


@pytest.mark.parametrize("path", CASES)
def test_plan(path: str, local: Callable[..., LocalSession], golden: Callable[[str, str], None]) -> None:
    transcript = Transcript(inspect.getdoc(CASES[path]) or "", local)
    CASES[path](transcript)
    golden(f"plans/{path}", transcript.text)


def test_every_file_has_its_case(request: pytest.FixtureRequest) -> None:
    files = {file.relative_to(PLANS).as_posix(): file for file in PLANS.rglob("*.txt")}
    stale = sorted(files.keys() - CASES.keys())
    if request.config.getoption("--bless"):
        for path in stale:
            files[path].unlink()
    else:
        assert not stale, "no case writes these any more: delete them, or pytest --bless"


def test_a_difference_is_shown_with_the_flag_that_accepts_it(
    golden: Callable[[str, str], None], request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--bless"):
        pytest.skip("it would be written")
    with pytest.raises(pytest.fail.Exception, match="--bless") as failure:
        golden("plans/lives/nothing.txt", "Many queries.")
    assert "-No queries." in str(failure.value)
    assert "+Many queries." in str(failure.value)
