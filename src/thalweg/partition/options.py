"""What a partitioner may be given: every number and name is checked here, before anything is built."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

import numpy as np

from thalweg.errors import partitioner_option
from thalweg.kernel import frozen_view
from thalweg.partition.contract import Keys, Times

MAX_WORKERS = 1 << 16
ESTIMATORS = ("exact", "hll")


def whole_number(name: str, option: str, value: Any, least: int, most: int, wanted: str) -> int:
    """`value` as an int between `least` and `most`; a bool is not a number."""
    try:
        number = operator.index(value)
    except TypeError:
        raise partitioner_option(name, option, value, wanted) from None
    if isinstance(value, (bool, np.bool_)) or not least <= number <= most:
        raise partitioner_option(name, option, value, wanted)
    return number


def probability(name: str, option: str, value: Any) -> float:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise partitioner_option(name, option, value, "a number from 0 to 1")
    number = float(value)
    if math.isnan(number) or not 0.0 <= number <= 1.0:
        raise partitioner_option(name, option, value, "a number from 0 to 1")
    return number


def worker_count(name: str, value: Any) -> int:
    return whole_number(name, "workers", value, 1, MAX_WORKERS, f"a whole number from 1 to {MAX_WORKERS}")


def choice_count(name: str, value: Any, workers: int) -> int:
    """How many workers a key may go to: they are different ones, so never more than there are."""
    return whole_number(name, "choices", value, 1, workers, f"a whole number from 1 to the {workers} workers")


def estimator_name(name: str, value: Any) -> str:
    if value not in ESTIMATORS:
        raise partitioner_option(name, "estimator", value, " or ".join(ESTIMATORS))
    return str(value)


def seed_word(name: str, value: Any) -> int:
    return whole_number(name, "seed", value, -(2**63), 2**64 - 1, "a whole number of 64 bits") % 2**64


def window_span(name: str, value: Any) -> int | None:
    """Microseconds of a window, None for one that never ends."""
    if value is None:
        return None
    return whole_number(name, "window_us", value, 1, 2**62, "microseconds above 0, or None")


def reject_unknown(name: str, options: Mapping[str, Any], known: tuple[str, ...] = ("window_us",)) -> None:
    for option, value in options.items():
        if option not in known:
            raise partitioner_option(name, option, value, f"an option it has: {', '.join(known)}")


def key_array(name: str, keys: Any) -> Keys:
    """Keys as kernels take them. Whole numbers of other widths are widened, anything else needs `keys_of` first."""
    array = np.asarray(keys)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and array.size):
        found = f"{array.dtype} of shape {array.shape}"
        raise partitioner_option(name, "keys", found, "one line of whole numbers; keys_of makes them of any column")
    array = array.view(np.int64) if array.dtype == np.uint64 else array.astype(np.int64, copy=False)
    return frozen_view(array)


def time_array(name: str, times: Any, rows: int) -> Times:
    array = np.asarray(times)
    if (array.dtype.kind not in "iu" and array.size) or array.shape != (rows,):
        found = f"{array.dtype} of shape {array.shape}"
        raise partitioner_option(name, "times", found, f"microseconds as whole numbers, one for each of {rows} keys")
    return frozen_view(array.astype(np.int64, copy=False))
