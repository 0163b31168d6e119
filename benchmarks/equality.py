"""Whether two systems have the same results, row by row."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import duckdb

from benchmarks.workloads.model import Workload

TOLERANCE = 1e-9
"""Of doubles, relative: the order in which they are added up is nobody's promise."""


class DifferenceError(Exception):
    pass


def compare_results(
    work: Workload, directory: Path, files: int, ours: Path, theirs: Path, *, held: bool = False
) -> int:
    """Result rows, which both sides wrote to `q0`, `q1`, ... of their directories; raises `DifferenceError`.

    Ours has only windows that have closed. Of theirs, those still open at the end of the input do not count; where it
    keeps them open longer (`held`), those are left out that it may still have open.
    """
    connection = _connection()
    watermark = final_watermark(connection, work, directory, files)
    rows = 0
    for i, query in enumerate(work.queries):
        back = round(query.held_seconds * 1e6) if held else 0
        closed = query.closed and query.closed.replace("$watermark", f"make_timestamptz({watermark - back})")
        rows += _compare(connection, f"q{i}", ours / f"q{i}", theirs / f"q{i}", closed, both=back > 0)
    return rows


def final_watermark(connection: Any, work: Workload, directory: Path, files: int) -> int:
    """After the last file: the least over all streams, in microseconds, of whole milliseconds as Spark keeps it."""
    least = []
    for stream in work.streams:
        paths = [str(directory / stream.name / f"part-{number:04d}.parquet") for number in range(files)]
        (newest,) = connection.execute(f"SELECT max(epoch_us({stream.time})) FROM read_parquet({paths})").fetchall()[
            0
        ]
        least.append(newest // 1000 * 1000 - round(stream.delay_seconds * 1e6))
    return min(least)


def compare_directories(ours: Path, theirs: Path, queries: int) -> dict[str, int]:
    """Rows of every query's results, in full; raises `DifferenceError`."""
    connection = _connection()
    names = [f"q{i}" for i in range(queries)]
    return {name: _compare(connection, name, ours / name, theirs / name, None) for name in names}


def _connection() -> Any:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _compare(connection: Any, name: str, ours: Path, theirs: Path, closed: str | None, both: bool = False) -> int:
    """`both`: of ours, too, only the windows that are `closed`."""
    a, b = f"read_parquet('{ours}/**/*.parquet')", f"read_parquet('{theirs}/**/*.parquet')"
    if both:
        a = f"(FROM {a} WHERE {closed})"
    # Without results there may be no file, and nothing to read a schema from.
    there = [any(side.rglob("*.parquet")) for side in (ours, theirs)]
    if not there[1]:
        extra = _count(connection, f"FROM {a}") if there[0] else 0
        if extra:
            raise DifferenceError(f"{name}: {extra:,} rows against none")
        return 0
    condition = f" WHERE {closed}" if closed else ""
    if not there[0]:
        if _count(connection, f"FROM {b}{condition}"):
            raise DifferenceError(f"{name}: no rows against {_count(connection, f'FROM {b}{condition}'):,}")
        return 0
    columns = connection.execute(f"DESCRIBE FROM {a}").fetchall()
    cast = ", ".join(f'CAST("{column}" AS {type_}) AS "{column}"' for column, type_, *_ in columns)
    b = f"(SELECT {cast} FROM {b}{condition})"
    _compare_rows(connection, name, a, b, [(column, type_) for column, type_, *_ in columns])
    return _count(connection, f"FROM {a}")


def _compare_rows(connection: Any, name: str, a: str, b: str, columns: list[tuple[str, str]]) -> None:
    """Exactly; where that fails, rows that differ in nothing but the last digits of doubles are the same, too."""
    doubles = [column for column, type_ in columns if type_ in ("DOUBLE", "FLOAT")]
    exact = [column for column, _ in columns if column not in doubles]
    order = ", ".join(f'"{column}"' for column in (*exact, *doubles))
    only_a, only_b = (
        connection.execute(f"SELECT {order} FROM (FROM {one} EXCEPT ALL FROM {other}) ORDER BY ALL").fetchall()
        for one, other in ((a, b), (b, a))
    )
    same = len(only_a) == len(only_b) and all(
        one[: len(exact)] == other[: len(exact)]
        and all(_close(x, y) for x, y in zip(one[len(exact) :], other[len(exact) :], strict=True))
        for one, other in zip(only_a, only_b, strict=True)
    )
    if not same:
        examples = f"ours {only_a[:1] or 'none'}, theirs {only_b[:1] or 'none'}"
        raise DifferenceError(
            f"{name}: {len(only_a):,} rows of ours and {len(only_b):,} of theirs differ; {examples}"
        )


def _close(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _count(connection: Any, rows: str) -> int:
    return int(connection.execute(f"SELECT count(*) FROM ({rows})").fetchall()[0][0])
