"""Who has written last to a place that Spark writes to, beside what is written there.

.thalweg/<timeline>/<query>/committed-41      up to batch 41; which session did it, for older copies of the state
"""

from __future__ import annotations

import msgspec

from thalweg.engine.hadoop import HadoopFiles
from thalweg.sink.contract import SinkContext
from thalweg.sink.owner import Owner, check_before_first, check_still_mine, owner_of

_COMMITTED = "committed-"


class SinkRecords:
    """Raises where the place knows better than the state, or another copy of it writes there."""

    def __init__(self, files: HadoopFiles, context: SinkContext, id_: str) -> None:
        """`id_`: of the query; one that is dropped and created again under its name has another."""
        self._files = files
        self._context = context
        self.home = f".thalweg/{context.timeline}/{id_}"
        self._is_mine = False
        """Whether this session has written one."""
        self.newest()

    def newest(self, asked: int = -1) -> int:
        """The newest batch that is there; -1: none is. `asked`: the one that is to be committed."""
        found = self._found()
        if self._is_mine:
            check_still_mine(found, self._context, self._files.root)
        elif found is not None:
            check_before_first(found, self._context, self._files.root, found.batch, asked)
        return -1 if found is None else found.batch

    def write(self, batch_id: int) -> None:
        record = msgspec.json.encode(owner_of(self._context, batch_id))
        self._files.write(f"{self.home}/{_COMMITTED}{batch_id}", record)
        self._is_mine = True

    def sweep(self) -> None:
        """Those that a newer one has replaced."""
        for batch in self.numbers(self.home, _COMMITTED)[:-1]:
            self._files.delete(f"{self.home}/{_COMMITTED}{batch}")

    def numbers(self, directory: str, kind: str) -> list[int]:
        names = self._files.names(directory)
        return sorted(int(n) for name in names if (n := name.removeprefix(kind)) != name and n.isdecimal())

    def _found(self) -> Owner | None:
        """Who wrote last. Of two records, the older is one that was not yet deleted."""
        batches = self.numbers(self.home, _COMMITTED)
        if not batches:
            return None
        return msgspec.json.decode(self._files.read(f"{self.home}/{_COMMITTED}{batches[-1]}"), type=Owner)
