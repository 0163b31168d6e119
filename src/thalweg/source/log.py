"""The log of what a source has offered: numbered objects, each with the entries from its number on.

    sources/<stream>/files/000000000000-000000000191    64 objects that were merged
    sources/<stream>/files/000000000192                 one append, whatever its length

An object never changes. It names itself, so that it is not read in the place of another. Merging writes the whole
first and deletes its parts then: a part beside its whole says what the whole says, and is left out.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from thalweg import errors
from thalweg.model.offsets import SourceMark
from thalweg.state.sealed import seal, unseal
from thalweg.state.storage import Storage

MERGE = 64
"""As many neighbours of a level become one of the next: the number of objects grows with the logarithm of time."""
_TRIES = 5
_NAME = re.compile(r"(\d{12})(?:-(\d{12}))?")
E = TypeVar("E", bound=msgspec.Struct)


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    size: int
    rows: int = 0
    groups: int = 0
    """Parquet row groups; 0: not Parquet, or not readable."""
    modified_ns: int = 0
    """When it was written, as the system says; 0: nobody looked."""


class Landed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A micro-batch of a streaming DataFrame."""

    batch: int
    """Spark's number of it."""
    files: tuple[File, ...]
    """Their paths are relative to the directory."""
    directory: str = ""
    """Where they lie. Empty: beside this log, wherever the state is now."""
    offsets_crc: int | None = None
    """Of the file in which Spark keeps the offsets of the batch; earlier releases did not look."""


class _OldLanded(msgspec.Struct):
    batch: int
    files: list[tuple[str, int, int, int]]


def _old_landed(line: bytes) -> Landed:
    found = msgspec.json.decode(line, type=_OldLanded)
    return Landed(found.batch, tuple(File(path, size, rows, groups) for path, rows, size, groups in found.files))


@dataclass(frozen=True)
class LogKind(Generic[E]):
    folder: str
    entry: type[E]
    read_old: Callable[[bytes], E]
    """A line of `<folder>.log`, in which earlier releases kept the entries."""

    @property
    def label(self) -> str:
        return f"{self.folder} log"


FILES = LogKind("files", File, lambda line: msgspec.json.decode(line, type=File))
LANDED = LogKind("landed", Landed, _old_landed)


def folder_of(place: str) -> str:
    """Where the source of a stream keeps all that it must remember."""
    return f"sources/{place}/"


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    level: int
    """How often its entries were merged."""
    entries: list[msgspec.Raw]
    """As they were written: another release may encode the same entry otherwise, and the checksum is of these."""


@dataclass(frozen=True)
class _Piece:
    """An object of the log, without its entries."""

    name: str
    first: int
    count: int
    level: int


