"""Unit: a text that would keep Spark's analyser busy is refused at once, and nobody waits for one that is bound."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from thalweg.errors import NamingError, SqlError
from thalweg.model.analysis import Learned
from thalweg.testing import LocalSession

Local = Callable[..., LocalSession]
ROWS = pa.table(
    {"ts": pa.array([0, 1], pa.timestamp("us", "UTC")), "g": ["a", "b"], "n": pa.array([1, 2], pa.int32())}
)
NUMBERS = ", ".join(map(str, range(100_000)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("select", "said"),
    [
        (
            f"SELECT {', '.join(f'n AS c{i}' for i in range(2_001))} FROM s",
            "a query of 2,001 columns: 2,000 are the most",
        ),
        (f"SELECT g FROM s WHERE n IN ({NUMBERS[:58_895]})", "10,001 values of IN: 10,000 are the most"),
        (f"SELECT g FROM s WHERE n IN ({NUMBERS})", "characters: 500,000 are the most"),
    ],
)
def test_what_is_too_large_never_reaches_the_analyser(local: Local, select: str, said: str) -> None:
    session = local({"s": ROWS})
    with pytest.raises(SqlError, match=said) as refused:
        session.create_query("q", select)
    assert len(str(refused.value)) < 5_000, "of a line without an end, the place is shown"


class Busy:
    """An analyser that is asked and does not answer."""

    def __init__(self, analyzer: Any) -> None:
        self._analyzer = analyzer
        self.asked, self.may_answer = threading.Event(), threading.Event()

    @property
    def learned(self) -> Learned:
        return {}

    def analyze(self, sql: str) -> Any:
        self.asked.set()
        assert self.may_answer.wait(10)
        return self._analyzer.analyze(sql)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._analyzer, name)


def test_batches_do_not_wait_for_a_query_that_is_bound(local: Local) -> None:
    session = local({"s": ROWS}, {"fine": "SELECT g FROM s"})
    session._parts.analyzer = busy = Busy(session._parts.analyzer)
    raised: list[Exception] = []

    def create() -> None:
        try:
            session.create_query("late", "SELECT n FROM s")
        except NamingError as error:
            raised.append(error)

    thread = threading.Thread(target=create)
    thread.start()
    assert busy.asked.wait(10)
    ended = threading.Thread(target=session.run_available)
    ended.start()
    ended.join(10)
    was_blocked = ended.is_alive()
    session._parts.analyzer = busy._analyzer
    if not was_blocked:
        assert session.query("fine").results().num_rows == 2
        session.create_query("late", "SELECT g FROM s")
    busy.may_answer.set()
    thread.join(10)
    ended.join(10)
    assert not was_blocked
    assert len(raised) == 1, "the name was taken meanwhile"
    assert "late" in str(raised[0])
