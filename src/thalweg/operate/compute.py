"""Computed columns: every expression that some query needs, worked out once per row for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from thalweg.model.expr import quote
from thalweg.model.failure import Failures, OfColumn, failed_columns
from thalweg.model.plan import Computed
from thalweg.model.types import to_inner_arrow
from thalweg.operate import duck
from thalweg.operate.comparison import Comparisons
from thalweg.route.hash import hash_rows


def add_computed(rows: pa.Table, stream: str, computed: Sequence[Computed], failures: Failures) -> pa.Table:
    """Rows of the stream with the computed columns appended. One that fails is NULL and named in `failures`."""
    rows = _append(rows, _work_out(rows, stream, [c for c in computed if c.kind == "sql"], failures))
    observed = [c for c in computed if c.kind != "sql"]
    made = {c.name: observe(rows.column(c.expr.columns[0]), c.kind, c.precision) for c in observed}
    return _append(rows, made)


def _append(rows: pa.Table, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
    """All at once: a table of hundreds of columns would be made anew for each."""
    if not columns:
        return rows
    names = [*rows.column_names, *columns]
    return pa.Table.from_arrays([*rows.columns, *columns.values()], names=names)


def _work_out(
    rows: pa.Table, stream: str, computed: Sequence[Computed], failures: Failures
) -> dict[str, pa.ChunkedArray]:
    """Comparisons with constants one by one, the others in one statement; in the order of `computed`. What has failed
    in this task is not tried again."""
    comparisons = Comparisons(rows)
    failed = failed_columns(failures, stream)
    made = {c.name: _nothing(rows, c) if c.name in failed else comparisons.compare(c.expr.sql) for c in computed}
    rest = [c for c in computed if made[c.name] is None]
    if rest:
        made.update(zip((c.name for c in rest), _evaluate(rows, stream, rest, failures).columns, strict=True))
    return made


def _evaluate(rows: pa.Table, stream: str, computed: Sequence[Computed], failures: Failures) -> pa.Table:
    try:
        return _select(rows, computed)
    except duck.Error:
        columns = [_evaluate_alone(rows, stream, c, failures) for c in computed]
        return pa.table(columns, names=[c.name for c in computed])


def _evaluate_alone(rows: pa.Table, stream: str, computed: Computed, failures: Failures) -> pa.ChunkedArray:
    try:
        return _select(rows, [computed]).column(0)
    except duck.Error as error:
        failures[OfColumn(stream, computed.name)] = duck.reason(error)
        return _nothing(rows, computed)


def _nothing(rows: pa.Table, computed: Computed) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(rows.num_rows, to_inner_arrow(computed.expr.type))])


def _select(rows: pa.Table, computed: Sequence[Computed]) -> pa.Table:
    columns = ", ".join(f"{c.expr.sql} AS {quote(c.name)}" for c in computed)
    return duck.run(f"SELECT {columns} FROM batch", batch=rows)


def observe(column: pa.ChunkedArray, kind: str, precision: int) -> pa.Array:
    """One half of a HyperLogLog observation: the register's number, or the rank of the rest of the hash."""
    hashes = hash_rows([column])
    if kind == "register":
        return pa.array((hashes & np.uint64((1 << precision) - 1)).astype(np.int32))
    rest = (hashes >> np.uint64(precision)).astype(np.float64)
    bits = 64 - precision
    # The exponent of a double is the position of the highest bit; a remainder of zero ranks last. A value
    # that rounds up to the next power of two is one rank off, once in 2**53 values.
    rank = (bits + 1 - np.frexp(rest)[1]).astype(np.int8)
    rank[rest == 0] = bits + 1
    return pa.array(rank, mask=np.asarray(column.is_null()))
