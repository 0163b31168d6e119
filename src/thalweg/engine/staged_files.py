"""Files that Spark writes, exactly once: written aside, then moved to names that are a function of the batch.

part-000000000041-00000-<who>.snappy.parquet      the first file of batch 41: committed
.thalweg/<timeline>/<query>/staged-41/data/       what Spark has written of batch 41
.thalweg/<timeline>/<query>/staged-41/moves       which of it goes where: Spark was done
.thalweg/<timeline>/<query>/committed-41          all of it is there; who did it, for older copies of the state

Whatever is repeated begins at the last of these that is there. Spark's readers pass over names that begin with a dot.
Other queries, and others, may write into the same directory.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct

from thalweg import faults
from thalweg.engine.hadoop import HadoopFiles
from thalweg.engine.records import SinkRecords
from thalweg.errors import sink_of_a_copy
from thalweg.model.bucket import Section
from thalweg.sink.contract import SinkContext

_ENDING = re.compile(r"^[^.]*\.(?:c\d+\.)?")
"""Of the name that Spark gives a file, all but what tells format and compression."""
_STAGED = "staged-"


class Move(Struct, frozen=True):
    """Both names are relative: to what Spark has written, and to the sink's path."""

    name: str
    to: str


class FileMoves(Struct, frozen=True):
    """What there is to do once Spark has written a batch."""

    results: str
    """Which results they are."""
    moves: tuple[Move, ...]


class StagedFiles:
    def __init__(self, files: HadoopFiles, context: SinkContext, id_: str) -> None:
        """`id_`: of the query; one that is dropped and created again under its name has another."""
        self._files = files
        self._context = context
        self._who = hashlib.blake2b(f"{context.timeline}/{id_}".encode(), digest_size=4).hexdigest()
        self._records = SinkRecords(files, context, id_)
        self._home = self._records.home
        self._is_swept = False
        self._lock = threading.Lock()
        """An attempt that took too long may still be under way when the next one begins."""

    def commit(self, batch_id: int, sections: Sequence[Section], write: Callable[[str], None]) -> None:
        """`write` has Spark write the results into the directory that it is given."""
        with self._lock:
            if self._records.newest(batch_id) < batch_id:
                self._publish(batch_id, self._stage(batch_id, results_of(sections), write))
                self._records.write(batch_id)
                faults.point("spark.committed")
            self._sweep()

    def _stage(self, batch_id: int, results: str, write: Callable[[str], None]) -> FileMoves:
        place = self._staged(batch_id)
        if self._files.size(f"{place}/moves") is not None:
            moves = msgspec.json.decode(self._files.read(f"{place}/moves"), type=FileMoves)
            if moves.results != results:
                raise sink_of_a_copy(self._context.query, self._files.root)
            return moves
        self._files.delete(place)
        write(self._files.locate(f"{place}/data"))
        faults.point("spark.written")
        names = list(self._files.walk(f"{place}/data"))
        moves = FileMoves(results, tuple(Move(name, self._final(batch_id, n, name)) for n, name in enumerate(names)))
        self._files.write(f"{place}/moves", msgspec.json.encode(moves))
        faults.point("spark.staged")
        return moves

    def _final(self, batch_id: int, number: int, name: str) -> str:
        directory, slash, file = name.rpartition("/")
        return f"{directory}{slash}part-{batch_id:012d}-{number:05d}-{self._who}.{_ENDING.sub('', file)}"

    def _publish(self, batch_id: int, moves: FileMoves) -> None:
        data = f"{self._staged(batch_id)}/data"
        for move in moves.moves:
            source = f"{data}/{move.name}"
            here, there = self._files.size(source), self._files.size(move.to)
            if here is not None and there is not None:  # a move that copies, and was cut short
                self._files.delete(move.to)
            if here is not None:
                self._files.move(source, move.to)
            faults.point("spark.moved")

    def _staged(self, batch_id: int) -> str:
        return f"{self._home}/{_STAGED}{batch_id}"

    def _sweep(self) -> None:
        """What is committed, records that a newer one has replaced, and attempts that came to nothing. Batches are
        committed one after the other: none is under way."""
        for batch in self._records.numbers(self._home, _STAGED):
            self._files.delete(self._staged(batch))
        self._records.sweep()
        if not self._is_swept:
            self._is_swept = True
            self._sweep_dropped()

    def _sweep_dropped(self) -> None:
        """What queries that had this name before were about to give when they were dropped."""
        timeline, _, id_ = self._home.rpartition("/")
        name, _, number = id_.rpartition("@")
        for other in self._records.numbers(timeline, f"{name}@"):
            if other < int(number):
                home = f"{timeline}/{name}@{other}"
                for batch in self._records.numbers(home, _STAGED):
                    self._files.delete(f"{home}/{_STAGED}{batch}")


def results_of(sections: Sequence[Section]) -> str:
    """A name of results that no others have: sections are never written anew."""
    named = hashlib.blake2b(digest_size=8)
    for section in sections:
        named.update(f"{section.place} {section.crc}\n".encode())
    return named.hexdigest()
