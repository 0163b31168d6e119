"""The rows that a task keeps of a stream, cut into buckets: small ones have small indexes, and expire sooner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa

from thalweg.model.bucket import Layout, NewRows
from thalweg.model.probe import Store
from thalweg.operate.index import SMALL
from thalweg.operate.store import Array, lay_out, numbers

MILLISECOND = 1_000
"""Watermarks are whole ones."""

WORTH_CUTTING = SMALL // 8
"""Fewer rows on either side of the time that the next batch lets go of are not cut off: a bucket costs more."""


def new_buckets(
    store: Store, rows: pa.Table, layout: Layout, delays: Mapping[str, int], batch: int, place: int
) -> Iterator[NewRows]:
    """`delays`: of the watermarks of the streams that its rows are joined with. `place`: of the first bucket."""
    times = numbers(rows.column(store.time))
    for number, piece in enumerate(in_pieces(rows, times, _gone(store, times, delays))):
        yield lay_out(store, piece, layout, 0, (batch, batch), place + number)


def _gone(store: Store, times: Array, delays: Mapping[str, int]) -> int:
    """Up to which event time rows are of no use once the watermark that these make is in force, if that of the other
    streams is as far."""
    latest = int(times.max()) // MILLISECOND * MILLISECOND
    return latest - max(max(delays[stream] for stream in streams) + reach for streams, reach in store.needs)


def in_pieces(rows: pa.Table, times: Array, gone_us: int) -> Iterator[pa.Table]:
    """Buckets of about even size. `gone_us`: rows up to this event time are of no use after the next batch. They are
    not put together with others, which would keep them."""
    stays = times > gone_us
    staying = int(np.count_nonzero(stays))
    if min(staying, len(times) - staying) < WORTH_CUTTING:
        yield from _evenly(rows)
        return
    first = int(stays.argmax())
    if stays[first:].all():  # mostly rows come in the order of their times
        parts = [rows.slice(0, first), rows.slice(first)]
    else:
        parts = [rows.filter(pa.array(~stays)), rows.filter(pa.array(stays))]
    for part in parts:
        yield from _evenly(part)


def _evenly(rows: pa.Table) -> Iterator[pa.Table]:
    pieces = -(-rows.num_rows // SMALL)
    for first, last in pairwise(rows.num_rows * n // pieces for n in range(pieces + 1)):
        yield rows.slice(first, last - first)
