"""State of earlier releases, formats 2 to 4, read as what it is now. Nothing writes them any more.

    manifests/N.json, intents/N.json     a header line with checksum and length, then JSON
    changes.log                          requests, a line each with its checksum
    checkpoint/offsets/N                 Spark's record of how far batch N goes, up to the first manifests that say so
    catalog.json, tables.json            JSON without a header
    identity                             the name of the state: now that of its timeline
    results/N.arrow, results/N-M.arrow   results, which no manifest named

A batch whose intent is there without its manifest may have been seen by sinks: it is repeated once, as the intent
says."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import msgspec

from thalweg.errors import ThalwegError, corrupt_file, missing_offsets, unreadable_offsets, wrong_state_format
from thalweg.model import measurements as sections
from thalweg.model.bucket import Layout, RowBucket, Section, SliceBucket, StoredIndex
from thalweg.model.entry import Entry
from thalweg.model.history import History, RowHistory, SliceHistory, Wanted
from thalweg.model.manifest import READABLE, Manifest, ResultFile, StreamProgress
from thalweg.model.measurements import Measurements
from thalweg.model.offsets import Offsets
from thalweg.model.query import Query, query_from_json
from thalweg.model.stream import Field, Schema
from thalweg.model.window import Window
from thalweg.state.storage import Storage

T = TypeVar("T")
_RESULTS = re.compile(r"results/(\d{12,})(?:-(\d{12,}))?\.arrow")
_LINES = 3


# -- manifests and intents -----------------------------------------------------------------------------------


def read_old_manifest(storage: Storage, batch: int) -> Manifest:
    name = f"manifests/{batch:012d}.json"
    found_format, value = _read(storage, name)
    if value.get("batch") != batch:
        raise corrupt_file(storage.locate(name), f"the manifest of batch {batch}", f"that of {value.get('batch')}")
    return _as(storage, name, "a manifest", lambda: _manifest(storage, found_format, value))


@dataclass(frozen=True)
class OldIntent:
    """What a batch ran with, written down before its sinks saw anything."""

    through: int
    reached: Offsets
    slots: int
    measured: Measurements
    partitioners: Mapping[str, str]
    tables: Mapping[str, tuple[Schema, Section]]


def find_old_intent(storage: Storage, batch: int) -> OldIntent | None:
    """What batch `batch` ran with, if sinks may have seen something of it."""
    name = f"intents/{batch:012d}.json"
    if storage.stamp(name) is None:
        return None
    _, value = _read(storage, name)
    return _as(storage, name, "an intent", lambda: _intent(storage, batch, value))


def _intent(storage: Storage, batch: int, value: Mapping[str, Any]) -> OldIntent:
    reached = value.get("reached")
    return OldIntent(
        through=value["through"],
        reached=read_old_offsets(storage, batch) if reached is None else _offsets(reached),
        slots=value["slots"],
        measured=_measured(value),
        partitioners=value.get("partitioners", {}),
        tables={
            name: (old_schema(t["schema"]), old_section(t["version"])) for name, t in value.get("tables", {}).items()
        },
    )


def _read(storage: Storage, name: str) -> tuple[int, dict[str, Any]]:
    """The format and the body."""
    place = storage.locate(name)
    head, _, rest = storage.read(name).partition(b"\n")
    try:
        header = json.loads(head)
        found_format, crc, length = header["format"], header["crc"], header["length"]
    except (KeyError, TypeError, ValueError) as error:
        raise corrupt_file(place, "a header line", repr(head[:80])) from error
    if found_format not in READABLE[:-1]:
        raise wrong_state_format(place, found_format, READABLE)
    body = rest[:-1]
    if rest[-1:] != b"\n" or len(body) != length or zlib.crc32(body) != crc:
        found = f"{len(body)} bytes with checksum {zlib.crc32(body):08x}"
        raise corrupt_file(place, f"{length} bytes with checksum {crc:08x}", found)
    return int(found_format), json.loads(body)


def _as(storage: Storage, name: str, kind: str, make: Callable[[], T]) -> T:
    try:
        return make()
    except ThalwegError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, msgspec.ValidationError) as error:
        raise corrupt_file(storage.locate(name), kind, f"{type(error).__name__}: {error}") from error


def _manifest(storage: Storage, found_format: int, value: Mapping[str, Any]) -> Manifest:
    extra = value["extra"]
    batch, reached, choices = value["batch"], extra.get("reached"), extra.get("choices")
    return Manifest(
        batch=batch,
        groups=value["groups"],
        hash=value["hash"],
        reached=read_old_offsets(storage, batch) if reached is None else _offsets(reached),
        through=extra.get("through", 0),
        closed=extra.get("closed", {}),
        streams={name: StreamProgress(**p) for name, p in value["streams"].items()},
        buckets=tuple(_slices(b) for b in value["buckets"]),
        stores=tuple(_rows(b) for b in value.get("stores", ())),
        queries={id_: _entry(id_, e) for id_, e in value["queries"].items()},
        history=History(
            {id_: _slice_history(lane) for id_, lane in value["lanes"].items()},
            # Up to format 3 nobody wrote down what the stores had wanted: nothing can be said of their rows.
            {} if choices is None else {n: _row_history(us, choices.get(n)) for n, us in extra["held_from"].items()},
        ),
        measured=_measured(extra),
        results=_results(storage, batch),
        format=found_format,
    )


def old_section(value: Mapping[str, Any]) -> Section:
    return Section(value["file"], value["name"], value["offset"], value["length"], value["rows"], value["crc"])


def _slices(value: Mapping[str, Any]) -> SliceBucket:
    return SliceBucket(
        section=old_section(value["section"]),
        relation=value["grouping"],
        level=value["level"],
        batch_from=value["batches"][0],
        batch_to=value["batches"][1],
        place=value["slot"],
        spans=tuple((start, span) for start, span in value["spans"]),
        offsets=base64.b85decode(value["section"]["meta"]["offsets"]),
    )


def _rows(value: Mapping[str, Any]) -> RowBucket:
    layout, meta = value["layout"], value["section"]["meta"]
    return RowBucket(
        section=old_section(value["section"]),
        relation=value["stream"],
        level=value["level"],
        batch_from=value["batches"][0],
        batch_to=value["batches"][1],
        place=value["part"],
        indexes={id_: StoredIndex(old_section(s), s["meta"]["bits"]) for id_, s in value["indexes"].items()},
        layout=Layout(
            tuple(layout["predicates"]),
            layout["keeps_all"],
            layout["low_us"],
            layout["high_us"],
            layout["closed_us"],
            tuple(layout["queries"]),
        ),
        columns=tuple(meta["columns"]),
        distinct=meta.get("distinct", {}),
    )


def _entry(id_: str, value: Mapping[str, Any]) -> Entry:
    fence = value["fence"]
    return Entry(
        id_,
        query_from_json(value["query"]),
        value["state"],
        value["error"],
        value["created"],
        None if fence is None else (fence[0], fence[1]),
        value["emitted"],
        value.get("complete_from"),
    )


def _slice_history(value: Mapping[str, Any]) -> SliceHistory:
    grids = tuple((g[0], g[1], g[2]) for g in value["grids"])
    return SliceHistory(dict(value["since"]), grids, tuple(Window(*w) for w in value["windows"]))


def _row_history(held_from: int, choices: Sequence[Mapping[str, Any]] | None) -> RowHistory:
    return RowHistory(held_from, None if choices is None else tuple(map(_wanted, choices)))


def _wanted(value: Mapping[str, Any]) -> Wanted:
    return Wanted(tuple(value["predicates"]), value["keeps_all"], frozenset(value["columns"]), value["until"])


def _measured(extra: Mapping[str, Any]) -> Measurements:
    return Measurements(
        combining=sections.Combining(loads=extra.get("loads", {}), shipped=tuple(extra.get("shipped", ()))),
        hot_join_keys=sections.HotJoinKeys(spread=extra.get("spread", {})),
        partitioners=_section(sections.Partitioners, dealing=extra.get("dealing", {})),
        probe_orders=_section(sections.ProbeOrders, joins=extra.get("joins", {}), ordering=extra.get("ordering", {})),
        slot_assignment=sections.SlotAssignment(
            assignment=extra.get("assignment", {}),
            follows=extra.get("follows", {}),
            slots=extra.get("slots", 0),
            moves=sections.Moves(**extra.get("moves", {})),
        ),
    )


def _section(kind: type[T], **values: Any) -> T:
    """One that is not in the form of this release begins anew, as in a manifest of today."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError:
        return kind()


