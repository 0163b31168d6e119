"""Unit: how many rows a batch takes of a backlog, as a function of what batches took."""

from __future__ import annotations

import random

import pytest

from thalweg.adapt.batch_size import (
    FIRST_ROWS,
    FIXED_SHARE,
    GROWTH,
    LONGEST,
    SHORTEST,
    TASK_BYTES,
    BatchSize,
    Took,
    rows_wanted,
)


def took(rows: int, fixed: float, row_seconds: float, made: int = 0) -> Took:
    return Took(rows, fixed + rows * row_seconds, fixed, made)


def test_nothing_is_known_of_the_first_batch() -> None:
    assert rows_wanted([], 2) == FIRST_ROWS


def test_what_is_fixed_becomes_a_small_share() -> None:
    seen = [took(40_000_000, 0.2, 5e-8)]
    assert rows_wanted(seen, 2) == pytest.approx((0.2 / FIXED_SHARE - 0.2) / 5e-8, rel=1e-3)


def test_a_batch_is_no_longer_than_results_may_wait() -> None:
    assert rows_wanted([took(50_000_000, 3.0, 1e-6)], 2) == pytest.approx((LONGEST - 3.0) / 1e-6, rel=1e-3)


def test_a_batch_is_not_cut_finer_than_is_worth_it() -> None:
    assert rows_wanted([took(1_000_000, 0.001, 1e-5)], 2) == pytest.approx(SHORTEST / 1e-5, rel=1e-3)


def test_batches_grow_step_by_step() -> None:
    """A small batch says little of a large one."""
    size, rows = BatchSize(2), []
    for _ in range(5):
        rows.append(size.rows())
        size.take_in(took(rows[-1], 0.15, 2e-8))
    assert rows[:4] == [FIRST_ROWS * GROWTH**i for i in range(4)]
    assert rows[4] == pytest.approx((0.15 / FIXED_SHARE - 0.15) / 2e-8, rel=1e-3)


def test_tasks_hold_no_more_than_they_may() -> None:
    assert rows_wanted([took(50_000_000, 0.2, 1e-9, made=50_000_000 * 100)], 3) == 3 * TASK_BYTES // 100


def test_batches_without_rows_teach_nothing_and_other_queries_begin_anew() -> None:
    size = BatchSize(2)
    size.take_in(Took(0, 5.0, 1.0, 1000))
    assert size.rows() == FIRST_ROWS
    size.take_in(took(10_000_000, 0.2, 1e-8))
    assert size.rows() > FIRST_ROWS
    size.forget()
    assert size.rows() == FIRST_ROWS


@pytest.mark.parametrize("seed", range(5))
def test_every_batch_that_is_wanted_keeps_its_bounds(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        row_seconds = 10 ** rng.uniform(-9, -4)
        seen = [
            took(rng.randrange(1, 10**8), rng.uniform(0, 4), row_seconds, rng.randrange(10**10))
            for _ in range(rng.randrange(1, 9))
        ]
        tasks = rng.randrange(1, 9)
        wanted = rows_wanted(seen, tasks)
        assert wanted >= 1
        assert wanted <= max(FIRST_ROWS, GROWTH * max(t.rows for t in seen))
        assert min(t.fixed for t in seen) + (wanted - 1) * row_seconds <= LONGEST * 1.001
        assert wanted == 1 or wanted * max(t.made / t.rows for t in seen) <= tasks * TASK_BYTES * 1.001
