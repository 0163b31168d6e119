"""Unit: what a sink raises concerns its query alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from thalweg.batch.delivery import Delivery


class Sink:
    def __init__(self, failure: BaseException | None) -> None:
        self.failure = failure
        self.got: list[int] = []

    def commit(self, batch: int, table: pa.Table) -> None:
        if self.failure is not None:
            raise self.failure
        self.got.append(batch)


@pytest.mark.parametrize("failure", [ValueError("no"), SystemExit("no")])
def test_whatever_a_sink_raises_stops_its_query_alone(tmp_path: Path, failure: BaseException) -> None:
    spark: Any = None
    delivery = Delivery(spark, tmp_path)
    good = Sink(None)
    sinks: dict[str, Any] = {"bad": Sink(failure), "good": good}
    delivery._sinks = sinks
    entries: dict[str, Any] = {
        id_: SimpleNamespace(id=id_, query=SimpleNamespace(name=id_, sink=SimpleNamespace(kind="files")))
        for id_ in ("bad", "good")
    }
    failed = delivery.deliver(7, {id_: (entry, pa.table({"a": [1]})) for id_, entry in entries.items()})
    assert list(failed) == ["bad"]
    assert "no" in failed["bad"]
    assert good.got == [7]