def _results(storage: Storage, batch: int) -> tuple[ResultFile, ...]:
    """The files of results up to a batch, in order. One inside another's range was merged into it before a crash."""
    ranges = []
    for name in storage.names("results/"):
        if match := _RESULTS.fullmatch(name):
            ranges.append((int(match[1]), int(match[2] or match[1]), name))
    found: list[ResultFile] = []
    for first, last, name in sorted(ranges, key=lambda r: (r[0], -r[1])):
        if last <= batch and (not found or first > found[-1].last):
            found.append(ResultFile(name, first, last, 0 if first == last else 1))
    return tuple(found)


# -- offsets -------------------------------------------------------------------------------------------------


def read_old_offsets(storage: Storage, batch: int) -> Offsets:
    """How far batch `batch` goes, as Spark wrote it down: a line `v1`, a line of Spark's own, and the offset."""
    name = f"checkpoint/offsets/{batch}"
    place, data = storage.locate(name), storage.find(name)
    if data is None:
        raise missing_offsets(place, batch)
    lines = data.decode(errors="replace").splitlines()
    if len(lines) != _LINES or lines[0] != "v1":
        raise unreadable_offsets(place, batch, f"{len(lines)} lines, the first is {''.join(lines[:1])[:20]!r}")
    try:
        return _offsets(json.loads(lines[-1]))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise unreadable_offsets(place, batch, f"{type(error).__name__}: {error}") from None


