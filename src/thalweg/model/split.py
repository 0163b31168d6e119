"""A split: the part of a stream's input that one task reads, as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from thalweg.model.generator import Generator

_BYTES_PER_ROW = 64
"""A guess, to weigh text files, whose rows nobody has counted, against the others."""
_LEAST_BYTES_PER_ROW = 8
"""Of text, which may be compressed."""


class CsvOptions(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    multiline: bool = False
    """Whether there may be line breaks inside quotes."""
    null_value: str = ""


class KeptFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is durable of a source of files."""

    glob: str
    format: str
    max_files_per_batch: int | None
    reader: dict[str, str | bool]
    """`CsvOptions` for CSV, all of them; nothing for the others."""
    missing: str = "null"
    """What becomes of a column that a file lacks: null, or the file is refused."""


class Split(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    stream: str
    kind: str
    """Of files their format: parquet, arrow, json, csv. Otherwise what the kind of source calls it."""
    path: str
    """Of a file; the name of an object for a unit; empty for a generator."""
    start: int
    """First row group, record batch, byte, or row of a unit or a generator; what it counts depends on the kind."""
    end: int
    """One past the last; -1: to the end of the file."""
    rows: int = 0
    """Rows inside, estimated where a file is cut; 0 if nobody knows."""
    bytes: int = 0
    csv: CsvOptions = CsvOptions()
    generator: Generator | None = None
    size: int = -1
    """Of the file when it was seen; -1: nobody looked."""
    modified_ns: int = 0
    """Its time of modification then; 0: nobody looked."""
    refuses_missing: bool = False
    """Whether a file that lacks a column is set aside."""
    is_file: bool = True
    """Whether the path is one that users know."""
    extra: str = ""
    """What else a kind of source from outside wants to tell its reader."""

    @property
    def file(self) -> str | None:
        """The file that messages to users name for a row."""
        return self.path if self.is_file and self.path else None

    @property
    def weight(self) -> int:
        return weigh(self.rows, self.bytes)


def weigh(rows: int, size: int) -> int:
    """About how many rows there are, in so many bytes where nobody has counted them."""
    return max(1, rows or size // _BYTES_PER_ROW)


def dump_splits(splits: Sequence[Split]) -> str:
    return msgspec.json.encode(splits).decode()


def parse_splits(text: str) -> list[Split]:
    return msgspec.json.decode(text, type=list[Split])


def join_splits(texts: Iterable[str]) -> str:
    """The splits of several tasks as those of one."""
    return dump_splits([split for text in texts for split in parse_splits(text)])


def rows_in(texts: Iterable[str]) -> int:
    """Rather too many than too few, where nobody has counted them."""
    splits = (split for text in texts for split in parse_splits(text))
    return sum(split.rows or 1 + split.bytes // _LEAST_BYTES_PER_ROW for split in splits)
