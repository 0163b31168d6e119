"""Loads the compiled kernels once, in the process that workers are forked from."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from thalweg.route.bucket import order_by_group
from thalweg.route.hash import hash_rows, key_groups
from thalweg.route.router import warm as warm_router


def warm_kernels() -> None:
    """Runs every kernel on a few rows of every kind of column."""
    columns = [
        pa.array([1, 2, None], pa.int64()),
        pa.array([1, 2, 3], pa.int32()),
        pa.array([1.0, 2.0, 3.0]),
        pa.array(["a", "b", None]),
        pa.array([True, False, None]),
    ]
    for column in columns:
        hash_rows([column])
    groups = key_groups(hash_rows(columns[:2]), 4)
    order_by_group(pa.table({"x": [1, 2, 3]}), groups, 4)
    order_by_group(pa.table({"x": [1, 2, 3]}), np.array([2, 1, 0], np.uint16), 4)
    warm_router()
