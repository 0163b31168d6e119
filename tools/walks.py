"""The two walks that are metered: a windowed aggregation, and a join of three streams with an aggregation.

    python tools/walks.py              which packages a row meets, in order
    python tools/walks.py --record     asks Spark for what is not recorded yet

The fourth batch is watched, in this process: everything that the tasks do with rows, and how their results reach a
sink. By then there is state to read, and everything that happens once has happened.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

import thalweg
from thalweg.testing import LocalSession
from walk import Walk, walk

RECORDED = Path(__file__).resolve().parent.parent / "tests" / "golden" / "analyser"
BELOW = (
    "batch.local_runner:LocalRunner.run",
    "batch.results:Results.prepare",
    "batch.run:BatchRunner.deliver",
)
"""Where rows come by: the stages, and what brings their results to sinks. Not what is done with reports."""
BATCHES = 4
SECONDS = 10
CASES = {
    "walk of an aggregation": (
        ("a",),
        "SELECT x, sum(v) AS s, window.end AS until FROM a GROUP BY x, window(ts, '20 seconds')",
    ),
    "walk of a 3-way join, aggregated": (
        ("a", "b", "c"),
        "SELECT a.x AS x, sum(c.v) AS s FROM a JOIN b ON a.x = b.x WITHIN 5 SECONDS "
        "JOIN c ON b.y = c.y WITHIN 5 SECONDS GROUP BY a.x, window(a.ts, '20 seconds')",
    ),
}


def walks(open_session: Callable[[], LocalSession]) -> dict[str, Walk]:
    return {name: _walk(open_session(), streams, select) for name, (streams, select) in CASES.items()}


def _walk(session: LocalSession, streams: Sequence[str], select: str) -> Walk:
    for name in streams:
        session.create_stream(name, thalweg.memory(_rows(0).schema), time="ts", watermark="0 seconds")
    session.create_query("q", select)
    for batch in range(BATCHES):
        for name in streams:
            session._parts.feeding.sources[name].append(_rows(batch))
        if batch < BATCHES - 1:
            session.run_available()
    found = walk(session.run_available, below=BELOW)
    assert session.query("q").results().num_rows
    session.stop()
    return found


def _rows(batch: int) -> pa.Table:
    n = np.arange(200)
    times = (batch * SECONDS * 1_000_000 + n * SECONDS * 5_000).astype("datetime64[us]")
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), "x": n % 10, "y": n % 20, "v": n})


def main(arguments: Sequence[str]) -> None:
    record = "--record" in arguments
    for name, found in walks(lambda: LocalSession(recorded=RECORDED, record=record)).items():
        print(f"{name}: {found.hops} changes, {found.functions} functions\n  {' > '.join(found.way)}")


if __name__ == "__main__":
    main(sys.argv[1:])
