"""Rows that could not be read, each with its reason.

rejected/<stream>/<batch>-<part of the input>.arrow
"""

from __future__ import annotations

import pyarrow as pa

from thalweg.errors import missing_rejected
from thalweg.state.container import delete_container, read_footer, read_section
from thalweg.state.storage import Storage

SCHEMA = pa.schema([("reason", pa.string()), ("row", pa.string())])


def rejected_name(stream: str, batch: int, part: str) -> str:
    return f"rejected/{stream}/{batch:012d}-{part}.arrow"


def read_rejected(storage: Storage, stream: str, through: int, rows: int) -> pa.Table:
    """Those of the batches that have happened: `rows` in all, as the manifest says."""
    tables = [
        read_section(storage, section)
        for name in storage.names(f"rejected/{stream}/")
        if _batch_of(name) <= through
        for section in read_footer(storage, name)
    ]
    found = pa.concat_tables([SCHEMA.empty_table(), *tables])
    if found.num_rows < rows:
        raise missing_rejected(storage.locate(f"rejected/{stream}"), rows, found.num_rows)
    return found


def forget_rejected(storage: Storage, batch: int) -> None:
    """An earlier attempt at the batch may have read other columns, and set rows aside that this one can read."""
    for name in storage.names("rejected/"):
        if _batch_of(name) == batch:
            delete_container(storage, name)


def _batch_of(name: str) -> float:
    """The batch that set the rows aside; a name that is not ours is of none."""
    number = name.rpartition("/")[2].partition("-")[0]
    return int(number) if number.isdigit() else float("inf")
