"""Unit: splits as plain data, and how they are packed into tasks."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.model.generator import Facts
from thalweg.model.split import CsvOptions, Split, dump_splits, join_splits, parse_splits, rows_in
from thalweg.source.split_planner import pack


def splits_of(rows: list[int]) -> list[Split]:
    return [Split("s", "parquet", f"f{i}", 0, 1, rows=n) for i, n in enumerate(rows)]


def test_json_keeps_everything() -> None:
    splits = [Split("s", "csv", "/a b/ü.csv", 5, -1, 0, 77, CsvOptions(header=False, delimiter="\t"))]
    splits += [Split("s", "generate", "", 5, 9, 4, generator=Facts(rows=None, zipf=0.5))]
    assert parse_splits(dump_splits(splits)) == splits


def test_texts_of_several_tasks_are_joined_and_counted() -> None:
    texts = [dump_splits(splits_of([3, 4])), dump_splits([]), dump_splits(splits_of([5]))]
    assert parse_splits(join_splits(texts)) == splits_of([3, 4]) + splits_of([5])
    assert rows_in(texts) == 12


def test_two_tasks_get_a_half_each_in_order() -> None:
    splits = splits_of([100] * 8)
    assert pack(splits, 2) == [splits[:4], splits[4:]]


def test_a_large_split_stands_alone() -> None:
    splits = splits_of([1000, 10, 10])
    assert pack(splits, 2) == [splits[:1], splits[1:]]


def test_nothing_gives_empty_tasks() -> None:
    assert pack([], 3) == [[], [], []]


def test_bytes_are_weighed_where_rows_are_unknown() -> None:
    splits = [Split("s", "json", f"f{i}", 0, -1, bytes=size) for i, size in enumerate((64_000, 6_400, 6_400))]
    assert [len(task) for task in pack(splits, 2)] == [1, 2]


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 10_000), max_size=40), st.integers(1, 9))
def test_packing_keeps_order_and_stays_within_one_split_of_even(rows: list[int], parts: int) -> None:
    splits = splits_of(rows)
    tasks = pack(splits, parts)
    assert len(tasks) == parts
    assert [split for task in tasks for split in task] == splits
    weights = [split.weight for split in splits]
    fair = sum(weights) / parts
    assert all(sum(s.weight for s in task) <= fair + max(weights, default=0) for task in tasks)
