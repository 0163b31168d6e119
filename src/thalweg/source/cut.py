"""How units are cut into splits."""

from __future__ import annotations

from itertools import pairwise

from thalweg import errors
from thalweg.model.split import Split
from thalweg.source.log import File

_ROWS_PER_SPLIT = 750_000
_LEAST_ROWS_PER_SPLIT = 50_000


def cut_groups(stream: str, path: str, file: File, rows_per_split: int) -> list[Split]:
    """A Parquet file as ranges of row groups."""
    rows_per_group = max(1, file.rows / file.groups)
    cuts = cut_range(0, file.groups, max(1, round(rows_per_split / rows_per_group)))
    return [
        Split(
            stream,
            "parquet",
            path,
            low,
            high,
            rows=file.rows * high // file.groups - file.rows * low // file.groups,
            bytes=file.size * (high - low) // file.groups,
        )
        for low, high in cuts
    ]


def rows_per_split(rows: int, parts: int) -> int:
    """Small enough that `parts` tasks get some each, large enough that a split is worth its overhead."""
    return min(_ROWS_PER_SPLIT, max(_LEAST_ROWS_PER_SPLIT, -(-rows // max(1, parts))))


def cut_range(start: int, end: int, step: int) -> list[tuple[int, int]]:
    """[start, end) as pieces of about `step`, all of nearly the same length."""
    pieces = max(1, round((end - start) / step)) if end > start else 0
    bounds = [start + (end - start) * i // pieces for i in range(pieces + 1)] if pieces else []
    return list(pairwise(bounds))


def check_units(stream: str, wanted: int, found: int) -> None:
    if wanted > found:
        raise errors.source_units_missing(stream, wanted, found)
