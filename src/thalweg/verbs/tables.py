"""Static tables: read, replaced and dropped."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from thalweg import errors
from thalweg.batch.tables import fitting, store_table
from thalweg.catalog import check_name
from thalweg.model.if_there import IfThere
from thalweg.model.stream import Schema
from thalweg.rehearsal import Trial, unstored
from thalweg.source.schema import as_schema
from thalweg.state.catalog import Origin, Table, save_tables
from thalweg.verbs.parts import SessionParts


def create_table(
    parts: SessionParts,
    name: str,
    source: Any,
    schema: Any,
    format: str | None,
    if_there: IfThere,
    read: pa.Table | None = None,
) -> Table:
    """`read`: the rows of the source, if they have been read already."""
    replace, origin = if_there.replace, Origin.of(source, format)
    known = parts.catalog.tables.get(name)
    if known is not None and if_there.keep:
        parts.check_mine()
        if parts.trial is not None:
            parts.trial.rows.append(None)
        return known
    given = None if schema is None else as_schema(schema)
    with parts.mutex:
        expected = _columns(parts, name, given, replace)
    # Not under the mutex, which every batch needs to end: a DataFrame may take its time.
    rows = parts.engine.read_table(name, source if read is None else read, expected, format)
    columns = expected or as_schema(rows.schema)
    parts.analyzer.check_table(name, columns)
    if parts.trial is not None:
        return _try_table(parts, parts.trial, name, rows, columns, replace)
    table = store_table(parts.storage, name, rows, columns, origin)
    with parts.mutex:
        _columns(parts, name, columns, replace)  # the name may have been taken, or come into use, meanwhile
        parts.analyzer.register_table(name, columns)
        before, after = parts.catalog.tables.get(name), parts.catalog.with_table(table)
        save_tables(parts.storage, after.tables)
        parts.catalog = after
        if before is not None:
            parts.runner.clean_up.retire_table(before)
        return table


def _try_table(parts: SessionParts, trial: Trial, name: str, rows: pa.Table, columns: Schema, replace: bool) -> Table:
    fitting(name, rows, columns)
    with parts.mutex:
        _columns(parts, name, columns, replace)
        parts.analyzer.register_table(name, columns)
        trial.rows.append(rows)
        table = unstored(name, rows, columns)
        parts.catalog = parts.catalog.with_table(table)
        return table


def _columns(parts: SessionParts, name: str, given: Schema | None, replace: bool) -> Schema | None:
    """Those that a table of the name must have; None: any. Raises where there can be none."""
    parts.check_mine()
    check_name("table", name)
    catalog = parts.catalog
    known = catalog.tables.get(name)
    if name in catalog.streams or (known is not None and not replace and name not in catalog.restored):
        raise errors.name_taken("table", name)
    if known is None or not catalog.joined_with(name):
        return given
    if given is not None and given != known.schema:
        raise errors.table_in_use(name, "its columns cannot change", catalog.joined_with(name))
    return known.schema


def drop_table(parts: SessionParts, name: str, if_exists: bool) -> None:
    with parts.mutex:
        parts.check_mine()
        if if_exists and name not in parts.catalog.tables:
            return
        table = parts.catalog.table(name)
        if joined := parts.catalog.joined_with(name):
            raise errors.table_in_use(name, "it cannot be dropped", joined)
        after = parts.catalog.without_table(name)
        if parts.trial is None:
            save_tables(parts.storage, after.tables)
            parts.runner.clean_up.retire_table(table)
        parts.catalog = after
        parts.analyzer.unregister(name)
