"""Streams as JSON values, for the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thalweg.model.stream import Field, Schema, SourceSpec, Stream


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
