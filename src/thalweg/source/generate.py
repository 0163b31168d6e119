"""Made-up rows as a source: a unit is a row."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from thalweg import errors
from thalweg.kinds.options import read_options
from thalweg.model.generator import GENERATORS, Generator
from thalweg.model.offsets import SourceMark
from thalweg.model.split import Split
from thalweg.model.stream import Schema, SourceSpec, Stream
from thalweg.source.chunks import ROWS_PER_CHUNK, Chunk, Piece, SplitReading, chunks
from thalweg.source.contract import ENDLESS, Source, SourceKind, Units
from thalweg.source.cut import cut_range, rows_per_split
from thalweg.source.generators import generate_rows, schema_of
from thalweg.source.log import folder_of
from thalweg.state.sealed import create_value, is_sealed, unseal
from thalweg.state.storage import Storage


class Generate(Source):
    """Rows that are made up, the same ones for the same seed."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    def spec(self) -> SourceSpec:
        return SourceSpec("generate", msgspec.to_builtins(self._generator))

    def schema(self) -> Schema:
        return schema_of(self._generator)


class _Pace(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stream: str
    first_seen: float
    """The wall-clock time of row 0."""


class _OldPace(msgspec.Struct):
    first_seen: float


class GeneratedUnits(Units):
    """A unit is a row."""

    clock: Callable[[], float] = staticmethod(time.time)

    def __init__(self, stream: Stream, storage: Storage) -> None:
        super().__init__(stream, storage)
        self._name = f"{folder_of(self.place)}pace.json"
        self._generator: Generator = msgspec.convert(stream.source.options, Generator)
        self._pace = self._generator.pace
        self._first_seen = None if self._pace is None else self._find()

    def available(self) -> int:
        rows = self._generator.rows
        total = ENDLESS if rows is None else rows
        if self._pace is None:
            return total
        first_seen = self._first_seen = self._first_seen or self._begin() or self.clock()
        return min(total, int((self.clock() - first_seen) * self._pace))

    def mark(self, consumed: int) -> SourceMark:
        return SourceMark(consumed, self._crc())

    def check(self, mark: SourceMark) -> None:
        """The rows are made up and cannot be lost; since when they come at their pace can."""
        if self._pace is None or not mark.units:
            return
        if self._first_seen is None:
            raise errors.missing_file(self.storage.locate(self._name))
        if self._crc() != mark.crc:
            raise errors.corrupt_file(self.storage.locate(self._name), "the pace that rows came at", "another one")

    def _begin(self) -> float | None:
        """The pace goes on from there after a restart."""
        pace = _Pace(self.stream, self.clock())
        # It is there if an attempt has failed that had made it.
        return pace.first_seen if create_value(self.storage, self._name, "pace", pace) else self._find()

    def _find(self) -> float | None:
        data, place = self.storage.find(self._name), self.storage.locate(self._name)
        if data is None:
            return None
        if not is_sealed(data):
            return _read_old_pace(place, data)
        pace = unseal(place, "pace", data, _Pace)
        if pace.stream != self.stream:
            raise errors.corrupt_file(place, f"the pace of {self.stream}", f"that of {pace.stream}")
        return pace.first_seen

    def _crc(self) -> int:
        return 0 if self._first_seen is None else zlib.crc32(msgspec.json.encode(self._first_seen))

    def limit(self, start: int, end: int) -> int:
        return min(end, start + self._generator.rows_per_batch)

    def splits(self, start: int, end: int, parts: int) -> list[Split]:
        cuts = cut_range(start, end, rows_per_split(end - start, parts))
        of = self._generator
        return [Split(self.stream, "generate", "", low, high, high - low, generator=of) for low, high in cuts]


def _read_old_pace(place: str, data: bytes) -> float:
    try:
        return msgspec.json.decode(data, type=_OldPace).first_seen
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise errors.corrupt_file(place, "a pace", str(error)) from error


class GenerateKind(SourceKind[Any]):
    """Rows that are made up, the same ones for the same seed. `generator` says which; unless given, the name of the
    stream does."""

    name = "generate"
    options = GENERATORS["purchases"]
    changeable = frozenset({"rows_per_batch", "pace"})
    makes_up_times = True

    def structs(self) -> Mapping[str, type[msgspec.Struct]]:
        return {f"{self.name}, {name}": struct for name, struct in GENERATORS.items()}

    def make(self, stream: str, given: Mapping[str, object], schema: Schema | None = None) -> Generate:
        rest = {name: value for name, value in given.items() if name != "generator"}
        return Generate(check_options(str(given.get("generator", stream)), rest))

    def options_of(self, spec: SourceSpec) -> Generator:
        generator: Generator = msgspec.convert(spec.options, Generator)
        return generator

    def written(self, spec: SourceSpec) -> dict[str, object]:
        usual = msgspec.to_builtins(type(self.options_of(spec))())
        given = {
            name: value for name, value in super().written(spec).items() if name == "name" or value != usual[name]
        }
        return {"generator" if name == "name" else name: value for name, value in given.items()}

    def units(self, stream: Stream, storage: Storage) -> GeneratedUnits:
        return GeneratedUnits(stream, storage)

    def read(self, asked: SplitReading, storage: Storage | None) -> Iterator[Chunk]:
        split = asked.split
        for start in range(split.start, split.end, ROWS_PER_CHUNK):
            end = min(split.end, start + ROWS_PER_CHUNK)
            assert split.generator is not None
            rows = generate_rows(split.generator, start, end, asked.columns)
            yield from chunks(Piece(rows, end - start, start), asked, trusted=True)


GENERATE = GenerateKind()


def generate(name: str, **options: Any) -> Generate:
    """Made-up rows of the generator `name`: purchases, ads, ajoin or facts. The same seed gives the same rows.

    rows: how many (None: no end). rows_per_second (1000): of event time, so it does not say how fast they come; pace
    does: rows a second of real time (None: as fast as they are read). rows_per_batch (1,000,000). start: the first
    event time. out_of_order: seconds by which a row may come late. seed. zipf: skew of the keys (0: none).
    Of purchases and ads also users, packs, packs_per_user; of ajoin keys, stream; of facts keys, many: how many
    different values there are.
    """
    return Generate(check_options(name, options))


def check_options(name: str, options: Mapping[str, object]) -> Generator:
    """The generator with all its options; a SourceError for one that makes no sense."""
    struct = GENERATORS.get(name)
    if struct is None:
        raise errors.source_generator_unknown(name, tuple(GENERATORS))

    def refuse(option: str, reason: str, hint: str | None) -> errors.ThalwegError:
        return errors.source_option_invalid(f"generate({name!r})", option, reason, hint)

    start = options.get("start")
    moment = {} if start is None else {"start": _moment(start, refuse)}
    return read_options(struct, {**options, **moment}, refuse)


def _moment(given: object, refuse: Callable[[str, str, str | None], errors.ThalwegError]) -> str:
    try:
        moment = given if isinstance(given, datetime) else datetime.fromisoformat(str(given))
    except ValueError:
        raise refuse("start", f"must be a time as in ISO 8601, not {given!r}", None) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()