class Log(Generic[E]):
    """The entries of one source, in their order. One may append; one, the same or another, may `tidy`."""

    def __init__(self, storage: Storage, stream: str, kind: LogKind[E]) -> None:
        self._storage = storage
        self._kind = kind
        self._prefix = f"{folder_of(stream)}{kind.folder}/"
        self._decoder = msgspec.json.Decoder(kind.entry)
        self.entries: list[E] = []
        self._crcs = [0]
        """Of the first n entries."""
        self._pieces: list[_Piece] = []
        self._leftovers: list[str] = []
        self._open(f"{folder_of(stream)}{kind.folder}.log")

    # -- reading ---------------------------------------------------------------------------------------------

    def read_new(self) -> list[E]:
        """What somebody else has appended since the last call. It is in `entries`, too."""
        before = len(self.entries)
        while (content := self._find(self._name(len(self.entries)))) is not None:
            self._take(content)
        return self.entries[before:]

    def mark(self) -> SourceMark:
        return SourceMark(len(self.entries), self._crcs[-1])

    def check(self, mark: SourceMark) -> None:
        """Nothing is missing, and nothing else, of what the log held when the mark was made."""
        if len(self.entries) < mark.units:
            raise errors.missing_file(self._storage.locate(self._name(len(self.entries))))
        if self._crcs[mark.units] != mark.crc:
            raise errors.corrupt_file(
                self._storage.locate(self._prefix),
                f"{mark.units} entries with checksum {mark.crc:08x}",
                f"{self._crcs[mark.units]:08x}",
            )

    def _open(self, old: str) -> None:
        lines = self._storage.find(old)  # first: whoever turns it into an object at the same moment deletes it then
        raws = self._load()
        if lines is None:
            return
        before = [msgspec.Raw(msgspec.json.encode(entry)) for entry in self._read_old(old, lines)]
        if before and not raws:
            self._create(before)  # or somebody else did just now
            raws = self._load()
        if [bytes(raw) for raw in raws[: len(before)]] != [bytes(raw) for raw in before]:
            raise errors.corrupt_file(self._storage.locate(old), "the first entries of the log", "other ones")
        self._storage.delete(old)

    def _read_old(self, name: str, lines: bytes) -> list[E]:
        """What a crash left behind the last newline is no entry."""
        try:
            return [self._kind.read_old(line) for line in lines[: lines.rfind(b"\n") + 1].splitlines()]
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise errors.corrupt_file(self._storage.locate(name), "lines of JSON", str(error)) from error

    def _load(self) -> list[msgspec.Raw]:
        """Whoever tidies at the same moment takes parts away that were listed; the whole is listed then."""
        for _ in range(_TRIES):
            try:
                return self._load_listed()
            except _GoneError as gone:
                missing = gone
        raise errors.missing_file(self._storage.locate(missing.name))

    def _load_listed(self) -> list[msgspec.Raw]:
        self.entries, self._crcs, self._pieces, self._leftovers = [], [0], [], []
        raws: list[msgspec.Raw] = []
        for first, name in self._listed():
            if first > len(raws):
                raise errors.missing_file(self._storage.locate(self._name(len(raws))))
            content = self._find(name)
            if first < len(raws):
                self._check_part(name, first, content, raws)
                self._leftovers.append(name)
            elif content is None:
                raise _GoneError(name)
            else:
                self._take(content)
                raws += content.entries
        return raws

    def _listed(self) -> list[tuple[int, str]]:
        """In the order of their first entries; of several with the same one, the widest first."""
        found = []
        for name in self._storage.names(self._prefix):
            match = _NAME.fullmatch(name.removeprefix(self._prefix))
            if match is not None:
                found.append((int(match[1]), -int(match[2] or match[1]), name))
        return [(first, name) for first, _, name in sorted(found)]

    def _check_part(self, name: str, first: int, part: _Content | None, whole: Sequence[msgspec.Raw]) -> None:
        """None: it has been deleted meanwhile."""
        if part is None:
            return
        same = whole[first : first + len(part.entries)]
        if [bytes(raw) for raw in same] != [bytes(raw) for raw in part.entries]:
            raise errors.corrupt_file(
                self._storage.locate(name), "entries that the object before it has", "other ones"
            )

    def _find(self, name: str) -> _Content | None:
        data = self._storage.find(name)
        return None if data is None else self._unseal(name, data)

    def _unseal(self, name: str, data: bytes) -> _Content:
        place = self._storage.locate(name)
        content = unseal(place, self._kind.label, data, _Content)
        if content.name != name:
            raise errors.corrupt_file(place, f"the entries of {name}", f"those of {content.name}")
        if not content.entries:
            raise errors.corrupt_file(place, "entries", "none")
        return content

    def _take(self, content: _Content) -> None:
        for raw in content.entries:
            try:
                self.entries.append(self._decoder.decode(raw))
            except msgspec.DecodeError as error:
                place = self._storage.locate(content.name)
                raise errors.corrupt_file(place, f"entries of a {self._kind.label}", str(error)) from error
            self._crcs.append(zlib.crc32(raw, self._crcs[-1]))
        first = len(self.entries) - len(content.entries)
        self._pieces.append(_Piece(content.name, first, len(content.entries), content.level))

    # -- writing ---------------------------------------------------------------------------------------------

    def append(self, entries: Sequence[E]) -> None:
        """All of them or, after a crash, none. They are durable when it returns."""
        if not entries:
            return
        content = self._create([msgspec.Raw(msgspec.json.encode(entry)) for entry in entries])
        if content is None:
            raise errors.source_object_taken(self._storage.locate(self._name(len(self.entries))))
        self._take(content)

    def _create(self, raws: list[msgspec.Raw]) -> _Content | None:
        content = _Content(self._name(len(self.entries)), 0, raws)
        return content if self._storage.create(content.name, seal(self._kind.label, content)) else None

    def tidy(self) -> None:
        """Merge neighbours where there are many, and delete what merges that were cut off have left."""
        while (at := self._mergeable()) is not None:
            parts = self._pieces[at : at + MERGE]
            self._pieces[at : at + MERGE] = [self._merge(parts)]
            self._leftovers += [part.name for part in parts]
        while self._leftovers:
            self._storage.delete(self._leftovers[-1])
            self._leftovers.pop()

    def _mergeable(self) -> int | None:
        """Where the first run of neighbours of one level begins that is long enough."""
        run = 0
        for at, piece in enumerate(self._pieces):
            run = run + 1 if at and piece.level == self._pieces[at - 1].level else 1
            if run == MERGE:
                return at + 1 - MERGE
        return None

    def _merge(self, run: Sequence[_Piece]) -> _Piece:
        first, count, level = run[0].first, sum(piece.count for piece in run), run[0].level + 1
        name = f"{self._name(first)}-{first + count - 1:012d}"
        parts = [self._unseal(piece.name, self._storage.read(piece.name)) for piece in run]
        whole = _Content(name, level, [raw for part in parts for raw in part.entries])
        # Replaced, if an attempt that failed has left it: its content can only be the same.
        self._storage.write(name, seal(self._kind.label, whole))
        return _Piece(name, first, count, level)

    def _name(self, number: int) -> str:
        return f"{self._prefix}{number:012d}"


class _GoneError(Exception):
    """An object was listed and is not there any more."""

    def __init__(self, name: str) -> None:
        self.name = name
