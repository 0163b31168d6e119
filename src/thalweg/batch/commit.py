"""The one commit point of a batch: from the newest manifest to the next, as long as the state is this session's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from thalweg.batch.decisions import Decisions, from_intent
from thalweg.batch.events import tell_begin
from thalweg.errors import old_windows_of_joins, wrong_hash
from thalweg.model.manifest import FORMAT, Manifest
from thalweg.model.plan_input import KEY_GROUPS
from thalweg.route.hash import HASH_NAME
from thalweg.state.manifest import Manifests
from thalweg.state.migrate import find_old_intent
from thalweg.state.storage import Storage
from thalweg.state.term import Term, check_term

_CHECK_SECONDS = 1.0
"""While results are given out, so often it is looked whether the state is still ours."""


class Commits:
    def __init__(self, storage: Storage, term: Term, check_hold: Callable[[], None] = lambda: None) -> None:
        """`check_hold`: raises if another session has opened the state."""
        self.storage = storage
        self.term = term
        self.manifests = Manifests(storage)
        self.is_unsure = False
        """Whether a commit has failed, so that only the storage knows if the batch has happened."""
        self._check_hold = check_hold
        self._checked = 0.0
        """When the state was last seen to be ours."""

    def newest(self) -> tuple[Manifest, Decisions | None]:
        """The newest manifest; and what the next batch runs with, where an earlier release may have shown sinks
        something of it."""
        # Before the first manifest nobody knows which release the state is of.
        manifest = self.manifests.newest() or Manifest(-1, KEY_GROUPS, HASH_NAME, format=0)
        if manifest.hash != HASH_NAME:
            raise wrong_hash(self.storage.place, manifest.hash, HASH_NAME)
        self._check_format(manifest)
        intent = find_old_intent(self.storage, manifest.batch + 1) if manifest.format < FORMAT else None
        tell_begin(manifest, intent is not None)
        return manifest, None if intent is None else from_intent(intent, manifest.batch + 1)

    def _check_format(self, manifest: Manifest) -> None:
        """Up to format 3 partials of joined rows had names by which this release would not find them."""
        running = [e.query for e in manifest.queries.values() if e.runs]
        old = [query.name for query in running if query.join is not None and query.window is not None]
        if manifest.format < 4 and old:
            raise old_windows_of_joins(self.storage.place, manifest.format, old)

    def create(self, manifest: Manifest) -> Manifest:
        """Commits a batch, in the name of this session. Whatever goes wrong afterwards, the batch has happened."""
        manifest = replace(manifest, timeline=self.term.timeline, term=self.term.number)
        self.check_mine()
        self.is_unsure = True
        self.manifests.create(manifest)
        self.is_unsure = False
        return manifest

    def check_mine(self) -> None:
        """Raises if another session has taken over the state."""
        self._check_hold()
        check_term(self.storage, self.term)
        self._checked = time.monotonic()

    def check_now_and_then(self) -> None:
        if time.monotonic() - self._checked > _CHECK_SECONDS:
            self.check_mine()
