"""Unit: a state of an earlier release whose first batch never came to its manifest."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

import thalweg
from thalweg.testing import LocalSession

SELECT = "SELECT k, v FROM events WHERE v >= 0"
SCHEMA = pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("k", pa.int64()), ("v", pa.int64())])


def request(number: int, record: Mapping[str, Any]) -> bytes:
    """A line of `changes.log`."""
    body = json.dumps({"sequence": number, "record": record}).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def make_old(local: Callable[..., LocalSession], place: Path) -> Path:
    """Streams as they are, and the request as format 4 kept it."""
    session = local(state_dir=place)
    session.create_stream("events", thalweg.memory(SCHEMA), time="ts", watermark="0 seconds")
    query = session.create_query("q", SELECT).definition
    session.stop()
    for file in (place / "requests").iterdir():
        file.unlink()
    (place / "changes.log").write_bytes(request(1, {"op": "create", "query": msgspec.to_builtins(query)}))
    return place


def test_its_requests_are_kept_until_a_batch_has_taken_them(
    local: Callable[..., LocalSession], tmp_path: Path
) -> None:
    place = make_old(local, tmp_path / "state")
    for _ in range(2):
        session = local(state_dir=place)
        assert list(session.queries) == ["q"]
        session.stop()
    session = local(state_dir=place)
    session.create_stream("events", thalweg.memory(SCHEMA), time="ts", watermark="0 seconds")
    session.run_available()
    session.stop()
    assert not (place / "changes.log").exists()
    assert list(local(state_dir=place).queries) == ["q"]


def test_what_its_sinks_may_have_seen_is_repeated(local: Callable[..., LocalSession], tmp_path: Path) -> None:
    """One unit, as the intent says, though there are two by now."""
    place = make_old(local, tmp_path / "state")
    intent = {"through": 1, "reached": {"tick": 1, "streams": {"events": 1}}, "slots": 2}
    body = json.dumps(intent).encode()
    header = {"format": 4, "crc": zlib.crc32(body), "length": len(body)}
    (place / "intents").mkdir()
    (place / "intents" / f"{0:012d}.json").write_bytes(json.dumps(header).encode() + b"\n" + body + b"\n")
    session = local(state_dir=place)
    source = thalweg.memory(SCHEMA)
    session.create_stream("events", source, time="ts", watermark="0 seconds")
    for number in range(2):
        source.append(pa.table({"ts": [number * 1_000_000], "k": [number], "v": [0]}).cast(SCHEMA))
    session.run_available()
    assert [report.rows for report in session._parts.runner.reports if report.rows] == [1, 1]
    assert not list((place / "intents").glob("*"))
