"""What has come for the slots of one task of SLOT."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from thalweg.batch.cells import CellKind
from thalweg.model.address import Address, NodeTuples
from thalweg.model.bucket import Bucket
from thalweg.model.message import decode
from thalweg.route.bucket import unpack


@dataclass
class Inbox:
    grouped: dict[int, dict[Address, list[pa.Table]]] = field(default_factory=dict)
    tuples: dict[int, list[tuple[NodeTuples, pa.Table]]] = field(default_factory=dict)
    stored: list[Bucket] = field(default_factory=list)

    def put(self, slot: int, kind: CellKind, payload: pa.Scalar, is_last: bool) -> bool:
        """False for what is not for this stage."""
        if kind == CellKind.GROUPED or (kind == CellKind.JOINED and is_last):
            tables = self.grouped.setdefault(slot, {})
            for address, table in unpack(payload.as_buffer()):
                tables.setdefault(address, []).append(table)
        elif kind == CellKind.TUPLES:
            came = self.tuples.setdefault(slot, [])
            came += [(a, table) for a, table in unpack(payload.as_buffer()) if isinstance(a, NodeTuples)]
        elif kind == CellKind.STORED:
            self.stored += decode(payload.as_py(), list[Bucket])
        else:
            return False
        return True
