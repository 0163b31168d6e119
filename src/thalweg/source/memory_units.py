"""The units of a `memory` source: appended tables, each an object that is created once and never changes.

    sources/<stream>/0000000007.arrow    a container with one section
    sources/<stream>/units               how many there are

The count is written after the unit: a unit beyond it was never acknowledged, a newest one that is missing is lost.
"""

from __future__ import annotations

import contextlib
import re
import zlib

import msgspec
import pyarrow as pa

from thalweg import errors
from thalweg.source.log import folder_of
from thalweg.state.container import MAGIC, container_bytes, delete_container
from thalweg.state.sealed import find_value, write_value
from thalweg.state.storage import Storage

_KIND = "count of units"
_NAME = re.compile(r"(\d{10})\.arrow")


class UnitCount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    stream: str
    units: int


class MemoryUnits:
    """Those of one stream, to add to or to plan with. A task reads one with `state/reader`."""

    def __init__(self, storage: Storage, stream: str) -> None:
        self._storage = storage
        self._stream = stream
        self._pointer = f"{folder_of(stream)}units"
        self._refused: tuple[int, int] | None = None
        """Number and checksum of a unit that could not be added, as long as it may be there."""

    def name(self, number: int) -> str:
        return f"{folder_of(self._stream)}{number:010d}.arrow"

    def count(self) -> int:
        """How many were acknowledged; an earlier release did not write it down, but kept the newest."""
        found = self._find_count()
        if found is None:
            return self._count_old()
        if found and self._storage.stamp(self.name(found - 1)) is None:
            raise errors.missing_file(self._storage.locate(self.name(found - 1)))
        return found

    def settle(self) -> int:
        """The count, with a unit that was made before it could be counted. Only for who adds units."""
        self._take_back()
        known, numbers = self.count(), self._numbers()
        units = max([known, *(number + 1 for number in numbers)])
        for number in range(known, units):
            if number not in numbers:
                raise errors.missing_file(self._storage.locate(self.name(number)))
        if units != self._find_count():
            self._write_count(units)
        return units

    def add(self, number: int, table: pa.Table) -> None:
        """Durable when it returns. If it fails, it is as if it had not been tried, as far as that can be done."""
        name = self.name(number)
        data = container_bytes(name, table)
        try:
            if not self._storage.create(name, data):
                raise errors.source_object_taken(self._storage.locate(name))
            self._write_count(number + 1)
        except OSError:
            self._refused = (number, zlib.crc32(data))
            with contextlib.suppress(OSError):  # else before the next one
                self._take_back()
                if self._find_count() == number + 1:  # somebody may have planned with it: it stays
                    return self._write_count(number + 1)
            raise

    def first(self) -> int:
        """The oldest that has not been given back; 0 where nothing was ever appended."""
        return min(self._numbers(), default=0)

    def delete(self, number: int) -> None:
        delete_container(self._storage, self.name(number))

    def stamp(self) -> object:
        """Another one whenever the count may be."""
        return self._storage.stamp(self._pointer)

    def _numbers(self) -> set[int]:
        folder = folder_of(self._stream)
        matches = (_NAME.fullmatch(name.removeprefix(folder)) for name in self._storage.names(folder))
        return {int(match[1]) for match in matches if match is not None}

    def _find_count(self) -> int | None:
        found = find_value(self._storage, self._pointer, _KIND, UnitCount)
        if found is not None and found.stream != self._stream:
            place = self._storage.locate(self._pointer)
            raise errors.corrupt_file(place, f"the units of {self._stream}", f"those of {found.stream}")
        return None if found is None else found.units

    def _count_old(self) -> int:
        numbers = self._numbers()
        for number in sorted(numbers):  # a container is not written before there is a count
            if self._storage.read(self.name(number), 0, len(MAGIC)) == MAGIC:
                raise errors.missing_file(self._storage.locate(self._pointer))
        return max(numbers, default=-1) + 1

    def _write_count(self, units: int) -> None:
        write_value(self._storage, self._pointer, _KIND, UnitCount(self._stream, units))

    def _take_back(self) -> None:
        """What could not be added must not be there when it is tried again. Never the unit of another handle."""
        if self._refused is None:
            return
        number, crc = self._refused
        if self._find_count() == number and zlib.crc32(self._storage.find(self.name(number)) or b"") == crc:
            self.delete(number)
        self._refused = None
