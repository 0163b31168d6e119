"""Unit: the streams as of a request, whatever the catalog says already."""

from __future__ import annotations

from dataclasses import replace

import pytest

from thalweg.model.stream import Field, Schema, SourceSpec, Stream
from thalweg.state.requests import DropRequest, Request, StreamRequest
from thalweg.state.stream_changes import dropped_streams, streams_through

OLD = Stream("s", Schema((Field("ts", "timestamp"),)), "ts", 0, SourceSpec("memory", {}))
SLOW = replace(OLD, delay_us=9)
NEW = replace(OLD, incarnation=3)
OTHER = replace(OLD, name="t")
CHANGES: list[tuple[int, Request]] = [
    (1, StreamRequest("s", OLD, SLOW)),
    (2, DropRequest("q")),
    (3, StreamRequest("s", SLOW, None)),
    (4, StreamRequest("s", None, NEW)),
]


@pytest.mark.parametrize(("through", "expected"), [(0, OLD), (1, SLOW), (2, SLOW), (3, None), (4, NEW), (9, NEW)])
@pytest.mark.parametrize("known", [OLD, SLOW, None, NEW])
def test_the_streams_as_of_a_request(through: int, expected: Stream | None, known: Stream | None) -> None:
    """A catalog that was not written yet, or is ahead, makes no difference."""
    catalog = {"t": OTHER, **({"s": known} if known else {})}
    found = streams_through(catalog, CHANGES, through)
    assert found == {"t": OTHER, **({"s": expected} if expected else {})}


def test_without_changes_the_catalog_counts() -> None:
    catalog = {"s": OLD}
    assert streams_through(catalog, [(2, DropRequest("q"))], 0) is catalog


def test_an_alteration_is_no_drop() -> None:
    assert dropped_streams(CHANGES[:2]) == frozenset()
    assert dropped_streams(CHANGES) == {"s"}
    assert dropped_streams([(1, StreamRequest("s", OLD, NEW))]) == {"s"}, "one that is replaced"
    assert (OLD.place, NEW.place) == ("s", "s@3")
