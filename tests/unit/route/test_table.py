from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.profiles import examples

from thalweg.route.table import RoutingTable


def test_hashed_gives_contiguous_equal_ranges() -> None:
    table = RoutingTable.hashed(10, 4)
    assert table.assignment == (0, 0, 0, 1, 1, 2, 2, 2, 3, 3)
    assert [table.slot_ranges(slot) for slot in range(4)] == [[(0, 3)], [(3, 5)], [(5, 8)], [(8, 10)]]


def test_more_slots_than_groups_leaves_slots_empty() -> None:
    table = RoutingTable.hashed(2, 4)
    assert [table.slot_ranges(slot) for slot in range(4)] == [[(0, 1)], [], [(1, 2)], []]


@settings(max_examples=examples(100))
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_ranges_of_any_assignment_cover_each_group_once(assignment: list[int]) -> None:
    table = RoutingTable(len(assignment), 4, tuple(assignment))
    owners: dict[int, int] = {}
    for slot in range(4):
        ranges = table.slot_ranges(slot)
        assert all(left[1] < right[0] for left, right in itertools.pairwise(ranges))
        for first, last in ranges:
            owners |= dict.fromkeys(range(first, last), slot)
    assert [owners[group] for group in range(len(assignment))] == assignment


def test_an_impossible_assignment_is_refused() -> None:
    with pytest.raises(ValueError, match="3 exist"):
        RoutingTable(3, 2, (0, 1))
    with pytest.raises(ValueError, match="outside"):
        RoutingTable(2, 2, (0, 2))
