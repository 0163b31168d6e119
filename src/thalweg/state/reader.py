"""Reads what is in the state, for whoever is given it as a value."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.ipc as pa_ipc

from thalweg.errors import corrupt_file
from thalweg.model.bucket import Section
from thalweg.state.container import open_section, read_footer, read_section
from thalweg.state.partly_read import PartlyRead
from thalweg.state.storage import Storage

_OLD_UNIT = b"ARROW1"
"""How the Arrow files begin that earlier releases wrote as units of `memory` sources."""


@dataclass(frozen=True)
class StateReader:
    storage: Storage

    def read(self, section: Section) -> pa.Table:
        return read_section(self.storage, section)

    def open(self, section: Section) -> PartlyRead:
        return open_section(self.storage, section)

    def read_unit(self, name: str) -> pa.Table:
        """The rows of a unit of a `memory` source."""
        if self._is_old(name):
            return self._read_old(name)
        return read_section(self.storage, self._only_section(name))

    def rows_of_unit(self, name: str) -> int:
        return self._read_old(name).num_rows if self._is_old(name) else self._only_section(name).rows

    def _only_section(self, name: str) -> Section:
        sections = read_footer(self.storage, name)
        found = [section.name for section in sections]
        if found != [name]:
            place = self.storage.locate(name)
            raise corrupt_file(place, f"the rows of {name}", f"those of {', '.join(found)}")
        return sections[0]

    def _is_old(self, name: str) -> bool:
        return self.storage.read(name, 0, len(_OLD_UNIT)) == _OLD_UNIT

    def _read_old(self, name: str) -> pa.Table:
        """It has no checksum; what is wrong in it must at least not end the process."""
        try:
            table = pa_ipc.open_file(self.storage.open(name)).read_all()
            table.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise corrupt_file(self.storage.locate(name), "an Arrow file", str(error)) from error
        return table
