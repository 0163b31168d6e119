"""Unit: what a prompt and a notebook show of sessions, queries, streams, results, SHOW and EXPLAIN."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import thalweg
from thalweg.aggregates.families import arities
from thalweg.frontend.functions import FUNCTIONS
from thalweg.observe.shown import Explanation, Shown, table_html, table_text
from thalweg.testing import LocalSession

Open = Callable[..., LocalSession]
START = datetime(2026, 11, 1, tzinfo=UTC)
ROWS = pa.table({"ts": [START + timedelta(seconds=5 * n) for n in range(6)], "k": [1] * 6, "v": list(range(6))})
SUMS = "SELECT k, sum(v) AS s, window.start AS w FROM events GROUP BY k, window(ts, '10 seconds')"


def test_a_table_is_shown_in_rows() -> None:
    table = pa.table({"name": ["a", None], "n": [1, 20], "span": [{"start": START, "end": START}] * 2})
    assert table_text(table).splitlines() == [
        "name   n  span",
        "----  --  ------------------------------------------",
        "a      1  2026-11-01 00:00:00 .. 2026-11-01 00:00:00",
        "NULL  20  2026-11-01 00:00:00 .. 2026-11-01 00:00:00",
    ]
    assert table_text(table.slice(0, 0)).splitlines()[-1] == "no rows"
    assert table_text(pa.table({"n": list(range(25))})).splitlines()[-1] == "and 5 more rows"


def test_values_are_text_and_nothing_else() -> None:
    table = pa.table({"<b>": ["<script>", "\x1b[31mred\nline", "x" * 500]})
    shown = table_html(table)
    assert "<th>&lt;b&gt;</th>" in shown
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    text = table_text(table)
    assert "\x1b" not in text
    assert len(text.splitlines()) == 5
    assert max(map(len, text.splitlines())) == 100


def test_shown_is_the_table_in_all_else() -> None:
    table = pa.table({"k": [1, 2]})
    shown = Shown(table)
    assert repr(shown) == table_text(table)
    assert shown._repr_html_() == table_html(table)
    assert (shown.num_rows, len(shown), shown.column_names) == (2, 2, ["k"])
    assert shown.to_pylist() == [{"k": 1}, {"k": 2}]
    assert shown.select(["k"]) == table
    assert shown["k"].to_pylist() == [1, 2]
    assert shown.to_pandas().shape == (2, 1)
    assert shown == table
    assert shown == Shown(table)
    assert pa.table(shown) == table
    assert copy.copy(shown) == shown


def test_explain_has_line_breaks_at_a_prompt(local: Open) -> None:
    session = local({"events": ROWS}, {"sums": SUMS})
    for text in (session.sql("EXPLAIN"), session.explain("sums"), session.query("sums").explain("mermaid")):
        assert isinstance(text, str)
        assert "\n" in repr(text)
        assert repr(text) == str(text)
        assert text._repr_html_().startswith("<pre>")  # type: ignore[attr-defined]
    assert Explanation("a < b")._repr_html_() == "<pre>a &lt; b</pre>"


def test_a_session_shows_its_streams_and_queries(local: Open) -> None:
    session = local({"events": ROWS}, {"sums": SUMS})
    shown = session._repr_html_()
    assert "&lt;thalweg session in memory://" in shown
    assert "<td>events</td>" in shown
    assert "<td>sums</td>" in shown


def test_a_query_shows_its_results(local: Open, capsys: pytest.CaptureFixture[str]) -> None:
    session = local({"events": ROWS}, {"sums": SUMS})
    session.run_available()
    query = session.query("sums")
    assert isinstance(query.results(), pa.Table)
    assert query.results().to_pandas().shape == (2, 3)
    assert repr(query) == "<query sums: idle>"
    assert "2 rows emitted" in query._repr_html_()
    assert "<td>2026-11-01 00:00:10</td>" in query._repr_html_()
    query.show()
    assert capsys.readouterr().out == table_text(query.results()) + "\n"
    elsewhere = session.create_query("away", SUMS, thalweg.to_noop())
    assert "<table>" not in elsewhere._repr_html_()


def test_a_stream_and_a_table_show_their_columns(local: Open) -> None:
    session = local({"events": ROWS}, watermark="90 seconds")
    assert repr(session.streams["events"]) == (
        "<stream events (ts timestamp, k bigint, v bigint) from memory, watermark 90 s behind ts>"
    )


def test_show_streams_says_the_watermark_in_words(local: Open) -> None:
    session = local({"events": ROWS}, watermark="90 seconds")
    assert session.sql("SHOW STREAMS").to_pylist() == [
        {
            "stream": "events",
            "source": "memory",
            "time": "ts",
            "watermark": "90 seconds behind ts",
            "columns": "ts timestamp, k bigint, v bigint",
        }
    ]


def test_show_functions_lists_the_registries(local: Open) -> None:
    session = local()
    listed = {row["function"]: row for row in session.sql("SHOW FUNCTIONS").to_pylist()}
    assert set(listed) >= set(FUNCTIONS) | set(arities())
    assert listed["upper"] == {"function": "upper", "kind": "scalar", "arguments": "1"}
    assert listed["percentile"]["kind"] == "aggregate"
    assert listed["coalesce"]["arguments"] == "1 or more"
    thalweg.aggregate("shown_total", int, lambda s, b: s, lambda a, b: a + b, lambda s: s, returns="bigint")
    assert {"function": "shown_total", "kind": "own aggregate", "arguments": "any"} in session.sql(
        "SHOW FUNCTIONS"
    ).to_pylist()
