"""The log of results of all memory queries: one container per batch, whatever the number of queries.

    results/000000000041.arrow                 batch 41, one section per query that had results
    results/000000000000-000000000063.arrow    batches 0 to 63, merged

A merged file stands for every batch in its range, so single files left inside it by a crash are ignored.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from thalweg.errors import corrupt_file
from thalweg.model.bucket import Section
from thalweg.state.container import ContainerWriter, forget_file, read_footer, read_section
from thalweg.state.durable import delete, make_directory

_NAME = re.compile(r"(\d{12,})(?:-(\d{12,}))?\.arrow")
MERGE_FILES = 64
"""So many files at the end of the log are merged into one; 64 of those again into one, and so on."""


@dataclass(frozen=True)
class _File:
    """A results file and the sections of it, by query and batch."""

    first: int
    last: int
    level: int
    sections: tuple[Section, ...]

    @property
    def name(self) -> str:
        return _name(self.first, self.last)


@dataclass(frozen=True)
class _Read:
    """What `read` gave last for a query."""

    through: int
    table: pa.Table


class ResultLog:
    """Written by the batch loop, read by any thread."""

    def __init__(self, state_dir: Path | str) -> None:
        self._directory = make_directory(Path(state_dir) / "results")
        self._lock = threading.RLock()
        self._files = self._load()
        """In order of batches, ranges apart from each other."""
        self._read: dict[str, _Read] = {}

    def commit(self, batch_id: int, tables: Mapping[str, pa.Table]) -> None:
        """Make the results of a batch durable, by query id. The same batch again replaces itself; one that
        was merged with others is committed already."""
        kept = {query: table for query, table in tables.items() if table.num_rows}
        with self._lock:
            old = next((f for f in self._files if f.first <= batch_id <= f.last), None)
            if old is not None and old.first < old.last:
                return
            if kept:
                with ContainerWriter(self._place(_name(batch_id, batch_id))) as writer:
                    for query, table in kept.items():
                        writer.add(query, table, {"batch": batch_id})
                    sections = writer.close()
                self._replace([old] if old else [], _File(batch_id, batch_id, 0, sections))
            elif old is not None:
                self._delete(old)
            self._forget_reads(batch_id)

    def read(self, query_id: str, schema: pa.Schema, through_batch: int) -> pa.Table:
        """All results of a query up to a committed batch, in order of batches, as views of the files."""
        with self._lock:
            known = self._read.get(query_id)
            if known is None or known.through > through_batch or known.table.schema != schema:
                known = _Read(-1, schema.empty_table())
            new = [
                read_section(self._directory, section)
                for file in self._files
                if file.last > known.through
                for section in file.sections
                if section.name == query_id and known.through < section.meta["batch"] <= through_batch
            ]
            if new or known.through < through_batch:
                parts = [known.table] if known.table.num_rows else []
                parts += [table if table.schema == schema else table.cast(schema) for table in new]
                table = pa.concat_tables(parts) if parts else schema.empty_table()
                known = self._read[query_id] = _Read(through_batch, table)
            return known.table

    def forget(self, query_id: str) -> None:
        """Drop the results of a query; files that held nothing else go at once, the rest when merged."""
        with self._lock:
            self._read.pop(query_id, None)
            for file in list(self._files):
                sections = tuple(s for s in file.sections if s.name != query_id)
                if not sections:
                    self._delete(file)
                elif len(sections) < len(file.sections):
                    self._files[self._files.index(file)] = _File(file.first, file.last, file.level, sections)

    def retain(self, query_ids: Collection[str]) -> None:
        """Forget every query but these: for a start, when drops may have been cut short by a crash."""
        with self._lock:
            present = {section.name for file in self._files for section in file.sections}
            for query_id in present - set(query_ids):
                self.forget(query_id)

    def compact(self, through_batch: int) -> None:
        """Merge small files of committed batches, so that their number grows with the logarithm of time."""
        with self._lock:
            while run := self._mergeable(through_batch):
                self._merge(run)

    def _mergeable(self, through_batch: int) -> list[_File]:
        """The oldest run of neighbours of one level that is long enough."""
        run: list[_File] = []
        for file in self._files:
            if file.last > through_batch:
                break
            if run and run[-1].level != file.level:
                run = []
            run.append(file)
            if len(run) == MERGE_FILES:
                return run
        return []

    def _merge(self, run: list[_File]) -> None:
        """Each query's results in one piece. The last batch stands for all of them: they are committed."""
        first, last, level = run[0].first, run[-1].last, run[0].level + 1
        pieces: dict[str, list[pa.Table]] = {}
        for file in run:
            for section in file.sections:
                pieces.setdefault(section.name, []).append(read_section(self._directory, section))
        with ContainerWriter(self._place(_name(first, last))) as writer:
            for query, tables in pieces.items():
                writer.add(query, pa.concat_tables(tables), {"batch": last, "level": level})
            sections = writer.close()
        self._replace(run, _File(first, last, level, sections))
        # Tables read before still hold the files that were merged.
        self._forget_reads(first)

    def _replace(self, old: list[_File], new: _File) -> None:
        self._files = sorted([f for f in self._files if f not in old] + [new], key=lambda f: f.first)
        for file in old:
            if file.name != new.name:
                self._unlink(file.name)

    def _delete(self, file: _File) -> None:
        self._files.remove(file)
        self._unlink(file.name)

    def _unlink(self, name: str) -> None:
        forget_file(self._place(name))
        delete(self._place(name))

    def _forget_reads(self, batch_id: int) -> None:
        self._read = {query: read for query, read in self._read.items() if read.through < batch_id}

    def _place(self, name: str) -> Path:
        return self._directory / name

    def _load(self) -> list[_File]:
        """The files in order. One inside another's range was merged into it before a crash: it goes."""
        ranges: list[tuple[int, int]] = []
        for path in self._directory.iterdir():
            if match := _NAME.fullmatch(path.name):
                ranges.append((int(match[1]), int(match[2] or match[1])))
        files: list[_File] = []
        reached = -1
        for first, last in sorted(ranges, key=lambda r: (r[0], -r[1])):
            if last <= reached:
                self._unlink(_name(first, last))
                continue
            path = self._place(_name(first, last))
            if first <= reached:
                raise corrupt_file(path, f"results from batch {reached + 1} on", f"results from batch {first}")
            sections = read_footer(path)
            files.append(_File(first, last, sections[0].meta.get("level", 0), sections))
            reached = last
        return files


def _name(first: int, last: int) -> str:
    return f"{first:012d}.arrow" if first == last else f"{first:012d}-{last:012d}.arrow"
