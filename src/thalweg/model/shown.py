"""Results as users see them: named and typed as Spark would."""

from __future__ import annotations

import pyarrow as pa

from thalweg.model.query import Query
from thalweg.model.types import to_arrow


def shown_schema(query: Query) -> pa.Schema:
    return pa.schema([pa.field(o.name, to_arrow(o.expr.type)) for o in query.outputs])


def shown(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows as operators make them: by the order of their columns, of which there may be more, to sort by. What has
    that schema already is left as it is."""
    if table.schema == schema:
        return table
    arrays = [table.column(i).cast(field.type) for i, field in enumerate(schema)]
    return pa.Table.from_arrays(arrays, schema=schema)
