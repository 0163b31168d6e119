"""The manifest as a value: all that is true of a pipeline after a batch. Reading and writing it is the state's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from thalweg.model.bucket import RowBucket, Section, SliceBucket
from thalweg.model.entry import Entry
from thalweg.model.history import History
from thalweg.model.measurements import Measurements
from thalweg.model.offsets import NOTHING, Offsets, SourceMark

FORMAT = 5
"""Of all objects of a state. 1 kept whole rows for percentiles; in 2 every index of a store had row numbers; in 3
partials of joined rows had other names; in 4 a batch had an intent, and little had a checksum."""
READABLE = (2, 3, 4, FORMAT)
"""A directory of each is frozen in the tests; `tests/recovery/freeze.py` makes those of a new one."""
MANIFEST_FORMAT = 6
"""Of manifests, and of no other object: since 6 a bucket may hold rows of a stream, and partials as lanes. A release
that does not know them would pass over what it cannot read, and lose windows: it refuses the manifest."""


class WatermarkReset(Struct, frozen=True, forbid_unknown_fields=True):
    """A watermark that was told to begin anew."""

    batch: int
    """The first under the new one."""
    closed_us: int
    """How far windows had closed: those may be given once more, made of what came since."""


class StreamProgress(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a stream has shown so far."""

    max_time_us: int | None = None
    """The greatest event time seen; None before the first row."""
    rows: int = 0
    late: int = 0
    rejected: int = 0
    """Rows, and whole files, that were set aside."""
    ahead: int = 0
    """Of these, rows too far ahead of the clock."""
    untimed: int = 0
    """Rows without an event time."""
    incomplete: int = 0
    """Files without some of the columns."""
    rejected_bytes: int = 0
    """What is kept of those set aside takes."""
    rejected_from: int = 0
    """Those of batches before are not kept any more."""
    forgotten: int = 0
    """How many these were."""
    active_us: int | None = None
    """The wall clock of the last batch that brought rows, or of the first that it took part in."""
    reset: WatermarkReset | None = None
    """The last time that its watermark began anew."""


class ResultFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A container of the results of all memory queries, of batches `first` to `last`."""

    file: str
    first: int
    last: int
    level: int = 0
    """How often it was merged."""
    queries: tuple[str, ...] = ()
    """Whose results count, of a container that tasks have written; all where there is none."""


class Prepared(Struct, frozen=True, forbid_unknown_fields=True):
    """Results of one query that are durable and that nobody has seen."""

    query: str
    batch: int
    rows: int
    sections: tuple[Section, ...] = ()
    """Where they lie in the state, or"""
    token: str = ""
    """what their sink calls what it has written."""
    parts: tuple[str, ...] = ()
    """What tasks have written where the sink is, and the sink could not take over yet."""
    nbytes: int = 0


@dataclass(frozen=True)
class Manifest:
    batch: int
    groups: int
    """G, the number of key groups: part of state, unlike the number of slots."""
    hash: str
    timeline: str = ""
    term: int = 0
    """Of the session that ran the batch."""
    clock_us: int = 0
    """The wall clock when the batch began."""
    reached: Offsets = NOTHING
    marks: Mapping[str, SourceMark] = field(default_factory=dict)
    """stream -> what is known of its source."""
    through: int = 0
    """The last request that was applied."""
    closed: Mapping[str, int] = field(default_factory=dict)
    """stream -> the watermark that batches have closed windows by."""
    streams: Mapping[str, StreamProgress] = field(default_factory=dict)
    buckets: tuple[SliceBucket, ...] = ()
    stores: tuple[RowBucket, ...] = ()
    queries: Mapping[str, Entry] = field(default_factory=dict)
    history: History = field(default_factory=History)
    measured: Measurements = field(default_factory=Measurements)
    results: tuple[ResultFile, ...] = ()
    undelivered: tuple[Prepared, ...] = ()
    format: int = field(default=FORMAT, compare=False)
    """In which it was written."""

    def files(self) -> frozenset[str]:
        """The containers it names, each once."""
        found = {bucket.section.file for bucket in (*self.buckets, *self.stores)}
        found |= {result.file for result in self.results}
        return frozenset(found | {section.file for p in self.undelivered for section in p.sections})
