"""Unit: what a task was at is said with its exception, and found again in the text that the driver gets."""

from __future__ import annotations

import traceback

import pytest

from thalweg.engine.failure import root_cause
from thalweg.errors import pipeline_failed
from thalweg.model.trouble import Trouble, consuming, finishing, named_in, reading


def raised(*contexts: object) -> Exception:
    """With the contexts around it, the innermost first."""
    try:
        try:
            raise ValueError("no luck")
        except ValueError as error:
            for context in contexts:
                try:
                    with context:  # type: ignore[attr-defined]
                        raise error
                except ValueError:
                    pass
            raise
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("context", "named", "way_out"),
    [
        (
            reading("/in/a b.parquet", "s"),
            Trouble("/in/a b.parquet", "s"),
            "Mend the file /in/a b.parquet or move it away, or pause or drop the queries over stream 's'",
        ),
        (consuming("s"), Trouble(None, "s"), "Pause or drop the queries over stream 's' (PAUSE QUERY, DROP QUERY)"),
        (finishing(["b@2"]), Trouble(queries=("b",)), "PAUSE QUERY b or DROP QUERY b then start again"),
        (
            finishing([f"q{i}@{i}" for i in range(9)]),
            Trouble(queries=("q0", "q1", "q2", "q3", "q4")),
            "PAUSE QUERY q0 or DROP QUERY q0, and so on with the others that the detail names,",
        ),
    ],
)
def test_what_a_task_was_at_is_named(context: object, named: Trouble, way_out: str) -> None:
    error = raised(context, consuming("other"))
    as_text = "An exception was thrown from the Python worker:\n" + "".join(traceback.format_exception(error))
    for found in (root_cause(error), root_cause(RuntimeError(as_text))):
        assert found.startswith("ValueError: no luck; at ")
        assert named_in(found) == named
        hint = pipeline_failed(found, 7, 2, file=named.file, stream=named.stream, queries=named.queries).hint or ""
        assert hint.startswith("batch 7 has failed 2 times: starting again will not help by itself. ")
        assert way_out in hint
    assert "run again from its beginning" in (pipeline_failed("x", 7, 1).hint or "")
