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
from thalweg.errors import sink_of_a_copy
from thalweg.model.bucket import Section
from thalweg.sink.contract import SinkContext
from thalweg.sink.owner import Owner, check_before_first, check_still_mine, owner_of

_ENDING = re.compile(r"^[^.]*\.(?:c\d+\.)?")
"""Of the name that Spark gives a file, all but what tells format and compression."""
_STAGED, _COMMITTED = "staged-", "committed-"


class Move(Struct, frozen=True):
    """Both names are relative: to what Spark has written, and to the sink's path."""

    name: str
    to: str


class Moves(Struct, frozen=True):
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
        self._home = f".thalweg/{context.timeline}/{id_}"
        self._is_mine = False
        """Whether this session has committed here."""
        self._is_swept = False
        self._lock = threading.Lock()
        """An attempt that took too long may still be under way when the next one begins."""
        found = self._newest()
        if found is not None:
            check_before_first(found, context, files.root, found.batch)

    def commit(self, batch_id: int, sections: Sequence[Section], write: Callable[[str], None]) -> None:
        """`write` has Spark write the results into the directory that it is given."""
        with self._lock:
            found = self._newest()
            if self._is_mine:
                check_still_mine(found, self._context, self._files.root)
            elif found is not None:
                check_before_first(found, self._context, self._files.root, found.batch)
            if found is None or found.batch < batch_id:
                self._publish(batch_id, self._stage(batch_id, results_of(sections), write))
                self._files.write(
                    f"{self._home}/{_COMMITTED}{batch_id}", msgspec.json.encode(owner_of(self._context, batch_id))
                )
                self._is_mine = True
                faults.point("spark.committed")
            self._sweep()

    def _stage(self, batch_id: int, results: str, write: Callable[[str], None]) -> Moves:
        place = self._staged(batch_id)
        if self._files.size(f"{place}/moves") is not None:
            moves = msgspec.json.decode(self._files.read(f"{place}/moves"), type=Moves)
            if moves.results != results:
                raise sink_of_a_copy(self._context.query, self._files.root)
            return moves
        self._files.delete(place)
        write(self._files.locate(f"{place}/data"))
        faults.point("spark.written")
        names = list(self._files.walk(f"{place}/data"))
        moves = Moves(results, tuple(Move(name, self._final(batch_id, n, name)) for n, name in enumerate(names)))
        self._files.write(f"{place}/moves", msgspec.json.encode(moves))
        faults.point("spark.staged")
        return moves

    def _final(self, batch_id: int, number: int, name: str) -> str:
        directory, slash, file = name.rpartition("/")
        return f"{directory}{slash}part-{batch_id:012d}-{number:05d}-{self._who}.{_ENDING.sub('', file)}"

    def _publish(self, batch_id: int, moves: Moves) -> None:
        data = f"{self._staged(batch_id)}/data"
        for move in moves.moves:
            source = f"{data}/{move.name}"
            here, there = self._files.size(source), self._files.size(move.to)
            if here is not None and there is not None:  # a move that copies, and was cut short
                self._files.delete(move.to)
            if here is not None:
                self._files.move(source, move.to)
            faults.point("spark.moved")

    def _newest(self) -> Owner | None:
        """Who committed last. Of two records, the older is one that was not yet deleted."""
        batches = self._numbers(self._home, _COMMITTED)
        if not batches:
            return None
        return msgspec.json.decode(self._files.read(f"{self._home}/{_COMMITTED}{batches[-1]}"), type=Owner)

    def _numbers(self, directory: str, kind: str) -> list[int]:
        names = self._files.names(directory)
        return sorted(int(n) for name in names if (n := name.removeprefix(kind)) != name and n.isdecimal())

    def _staged(self, batch_id: int) -> str:
        return f"{self._home}/{_STAGED}{batch_id}"

    def _sweep(self) -> None:
        """What is committed, records that a newer one has replaced, and attempts that came to nothing. Batches are
        committed one after the other: none is under way."""
        for batch in self._numbers(self._home, _STAGED):
            self._files.delete(self._staged(batch))
        for batch in self._numbers(self._home, _COMMITTED)[:-1]:
            self._files.delete(f"{self._home}/{_COMMITTED}{batch}")
        if not self._is_swept:
            self._is_swept = True
            self._sweep_dropped()

    def _sweep_dropped(self) -> None:
        """What queries that had this name before were about to give when they were dropped."""
        timeline, _, id_ = self._home.rpartition("/")
        name, _, number = id_.rpartition("@")
        for other in self._numbers(timeline, f"{name}@"):
            if other < int(number):
                home = f"{timeline}/{name}@{other}"
                for batch in self._numbers(home, _STAGED):
                    self._files.delete(f"{home}/{_STAGED}{batch}")


def results_of(sections: Sequence[Section]) -> str:
    """A name of results that no others have: sections are never written anew."""
    named = hashlib.blake2b(digest_size=8)
    for section in sections:
        named.update(f"{section.place} {section.crc}\n".encode())
    return named.hexdigest()
