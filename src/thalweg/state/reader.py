"""Reads what is in the state, for whoever is given it as a value."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from thalweg.model.bucket import Section
from thalweg.state.container import read_section
from thalweg.state.storage import Storage


@dataclass(frozen=True)
class StateReader:
    storage: Storage

    def read(self, section: Section) -> pa.Table:
        return read_section(self.storage, section)
