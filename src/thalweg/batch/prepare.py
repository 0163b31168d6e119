"""The first of a sink's two verbs: results become durable where nobody sees them, before the manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from thalweg.batch.delivery import Delivery
from thalweg.batch.made import Made
from thalweg.batch.work import unique
from thalweg.model.bucket import Section
from thalweg.model.entry import Entry
from thalweg.model.manifest import Prepared, ResultFile
from thalweg.model.patience import Patience, retained
from thalweg.observe import log
from thalweg.sink.kinds import is_delivered, keeps_results
from thalweg.state.collect import prepared_name
from thalweg.state.container import ContainerWriter
from thalweg.state.storage import Storage


@dataclass
class Preparation:
    """What a batch has ready for its manifest."""

    results: tuple[ResultFile, ...] = ()
    undelivered: list[Prepared] = field(default_factory=list)
    unkept: dict[str, int] = field(default_factory=dict)
    """Query id -> rows for which there was no more place."""


class Preparing:
    def __init__(self, storage: Storage, delivery: Delivery) -> None:
        self._storage = storage
        self._delivery = delivery

    def prepare(self, batch: int, results: Mapping[str, Made], live: Mapping[str, Entry]) -> Preparation:
        """Makes the results of a batch durable. `live`: all queries that run."""
        ready = Preparation()
        waiting: dict[str, Made] = {}
        for id_, made in results.items():
            if not made.rows or not is_delivered(made.entry.query.sink):
                continue
            if not self._has_room(made):
                ready.unkept[id_] = made.rows
            elif token := self._prepare_in_sink(batch, made):
                ready.undelivered.append(Prepared(id_, batch, made.rows, token=token, nbytes=made.nbytes))
            else:
                waiting[id_] = made
        own = {section.name: section for section in self._keep(batch, waiting)}
        for id_, made in waiting.items():
            sections = (*made.sections, *((own[id_],) if id_ in own else ()))
            parts = tuple(part.name for part in made.parts)
            ready.undelivered.append(Prepared(id_, batch, made.rows, sections, parts=parts, nbytes=made.nbytes))
        ready.results = self._prepare_in_memory(batch, results, live)
        return ready

    def _has_room(self, made: Made) -> bool:
        """What is all that waits is kept, however much it is."""
        known = self._delivery.queues.look(made.entry.id)
        limit = Patience.of(made.entry.query).undelivered_bytes
        return not known.batches or known.nbytes + made.nbytes <= limit

    def _prepare_in_sink(self, batch: int, made: Made) -> str:
        """What the sink calls what it has written. Empty: it has no place for it, or has trouble with it."""
        entry, delivery = made.entry, self._delivery
        if made.sections:  # so the rest is better kept beside them
            return ""
        if delivery.queues.look(entry.id).is_troubled or not delivery.can_give(entry.id, entry.query):
            return ""
        try:
            sink = delivery.sink_of(entry.id, entry.query)
            return sink.prepare(batch, made.table, [part.name for part in made.parts])
        except BaseException as error:
            log.warning("delivery", "kept_with_the_state", query=entry.query.name, batch=batch, error=error)
            return ""

    def _prepare_in_memory(
        self, batch: int, results: Mapping[str, Made], live: Mapping[str, Entry]
    ) -> tuple[ResultFile, ...]:
        """Of queries that keep their results in memory."""
        kept = {id_: made for id_, made in results.items() if keeps_results(made.entry.query.sink)}
        wanted = {id_ for id_, entry in live.items() if keeps_results(entry.query.sink)}
        tables = {id_: made.table for id_, made in kept.items() if made.table is not None}
        files: dict[str, set[str]] = {}
        for id_, made in kept.items():
            for section in made.sections:
                files.setdefault(section.file, set()).add(id_)
        limits = {id_: limit for id_ in wanted if (limit := retained(live[id_].query)) is not None}
        return self._delivery.results.prepare(batch, tables, wanted | self._delivery.kept, files, limits)

    def _keep(self, batch: int, waiting: Mapping[str, Made]) -> list[Section]:
        """What will wait for long is in a container of its own: the others need not be kept for as long."""
        tables = {id_: made.table for id_, made in waiting.items() if made.table is not None}
        troubled = {id_ for id_ in tables if self._delivery.queues.look(id_).is_troubled}
        sections: list[Section] = []
        for ids in (tables.keys() - troubled, troubled):
            if ids:
                with ContainerWriter(self._storage, prepared_name(batch, 0, unique())) as writer:
                    for id_ in tables:
                        if id_ in ids:
                            writer.add(id_, tables[id_])
                    sections += writer.close()
        return sections
