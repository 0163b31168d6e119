"""The results of all memory queries: one container per batch, whatever the number of queries. Manifests name them.

results/000000000041-<unique>.arrow     a section per query that had results
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import pyarrow as pa
from msgspec.structs import replace

from thalweg.model.bucket import Section
from thalweg.model.manifest import ResultFile
from thalweg.model.shown import shown
from thalweg.state.collect import result_name
from thalweg.state.container import ContainerWriter, read_footer, read_section
from thalweg.state.storage import Storage

MERGE_FILES = 64
"""So many files at the end are merged into one; 64 of those again into one, and so on."""


@dataclass(frozen=True)
class _Read:
    """What `read` gave last for a query."""

    through: int
    table: pa.Table


class StoredResults:
    """Written by the batch loop, read by any thread."""

    def __init__(self, storage: Storage, files: Sequence[ResultFile]) -> None:
        self._storage = storage
        self._lock = threading.RLock()
        self._files = tuple(files)
        """In order of batches, as the newest manifest has them."""
        self._sections: dict[str, tuple[Section, ...]] = {}
        self._read: dict[str, _Read] = {}
        self._sizes: dict[str, tuple[int, int]] | None = None
        """query -> rows and bytes that are kept; None: nobody has asked. A commit adds what has changed."""

    def prepare(
        self,
        batch: int,
        tables: Mapping[str, pa.Table],
        wanted: Collection[str],
        more: Mapping[str, Collection[str]] | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> tuple[ResultFile, ...]:
        """The files after a batch with these results, by query id. `wanted`: the queries that anybody can still ask
        for. `more`: containers that tasks have written -> the queries of which they hold results that count.
        `limits`: queries of which only the newest results are kept -> at least how many bytes. Nothing is to be seen
        of it before `commit`."""
        files = [file for file in self._files if self._is_wanted(file, wanted)]
        while run := _mergeable(files):
            at = files.index(run[0])
            files[at : at + len(run)] = self._merge(run, wanted)
        files += [ResultFile(name, batch, batch, 0, tuple(sorted(q))) for name, q in sorted((more or {}).items())]
        made = {query: table for query, table in tables.items() if table.num_rows}
        if made:
            name = result_name(batch)
            with ContainerWriter(self._storage, name) as writer:
                for query, table in made.items():
                    writer.add(query, table)
                self._sections[name] = writer.close()
            files.append(ResultFile(name, batch, batch))
        return tuple(self._retained(files, wanted, limits) if limits else files)

    def _retained(
        self, files: Sequence[ResultFile], wanted: Collection[str], limits: Mapping[str, int]
    ) -> list[ResultFile]:
        """Without what is older than that much of its query. What was merged is written anew once it is mostly that:
        the files of a batch are merged soon."""
        newer: Counter[str] = Counter()
        kept: list[ResultFile] = []
        for _, of_batch in groupby(reversed(files), lambda file: file.last):
            beyond = {query for query, limit in limits.items() if newer[query] >= limit}
            for file in of_batch:
                sections = self._sections_of(file)
                names = {section.name for section in sections}
                newer.update({name: _nbytes(sections, {name}) for name in names & limits.keys()})
                left = names - beyond
                if left == names:
                    kept.append(file)
                elif left:
                    kept.append(self._without(replace(file, queries=tuple(sorted(left))), wanted))
        return kept[::-1]

    def _without(self, file: ResultFile, wanted: Collection[str]) -> ResultFile:
        """The file, in which fewer queries count than before."""
        all_of_it = self._sections[file.file]
        is_mostly_gone = 2 * _nbytes(all_of_it, {*file.queries} & {*wanted}) < _nbytes(all_of_it)
        return self._merge([file], wanted, file.level)[0] if file.level and is_mostly_gone else file

    def commit(self, files: Sequence[ResultFile]) -> None:
        """The manifest that names these is durable."""
        with self._lock:
            named = {file.file: file for file in files}
            for file in self._files:  # tables that were read hold what was merged or is not kept any more
                if named.get(file.file) != file:
                    for query in self._queries_of(file) - self._queries_of(named.get(file.file)):
                        self._read.pop(query, None)
            if self._sizes is not None:
                before, after = {*self._files}, {*files}
                self._add_sizes(self._sizes, before - after, -1)
                self._add_sizes(self._sizes, after - before)
            self._files = tuple(files)
            self._sections = {name: found for name, found in self._sections.items() if name in named}

    def size(self, query: str) -> tuple[int, int]:
        """Rows and bytes of a query that are kept."""
        with self._lock:
            if self._sizes is None:
                sizes: dict[str, tuple[int, int]] = {}
                self._add_sizes(sizes, self._files)
                self._sizes = sizes
            return self._sizes.get(query, (0, 0))

    def _add_sizes(self, sizes: dict[str, tuple[int, int]], files: Iterable[ResultFile], times: int = 1) -> None:
        for file in files:
            for section in self._sections_of(file):
                rows, nbytes = sizes.get(section.name, (0, 0))
                sizes[section.name] = rows + times * section.rows, nbytes + times * section.length
                if sizes[section.name] == (0, 0):
                    del sizes[section.name]

    def read(self, query: str, schema: pa.Schema) -> pa.Table:
        """All results of a query, in order of batches, as views of the files."""
        with self._lock:
            known = self._read.get(query)
            if known is None or known.table.schema != schema or self._straddles(known.through):
                known = _Read(-1, schema.empty_table())
            new = [
                read_section(self._storage, section)
                for file in self._files
                if file.first > known.through
                for section in self._sections_of(file)
                if section.name == query
            ]
            if new:
                parts = [known.table] if known.table.num_rows else []
                parts += [shown(table, schema) for table in new]
                known = _Read(known.through, pa.concat_tables(parts))
            last = self._files[-1].last if self._files else -1
            known = self._read[query] = _Read(max(last, known.through), known.table)
            return known.table

    def forget_reads(self, wanted: Collection[str]) -> None:
        with self._lock:
            self._read = {query: read for query, read in self._read.items() if query in wanted}

    def _straddles(self, through: int) -> bool:
        """Whether a file merged since holds both what was read and what was not."""
        return any(file.first <= through < file.last for file in self._files)

    def _is_wanted(self, file: ResultFile, wanted: Collection[str]) -> bool:
        return any(section.name in wanted for section in self._sections_of(file))

    def _queries_of(self, file: ResultFile | None) -> set[str]:
        return set() if file is None else {section.name for section in self._sections_of(file)}

    def _sections_of(self, file: ResultFile) -> tuple[Section, ...]:
        if file.file not in self._sections:
            self._sections[file.file] = read_footer(self._storage, file.file)
        found = self._sections[file.file]
        return tuple(s for s in found if s.name in file.queries) if file.queries else found

    def _merge(
        self, run: Sequence[ResultFile], wanted: Collection[str], level: int | None = None
    ) -> list[ResultFile]:
        """Each query's results side by side. `level`: of what comes of it; one more unless given."""
        pieces: dict[str, list[pa.Table]] = {}
        for file in run:
            for section in self._sections_of(file):
                if section.name in wanted:
                    pieces.setdefault(section.name, []).append(read_section(self._storage, section))
        name = result_name(run[-1].last)
        with ContainerWriter(self._storage, name) as writer:
            for query, tables in pieces.items():
                # What tasks have written is not typed as what the driver has: in as many pieces as need be.
                for _, alike in groupby(tables, lambda table: table.schema):
                    writer.add(query, pa.concat_tables(alike))
            self._sections[name] = writer.close()
        return [ResultFile(name, run[0].first, run[-1].last, run[0].level + 1 if level is None else level)]


def _nbytes(sections: Sequence[Section], names: Collection[str] | None = None) -> int:
    """Of those of these names, or of all."""
    return sum(section.length for section in sections if names is None or section.name in names)


def _mergeable(files: Sequence[ResultFile]) -> list[ResultFile]:
    """The oldest run of neighbours of one level that is long enough."""
    run: list[ResultFile] = []
    for file in files:
        if run and run[-1].level != file.level:
            run = []
        run.append(file)
        if len(run) == MERGE_FILES:
            return run
    return []
