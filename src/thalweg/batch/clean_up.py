"""Clean-up: what no manifest names any more is deleted, after each batch and when a session begins."""

from __future__ import annotations

from collections.abc import Callable

from thalweg.batch.tables import clean_tables, forget_versions
from thalweg.model.manifest import FORMAT, Manifest
from thalweg.state.catalog import Table, Tables
from thalweg.state.collect import collect_garbage
from thalweg.state.manifest import Manifests
from thalweg.state.migrate import forget_old
from thalweg.state.requests import RequestLog
from thalweg.state.storage import Storage
from thalweg.state.term import Term, forget_terms


class CleanUp:
    def __init__(
        self, storage: Storage, manifests: Manifests, requests: RequestLog, tables: Callable[[], Tables]
    ) -> None:
        self._storage = storage
        self._manifests = manifests
        self._requests = requests
        self._tables = tables
        self._used_tables: dict[str, Table] = {}
        """file -> version, of those that batches have used or nobody will, and that were not deleted."""
        self._has_dropped = True
        """Whether the last batch may have let go of objects: the manifest before it still names them."""
        self._has_swept = False
        """Whether what no manifest came to name was deleted. Not before this session's first: where no lock reaches,
        another may be about to create the next one."""

    def begin(self, newest: Manifest, term: Term, repeated: Tables) -> None:
        """What the lives before have left. `repeated`: the versions of tables that the next batch is bound to."""
        clean_tables(self._storage, self._tables(), repeated)
        if newest.batch >= 0:
            collect_garbage(self._storage, newest)
            self._manifests.forget_older()
        forget_terms(self._storage, term)
        if newest.batch >= 0 and newest.format == FORMAT:
            forget_old(self._storage)

    def retire_table(self, table: Table) -> None:
        """A version that is not in force any more, used or not. It goes after the next batch."""
        self._used_tables[table.version.file] = table

    def after(self, before: Manifest, after: Manifest, has_prepared: bool, tables: Tables) -> None:
        """After a batch. `has_prepared`: whether its tasks have written results. `tables`: the versions it used."""
        dropped = bool(before.files() - after.files()) or has_prepared
        if dropped or self._has_dropped or after.batch % 64 == 0:
            collect_garbage(self._storage, after, before if before.batch >= 0 else None)
        self._has_dropped = dropped
        if after.through > before.through or before.format < FORMAT:
            self._requests.forget_through(after.through)
        if before.format < FORMAT or before.batch < 0:
            forget_old(self._storage)
        if self._has_swept:
            self._manifests.prune()
        else:
            self._manifests.sweep()
            self._has_swept = True
        self._used_tables.update({table.version.file: table for table in tables.values()})
        forget_versions(self._storage, self._used_tables, self._tables())
