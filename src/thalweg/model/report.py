"""What the tasks of a batch tell the driver, beside results."""

from __future__ import annotations

from msgspec import Struct

from thalweg.model.bucket import RowBucket, SliceBucket
from thalweg.model.failure import Failures


class ProbeId(Struct, frozen=True, array_like=True):
    """A kind of probe, of which is counted what it found."""

    cohort: str
    known: str
    """The relation by whose key partners were looked for."""
    found: str
    """The relation that they are of."""
    edge: str
    width: int
    """How many relations the tuples were of. 0 where more than the edge had to be equal, and for rows that the
    watermark decides: what these find says nothing of the edge. SAMPLED where some rows were only counted."""


SAMPLED = -1

Counts = dict[str, int]


class StreamSample(Struct, frozen=True, array_like=True):
    """Some rows of a stream that is joined."""

    predicates: tuple[str, ...]
    rows: tuple[bytes, ...]
    """Of each, which of the predicates it satisfies, as bits from the lowest on."""
    seen: int
    """All rows, sampled or not."""
    distinct: dict[str, int]
    """index -> different keys, about."""


class GroupedRows(Struct, frozen=True, array_like=True):
    """What was made of one grouping from rows."""

    rows: int
    keys: int
    """Different ones, about."""
    owners: tuple[int, ...]
    """The same by the slot that finishes their windows."""
    seconds: float = 0.0
    """Of making it."""

    def __add__(self, other: GroupedRows) -> GroupedRows:
        owners = tuple(a + b for a, b in zip(self.owners, other.owners, strict=True))
        return GroupedRows(self.rows + other.rows, self.keys + other.keys, owners, self.seconds + other.seconds)


class SkewReport(Struct, frozen=True, array_like=True):
    """How some rows of a route key lie over keys and slots."""

    rows: int
    """All of them."""
    looked_at: int
    hottest: dict[int, int]
    """Hash of a key -> its rows, of the most frequent keys among those looked at."""
    keys: tuple[int, int]
    """Different keys, of some of which all rows were looked at; and how many rows these were."""
    slots: tuple[int, ...]
    """The rows looked at, by the slot that their key belongs to."""


class ShipmentReport(Struct, frozen=True, array_like=True):
    """Rows of one stream that were sent whole."""

    keys: tuple[str, ...]
    rows: int
    shared: int
    copies: tuple[int, ...]
    sampled: bytes
    """The key groups of some shared rows, 16 bits each, one after the other in the order of `keys`."""
    looked_at: Counts
    together: dict[tuple[str, str], int]
    made: dict[str, tuple[int, int]]
    stayed: dict[str, GroupedRows]
    skews: dict[str, SkewReport]


class ErrorReport(Struct, frozen=True, array_like=True):
    """What ended a task. Errors of the state are kept apart from those of sources."""

    is_state: bool
    message: str
    detail: str | None
    hint: str | None


class SetAside(Struct, frozen=True, array_like=True):
    """Rows or files of a stream that were not let in, all for one kind of reason."""

    stream: str
    kind: str
    """In a word or two: what a user is warned of once."""
    rows: int
    bytes: int
    """That they take in the state."""
    file: str | None
    reason: str
    """Of the first."""

    def __add__(self, other: SetAside) -> SetAside:
        total = self.rows + other.rows, self.bytes + other.bytes
        return SetAside(self.stream, self.kind, *total, self.file, self.reason)


class Lacking(Struct, frozen=True, array_like=True):
    """A file without some columns of its stream, which are null."""

    stream: str
    file: str
    columns: tuple[str, ...]


class IngestReport(Struct, array_like=True):
    task: int
    set_aside: list[SetAside] = []
    """Each stream and kind once."""
    lacking: list[Lacking] = []
    rows: Counts = {}
    """By stream."""
    late: Counts = {}
    untimed: Counts = {}
    """Rows without an event time."""
    max_time_us: Counts = {}
    groups: Counts = {}
    """grouping -> partials made."""
    passed: Counts = {}
    """grouping -> rows that it admitted."""
    making: dict[str, float] = {}
    """grouping that calls users' code -> seconds of making its partials."""
    counted: Counts = {}
    """query -> rows of results that nobody takes."""
    failures: Failures = {}
    kept: list[SliceBucket] = []
    stored: list[RowBucket] = []
    samples: dict[str, StreamSample] = {}
    probing: dict[str, dict[str, list[int]]] = {}
    """stream -> route key -> rows by key group."""
    stayed: dict[str, list[int]] = {}
    """grouping -> partials that did not travel, by slot."""
    shipped: dict[str, ShipmentReport] = {}
    learned: dict[str, bytes] = {}
    """route key -> what its partitioner has learned (`partition/cooperative.Learned`)."""
    sent_bytes: int = 0
    ship_seconds: float = 0.0
    seconds: float = 0.0
    time: dict[str, float] = {}
    """Phase -> seconds."""
    error: ErrorReport | None = None


class SlotReport(Struct, array_like=True):
    slot: int
    stage: int
    task: int
    served: dict[str, GroupedRows] = {}
    """grouping -> what was made of rows that came whole."""
    merged: Counts = {}
    """grouping -> partials that came."""
    kept: list[SliceBucket] = []
    replaced: list[str] = []
    """Names of buckets that kept ones stand for."""
    stores: list[RowBucket] = []
    failures: Failures = {}
    counted: Counts = {}
    probes: dict[ProbeId, tuple[int, int]] = {}
    """Tuples that probed, pairs found."""
    shipped: dict[str, ShipmentReport] = {}
    learned: dict[str, bytes] = {}
    work_seconds: float = 0.0
    seconds: float = 0.0
    time: dict[str, float] = {}
    error: ErrorReport | None = None
