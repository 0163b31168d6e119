"""Unit: what a slot lays out stays in proportion to the rows that look for it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from tests.support.read_table import Reader

from thalweg.model.bucket import Layout, RowBucket, Section
from thalweg.model.probe import Cohort, Index, Role, Store, Want
from thalweg.operate import probe_layout
from thalweg.operate.probe_layout import FEW, WORTH, SortedSides
from thalweg.operate.store import Rows

KEY = Index("i", ("k",), "k", exact=True)
STORE = Store("r", "ts", ("k", "ts"), (), keeps_all=True, indexes=(KEY,), needs=())
ROLE = Role("r", "r", (Want(1, None, ("k",)),))
COHORT = Cohort("g", ("q",), (("r", "s"),), {"r": ROLE}, ())


def bucket(rows: int = 10_000) -> Rows:
    keys = np.random.default_rng(rows).integers(0, 5000, rows)
    table = pa.table({"k": keys, "ts": pa.array(np.arange(rows), pa.timestamp("us"))})
    layout = Layout((), keeps_all=True, low_us=0, high_us=rows, closed_us={})
    section = Section("f", "r", 0, 0, rows, 0)
    held = RowBucket(
        section=section,
        relation="r",
        level=0,
        batch_from=0,
        batch_to=0,
        place=0,
        indexes={},
        layout=layout,
        columns=("k", "ts"),
    )
    return Rows(STORE, held, Reader(table), True)


def test_what_is_laid_out_is_found_again_and_is_what_lies_there() -> None:
    rows, out = bucket(), SortedSides(COHORT)
    first = out.find(rows, ROLE, KEY, 2000, 3000, 1000)
    assert first is not None
    order = rows.index(KEY).order[2000:3000]
    assert first.words.tolist() == rows.words(KEY)[order].tolist()
    assert first.times.tolist() == rows.times[order].tolist()
    assert set(first.sets.tolist()) == {1}
    assert out.find(rows, ROLE, KEY, 2100, 2900, 1) is first
    assert out.find(bucket(), ROLE, KEY, 2100, 2900, 1) is None


@pytest.mark.parametrize(("probing", "size"), [(1, 1), (FEW - 1, 1), (FEW, FEW * WORTH + 1)])
def test_a_few_rows_lay_nothing_out(probing: int, size: int) -> None:
    out = SortedSides(COHORT)
    assert out.find(bucket(), ROLE, KEY, 0, size, probing) is None
    assert out.room == probe_layout.MOST


def test_a_distant_range_takes_the_place_of_the_first() -> None:
    rows, out = bucket(), SortedSides(COHORT)
    out.find(rows, ROLE, KEY, 0, 100, FEW)
    distant = out.find(rows, ROLE, KEY, 9000, 9100, FEW)
    assert distant is not None
    assert (distant.first, distant.last) == (9000, 9100)
    assert out.room == probe_layout.MOST - 100
    near = out.find(rows, ROLE, KEY, 9050, 9150, FEW)
    assert near is not None
    assert (near.first, near.last) == (9000, 9150)
    assert out.room == probe_layout.MOST - 150


def test_there_is_an_end_to_room() -> None:
    out = SortedSides(COHORT, room=250)
    kept = [bucket(), bucket(), bucket()]
    found = [out.find(rows, ROLE, KEY, 0, 100, FEW) for rows in kept]
    assert [one is not None for one in found] == [True, True, False]
    assert out.room == 50
    assert out.find(kept[0], ROLE, KEY, 50, 150, FEW) is not None
    assert out.room == 0
