"""Unit: recorded answers of Spark that are asked for again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from tests.support.side import CheckedAnswers, Tables

from thalweg.testing.recorded import Answers

LINE = {"key": "k", "asked": "SELECT v FROM s", "answer": [("v", "int")]}


def test_an_answer_that_has_changed_is_told(tmp_path: Path) -> None:
    recorded = Answers(tmp_path)
    recorded.add(LINE)
    recorded.save()
    checked = CheckedAnswers(Answers(tmp_path))
    assert checked.get("k") is None  # so that Spark is asked
    checked.add(LINE)
    assert checked.get("k") == LINE  # once
    with pytest.raises(AssertionError, match="SELECT v FROM s"):
        CheckedAnswers(Answers(tmp_path)).add({**LINE, "answer": [("v", "bigint")]})


def test_what_is_made_anew_forgets_what_is_not_asked_for(tmp_path: Path) -> None:
    one, path = pa.table({"v": [1]}), tmp_path / "t.zip"
    tables = Tables(path)
    tables.add("a", one)
    tables.add("b", one)
    tables.save()
    again = Tables(path, anew=True)
    assert again.get("a") is None
    again.add("a", pa.table({"v": [2]}))
    again.save()
    assert Tables(path).get("a") == pa.table({"v": [2]})
    assert Tables(path).get("b") is None
    answers = Answers(tmp_path)
    answers.add(LINE)
    answers.save()
    assert Answers(tmp_path, anew=True).get("k") is None