def _offsets(value: Mapping[str, Any]) -> Offsets:
    return Offsets(int(value["tick"]), {str(name): int(units) for name, units in value["streams"].items()})


# -- requests ------------------------------------------------------------------------------------------------


def read_old_requests(storage: Storage) -> list[tuple[int, Query | str]]:
    """The requests in `changes.log` by number: a query to create, or the name of one to drop.

    A last line without its end was never acknowledged."""
    name = "changes.log"
    data = storage.find(name)
    found: list[tuple[int, Query | str]] = []
    last = 0
    for number, line in enumerate((data or b"").split(b"\n")[:-1], 1):
        crc, _, body = line.partition(b" ")
        if crc != b"%08x" % zlib.crc32(body):
            place = storage.locate(name)
            raise corrupt_file(place, f"a request in line {number}", f"a wrong checksum: {line[:60]!r}")
        value = _as(storage, name, "a request", partial(json.loads, body))
        expected = value.get("base", last + 1)
        if value.get("sequence", expected) != expected:
            raise corrupt_file(storage.locate(name), f"request {expected} in line {number}", f"{value['sequence']}")
        last = expected
        if "record" in value:
            found.append((last, _as(storage, name, "a request", partial(_request, value["record"]))))
    return found


def _request(record: Mapping[str, Any]) -> Query | str:
    return query_from_json(record["query"]) if record["op"] == "create" else str(record["name"])


def old_schema(value: Sequence[Sequence[str]]) -> Schema:
    return Schema(tuple(Field(name, type_) for name, type_ in value))


# -- the rest ------------------------------------------------------------------------------------------------


def find_old_identity(storage: Storage) -> str | None:
    """What the state was called by; None where nobody had to know it."""
    data = storage.find("identity")
    if data is not None and re.fullmatch(rb"[0-9a-f]{32}", data) is None:
        raise corrupt_file(storage.locate("identity"), "32 hexadecimal digits", repr(data[:40]))
    return None if data is None else data.decode()


def find_old_json(storage: Storage, name: str, make: Callable[[Any], T]) -> T | None:
    """What an object without a header says."""
    data = storage.find(name)
    return None if data is None else _as(storage, name, "JSON", lambda: make(json.loads(data)))


def forget_old(storage: Storage) -> None:
    """What is of no use once a manifest of this release is there. `changes.log` may hold requests that no batch has
    taken up: it is left to the log of requests."""
    for prefix in ("checkpoint/", "intents/"):
        _delete(storage, storage.names(prefix))
    old = [name for name in storage.names("manifests/") if name.endswith(".json")]
    _delete(storage, [*old, "control.json", "streams.json", "identity"])


def _delete(storage: Storage, names: Sequence[str]) -> None:
    for name in names:
        if storage.stamp(name) is not None:
            storage.delete(name)
