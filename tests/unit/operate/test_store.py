"""Buckets of a store: the order of their rows, and their indexes as they are kept."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from thalweg.model.probe import Index, Store
from thalweg.operate.index import SMALL, build_index
from thalweg.operate.store import in_key_order, index_from_table, index_to_table, make_index

BY_K, BY_J = (Index(name, (name,), name, True) for name in ("k", "j"))


def store(*indexes: Index) -> Store:
    return Store("s", "t", ("k", "j", "t"), (), True, indexes, ((("s",), 1),))


def rows(seed: int, n: int, nulls: bool) -> pa.Table:
    rng = random.Random(seed)
    keys = [None if nulls and rng.random() < 0.1 else rng.randint(0, n // 3) for _ in range(n)]
    return pa.table({"k": pa.array(keys, pa.int64()), "j": [rng.randint(0, 9) for _ in range(n)], "t": range(n)})


@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("n", [1, 700, SMALL + 10])
def test_partners_lie_side_by_side_and_rows_without_a_key_last(n: int, nulls: bool) -> None:
    table = rows(n, n, nulls)
    ordered = in_key_order(store(BY_K), table)
    assert sorted(map(repr, ordered.to_pylist())) == sorted(map(repr, table.to_pylist()))
    keys = ordered.column("k").to_pylist()
    with_key = [key for key in keys if key is not None]
    assert keys[: len(with_key)] == with_key
    order = make_index(BY_K, ordered).order
    assert order.tolist() == list(range(len(with_key)))


def test_rows_that_several_keys_find_lie_in_the_order_of_the_first() -> None:
    table = rows(1, 100, nulls=True)
    assert in_key_order(store(BY_K, BY_J), table).equals(in_key_order(store(BY_K), table))


@pytest.mark.parametrize("words", [[5, 3, 5, 1, 3], list(range(SMALL + 5)), []])
def test_an_index_comes_back_as_it_was(words: list[int]) -> None:
    index = build_index(np.array(words, dtype=np.int64))
    again = index_from_table(index_to_table(index), index.bits)
    assert again.starts.tolist() == index.starts.tolist()
    assert again.order.tolist() == index.order.tolist()
    assert again.order.dtype == index.order.dtype


def test_the_index_of_rows_in_its_order_costs_nothing_a_row() -> None:
    ordered = in_key_order(store(BY_K), rows(3, 900, nulls=True))
    index = make_index(BY_K, ordered)
    kept = index_to_table(index)
    assert kept.num_rows == len(index.starts)
    assert index_from_table(kept, index.bits).order.tolist() == index.order.tolist()
