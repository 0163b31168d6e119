"""The streams that batches read: the session writes the list, whoever plans splits reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from thalweg import errors
from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.state.durable import make_directory, write_json

STREAMS_FILE = "streams.json"
_VERSION = 1


def streams_path(state_dir: str | Path) -> Path:
    return Path(state_dir) / STREAMS_FILE


def source_dir(state_dir: str | Path, stream: str) -> Path:
    """Where the source of a stream keeps all that it must remember."""
    return Path(state_dir) / "sources" / stream


def save_streams(state_dir: str | Path, streams: Iterable[Stream]) -> None:
    """Durable when it returns; a reader sees the old list or the new one."""
    make_directory(Path(state_dir))
    value = {"version": _VERSION, "streams": [stream_to_json(stream) for stream in streams]}
    write_json(streams_path(state_dir), value)


def load_streams(state_dir: str | Path) -> dict[str, Stream]:
    """The registered streams by name; none where nothing was ever saved."""
    path = streams_path(state_dir)
    try:
        value = json.loads(path.read_bytes())
        if value["version"] != _VERSION:
            raise errors.source_registry_unreadable(str(path), f"format version {value['version']}")
        streams = [stream_from_json(item) for item in value["streams"]]
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as failure:
        raise errors.source_registry_unreadable(str(path), repr(failure)) from failure
    return {stream.name: stream for stream in streams}


def remember_stream(state_dir: str | Path, stream: Stream) -> None:
    """Keep the definition beside the source's own files, for batches that outlive the registration."""
    if recall_stream(state_dir, stream.name) != stream:
        directory = make_directory(source_dir(state_dir, stream.name))
        write_json(directory / "stream.json", stream_to_json(stream))


def recall_stream(state_dir: str | Path, name: str) -> Stream | None:
    try:
        return stream_from_json(json.loads((source_dir(state_dir, name) / "stream.json").read_bytes()))
    except FileNotFoundError:
        return None


def stream_to_json(stream: Stream) -> dict[str, Any]:
    return {
        "name": stream.name,
        "schema": [[field.name, field.type] for field in stream.schema.fields],
        "time": stream.time,
        "delay_us": stream.delay_us,
        "source": {"kind": stream.source.kind, "options": dict(stream.source.options)},
    }


def stream_from_json(value: Mapping[str, Any]) -> Stream:
    return Stream(
        name=value["name"],
        schema=Schema(tuple(Field(name, type_) for name, type_ in value["schema"])),
        time=value["time"],
        delay_us=value["delay_us"],
        source=SourceSpec(value["source"]["kind"], value["source"]["options"]),
    )
